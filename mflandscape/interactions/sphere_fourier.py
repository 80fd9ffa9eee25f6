"""The sphere `S^2` in double Fourier series: linear in the number of particles, exact to rounding."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Float

from .._types import Scalar
from ..kernels import AbstractKernel, Exponential, largest_beta
from ..special import fourier_modes, series_tail
from .dense import tiles, untile
from .double_fourier import Basis, analysis, basis, gradient, hessian, legendre_table, synthesis, zonal
from .spectral import AbstractSpectral

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
    block: int = eqx.field(static=True, default=512)

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
        block = _block(y.shape[0], self.block)

        @functools.partial(jax.checkpoint, prevent_cse=False)  # it runs in a loop, where nothing can be shared
        def add(total: Array, part: tuple[Array, Array]) -> tuple[Array, None]:
            at = basis(part[0], self._size)
            return total + _moments(part[0], at, part[1].T), None

        start = jnp.zeros((q.shape[1], 2, self._size, 2, 2 * self._size), q.dtype)
        return jnp.moveaxis(jax.lax.scan(add, start, (tiles(y, block), tiles(q, block)))[0], 0, -1)

    def at(
        self, kernel: AbstractKernel, x: Float[Array, "M 3"], moments: Float[Array, "2 J 2 K c"], order: int
    ) -> Float[Array, "M c"]:
        """`sum_l c_l P_l` applied to the moments, at the targets."""
        series = kernel.legendre_series(self.degree, order).astype(moments.dtype)
        series = jnp.pad(series, (0, 2 * self._size - series.shape[0]))
        a = zonal(self._legendre(kernel).astype(moments.dtype), series, jnp.moveaxis(moments, -1, 0))
        jet = a, gradient(a), hessian(a)

        @functools.partial(jax.checkpoint, prevent_cse=False)  # it runs in a loop, where nothing can be shared
        def values(xs: Array) -> Array:
            return _value(xs, basis(xs, self._size), jet).T

        return untile(jax.lax.map(values, tiles(x, _block(x.shape[0], self.block))), x.shape[0])

    def _legendre(self, kernel: AbstractKernel) -> Array:
        if isinstance(kernel, Exponential) and kernel.table is not None:
            return kernel.table[2]
        return legendre_table(self._size, jnp.result_type(float))

    def prepare(self, kernel: Exponential) -> AbstractKernel:
        """The kernel with its Bessel table and the Legendre functions."""
        return kernel.tabulate(self.degree, 3, legendre_table(self._size, jnp.result_type(float)))

    def series_tail(self, kernel: Exponential) -> Scalar:
        """`sum_{l > degree} l (2 l + 1) L_l` over its largest term, in units of the tolerance (1e-16 or 1e-8)."""
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


def _block(n: int, block: int) -> int:
    """The largest divisor of n in (block/2, block], so that nothing need be filled up and copied; else `block`."""
    if n <= block:
        return max(n, 1)
    return next((size for size in range(block, block // 2, -1) if n % size == 0), block)


# The rules below differentiate through `x` alone: `at`, the basis there, is known to be a function of it. Their linear
# parts, once transposed, have no rule any more and are differentiated through `at`.


@eqx.filter_custom_jvp
def _value(x, at, jet):
    """The sum at the points: `(c, n)`."""
    return synthesis(at, jet[0])


@_value.def_jvp
def _value_jvp(primals, tangents):
    x, at, jet = primals
    dx, _, djet = tangents
    out = _value(x, at, jet)
    change = jnp.zeros_like(out)
    if dx is not None:
        change = change + jnp.sum(_slope(x, at, jet) * dx[None], axis=-1)
    if jax.tree.leaves(djet):
        change = change + _value(x, at, djet)
    return out, change


@eqx.filter_custom_jvp
def _slope(x, at, jet):
    """Its derivative, tangent vectors `(c, n, 3)`."""
    parts = jnp.moveaxis(_components(at, jet[1], swap=True), 1, 0)
    return _in_space(at, tuple(parts)) / at.radius[None, :, None]


@_slope.def_jvp
def _slope_jvp(primals, tangents):
    x, at, jet = primals
    dx, _, djet = tangents
    out = _slope(x, at, jet)
    change = jnp.zeros_like(out)
    if dx is not None:
        change = change + _bend(at, jet, dx)
    if jax.tree.leaves(djet):
        change = change + _slope(x, at, djet)
    return out, change


def _bend(at: Basis, jet: Jet, dx: Float[Array, "n 3"]) -> Float[Array, "c n 3"]:
    """Change of the slope along `dx`, of the sum continued by `x/|x|`: the covariant derivative and the frame's own."""
    theta, phi = jnp.moveaxis(_components(at, jet[1], swap=True), 1, 0)
    second, mixed, last = jnp.moveaxis(_components(at, jet[2]), 1, 0)
    u, v, radial = (jnp.sum(dx * e, axis=-1)[None] for e in (*at.along, at.out))
    across = (second * u + mixed * v - radial * theta, mixed * u + last * v - radial * phi)
    change = _in_space(at, (*across, -(theta * u + phi * v)))
    return change / (at.radius**2)[None, :, None]


def _in_space(at: Basis, parts: tuple[Array, ...]) -> Float[Array, "c n 3"]:
    """Vectors from their components along `e_theta`, `e_phi` and, if there is a third, outwards."""
    terms = [part[..., None] * e[None] for part, e in zip(parts, (*at.along, at.out), strict=False)]
    return sum(terms[1:], terms[0])


def _components(at: Basis, a: Float[Array, "c h 2 J 2 K"], swap: bool = False) -> Float[Array, "c h n"]:
    return synthesis(at, a.reshape(-1, *a.shape[2:]), swap).reshape(*a.shape[:2], -1)


@eqx.filter_custom_jvp
def _moments(y, at, q):
    return analysis(at, q)


@_moments.def_jvp
def _moments_jvp(primals, tangents):
    y, at, q = primals
    dy, _, dq = tangents
    out = _moments(y, at, q)
    change = jnp.zeros_like(out)
    if dy is not None:
        change = change + _pull(at, q[:, :, None] * dy[None])
    if dq is not None:
        change = change + _moments(y, at, dq)
    return out, change


def _pull(at: Basis, p: Float[Array, "c n 3"]) -> Float[Array, "c 2 J 2 K"]:
    """The transpose of the slope: `sum_j <p_j, grad Phi(y_j)>`."""
    parts = jnp.einsum("cnd,hnd->chn", p / at.radius[None, :, None], at.along)
    found = analysis(at, parts.reshape(-1, parts.shape[-1]), swap=True)
    zero = jnp.zeros((p.shape[0], *found.shape[1:]), p.dtype)
    return jax.linear_transpose(gradient, zero)(found.reshape(p.shape[0], 2, *found.shape[1:]))[0]
