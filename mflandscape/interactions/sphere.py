"""What evaluators on the sphere `S^2` share: the kernel on double Fourier series, and the derivatives of its sums."""

import abc
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics import dot
from .._types import Scalar
from ..kernels import AbstractKernel, Exponential
from ..special import series_tail
from .double_fourier import AbstractPoints, gradient, hessian, legendre_table, zonal
from .spectral import AbstractSpectral

Jet = tuple[Array, Array, Array]  # coefficients of a sum over harmonics, of its gradient, of its second derivative


class AbstractSphere(AbstractSpectral):
    """`sum_l c_l P_l(<x, y>)` to a degree, in double Fourier series of the angles. [MATH, section 5]

    The kernel acts on the moments by its Legendre series. An evaluator says how series are summed over points, by
    `at_points` and `summed`. Derivatives are closed: those of the values are a series again, of vectors, those of the
    moments are its transpose; so are second ones, in memory linear in the points.
    """

    dimension: ClassVar[int] = 3
    degree: eqx.AbstractVar[int]

    @abc.abstractmethod
    def at_points(self, fn: Callable, x: Float[Array, "M 3"], *rows: Array) -> Array:
        """`fn(points, *rows)`, each of whose rows belongs to a point; `points` are `AbstractPoints` with J = size."""

    @abc.abstractmethod
    def summed(self, fn: Callable, y: Float[Array, "N 3"], q: Float[Array, "N *c"]) -> Array:
        """`fn(points, q)`, a sum over points."""

    @property
    def size(self) -> int:
        """The number J of orders m of each parity."""
        return self.degree // 2 + 1

    def source(self, y: Float[Array, "N 3"], q: Float[Array, "N c"]) -> Float[Array, "2 J 2 K c"]:
        """Moments `sum_j q_j {cos m phi_j, sin m phi_j} {cos k theta_j, sin k theta_j}`: additive over sources."""
        return jnp.moveaxis(_moments(y, q, sums=self), 0, -1)

    def at(
        self, kernel: AbstractKernel, x: Float[Array, "M 3"], moments: Float[Array, "2 J 2 K c"], order: int
    ) -> Float[Array, "M c"]:
        """`sum_l c_l P_l` applied to the moments, at the targets."""
        series = kernel.legendre_series(self.degree, order).astype(moments.dtype)
        series = jnp.pad(series, (0, 2 * self.size - series.shape[0]))
        a = zonal(self._legendre(kernel).astype(moments.dtype), series, jnp.moveaxis(moments, -1, 0))
        return _value(x, (a, gradient(a), hessian(a)), sums=self)

    def _legendre(self, kernel: AbstractKernel) -> Array:
        if isinstance(kernel, Exponential) and kernel.table is not None:
            return kernel.table[2]
        return legendre_table(self.size, jnp.result_type(float))

    def prepare(self, kernel: Exponential) -> AbstractKernel:
        """The kernel with its Bessel table and the Legendre functions."""
        return kernel.tabulate(self.degree, 3, legendre_table(self.size, jnp.result_type(float)))

    def series_tail(self, kernel: Exponential) -> Scalar:
        """`sum_{l > degree} (2 l + 1) L_l max(1, l / beta)`, in units of the tolerance (1e-16 or 1e-8)."""
        return series_tail(kernel.beta, self.degree, d=3)


@eqx.filter_custom_jvp
def _value(x, jet, *, sums):
    """The sum at the points, `(n, c)`."""
    return sums.at_points(lambda at: at.synthesis(jet[0]).T, x)


@_value.def_jvp
def _value_jvp(primals, tangents, *, sums):
    x, jet = primals
    dx, djet = tangents
    out = _value(x, jet, sums=sums)
    change = jnp.zeros_like(out)
    if dx is not None:
        change = change + jnp.sum(_slope(x, jet, sums=sums) * dx[:, None], axis=-1)
    if jax.tree.leaves(djet):
        change = change + _value(x, djet, sums=sums)
    return out, change


@eqx.filter_custom_jvp
def _slope(x, jet, *, sums):
    """Its derivative, `(n, c, 3)`: tangent vectors, over `|x|`."""

    def slope(at: AbstractPoints) -> Array:
        return _vectors(at, *_components(at, jet[1], swap=True)) / at.radius[:, None, None]

    return sums.at_points(slope, x)


@_slope.def_jvp
def _slope_jvp(primals, tangents, *, sums):
    x, jet = primals
    dx, djet = tangents
    out = _slope(x, jet, sums=sums)
    change = jnp.zeros_like(out)
    if dx is not None:
        x_over_square = x / jnp.maximum(dot(x, x), jnp.asarray(jnp.finfo(x.dtype).tiny, x.dtype))[:, None]
        outwards = jnp.sum(out * dx[:, None], axis=-1)[..., None] * x_over_square[:, None]
        change = _covariant(x, dx, jet, sums) - outwards - dot(x_over_square, dx)[:, None, None] * out
    if jax.tree.leaves(djet):
        change = change + _slope(x, djet, sums=sums)
    return out, change


def _covariant(
    x: Float[Array, "n 3"], dx: Float[Array, "n 3"], jet: Jet, sums: AbstractSphere
) -> Float[Array, "n c 3"]:
    """The covariant derivative of the slope along `dx`."""

    def change(at: AbstractPoints, dx: Array) -> Array:
        second, mixed, last = _components(at, jet[2])
        u, v = (dot(dx, e)[:, None] for e in at.along)
        return _vectors(at, second * u + mixed * v, mixed * u + last * v) / (at.radius * at.radius)[:, None, None]

    return sums.at_points(change, x, dx)


@eqx.filter_custom_jvp
def _moments(y, q, *, sums):
    """Moments `(c, 2, J, 2, K)`."""
    return sums.summed(lambda at, q: at.analysis(q.T), y, q)


@_moments.def_jvp
def _moments_jvp(primals, tangents, *, sums):
    y, q = primals
    dy, dq = tangents
    out = _moments(y, q, sums=sums)
    change = jnp.zeros_like(out)
    if dy is not None:
        change = change + _pull(y, q[:, :, None] * dy[:, None], sums)
    if dq is not None:
        change = change + _moments(y, dq, sums=sums)
    return out, change


def _pull(y: Float[Array, "n 3"], p: Float[Array, "n c 3"], sums: AbstractSphere) -> Float[Array, "c 2 J 2 K"]:
    """The transpose of the slope: `sum_j <p_j, grad Phi(y_j)>`."""

    def components(at: AbstractPoints, p: Array) -> Array:
        parts = [dot(p, e[:, None]) / at.radius[:, None] for e in at.along]
        return at.analysis(jnp.stack(parts, axis=-1).reshape(p.shape[0], -1).T, swap=True)

    found = sums.summed(components, y, p)
    return jax.linear_transpose(gradient, found[::2])(found.reshape(-1, 2, *found.shape[1:]))[0]


def _components(at: AbstractPoints, a: Float[Array, "c h 2 J 2 K"], swap: bool = False) -> Float[Array, "h n c"]:
    values = at.synthesis(a.reshape(-1, *a.shape[2:]), swap)
    return values.reshape(*a.shape[:2], -1).transpose(1, 2, 0)


def _vectors(at: AbstractPoints, theta: Float[Array, "n c"], phi: Float[Array, "n c"]) -> Float[Array, "n c 3"]:
    e, f = at.along[:, :, None]
    return theta[..., None] * e + phi[..., None] * f
