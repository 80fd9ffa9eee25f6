"""The perceptron block: an external potential, or (free output vectors) a field only."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._numerics import inner, matmul
from .._types import Scalar
from ..activations import AbstractActivation
from ..activations import activation as find_activation
from ..measure import Measure, as_floating, concrete
from .base import AbstractDrift, AbstractEnergy, AbstractSized


class Perceptron(AbstractEnergy, AbstractSized):
    """`P[mu] = 1/2 ∫ v dmu`, `v(x) = sum_j omega_j phi(a_j . x + b_j)`, `phi' = 2 sigma`: drift `sum_j omega_j
    sigma(a_j . x + b_j) a_j`. [paper A, (2.4)]

    Args:
        a: input vectors `(J, d)`, used as given (not normalised).
        omega: output weights `(J,)`.
        bias: `(J,)`, zero by default.
        activation: a name (`"relu"`, `"gelu"`, ...), an activation, or any function `sigma`.

    Raises:
        ValueError: shapes that do not agree, entries that are not finite, an unknown activation.
    """

    a: Float[Array, "J d"]
    omega: Float[Array, " J"]
    bias: Float[Array, " J"]
    activation: AbstractActivation

    def __init__(self, a: ArrayLike, omega: ArrayLike, bias: ArrayLike | None = None, activation="relu"):
        self.a, self.bias = _inputs(a, bias)
        self.omega = _outputs(omega, self.a.shape[:1], "omega", self.a.dtype)
        self.activation = find_activation(activation)

    def potential(self, x: Float[Array, "M d"], mu: Measure) -> Float[Array, " M"]:
        """First variation `v(x)/2`, the same for every measure."""
        return matmul(self.activation.primitive(_preactivation(self, x)), self.omega.astype(x.dtype)) / 2

    def __call__(self, mu: Measure) -> Scalar:
        """The value `1/2 ∫ v dmu`."""
        return jnp.sum(mu.w * self.potential(mu.x, mu))

    def check(self, d: int) -> None:
        """Refuses points of another dimension."""
        _check_dimension(self.a, d)


class FreePerceptron(AbstractDrift, AbstractSized):
    """The perceptron with free output vectors: drift `sum_j sigma(a_j . x + b_j) w_j`; no energy. [paper A, (1.3)]

    Args:
        a: input vectors `(J, d)`. w: output vectors `(J, d)`. bias: `(J,)`. activation: as `Perceptron`.

    Raises:
        ValueError: as `Perceptron`.
    """

    a: Float[Array, "J d"]
    w: Float[Array, "J d"]
    bias: Float[Array, " J"]
    activation: AbstractActivation

    def __init__(self, a: ArrayLike, w: ArrayLike, bias: ArrayLike | None = None, activation="relu"):
        self.a, self.bias = _inputs(a, bias)
        self.w = _outputs(w, self.a.shape, "w", self.a.dtype)
        self.activation = find_activation(activation)

    def field(self, x: Float[Array, "M d"], mu: Measure) -> Float[Array, "M d"]:
        """`sum_j sigma(a_j . x + b_j) w_j`."""
        return matmul(self.activation(_preactivation(self, x)), self.w.astype(x.dtype))

    def check(self, d: int) -> None:
        """Refuses points of another dimension."""
        _check_dimension(self.a, d)


def _preactivation(perceptron: Perceptron | FreePerceptron, x: Array) -> Array:
    return inner(x, perceptron.a.astype(x.dtype)) + perceptron.bias.astype(x.dtype)[None, :]


def _inputs(a: ArrayLike, bias: ArrayLike | None) -> tuple[Array, Array]:
    a = as_floating(a)
    if a.ndim != 2 or a.shape[0] < 1:
        raise ValueError(f"a of shape {a.shape}: expected (J, d) with at least one neuron")
    _check_finite(a, "a")
    return a, _outputs(jnp.zeros(a.shape[0], a.dtype) if bias is None else bias, a.shape[:1], "bias", a.dtype)


def _outputs(value: ArrayLike, shape: tuple[int, ...], name: str, dtype: np.dtype) -> Array:
    value = jnp.asarray(value, dtype)
    if value.shape != shape:
        raise ValueError(f"{name} of shape {value.shape}: expected {shape}, to go with a")
    _check_finite(value, name)
    return value


def _check_finite(value: Array, name: str) -> None:
    if concrete(value) and not np.isfinite(np.asarray(value)).all():
        raise ValueError(f"{name} has entries that are not finite: expected finite weights")


def _check_dimension(a: Array, d: int) -> None:
    if a.shape[1] != d:
        raise ValueError(
            f"perceptron weights of dimension {a.shape[1]} for points of dimension {d}: expected a of shape (J, {d})"
        )
