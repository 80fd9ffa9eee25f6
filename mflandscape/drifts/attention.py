"""Attention as an interaction energy, and softmax attention as a drift."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._types import Scalar
from ..interactions import AbstractInteraction, Dense
from ..kernels import Exponential
from ..measure import Measure, concrete
from .base import AbstractEnergy, AbstractEvaluated, AbstractPotential


class Attention(AbstractEnergy, AbstractEvaluated):
    """Unnormalised self-attention `E[mu] = 1/2 ∬ k_beta(x . B y) dmu dmu`, `k_beta(t) = e^{beta (t - s)}/beta`.
    [paper A, (2.2)]

    `s = 1` without a matrix, else the largest |eigenvalue| of the symmetric `matrix` B (remark 3.4). At beta = 0,
    where the constant `1/beta` is infinite, or with `centred=True`, the energy leaves `1/(2 beta)` out.
    `self_interaction=False` leaves out the terms i = j of the energy; they move no particle.

    Raises:
        ValueError: invalid beta; a matrix that is not square and symmetric, or that the evaluator cannot take;
            `self_interaction=False` with a matrix (its diagonal terms do move particles).
    """

    kernel: Exponential
    interaction: AbstractInteraction
    matrix: Float[Array, "d d"] | None
    self_interaction: bool = eqx.field(static=True)

    def __init__(
        self,
        beta: ArrayLike,
        *,
        interaction: AbstractInteraction | None = None,
        matrix: ArrayLike | None = None,
        self_interaction: bool = True,
        centred: bool = False,
    ):
        if matrix is not None and not self_interaction:
            raise ValueError("self_interaction=False with a matrix: the diagonal terms then move particles; keep them")
        self.kernel, self.matrix = _stretched(beta, matrix, centred)
        self.interaction = Dense() if interaction is None else interaction
        self.self_interaction = self_interaction
        _check_matrix(self.interaction, self.matrix)

    def potential(self, x: Float[Array, "M d"], mu: Measure) -> Float[Array, " M"]:
        """First variation `U[mu](x) = ∫ k_beta(x . B y) dmu(y)`."""
        return self.interaction.apply(self.kernel, x, _keys(self.matrix, mu.x), mu.w[:, None])[:, 0]

    def __call__(self, mu: Measure) -> Scalar:
        """The value `E[mu]`."""
        value = jnp.sum(mu.w * self.potential(mu.x, mu)) / 2
        if self.self_interaction:
            return value
        return value - self.kernel.offset.astype(mu.x.dtype) * jnp.sum(mu.w * mu.w) / 2  # k(1) is the offset

    def prepare(self) -> "Attention":
        """With the evaluator's tables."""
        return eqx.tree_at(lambda a: a.kernel, self, self.interaction.prepare(self.kernel))

    def defect(self, mu: Measure) -> Scalar:
        """The evaluator's neglected tail over its tolerance."""
        return self.interaction.series_tail(_cast(self.kernel, mu))

    def check(self, d: int) -> None:
        """Refuses a dimension that the evaluator or the matrix is not made for."""
        _check_dimension(self.interaction, self.matrix, d)


class SoftmaxAttention(AbstractPotential, AbstractEvaluated):
    """Softmax-normalised self-attention: the drift of potential `(1/beta) log ∫ e^{beta (x . B y - s)} dmu(y)`.
    [paper A, section 6]

    Not the variation of an energy, so it has no value in a sum. For measures of total mass 1. The particle's own
    term is always contained. Raises as `Attention`.
    """

    kernel: Exponential
    interaction: AbstractInteraction
    matrix: Float[Array, "d d"] | None

    def __init__(
        self, beta: ArrayLike, *, interaction: AbstractInteraction | None = None, matrix: ArrayLike | None = None
    ):
        self.kernel, self.matrix = _stretched(beta, matrix, True)
        self.interaction = Dense() if interaction is None else interaction
        _check_matrix(self.interaction, self.matrix)

    def potential(self, x: Float[Array, "M d"], mu: Measure) -> Float[Array, " M"]:
        """`(1/beta) log ∫ e^{beta (x . B y - s)} dmu(y)`; at beta = 0 its limit `∫ (x . B y - s) dmu(y)`."""
        return self.interaction.soft_maximum(self.kernel, x, _keys(self.matrix, mu.x), mu.w)

    def prepare(self) -> "SoftmaxAttention":
        """With the evaluator's tables."""
        return eqx.tree_at(lambda a: a.kernel, self, self.interaction.prepare(self.kernel))

    def defect(self, mu: Measure) -> Scalar:
        """The evaluator's neglected tail, or its normaliser's loss of digits, over the tolerance."""
        kernel = _cast(self.kernel, mu)
        loss = self.interaction.softmax_defect(kernel, _keys(self.matrix, mu.x), mu.w)
        return jnp.maximum(self.interaction.series_tail(kernel), loss)

    def check(self, d: int) -> None:
        """Refuses a dimension that the evaluator or the matrix is not made for."""
        _check_dimension(self.interaction, self.matrix, d)


def _cast(kernel: Exponential, mu: Measure) -> Exponential:
    """The kernel in the dtype of the points, which is what an evaluator's tolerance refers to."""
    return jax.tree.map(lambda v: v.astype(mu.x.dtype), kernel)


def _keys(matrix: Array | None, y: Array) -> Array:
    return y if matrix is None else jnp.matmul(y, matrix.astype(y.dtype), precision="highest")


def _stretched(beta: ArrayLike, matrix: ArrayLike | None, centred: bool) -> tuple[Exponential, Array | None]:
    if matrix is None:
        return Exponential(beta, centred=centred), None
    b = jnp.asarray(matrix)
    if b.ndim != 2 or b.shape[0] != b.shape[1]:
        raise ValueError(f"matrix of shape {b.shape}: expected a symmetric (d, d) matrix B")
    if concrete(b):
        values = np.asarray(b)
        if not np.isfinite(values).all() or np.abs(values - values.T).max() > 1e-12 * max(1.0, np.abs(values).max()):
            raise ValueError("matrix is not finite and symmetric: expected B = B^T; use (B + B^T)/2")
    return Exponential(beta, jnp.max(jnp.abs(jnp.linalg.eigvalsh(b))), centred=centred), b


def _check_matrix(interaction: AbstractInteraction, matrix: Array | None) -> None:
    if matrix is not None:
        interaction.check(matrix.shape[0], True)


def _check_dimension(interaction: AbstractInteraction, matrix: Array | None, d: int) -> None:
    interaction.check(d, matrix is not None)
    if matrix is not None and matrix.shape[0] != d:
        raise ValueError(f"matrix of shape {matrix.shape} for points of dimension {d}: expected ({d}, {d})")
