"""The seam that carries all performance work: `sum_j k(<x_i, y_j>) q_j`, differentiable to any order."""

import abc
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._types import Scalar
from ..kernels import AbstractKernel, Exponential, KernelTangent, relative_logarithm


class AbstractInteraction(eqx.Module):
    """How a kernel is summed over sources. Evaluators differ in cost, never in result (float64: 1e-12).

    A new evaluator implements `evaluate` (and what it cannot take in `check`); `apply` adds the derivatives, by one
    closed rule where the kernel is evaluated directly (here), by those of the modes where it is expanded
    (`AbstractSpectral`). Points lie on the sphere; away from it evaluators continue the sum differently, so
    differentiate along the sphere: through `x/|x|`, or with tangents projected on the input and output side.
    """

    @abc.abstractmethod
    def evaluate(
        self, kernel: AbstractKernel, x: Float[Array, "M d"], y: Float[Array, "N d"], q: Float[Array, "N c"], order: int
    ) -> Float[Array, "M c"]:
        """`sum_j k^(order)(<x_i, y_j>) q_j`, linear in signed `q`."""

    @abc.abstractmethod
    def soft_maximum(
        self, kernel: Exponential, x: Float[Array, "M d"], y: Float[Array, "N d"], w: Float[Array, " N"]
    ) -> Float[Array, " M"]:
        """`(1/beta) log sum_j w_j e^{beta (t_ij - shift)}` for `w >= 0` of sum 1; at beta = 0 the mean of `t -
        shift`.
        """

    @abc.abstractmethod
    def softmax_defect(self, kernel: Exponential, y: Float[Array, "N d"], w: Float[Array, " N"]) -> Scalar:
        """Above 1 where `soft_maximum` at the sources is less accurate than 1e-10 relative (a spectral sum that
        nearly vanishes).
        """

    @abc.abstractmethod
    def prepare(self, kernel: AbstractKernel) -> AbstractKernel:
        """The kernel with whatever this evaluator needs of it computed once, before a time loop."""

    @abc.abstractmethod
    def series_tail(self, kernel: AbstractKernel) -> Scalar:
        """Neglected tail of a truncated series over the tail that counts as rounding: above 1 the sum is short; 0 if
        nothing is truncated.
        """

    @abc.abstractmethod
    def check(self, d: int, matrix: bool) -> None:
        """Refuse (ValueError) a dimension, or a matrix in the inner product, that this evaluator cannot take."""

    def apply(
        self,
        kernel: AbstractKernel,
        x: Float[Array, "M d"],
        y: Float[Array, "N d"],
        q: Float[Array, "N c"],
        order: int = 0,
    ) -> Float[Array, "M c"]:
        """`sum_j k^(order)(<x_i, y_j>) q_j`, differentiable to any order in `x`, `y`, `q` and the kernel's
        parameters.
        """
        return _apply(kernel, x, y, q, interaction=self, order=order)


@eqx.filter_custom_jvp
def _apply(kernel, x, y, q, *, interaction, order):
    return interaction.evaluate(kernel, x, y, q, order)


@_apply.def_jvp
def _apply_jvp(primals, tangents, *, interaction, order):
    """d/dx: `apply(k', x, y, q (x) y)`; d/dy: `<x, apply(k', x, y, q (x) dy)>`; d/dq: itself; d/dkernel: a kernel
    again.
    """
    kernel, x, y, q = primals
    dkernel, dx, dy, dq = tangents
    out = interaction.apply(kernel, x, y, q, order)
    change = jnp.zeros_like(out)
    if dx is not None:
        slope = interaction.apply(kernel, x, y, _outer(q, y), order + 1)
        change = change + jnp.sum(slope.reshape(*out.shape, x.shape[1]) * dx[:, None, :], axis=-1)
    if dy is not None:
        moved = interaction.apply(kernel, x, y, _outer(q, dy), order + 1)
        change = change + jnp.sum(moved.reshape(*out.shape, x.shape[1]) * x[:, None, :], axis=-1)
    if dq is not None:
        change = change + interaction.apply(kernel, x, y, dq, order)
    for direction, size in _parameters(dkernel):
        change = change + size.astype(q.dtype) * interaction.apply(KernelTangent(kernel, direction), x, y, q, order)
    return out, change


def _parameters(dkernel: PyTree) -> Iterator[tuple[PyTree, Scalar]]:
    """The kernel's moving parameters one by one: a unit direction and how far. So every sum in the rule is linear in
    its charges alone, and evaluators need no other transpose. (Array parameters: their own direction, as far as 1.)
    """
    leaves, form = jax.tree.flatten(dkernel, is_leaf=lambda v: v is None)
    for i, leaf in enumerate(leaves):
        if leaf is not None:
            one = jnp.ones((), leaf.dtype)
            unit, size = (one, leaf) if leaf.ndim == 0 else (leaf, one)
            yield jax.tree.unflatten(form, [unit if j == i else None for j in range(len(leaves))]), size


def _outer(q: Float[Array, "N c"], y: Float[Array, "N d"]) -> Float[Array, "N cd"]:
    return (q[:, :, None] * y[:, None, :]).reshape(q.shape[0], -1)


def log_of_mean(
    interaction: AbstractInteraction,
    kernel: Exponential,
    x: Float[Array, "M d"],
    y: Float[Array, "N d"],
    w: Float[Array, " N"],
) -> Float[Array, " M"]:
    """`(1/beta) log(1 + beta A)`, `A` the potential of the centred kernel: the soft maximum, as long as the sum is
    not tiny.
    """
    centred = interaction.apply(kernel.centre(), x, y, w[:, None])[:, 0]
    return centred * relative_logarithm(kernel.beta.astype(x.dtype) * centred)
