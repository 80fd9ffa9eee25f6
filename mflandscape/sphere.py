"""Geometry of the unit sphere `S^{d-1}`, `d >= 2`: maps, distances, bases, sampling, and the charts in which
particles move.

Angles and distances are in radians. Every map is differentiable with finite derivatives everywhere, at coincident and
antipodal points too; no angle is ever taken as the arc cosine of an inner product.
"""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ._numerics import dot, safe_norm
from ._types import Key


def tangent(x: Float[Array, "N d"], v: Float[Array, "N d"]) -> Float[Array, "N d"]:
    """Projection `P_x v = v - <x, v> x` on the tangent space at `x`."""
    return v - dot(x, v)[:, None] * x


def retract(x: Float[Array, "N d"]) -> Float[Array, "N d"]:
    """Nearest point of the sphere, `x / |x|`; the origin stays where it is."""
    size = safe_norm(x)
    return x / jnp.where(size > 0, size, jnp.ones_like(size))[:, None]


def exp(x: Float[Array, "N d"], v: Float[Array, "N d"]) -> Float[Array, "N d"]:
    """Exponential map `cos|v| x + sin|v|/|v| v` of a tangent vector `v` at `x`."""
    s = dot(v, v)
    small = s < 1e-2
    # Taylor polynomials in |v|^2 (error below 1e-18) keep all derivatives right at v = 0.
    cos_series = 1 - s / 2 * (1 - s / 12 * (1 - s / 30 * (1 - s / 56 * (1 - s / 90 * (1 - s / 132)))))
    sinc_series = 1 - s / 6 * (1 - s / 20 * (1 - s / 42 * (1 - s / 72 * (1 - s / 110))))
    r = jnp.sqrt(jnp.where(small, jnp.ones_like(s), s))
    cos = jnp.where(small, cos_series, jnp.cos(r))
    sinc = jnp.where(small, sinc_series, jnp.sin(r) / r)
    return cos[:, None] * x + sinc[:, None] * v


def log(x: Float[Array, "N d"], y: Float[Array, "N d"]) -> Float[Array, "N d"]:
    """Tangent vector at `x` with `exp(x, log(x, y)) = y`, of length `distance(x, y)`.

    At antipodal points, where every direction will do, the first vector of `tangent_basis(x)` is taken.
    """
    u = tangent(x, tangent(x, y - x))  # twice: near antipodal points the first leaves a radial rounding error
    sine = safe_norm(u)
    angle = distance(x, y)
    opposite = dot(x, y) < 0
    antipodal = opposite & (sine < 8 * jnp.finfo(x.dtype).eps)
    near = ~opposite & (sine < 1e-4)
    safe = jnp.where(near | antipodal, jnp.ones_like(sine), sine)
    stretch = jnp.where(near, 1 + dot(u, u) / 6, angle / safe)
    return jnp.where(antipodal[:, None], angle[:, None] * tangent_basis(x)[:, 0], stretch[:, None] * u)


