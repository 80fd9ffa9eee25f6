"""Modes of a kernel density estimate: a count of groups that does not depend on the number of particles."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from . import sphere
from ._numerics import inner, matmul
from ._types import Scalar
from .clusters import cluster_threshold
from .measure import Measure

Density = Callable[[np.ndarray], np.ndarray]
Found = tuple[np.ndarray, np.ndarray, np.ndarray]  # positions, masses, heights

_WIDEST = math.pi / 8  # bandwidth in radians at which orthogonal atoms are still two modes
_BLOCK = 2048  # particles at a time: memory (starts) x 2048
_ROUNDS = 60  # of the mean shift; ends that are still under way are joined by the prominence cut
_POLISH = 400  # rounds for the few modes that are kept
_GRID_PER_WIDTH = 16  # grid points of the circle per bandwidth
_SEGMENTS = 16  # pieces of a geodesic on which the lowest density is looked for


class Modes(eqx.Module):
    """Modes of a density, heaviest first.

    `positions`, `masses` of their basins (sum 1 where there is a mode), `heights` relative to the highest, and the
    kernel's `bandwidth` in radians.
    """

    positions: Float[Array, "C d"]
    masses: Float[Array, " C"]
    heights: Float[Array, " C"]
    bandwidth: Scalar

    @property
    def count(self) -> int:
        """Number of modes; 0 for a density without a prominent one, such as the uniform."""
        return self.masses.shape[0]


def density_modes(
    measure: Measure,
    beta: float,
    *,
    scale: float = 1.0,
    prominence: float = 0.5,
    least_height: float = 0.02,
    max_starts: int = 256,
) -> Modes:
    """Modes of the density `rho(x) = sum_j w_j e^{(<x, x_j> - 1)/h^2}`, `h = min(scale / sqrt(beta), pi/8)`.

    At scale 1 and below the cap this is the attention's own kernel. A mode counts if it is at least `least_height` of
    the highest, and if on every way to a higher one (for the highest: somewhere) the density falls by the share
    `prominence` of the mode's own height: with 1/2 two equal atoms are two modes from a distance of 3.4 h on, and
    stragglers are none. The count is the density's, whatever the number of particles, as long as many lie within h:
    for independent points N h^(d-1) of some 50 d or more, below which a uniform cloud may show a mode.

    d = 2: Fourier series on a grid, `O(N / h)`. Above: mean shift from at most `max_starts` of the distinct points,
    `O(60 N max_starts)`, and the lowest density along geodesics between neighbouring ends. Memory `O(N)`. Host only.

    Raises:
        ValueError: points not finite; beta, scale, prominence, least_height or max_starts out of range.
    """
    if not 0 < prominence < 1:
        raise ValueError(f"prominence = {prominence}: expected a share of the height between 0 and 1, such as 0.5")
    if not 0 < least_height < 1:
        raise ValueError(
            f"least_height = {least_height}: expected a share of the highest between 0 and 1, such as 0.02"
        )
    if max_starts < 1:
        raise ValueError(f"max_starts = {max_starts}: expected at least 1")
    if not np.isfinite(measure.x).all():
        raise ValueError("points that are not finite; expected a finite measure: look at the result code of the run")
    width = min(float(cluster_threshold(float(beta), 2, float(scale))), _WIDEST)
    if measure.d == 2:
        positions, masses, heights = _on_circle(measure, width, prominence, least_height)
    else:
        positions, masses, heights = _on_sphere(measure, width, prominence, least_height, max_starts)
    order = np.argsort(-masses, kind="stable")
    dtype = measure.x.dtype
    return Modes(
        positions=jnp.asarray(positions[order], dtype),
        masses=jnp.asarray(masses[order], dtype),
        heights=jnp.asarray(heights[order], dtype),
        bandwidth=jnp.asarray(width, dtype),
    )


def _on_circle(measure: Measure, width: float, prominence: float, least: float) -> Found:
    size = 1 << math.ceil(math.log2(2 * math.pi / width * _GRID_PER_WIDTH))
    angles = 2 * math.pi / size * np.arange(size)
    kernel = np.fft.rfft(np.exp((np.cos(angles) - 1) / width**2)).real / size
    terms = int(np.argmax(kernel <= 1e-12 * kernel[0]))
    theta = np.asarray(sphere.to_angle(measure.x), np.float64)
    moments = np.asarray(_moments(measure.x, measure.w, 1 << (terms - 1).bit_length()))[:terms]  # few shapes
    series = np.zeros(size // 2 + 1, complex)
    series[:terms] = kernel[:terms] * (moments[:, 0] - 1j * moments[:, 1])
    density = np.fft.irfft(series * size, size)

    peaks = (density >= np.roll(density, 1)) & (density > np.roll(density, -1)) & (density >= least * density.max())
    drops = {k: _drop_on_circle(density, k) for k in np.flatnonzero(peaks).tolist()}
    kept = np.array([k for k, drop in drops.items() if drop >= prominence * density[k]], int)
    if kept.size == 0:
        return np.zeros((0, 2)), np.zeros(0), np.zeros(0)
    valleys = np.array(
        [_lowest_between(density, a, b) for a, b in zip(kept.tolist(), np.roll(kept, -1).tolist(), strict=True)]
    )
    basin = np.searchsorted(np.sort(angles[valleys]), theta) % len(kept)
    first = np.searchsorted(np.sort(angles[valleys]), angles[kept]) % len(kept)
    masses = np.bincount(basin, np.asarray(measure.w, np.float64), len(kept))[first]
    at = _polish_on_circle(series, angles[kept], angles[1])
    return np.stack([np.cos(at), np.sin(at)], axis=1), masses, density[kept] / density.max()


@eqx.filter_jit
def _moments(x: Array, w: Array, terms: int) -> Array:
    """Real and imaginary part of `sum_j w_j e^{i k theta_j}`, k < terms, the powers carried along: `O(N terms)`."""

    def power(z: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        c, s = z
        return (c * x[:, 0] - s * x[:, 1], s * x[:, 0] + c * x[:, 1]), jnp.stack([w @ c, w @ s])

    start = jnp.ones_like(w), jnp.zeros_like(w)
    return jax.lax.scan(power, start, length=terms)[1]


def _drop_on_circle(density: np.ndarray, peak: int) -> float:
    """How far the density falls on the way from a peak to higher ground; for the highest, to the lowest point."""
    around = np.roll(density, -peak)
    earlier = np.roll(np.arange(len(density)), -peak) < peak  # of two equal peaks the first is the higher one
    higher = np.flatnonzero((around > around[0]) | ((around == around[0]) & earlier))
    if higher.size == 0:
        return float(around[0] - around.min())
    return float(around[0] - max(around[: higher[0]].min(), around[higher[-1] :].min()))


def _lowest_between(density: np.ndarray, left: int, right: int) -> int:
    """Index of the lowest density from one index on to the next, around the circle."""
    length = (right - left) % len(density) or len(density)
    return int((left + np.argmin(np.roll(density, -left)[:length])) % len(density))


def _polish_on_circle(series: np.ndarray, theta: np.ndarray, spacing: float) -> np.ndarray:
    """Newton steps on the derivative of the Fourier series, never farther than the grid's spacing."""
    k = np.arange(len(series))
    start = theta
    for _ in range(5):
        terms = series * np.exp(1j * theta[:, None] * k)
        slope, curvature = -(np.imag(terms) @ k), -(np.real(terms) @ (k * k))
        step = np.where(curvature < 0, slope / np.where(curvature < 0, curvature, 1), 0)
        theta = np.clip(theta - step, start - spacing, start + spacing)
    return theta


