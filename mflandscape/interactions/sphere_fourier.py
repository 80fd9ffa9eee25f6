"""The sphere `S^2` in double Fourier series: linear in the number of particles, exact to rounding."""

import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Float

from ..kernels import largest_beta
from ..special import fourier_modes
from .accumulate import wide
from .dense import tiles, untile
from .double_fourier import basis
from .sphere import AbstractSphere

_GROUP = 32  # blocks summed before they are added to the rest


class SphereFourier(AbstractSphere):
    """`sum_l c_l P_l(<x, y>)` to a degree, in double Fourier series of the angles. [MATH, section 5]

    Sources and targets meet tables of trigonometric functions in matrix products; the kernel acts on the moments by its
    Legendre series. Cost O((M + N) degree^2 c + degree^3 c), memory O((M + N) c + block degree + degree^3): the
    Legendre functions are degree^3 / 2 numbers (`prepare` keeps them, else each call computes them in O(degree^4)). The
    degree is a shape: `SphereFourier.for_beta(largest beta)` takes the least that makes the neglected tail rounding;
    with less, runs say so (`RESULTS.series_truncated`).

    Raises:
        ValueError: degree < 1 or block < 1.
    """

    degree: int = eqx.field(static=True)
    block: int = eqx.field(static=True, default=2048)

    def __check_init__(self):
        if self.degree < 1 or self.block < 1:
            raise ValueError(f"degree = {self.degree}, block = {self.block}: expected both at least 1")

    @classmethod
    def for_beta(cls, beta: ArrayLike, dtype: DTypeLike = np.float64) -> "SphereFourier":
        """The evaluator with the degree that the largest of the given betas needs, chosen by summing the tail.

        Raises:
            ValueError: a traced beta (the degree is a shape and must be known before tracing), or an invalid one.
        """
        return cls(fourier_modes(largest_beta(beta, "SphereFourier"), dtype, d=3))

    def at_points(self, fn: Callable, x: Float[Array, "M 3"], *rows: Array) -> Array:
        """In blocks of points, which reverse mode computes again."""
        return _at_points(fn, self.block, self.size, x, *rows)

    def summed(self, fn: Callable, y: Float[Array, "N 3"], q: Float[Array, "N *c"]) -> Array:
        """In blocks of points, added up in float64 where there is."""
        return _summed(fn, self.block, self.size, y, q)


def _at_points(fn: Callable, block: int, size: int, x: Float[Array, "n 3"], *rows: Array) -> Array:
    """`fn(basis at the points, rows)` in blocks of points, which reverse mode computes again."""
    size_of_block = _block(x.shape[0], block)

    @functools.partial(jax.checkpoint, prevent_cse=False)  # in a loop nothing can be shared
    def part(xs: tuple[Array, ...]) -> Array:
        return fn(basis(xs[0], size), *xs[1:])

    return untile(jax.lax.map(part, tuple(tiles(v, size_of_block) for v in (x, *rows))), x.shape[0])


def _summed(fn: Callable, block: int, size: int, x: Float[Array, "n 3"], q: Array) -> Array:
    """The sum over blocks of points of `fn(basis at the points, q)`, in float64 where there is; sums of many blocks as
    sums of sums, for their rounding.
    """
    group = block * _GROUP if x.shape[0] > block * _GROUP else block
    points = _block(x.shape[0], group)
    parts = tiles(x, points), tiles(q, points)

    def part(x: Array, q: Array) -> Array:
        return _summed(fn, block, size, x, q) if points > block else fn(basis(x, size), q)

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def add(total: Array, rows: tuple[Array, Array]) -> tuple[Array, None]:
        return total + part(*rows).astype(total.dtype), None

    shape = jax.eval_shape(part, *(rows[0] for rows in parts)).shape
    return jax.lax.scan(add, jnp.zeros(shape, wide()), parts)[0].astype(q.dtype)


def _block(n: int, block: int) -> int:
    """The largest divisor of n in (block/2, block], so that nothing need be filled up and copied; else `block`."""
    if n <= block:
        return max(n, 1)
    return next((size for size in range(block, block // 2, -1) if n % size == 0), block)
