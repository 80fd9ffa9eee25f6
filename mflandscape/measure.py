"""Probability measures on the sphere carried by finitely many weighted points."""

import equinox as eqx
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Float

from . import sphere
from ._types import Key

_ON_SPHERE = 1e-6  # how far from length 1 a point may lie before it is called a mistake


class Measure(eqx.Module):
    """`mu = sum_i w_i delta_{x_i}`: points `x (N, d)` of the unit sphere, weights `w (N,)` of sum 1. [paper A,
    section 2]
    """

    x: Float[Array, "N d"]
    w: Float[Array, " N"]

    @property
    def n(self) -> int:
        """Number of points."""
        return self.x.shape[-2]

    @property
    def d(self) -> int:
        """Ambient dimension."""
        return self.x.shape[-1]

    def at(self, x: Float[Array, "N d"]) -> "Measure":
        """The same weights carried by other points."""
        return Measure(x, self.w)


def concrete(value: ArrayLike) -> bool:
    """Whether Python can see the numbers (they are not being traced)."""
    return not isinstance(value, jax.core.Tracer)


def as_floating(value: ArrayLike) -> Array:
    """The array, integers turned into the default floating-point dtype; never of a weak type, which would be traced
    apart.
    """
    value = jnp.asarray(value)
    return jnp.asarray(value, value.dtype if jnp.issubdtype(value.dtype, jnp.floating) else float)


def empirical(x: ArrayLike, w: ArrayLike | None = None) -> Measure:
    """Measure carried by points `x (N, d)`, with weights `w (N,)` or equal ones; both may be traced.

    Raises:
        ValueError: no points, d < 2, not finite, not on the sphere within 1e-6, weights negative or not of sum 1.
    """
    given = x, w
    x = as_floating(x)
    if x.ndim != 2 or x.shape[0] < 1 or x.shape[1] < 2:
        raise ValueError(f"points of shape {x.shape}: expected (N, d) with N >= 1 and d >= 2")
    w = jnp.full(x.shape[0], 1 / x.shape[0], x.dtype) if w is None else jnp.asarray(w, x.dtype)
    if w.shape != x.shape[:1]:
        raise ValueError(f"weights of shape {w.shape} for {x.shape[0]} points: expected ({x.shape[0]},)")
    if concrete(given[0]):
        _check_points(np.asarray(given[0], x.dtype))
    if given[1] is not None and concrete(given[1]):
        _check_weights(np.asarray(given[1], x.dtype))
    return Measure(x, w)


def _check_points(x: np.ndarray) -> None:
    if not np.isfinite(x).all():
        raise ValueError(
            f"point {int(np.argmin(np.isfinite(x).all(axis=1)))} is not finite: expected finite coordinates"
        )
    off = np.abs(np.linalg.norm(x, axis=1) - 1)
    if off.max() > _ON_SPHERE:
        worst = int(off.argmax())
        raise ValueError(
            f"point {worst} has length {1 + (np.linalg.norm(x[worst]) - 1):.6g}: expected points of the unit sphere; "
            "divide each by its length (sphere.retract)"
        )


def _check_weights(w: np.ndarray) -> None:
    if not np.isfinite(w).all() or (w < 0).any():
        raise ValueError(f"weights between {w.min()} and {w.max()}: expected finite weights >= 0")
    total = float(w.sum(dtype=np.float64))
    if abs(total - 1) > 1e-6:
        raise ValueError(f"weights of sum {total:.9g}: expected sum 1; divide by their sum")


def uniform(key: Key, n: int, d: int, dtype: DTypeLike | None = None) -> Measure:
    """`n` independent uniform points of `S^{d-1}` with equal weights."""
    _check_size(n, d)
    return empirical(sphere.uniform(key, n, d, dtype))


def equispaced(n: int, dtype: DTypeLike | None = None) -> Measure:
    """`n` equispaced points of the circle with equal weights."""
    _check_size(n, 2)
    return empirical(sphere.equispaced(n, dtype))


def fibonacci(n: int, dtype: DTypeLike | None = None) -> Measure:
    """`n` quasi-uniform points of `S^2` with equal weights."""
    _check_size(n, 3)
    return empirical(sphere.fibonacci(n, dtype))


def from_angles(theta: ArrayLike, w: ArrayLike | None = None) -> Measure:
    """Measure on the circle carried by angles `theta (N,)` in radians."""
    theta = jnp.asarray(theta)
    if theta.ndim != 1:
        raise ValueError(f"angles of shape {theta.shape}: expected (N,)")
    return empirical(sphere.from_angle(theta), w)


def perturbed_uniform(n: int, mode: int, amplitude: float, dtype: DTypeLike | None = None) -> Measure:
    """Equal weights at the `(i + 1/2)/n` quantiles of the density `(1 + amplitude cos(mode theta)) / 2 pi` on the
    circle.

    Raises:
        ValueError: n < 1, mode < 1, or |amplitude| >= 1 (the density would not be positive).
    """
    _check_size(n, 2)
    if mode < 1 or not abs(amplitude) < 1:
        raise ValueError(f"mode {mode}, amplitude {amplitude}: expected mode >= 1 and |amplitude| < 1")
    target = (np.arange(n) + 0.5) * (2 * np.pi / n)
    low, high = target - abs(amplitude) / mode, target + abs(amplitude) / mode
    for _ in range(60):  # bisection of the monotone distribution function: sure for amplitudes near 1 too
        theta = (low + high) / 2
        above = theta + amplitude / mode * np.sin(mode * theta) > target
        low, high = np.where(above, low, theta), np.where(above, theta, high)
    return empirical(sphere.from_angle(jnp.asarray((low + high) / 2, dtype)))


def _check_size(n: int, d: int) -> None:
    if n < 1:
        raise ValueError(f"n = {n}: expected at least one particle")
    if d < 2:
        raise ValueError(f"d = {d}: expected d >= 2 (the sphere S^(d-1) in R^d)")