def _on_sphere(measure: Measure, width: float, prominence: float, least: float, max_starts: int) -> Found:
    points, inverse = np.unique(np.asarray(measure.x), axis=0, return_inverse=True)
    weights = np.bincount(inverse.ravel(), np.asarray(measure.w), len(points))
    chosen = np.unique(np.linspace(0, len(points) - 1, min(max_starts, len(points))).round().astype(int))
    y, w = _in_blocks(points, weights)
    kappa = jnp.asarray(1 / width**2, y.dtype)

    def density(x: np.ndarray) -> np.ndarray:  # by 64 at a time: compiled once
        parts = [_kernel_sums(_filled(x[i : i + 64], 64), y, w, kappa)[0] for i in range(0, len(x), 64)]
        return np.concatenate(parts)[: len(x)]

    starts = jnp.asarray(points[chosen])
    ends = np.asarray(_mean_shift(starts, y, w, kappa, _ROUNDS))
    nodes, node_of_start = _merge(ends, density(ends), width / 2)
    heights = density(nodes)
    probes = np.concatenate([-nodes, np.asarray(sphere.uniform(jax.random.key(0), 256, measure.d, y.dtype))])
    top = _prominent(nodes, heights, density, float(density(probes).min()), prominence, least)
    kept = np.unique(top[top >= 0])
    if kept.size == 0:
        return np.zeros((0, measure.d)), np.zeros(0), np.zeros(0)
    basin_of_start = np.searchsorted(kept, top[node_of_start])
    nearest = np.arange(len(points)) if len(chosen) == len(points) else np.asarray(_nearest(y, starts))[: len(points)]
    masses = np.bincount(basin_of_start[nearest], weights, len(kept))
    at = _mean_shift(_filled(nodes[kept], max(8, 1 << (len(kept) - 1).bit_length())), y, w, kappa, _POLISH)
    return np.asarray(at)[: len(kept)], masses, heights[kept] / heights.max()


def _filled(x: np.ndarray, rows: int) -> Array:
    """`x` with its first row repeated up to so many rows: few shapes, few compilations."""
    return jnp.asarray(np.concatenate([x, np.repeat(x[:1], rows - len(x), axis=0)]))


