"""The direct sum over all pairs, whole (`Dense`) or in tiles (`Blocked`)."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics import inner, matmul
from .._types import Scalar
from ..kernels import AbstractKernel, Exponential
from .accumulate import Running, added, nothing, summed
from .base import AbstractInteraction, log_of_mean

NOTHING = -1e30  # logarithm of a massless source's weight: finite, so that derivatives are


class AbstractDirect(AbstractInteraction):
    """What direct sums share: nothing is prepared, nothing truncated, everything taken, logarithms without
    underflow.
    """

    @abc.abstractmethod
    def log_sum(
        self, kernel: Exponential, x: Float[Array, "M d"], y: Float[Array, "N d"], w: Float[Array, " N"]
    ) -> Float[Array, " M"]:
        """`log sum_j w_j e^{beta (t_ij - shift)}`, without underflow at any distance."""

    def soft_maximum(
        self, kernel: Exponential, x: Float[Array, "M d"], y: Float[Array, "N d"], w: Float[Array, " N"]
    ) -> Float[Array, " M"]:
        """By log-sum-exp; for `beta shift < 1/2` from the centred kernel, which keeps all digits down to beta = 0."""
        small = kernel.beta * kernel.shift < 0.5
        # Each branch at a beta it can take: under vmap both are computed, and a NaN would reach the other's gradient.
        low = jnp.where(small, kernel.beta, jnp.zeros_like(kernel.beta))
        high = jnp.where(small, jnp.ones_like(kernel.beta), kernel.beta)
        return jax.lax.cond(
            small,
            lambda: log_of_mean(self, eqx.tree_at(lambda k: k.beta, kernel, low), x, y, w),
            lambda: self.log_sum(eqx.tree_at(lambda k: k.beta, kernel, high), x, y, w) / high.astype(x.dtype),
        )

    def softmax_defect(self, kernel: Exponential, y: Float[Array, "N d"], w: Float[Array, " N"]) -> Scalar:
        """0: accurate at every distance."""
        return jnp.zeros_like(kernel.beta)

    def prepare(self, kernel: AbstractKernel) -> AbstractKernel:
        """The kernel itself."""
        return kernel

    def series_tail(self, kernel: Exponential) -> Scalar:
        """0: nothing is truncated."""
        return jnp.zeros_like(kernel.beta)

    def check(self, d: int, matrix: bool) -> None:
        """Takes every dimension and matrix."""


class Dense(AbstractDirect):
    """All pairs at once: the reference every evaluator is held against. Cost O(M N (d + c)), memory O(M N)."""

    def evaluate(
        self, kernel: AbstractKernel, x: Float[Array, "M d"], y: Float[Array, "N d"], q: Float[Array, "N c"], order: int
    ) -> Float[Array, "M c"]:
        """`k^(order)(x y^T) q`."""
        return matmul(kernel.profile(inner(x, y), order), q)

    def log_sum(
        self, kernel: Exponential, x: Float[Array, "M d"], y: Float[Array, "N d"], w: Float[Array, " N"]
    ) -> Float[Array, " M"]:
        """Log-sum-exp over the sources."""
        return jax.nn.logsumexp(kernel.log_slope(inner(x, y)) + log_weights(w)[None, :], axis=1)


class Blocked(AbstractDirect):
    """All pairs in tiles of `block` by `block`, recomputed in reverse mode. Cost as `Dense`, memory O((M + N)(c + d)
    + block^2).

    Raises:
        ValueError: block < 1.
    """

    block: int = eqx.field(static=True, default=1024)

    def __check_init__(self):
        if self.block < 1:
            raise ValueError(f"block = {self.block}: expected at least 1 point a tile")

    def evaluate(
        self, kernel: AbstractKernel, x: Float[Array, "M d"], y: Float[Array, "N d"], q: Float[Array, "N c"], order: int
    ) -> Float[Array, "M c"]:
        """Tiles summed over sources, mapped over targets; float32 ones accumulated in float64, or compensated."""

        def add(total: Running, xs: Array, ys: Array, qs: Array) -> Running:
            return added(total, matmul(kernel.profile(inner(xs, ys), order), qs))

        return self._sweep(
            add, lambda rows: nothing((rows, q.shape[1])), x, y, q, finish=lambda total: summed(total, q.dtype)
        )

    def log_sum(
        self, kernel: Exponential, x: Float[Array, "M d"], y: Float[Array, "N d"], w: Float[Array, " N"]
    ) -> Float[Array, " M"]:
        """Log-sum-exp merged tile by tile."""

        def add(total: Array, xs: Array, ys: Array, log_w: Array) -> Array:
            return jnp.logaddexp(total, jax.nn.logsumexp(kernel.log_slope(inner(xs, ys)) + log_w[None, :], axis=1))

        return self._sweep(add, lambda rows: jnp.full(rows, NOTHING, x.dtype), x, y, log_weights(w), fill=NOTHING)

    def _sweep(self, add, start, x: Array, y: Array, q: Array, fill: float = 0.0, finish=lambda total: total) -> Array:
        height, width = min(self.block, x.shape[0]), min(self.block, y.shape[0])
        sources = tiles(y, width), tiles(q, width, fill)

        @jax.checkpoint
        def row(xs: Array) -> Array:
            tile = jax.checkpoint(lambda total, source: (add(total, xs, *source), None))
            return finish(jax.lax.scan(tile, start(height), sources)[0])

        return untile(jax.lax.map(row, tiles(x, height)), x.shape[0])


def tiles(v: Array, block: int, fill: float = 0.0) -> Array:
    """Rows in groups of `block`, the last filled up with `fill`: `(n, ...) -> (ceil(n/block), block, ...)`."""
    short = -v.shape[0] % block
    padded = jnp.pad(v, [(0, short)] + [(0, 0)] * (v.ndim - 1), constant_values=fill)
    return padded.reshape(-1, block, *v.shape[1:])


def untile(v: Array, n: int) -> Array:
    """The first `n` rows of grouped rows."""
    return v.reshape(-1, *v.shape[2:])[:n]


def log_weights(w: Float[Array, " N"]) -> Float[Array, " N"]:
    """`log w_j`, with a finite stand-in for massless sources."""
    massive = w > 0
    return jnp.where(massive, jnp.log(jnp.where(massive, w, jnp.ones_like(w))), jnp.full_like(w, NOTHING))
