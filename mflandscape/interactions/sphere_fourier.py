"""The sphere `S^2` in double Fourier series: linear in the number of particles, exact to rounding."""

import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Float

from .._numerics import dot
from .._types import Scalar
from ..kernels import AbstractKernel, Exponential, largest_beta
from ..special import fourier_modes, series_tail
from .accumulate import wide
from .dense import tiles, untile
from .double_fourier import Basis, analysis, basis, gradient, hessian, legendre_table, synthesis, zonal
from .spectral import AbstractSpectral

_GROUP = 32  # blocks summed before they are added to the rest
Jet = tuple[Array, Array, Array]  # coefficients of a sum over harmonics, of its gradient, of its second derivative


class SphereFourier(AbstractSpectral):
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

    @property
    def _size(self) -> int:
        return self.degree // 2 + 1

    def source(self, y: Float[Array, "N 3"], q: Float[Array, "N c"]) -> Float[Array, "2 J 2 K c"]:
        """Moments `sum_j q_j {cos m phi_j, sin m phi_j} {cos k theta_j, sin k theta_j}`: additive over sources."""
        return jnp.moveaxis(_moments(y, q, size=self._size, block=self.block), 0, -1)

    def at(
        self, kernel: AbstractKernel, x: Float[Array, "M 3"], moments: Float[Array, "2 J 2 K c"], order: int
    ) -> Float[Array, "M c"]:
        """`sum_l c_l P_l` applied to the moments, at the targets."""
        series = kernel.legendre_series(self.degree, order).astype(moments.dtype)
        series = jnp.pad(series, (0, 2 * self._size - series.shape[0]))
        a = zonal(self._legendre(kernel).astype(moments.dtype), series, jnp.moveaxis(moments, -1, 0))
        return _value(x, (a, gradient(a), hessian(a)), block=self.block)

    def _legendre(self, kernel: AbstractKernel) -> Array:
        if isinstance(kernel, Exponential) and kernel.table is not None:
            return kernel.table[2]
        return legendre_table(self._size, jnp.result_type(float))

    def prepare(self, kernel: Exponential) -> AbstractKernel:
        """The kernel with its Bessel table and the Legendre functions."""
        return kernel.tabulate(self.degree, 3, legendre_table(self._size, jnp.result_type(float)))

    def series_tail(self, kernel: Exponential) -> Scalar:
        """`sum_{l > degree} (2 l + 1) L_l max(1, l / beta)`, in units of the tolerance (1e-16 or 1e-8)."""
        return series_tail(kernel.beta, self.degree, d=3)

    def check(self, d: int, matrix: bool) -> None:
        """Refuses dimensions other than 3, and matrices.

        Raises:
            ValueError: d != 3, or a matrix B in the inner product.
        """
        if d != 3:
            raise ValueError(
                f"SphereFourier on points of dimension {d}: it works on the sphere, d = 3; use Dense or Blocked"
            )
        if matrix:
            raise ValueError(
                "SphereFourier with a matrix B: <x, B y> is not a function of an angle; use Dense or Blocked"
            )


@eqx.filter_custom_jvp
def _value(x, jet, *, block):
    """The sum at the points, `(n, c)`."""
    return _at_points(lambda at: synthesis(at, jet[0]).T, block, jet[0].shape[2], x)


@_value.def_jvp
def _value_jvp(primals, tangents, *, block):
    x, jet = primals
    dx, djet = tangents
    out = _value(x, jet, block=block)
    change = jnp.zeros_like(out)
    if dx is not None:
        change = change + jnp.sum(_slope(x, jet, block=block) * dx[:, None], axis=-1)
    if jax.tree.leaves(djet):
        change = change + _value(x, djet, block=block)
    return out, change


@eqx.filter_custom_jvp
def _slope(x, jet, *, block):
    """Its derivative, `(n, c, 3)`: tangent vectors, over `|x|`."""

    def slope(at: Basis) -> Array:
        return _vectors(at, *_components(at, jet[1], swap=True)) / at.radius[:, None, None]

    return _at_points(slope, block, jet[0].shape[2], x)


@_slope.def_jvp
def _slope_jvp(primals, tangents, *, block):
    x, jet = primals
    dx, djet = tangents
    out = _slope(x, jet, block=block)
    change = jnp.zeros_like(out)
    if dx is not None:
        x_over_square = x / jnp.maximum(dot(x, x), jnp.asarray(jnp.finfo(x.dtype).tiny, x.dtype))[:, None]
        outwards = jnp.sum(out * dx[:, None], axis=-1)[..., None] * x_over_square[:, None]
        change = _covariant(x, dx, jet, block) - outwards - dot(x_over_square, dx)[:, None, None] * out
    if jax.tree.leaves(djet):
        change = change + _slope(x, djet, block=block)
    return out, change


def _covariant(x: Float[Array, "n 3"], dx: Float[Array, "n 3"], jet: Jet, block: int) -> Float[Array, "n c 3"]:
    """The covariant derivative of the slope along `dx`."""

    def change(at: Basis, dx: Array) -> Array:
        second, mixed, last = _components(at, jet[2])
        u, v = (dot(dx, e)[:, None] for e in at.along)
        return _vectors(at, second * u + mixed * v, mixed * u + last * v) / (at.radius * at.radius)[:, None, None]

    return _at_points(change, block, jet[0].shape[2], x, dx)


@eqx.filter_custom_jvp
def _moments(y, q, *, size, block):
    """Moments `(c, 2, J, 2, K)`."""
    return _summed(lambda at, q: analysis(at, q.T), block, size, y, q)


@_moments.def_jvp
def _moments_jvp(primals, tangents, *, size, block):
    y, q = primals
    dy, dq = tangents
    out = _moments(y, q, size=size, block=block)
    change = jnp.zeros_like(out)
    if dy is not None:
        change = change + _pull(y, q[:, :, None] * dy[:, None], size, block)
    if dq is not None:
        change = change + _moments(y, dq, size=size, block=block)
    return out, change


def _pull(y: Float[Array, "n 3"], p: Float[Array, "n c 3"], size: int, block: int) -> Float[Array, "c 2 J 2 K"]:
    """The transpose of the slope: `sum_j <p_j, grad Phi(y_j)>`."""

    def components(at: Basis, p: Array) -> Array:
        parts = [dot(p, e[:, None]) / at.radius[:, None] for e in at.along]
        return analysis(at, jnp.stack(parts, axis=-1).reshape(p.shape[0], -1).T, swap=True)

    found = _summed(components, block, size, y, p)
    return jax.linear_transpose(gradient, found[::2])(found.reshape(-1, 2, *found.shape[1:]))[0]


def _components(at: Basis, a: Float[Array, "c h 2 J 2 K"], swap: bool = False) -> Float[Array, "h n c"]:
    values = synthesis(at, a.reshape(-1, *a.shape[2:]), swap)
    return values.reshape(*a.shape[:2], -1).transpose(1, 2, 0)


def _vectors(at: Basis, theta: Float[Array, "n c"], phi: Float[Array, "n c"]) -> Float[Array, "n c 3"]:
    e, f = at.along[:, :, None]
    return theta[..., None] * e + phi[..., None] * f


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
