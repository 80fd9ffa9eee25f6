"""Fourier sums over points on the circle by way of an even grid: a cost per point that does not depend on the modes.

Each point is expanded about its nearest node, `e^{ik theta} = e^{ik theta_g} e^{ik delta}`, with the second factor a
polynomial in `delta/h` that is exact to rounding: moments are those of the polynomials' powers on the grid, added by
nodes, and a few FFTs. [The idea of nonuniform FFTs by Taylor expansion: Anderson and Dahleh 1996]
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ..special import series_tolerance
from .accumulate import wide

_SHARE = 8  # nodes a mode, at least
_FEWEST = 1024  # nodes: h^7 is then rounding
# arctan r / r in powers of r^2, to 2e-8 [Abramowitz and Stegun 4.4.49]
_ANGLE = [
    1,
    -0.3333314528,
    0.1999355085,
    -0.1420889944,
    0.106562639,
    -0.075289640,
    0.042909614,
    -0.016165737,
    0.002866226,
]


def nodes_for(modes: int) -> int:
    """Nodes of the grid for so many modes: a power of 2, at least 8 a mode."""
    return max(_FEWEST, 2 ** math.ceil(math.log2(_SHARE * (modes + 1))))


def powers_for(modes: int, dtype: DTypeLike) -> int:
    """Terms of the polynomials: as few as leave an error of 1e-16 (float64) or 1e-8 at the highest mode."""
    reach, error, count = np.pi * modes / nodes_for(modes) / 2, 2.0, 0
    while error > series_tolerance(dtype):
        count += 1
        error *= reach / count  # of the interpolant at Chebyshev's points: 2 (k h / 2)^P / P!
    return count


def add_powers(table: Float[Array, "G c P"], y: Float[Array, "N 2"], q: Float[Array, "N c"]) -> Float[Array, "G c P"]:
    """The table of `sum_j q_j (delta_j/h)^p` by nodes with these points added. Cost O(N c P)."""
    node, u = _nearest(y, table.shape[0])
    powers = [q]
    for _ in range(table.shape[2] - 1):
        powers.append(powers[-1] * u[:, None])
    return table.at[node].add(jnp.stack(powers, axis=-1).astype(table.dtype), mode="promise_in_bounds")


def empty_table(modes: int, c: int, dtype: DTypeLike) -> Float[Array, "G c P"]:
    """No points yet; in the dtype of accumulators."""
    return jnp.zeros((nodes_for(modes), c, powers_for(modes, dtype)), wide())


def table_moments(table: Float[Array, "G c P"], modes: int, dtype: DTypeLike) -> Float[Array, "K 2 c"]:
    """`sum_j q_j (cos k theta_j, sin k theta_j)`, k = 0..modes, from the table: P FFTs."""
    spectrum = jnp.fft.rfft(table.transpose(1, 2, 0))[..., : modes + 1].conj()
    moments = jnp.sum(spectrum * jnp.asarray(_expansion(modes, table.shape[2]), spectrum.dtype)[None], axis=1).T
    return jnp.stack([moments.real, moments.imag], axis=1).astype(dtype)


def series_table(a: Float[Array, "K 2 c"]) -> Float[Array, "G c P"]:
    """Coefficients of the polynomial at each node of `sum_k a_k0 cos k theta + a_k1 sin k theta`: P FFTs."""
    modes = a.shape[0] - 1
    count, nodes = powers_for(modes, a.dtype), nodes_for(modes)
    precise = a.astype(wide())
    conjugate = jax.lax.complex(precise[:, 0], -precise[:, 1]).T
    halves = np.where(np.arange(modes + 1) > 0, 0.5, 1.0)
    factors = jnp.asarray(_expansion(modes, count) * halves, conjugate.dtype)
    columns = jnp.fft.irfft(conjugate[:, None, :] * factors[None], nodes, norm="forward")
    return columns.astype(a.dtype).transpose(2, 0, 1)


def at_points(table: Float[Array, "G c P"], x: Float[Array, "M 2"]) -> Float[Array, "M c"]:
    """The polynomials of the nearest nodes at the points. Cost O(M c P)."""
    node, u = _nearest(x, table.shape[0])
    near = table.at[node].get(mode="promise_in_bounds")
    value = near[..., -1]
    for p in range(table.shape[2] - 2, -1, -1):
        value = value * u[:, None] + near[..., p]
    return value


def _nearest(x: Array, nodes: int) -> tuple[Array, Array]:
    """The nearest node, to 2e-8 of the angle, and the angle from it over half the spacing."""
    p, r = jnp.abs(x[:, 0]), jnp.abs(x[:, 1])
    small, large = jnp.minimum(p, r), jnp.maximum(p, r)
    ratio = small / jnp.maximum(large, jnp.asarray(jnp.finfo(x.dtype).tiny, x.dtype))
    square, angle = ratio * ratio, jnp.full_like(ratio, _ANGLE[-1])
    for coefficient in _ANGLE[-2::-1]:
        angle = angle * square + coefficient
    angle = angle * ratio
    angle = jnp.where(r > p, np.pi / 2 - angle, angle)
    angle = jnp.where(x[:, 0] < 0, np.pi - angle, angle)
    angle = jnp.where(x[:, 1] < 0, -angle, angle)
    node = jnp.mod(jnp.round(angle * (nodes / (2 * np.pi))).astype(jnp.int32), nodes)
    # The sine of the difference from the node itself, without cancellation; then its arcsine by the series.
    near = jnp.asarray(_directions(nodes), x.dtype).at[node].get(mode="promise_in_bounds")
    sine = near[:, 0] * x[:, 1] - near[:, 1] * x[:, 0]
    s2 = sine * sine
    return node, sine * (1 + s2 / 6 * (1 + 0.45 * s2)) * (nodes / np.pi)


@functools.cache
def _directions(nodes: int) -> np.ndarray:
    # In long double: an error of the angle is multiplied by the number of the mode.
    angles = 2 * np.arccos(np.longdouble(-1)) * np.arange(nodes) / nodes
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(float)


@functools.cache
def _expansion(modes: int, count: int) -> np.ndarray:
    """`(P, K)` coefficients of `e^{i k h u}`, |u| <= 1, in powers of `u`: the interpolant at Chebyshev's points."""
    points = np.cos(np.pi * (np.arange(count) + 0.5) / count)
    values = np.exp(1j * np.outer(points, np.arange(modes + 1) * (np.pi / nodes_for(modes))))
    return np.linalg.solve(np.vander(points, increasing=True), values)