def _in_blocks(points: np.ndarray, weights: np.ndarray) -> tuple[Array, Array]:
    """Points and weights in blocks, the last filled up with weight 0."""
    rows = min(_BLOCK, len(points))
    pad = -len(points) % rows
    y = np.concatenate([points, np.repeat(points[:1], pad, axis=0)]).reshape(-1, rows, points.shape[1])
    return jnp.asarray(y), jnp.asarray(np.concatenate([weights, np.zeros(pad)]).reshape(-1, rows), points.dtype)


@jax.jit
def _kernel_sums(
    x: Float[Array, "S d"], y: Float[Array, "B R d"], w: Float[Array, "B R"], kappa: Float[Array, ""]
) -> tuple[Float[Array, " S"], Float[Array, "S d"]]:
    """`sum_j w_j k_j` and `sum_j w_j k_j y_j`, `k_j = e^{kappa (<x, y_j> - 1)}`, block by block."""

    def add(total: tuple[Array, Array], block: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        mass = jnp.exp(kappa * (inner(x, block[0]) - 1)) * block[1][None, :]
        return (total[0] + mass.sum(axis=1), total[1] + matmul(mass, block[0])), None

    return jax.lax.scan(add, (jnp.zeros(x.shape[0], x.dtype), jnp.zeros_like(x)), (y, w))[0]


@eqx.filter_jit
def _mean_shift(x: Array, y: Array, w: Array, kappa: Array, rounds: int) -> Array:
    """`x <- normalise(sum_j w_j k_j y_j)` until none moves by 1e-3 widths, or for so many rounds; uphill."""

    def shift(carry: tuple) -> tuple:
        x, _, i = carry
        moved = sphere.retract(_kernel_sums(x, y, w, kappa)[1])
        return moved, jnp.max(jnp.abs(moved - x)), i + 1

    limit = 1e-3 / jnp.sqrt(kappa)
    again = lambda carry: (carry[1] > limit) & (carry[2] < rounds)  # noqa: E731
    return jax.lax.while_loop(again, shift, (x, jnp.full_like(kappa, jnp.inf), jnp.int32(0)))[0]


@jax.jit
def _nearest(y: Float[Array, "B R d"], starts: Float[Array, "S d"]) -> Array:
    return jax.lax.map(lambda block: jnp.argmax(inner(block, starts), axis=1), y).reshape(-1)


def _merge(ends: np.ndarray, heights: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Ends within a radius of a higher one are that one: the nodes, and the node of each end."""
    node_of_end = np.full(len(ends), -1)
    nodes = []
    for i in np.argsort(-heights, kind="stable"):
        if node_of_end[i] < 0:
            near = (np.linalg.norm(ends - ends[i], axis=1) <= radius) & (node_of_end < 0)
            node_of_end[near] = len(nodes)
            nodes.append(ends[i])
    return np.stack(nodes), node_of_end


def _prominent(
    nodes: np.ndarray, heights: np.ndarray, density: Density, floor: float, cut: float, least: float
) -> np.ndarray:
    """The prominent node that each node belongs to (-1 without any).

    Nodes, highest first, are joined along geodesics between neighbours (no third node within the sphere on the chord as
    diameter), highest pass first; where two summits meet, the lower one stays only if it is prominent above the pass.
    """
    top, region = np.arange(len(nodes)), np.arange(len(nodes))  # region: the summit of what is joined so far
    first, second = _neighbours(nodes)
    passes = _passes(nodes, first, second, density)
    passes = np.minimum(passes, np.minimum(heights[first], heights[second]))
    for edge in np.argsort(-passes, kind="stable"):
        one, other = first[edge], second[edge]
        if region[one] > region[other]:
            one, other = other, one
        low = region[other]
        if low == region[one]:
            continue
        region[region == low] = region[one]
        if heights[low] - passes[edge] < cut * heights[low] or heights[low] < least * heights[0]:
            top[top == low] = top[one]
    floor = min(floor, float(passes.min(initial=floor)))
    return top if heights[0] - floor >= cut * heights[0] else np.full(len(nodes), -1)


def _neighbours(nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs with no third node inside the ball that has them at its ends (Gabriel graph: connected, sparse)."""
    squares = ((nodes[:, None, :] - nodes[None, :, :]) ** 2).sum(axis=-1)
    first, second = np.triu_indices(len(nodes), 1)
    free = np.array(
        [(squares[i] + squares[j]).min() >= squares[i, j] for i, j in zip(first, second, strict=True)], bool
    )
    return first[free], second[free]


def _passes(nodes: np.ndarray, first: np.ndarray, second: np.ndarray, density: Density) -> np.ndarray:
    """Lowest density along the geodesics between pairs of nodes."""
    s = np.linspace(0, 1, _SEGMENTS + 1)[1:-1, None, None].astype(nodes.dtype)
    ways = (1 - s) * nodes[first] + s * nodes[second]
    ways = ways / np.maximum(np.linalg.norm(ways, axis=-1, keepdims=True), 1e-12)
    if not len(first):
        return np.zeros(0)
    return density(ways.reshape(-1, nodes.shape[1])).reshape(len(s), -1).min(axis=0)