def distance(x: Float[Array, "*batch d"], y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
    """Geodesic distance `2 atan2(|x - y|, |x + y|)`, accurate to rounding at all separations."""
    return 2 * jnp.arctan2(safe_norm(x - y), safe_norm(x + y))


def tangent_basis(x: Float[Array, "N d"]) -> Float[Array, "N d-1 d"]:
    """Orthonormal bases of the tangent spaces; for d = 2 the counter-clockwise unit tangent.

    Rows of the Householder reflection that maps `x` to a coordinate axis: orthonormal to rounding for every `x`.
    """
    d = x.shape[1]
    if d == 2:
        return jnp.stack([-x[:, 1], x[:, 0]], axis=-1)[:, None]
    sign = jnp.where(x[:, -1] < 0, -jnp.ones_like(x[:, -1]), jnp.ones_like(x[:, -1]))
    v = x.at[:, -1].add(sign)
    eye = jnp.broadcast_to(jnp.eye(d - 1, d, dtype=x.dtype), (x.shape[0], d - 1, d))
    return eye - v[:, :-1, None] * v[:, None, :] / (1 + jnp.abs(x[:, -1]))[:, None, None]


def from_angle(theta: Float[Array, "*batch"]) -> Float[Array, "*batch 2"]:
    """Points `(cos theta, sin theta)` of the circle."""
    return jnp.stack([jnp.cos(theta), jnp.sin(theta)], axis=-1)


def to_angle(x: Float[Array, "*batch 2"]) -> Float[Array, "*batch"]:
    """Angles in `[0, 2 pi)` of points of the circle."""
    return wrap_angle(jnp.arctan2(x[..., 1], x[..., 0]))


def wrap_angle(theta: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Angles brought back by at most one turn into `[0, 2 pi)`."""
    turn = jnp.asarray(2 * math.pi, theta.dtype)
    up = jnp.where(theta < 0, theta + turn, theta)
    return jnp.where(up >= turn, up - turn, up)


def uniform(key: Key, n: int, d: int, dtype: DTypeLike | None = None) -> Float[Array, "N d"]:
    """`n` independent uniform points of `S^{d-1}`: normalised Gaussian vectors."""
    dtype = jnp.result_type(float) if dtype is None else dtype
    return retract(jax.random.normal(key, (n, d), dtype))


def equispaced(n: int, dtype: DTypeLike | None = None) -> Float[Array, "N 2"]:
    """`n` equispaced points of the circle, the first at angle 0."""
    return from_angle(jnp.asarray(np.arange(n) * (2 * math.pi / n), dtype))


def fibonacci(n: int, dtype: DTypeLike | None = None) -> Float[Array, "N 3"]:
    """`n` quasi-uniform points of `S^2`: the Fibonacci lattice (equal areas, golden-angle turns)."""
    i = np.arange(n)
    z = 1 - (2 * i + 1) / n
    turn = math.pi * (3 - math.sqrt(5)) * i
    rho = np.sqrt(1 - z * z)
    return jnp.asarray(np.stack([rho * np.cos(turn), rho * np.sin(turn), z], axis=-1), dtype)


class AbstractChart(eqx.Module):
    """Coordinates `u` in which an integrator adds velocities: straight lines in `u`, then `wrap`."""

    @abc.abstractmethod
    def points(self, u: Array) -> Float[Array, "*batch N d"]:
        """Points of the sphere at coordinates `u`."""

    @abc.abstractmethod
    def coordinates(self, x: Float[Array, "N d"]) -> Array:
        """Coordinates of points of the sphere."""

    @abc.abstractmethod
    def components(self, x: Float[Array, "N d"], v: Float[Array, "N d"]) -> Array:
        """Coordinates of tangent vectors `v` at `x`."""

    @abc.abstractmethod
    def wrap(self, u: Array) -> Array:
        """Coordinates brought back to where the chart is used, after a step along a straight line."""

    @abc.abstractmethod
    def speed(self, du: Array) -> Float[Array, " N"]:
        """Lengths of tangent vectors given in coordinates."""


class AngleChart(AbstractChart):
    """The circle by its angle, `u (N,)`: a straight step is the exponential map."""

    def points(self, u: Float[Array, "*batch N"]) -> Float[Array, "*batch N 2"]:
        """Points `(cos u, sin u)`, computed once: a compiler would compute them again wherever they are needed."""
        return jax.lax.optimization_barrier(from_angle(u))

    def coordinates(self, x: Float[Array, "N 2"]) -> Float[Array, " N"]:
        """Angles in `[0, 2 pi)`."""
        return to_angle(x)

    def components(self, x: Float[Array, "N 2"], v: Float[Array, "N 2"]) -> Float[Array, " N"]:
        """Angular velocities `<v, (-x_1, x_0)>`."""
        return v[:, 1] * x[:, 0] - v[:, 0] * x[:, 1]

    def wrap(self, u: Float[Array, " N"]) -> Float[Array, " N"]:
        """Angles in `[0, 2 pi)`."""
        return wrap_angle(u)

    def speed(self, du: Float[Array, " N"]) -> Float[Array, " N"]:
        """Absolute angular velocities."""
        return jnp.abs(du)


class AmbientChart(AbstractChart):
    """The sphere by its points in `R^d`, `u (N, d)`: a straight step, then normalisation."""

    def points(self, u: Float[Array, "*batch N d"]) -> Float[Array, "*batch N d"]:
        """The points themselves."""
        return u

    def coordinates(self, x: Float[Array, "N d"]) -> Float[Array, "N d"]:
        """The points themselves."""
        return x

    def components(self, x: Float[Array, "N d"], v: Float[Array, "N d"]) -> Float[Array, "N d"]:
        """The tangent vectors themselves."""
        return v

    def wrap(self, u: Float[Array, "N d"]) -> Float[Array, "N d"]:
        """Normalised points."""
        return retract(u)

    def speed(self, du: Float[Array, "N d"]) -> Float[Array, " N"]:
        """Euclidean lengths."""
        return safe_norm(du)


def chart(d: int) -> AbstractChart:
    """The chart in which particles of `S^{d-1}` move: the angle for d = 2, ambient coordinates above."""
    return AngleChart() if d == 2 else AmbientChart()
