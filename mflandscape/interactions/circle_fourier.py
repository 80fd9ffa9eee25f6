"""The circle in Fourier modes: linear in the number of particles, exact to rounding."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Float

from ..kernels import largest_beta
from ..special import fourier_modes
from .accumulate import accumulate, by_rows, equal_block, rows, wide
from .circle import AbstractCircle
from .circle_bins import add_powers, at_points, empty_table, nodes_for, series_table, table_moments
from .circle_products import loop_series, product_moments, product_series

# Measured on two CPU cores: where the grid pays, and up to how many modes a loop over them is faster than the products.
_GRID_MODES, _GRID_COST, _GRID_CHARGES, _LOOP = 60, 200, 8, 150


class CircleFourier(AbstractCircle):
    """`sum_k c_k Re(M_k conj(z^k))` with moments `M_k = sum_j q_j z_j^k`, `z = x_0 + i x_1`. [Jacobi-Anger; MATH,
    section 4]

    For many points on a CPU, moments and series go by way of an even grid (`circle_bins`): cost O((M + N) c) whatever
    the number of modes, which enters by a few FFTs only. Otherwise the modes are summed in products of short tables
    or, a series of few of them, in a loop: O((M + N) K c). Memory O((M + N) c + block sqrt(K) c + K c). Moments of
    float32 points are accumulated in float64, or by compensated summation where x64 is disabled. The number of modes
    is a shape: `CircleFourier.for_beta(largest beta)` takes as many as make the neglected tail rounding; with fewer,
    runs say so (`RESULTS.series_truncated`).

    `block` is the number of points at once on a CPU (64 times as many elsewhere); `backend` is the kind of device
    whose schemes are taken, by default the one that JAX runs on.

    Raises:
        ValueError: modes < 1 or block < 1.
    """

    modes: int = eqx.field(static=True)
    block: int = eqx.field(static=True, default=4096)
    backend: str | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if self.modes < 1 or self.block < 1:
            raise ValueError(f"modes = {self.modes}, block = {self.block}: expected both at least 1")

    @classmethod
    def for_beta(cls, beta: ArrayLike, dtype: DTypeLike = np.float64) -> "CircleFourier":
        """The evaluator with the modes that the largest of the given betas needs, chosen by summing the tail.

        Raises:
            ValueError: a traced beta (the number of modes is a shape and must be known before tracing), or an
                invalid one.
        """
        return cls(fourier_modes(largest_beta(beta, "CircleFourier"), dtype))

    def moments(self, y: Float[Array, "N 2"], q: Float[Array, "N c"]) -> Float[Array, "K 2 c"]:
        """`sum_j q_j (cos k theta_j, sin k theta_j)`, k = 0..modes."""
        # Not on a GPU: its scattered additions come in any order, and two runs would differ in their last bits.
        if self._on_cpu and self._grid_pays(*q.shape):
            return self._grid_moments(y, q)
        block = self._block(*q.shape)
        part = lambda i: product_moments(rows(y, i, block), rows(q, i, block, mask=True), self.modes)  # noqa: E731
        return accumulate(part, -(-y.shape[0] // block))

    def series(self, x: Float[Array, "M 2"], a: Float[Array, "K 2 c"]) -> Float[Array, "M c"]:
        """`sum_k a_k0 cos k theta_i + a_k1 sin k theta_i`."""
        size = x.shape[0], a.shape[2]
        if self._grid_pays(*size):
            table = series_table(a)
            return by_rows(lambda xs: at_points(table, xs), x, self._block(*size))
        if self.modes <= _LOOP:
            group = 4 if self._on_cpu else 64
            return by_rows(lambda xs: loop_series(xs, a, group), x, self._block(*size))
        return by_rows(lambda xs: product_series(xs, a), x, self._block(*size))

    def _grid_moments(self, y: Array, q: Array) -> Array:
        """Added to one table in float64; without it, a table for each share of the points, compensated."""
        n, c = q.shape
        whole = n if wide() == jnp.float64 else min(n, max(self.block, nodes_for(self.modes)))
        block = equal_block(whole, self.block, 2)

        def table(i: Array) -> Array:
            ys, qs = rows(y, i, whole), rows(q, i, whole, mask=True)
            add = lambda t, j: (add_powers(t, rows(ys, j, block), rows(qs, j, block, mask=True)), None)  # noqa: E731
            start = empty_table(self.modes, c, q.dtype)
            return jax.lax.scan(add, start, jnp.arange(-(-whole // block), dtype=jnp.int32))[0]

        return table_moments(accumulate(table, -(-n // whole)), self.modes, q.dtype)

    @property
    def _on_cpu(self) -> bool:
        return (self.backend or jax.default_backend()) == "cpu"

    def _grid_pays(self, n: int, c: int) -> bool:
        return n * (self.modes - _GRID_MODES) >= _GRID_COST * nodes_for(self.modes) and c <= _GRID_CHARGES

    def _block(self, n: int, c: int) -> int:
        """Points at once: equal shares. On a CPU of two blocks at least: in a loop each part is compiled once, where
        one expression without a loop computes some of them again for each of their uses (twice the time).
        """
        largest = max(64, (self.block if self._on_cpu else 64 * self.block) // max(c, 1))
        return equal_block(n, largest, 2 if self._on_cpu else 1)
