"""Sums over sources by way of their moments: what evaluators that expand the kernel in modes share."""

import abc
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Scalar
from ..kernels import AbstractKernel, Exponential
from .base import AbstractInteraction, log_of_mean


class AbstractSpectral(AbstractInteraction):
    """`sum_j k(<x_i, y_j>) q_j = <Phi(x_i), C_k sum_j Phi(y_j) q_j>` in modes `Phi`: linear in targets plus sources.

    Points are continued from the sphere by `x/|x|`. Derivatives are those of the two halves, `source` and `at`, which
    are to be differentiable to any order by forward and reverse mode in memory linear in the points.
    """

    dimension: ClassVar[int]  # the one d in which these modes exist

    @abc.abstractmethod
    def source(self, y: Float[Array, "N d"], q: Float[Array, "N c"]) -> Array:
        """The moments of the sources, `sum_j Phi(y_j) q_j`: additive over sources, linear in `q`, last axis c."""

    @abc.abstractmethod
    def at(self, kernel: AbstractKernel, x: Float[Array, "M d"], moments: Array, order: int) -> Float[Array, "M c"]:
        """The sum at the targets."""

    def evaluate(
        self, kernel: AbstractKernel, x: Float[Array, "M d"], y: Float[Array, "N d"], q: Float[Array, "N c"], order: int
    ) -> Float[Array, "M c"]:
        """Moments of the sources, then the series at the targets."""
        return self.at(kernel, x, self.source(y, q), order)

    def apply(
        self,
        kernel: AbstractKernel,
        x: Float[Array, "M d"],
        y: Float[Array, "N d"],
        q: Float[Array, "N c"],
        order: int = 0,
    ) -> Float[Array, "M c"]:
        """The same: the halves have derivatives of their own."""
        return self.evaluate(kernel, x, y, q, order)

    def soft_maximum(
        self, kernel: Exponential, x: Float[Array, "M d"], y: Float[Array, "N d"], w: Float[Array, " N"]
    ) -> Float[Array, " M"]:
        """From the series of the centred kernel: absolute accuracy only, see `softmax_defect`."""
        return log_of_mean(self, kernel, x, y, w)

    def softmax_defect(self, kernel: Exponential, y: Float[Array, "N d"], w: Float[Array, " N"]) -> Scalar:
        """1e-6 over the smallest normaliser: a sum below 1e-6 has lost six of its digits."""
        total = self.apply(kernel, y, y, w[:, None], order=1)
        return 1e-6 / jnp.maximum(jnp.min(total), jnp.asarray(jnp.finfo(total.dtype).tiny, total.dtype))

    def check(self, d: int, matrix: bool) -> None:
        """Refuses other dimensions than its own, and matrices.

        Raises:
            ValueError: another dimension, or a matrix B in the inner product.
        """
        name, where = type(self).__name__, {2: "circle", 3: "sphere"}[self.dimension]
        if d != self.dimension:
            raise ValueError(
                f"{name} on points of dimension {d}: it works on the {where}, d = {self.dimension}; "
                "use Dense or Blocked"
            )
        if matrix:
            raise ValueError(f"{name} with a matrix B: <x, B y> is not a function of an angle; use Dense or Blocked")
