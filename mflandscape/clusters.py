"""Groups of particles by the published rules (greedy arcs, single linkage), with masses, diameters and centres."""

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from . import sphere
from ._types import Angles, Count, Points, Scalar
from .measure import Measure, concrete

Rule = Literal["arcs", "linkage"]
Labels = Int[Array, " N"]

_AT_ONCE = 2048  # up to here linkage looks at all pairs together: four times as fast, memory N^2 bytes
_ROWS = 64  # above, and for distances within clusters, by blocks of so many particles: memory 64 N
_SMALL = 512  # up to here distances within clusters are taken all together as well


def cluster_threshold(beta: ArrayLike, d: int, cluster_scale: ArrayLike = 0.5) -> Float[Array, "*batch"]:
    """The published threshold `min(cluster_scale / sqrt(beta), pi / (2 d))`, in radians; the cap at beta = 0.

    Raises:
        ValueError: d < 2; beta negative or not finite; cluster_scale not positive (where Python can see the numbers).
    """
    beta = jnp.asarray(beta, beta.dtype if isinstance(beta, jax.Array) and beta.dtype.kind == "f" else float)
    scale = jnp.asarray(cluster_scale, beta.dtype)
    if d < 2:
        raise ValueError(f"d = {d}: expected d >= 2 (the sphere S^(d-1) in R^d)")
    if concrete(beta) and not (np.isfinite(beta) & (np.asarray(beta) >= 0)).all():
        raise ValueError(f"beta = {beta}: expected a finite inverse temperature beta >= 0")
    if concrete(scale) and not (np.isfinite(scale) & (np.asarray(scale) > 0)).all():
        raise ValueError(f"cluster_scale = {scale}: expected a positive factor (the published one is 0.5)")
    zero = beta == 0
    width = scale / jnp.sqrt(jnp.where(zero, jnp.ones_like(beta), beta))
    cap = jnp.full_like(width, math.pi / (2 * d))
    return jnp.where(zero, cap, jnp.minimum(width, cap))


def arc_count(theta: Angles, threshold: Scalar | float) -> tuple[Count, Scalar]:
    """Number of clusters of `arc_clusters` and the longest arc, no labels. `O(N log N)`, nearly all of it the sort.

    For compiled loops. Angles that are not finite give the count -1 and the spread nan.
    """
    u, _ = _unroll(jnp.sort(_wrapped(theta)))
    count, spread, _ = _sweep(u, jnp.asarray(threshold, u.dtype), ())
    return count, spread


def arc_clusters(theta: Angles, threshold: Scalar | float) -> tuple[Labels, Count, Scalar]:
    """Published rule of the circle: labels `0..count - 1` by angle, their number, the longest arc.

    Angles mod 2 pi are cut at the largest gap; from there on a particle joins the cluster while its angle minus the
    cluster's first is at most `threshold`, in the published arithmetic: comparisons agree to the bit.
    `O(N log N + count log N)`. Angles that are not finite give labels and count -1 and the spread nan.
    """
    wrapped = _wrapped(theta)
    order = jnp.argsort(wrapped).astype(jnp.int32)
    u, cut = _unroll(wrapped[order])
    count, spread, (starts,) = _sweep(u, jnp.asarray(threshold, u.dtype), (jnp.zeros(u.shape, bool),))
    ranks = jnp.cumsum(starts, dtype=jnp.int32) - 1
    return jnp.zeros_like(order).at[jnp.roll(order, -cut)].set(ranks), count, spread


def linkage_clusters(x: Points, threshold: Scalar | float) -> tuple[Labels, Count, Scalar]:
    """Published rule above the circle: components of the graph of pairs at geodesic distance at most `threshold`.

    Any d >= 2. Labels `0..count - 1` by first member, their number, the largest geodesic distance within a cluster.
    Rounds of taking the smallest label in reach, handing it to the root and shortening all paths: about `log N` rounds
    of `O(N^2 d)`, memory `O(N)` above 2048 particles. Points that are not finite give labels and count -1, spread nan.
    """
    n = x.shape[0]
    reach = (2 * jnp.sin(jnp.asarray(threshold, x.dtype) / 2)) ** 2
    index = jnp.arange(n, dtype=jnp.int32)
    finite = jnp.isfinite(x).all()

    def round_(carry: tuple) -> tuple:
        parents, _ = carry
        nearest = _by_blocks(
            lambda y: jnp.min(jnp.where(_squares(x, y, -1) <= reach, parents[:, None], n), axis=0),
            (x,),
            n if n <= _AT_ONCE else _ROWS,
        )
        nearest = jnp.minimum(nearest, parents)
        hooked = jnp.minimum(parents.at[parents].min(nearest), nearest)
        for _ in range(max(1, math.ceil(math.log2(n)))):
            hooked = hooked[hooked]
        return hooked, jnp.any(hooked != parents)

    # Parents only ever fall and are at least 0: the loop ends.
    parents, _ = jax.lax.while_loop(lambda carry: carry[1], round_, (index, finite))
    roots = parents == index
    labels = (jnp.cumsum(roots, dtype=jnp.int32) - 1)[parents]
    spread = jnp.max(_farthest(x, labels))
    count = jnp.where(finite, jnp.sum(roots, dtype=jnp.int32), -1)
    return jnp.where(finite, labels, -1), count, jnp.where(finite, spread, jnp.nan)


class Clusters(eqx.Module):
    """Clusters of a measure, heaviest first.

    `labels (N,)` names the cluster of each particle (-1: in one lighter than the mass threshold), `masses` are sums of
    weights, `diameters` arc lengths (rule "arcs") or largest geodesic distances ("linkage") in radians, `centres`
    normalised weighted means (the first member where the mean vanishes, as for antipodal pairs).
    """

    labels: Labels
    masses: Float[Array, " C"]
    diameters: Float[Array, " C"]
    centres: Float[Array, "C d"]
    rule: Rule = eqx.field(static=True)

    @property
    def count(self) -> int:
        """Number of clusters."""
        return self.masses.shape[0]

    @property
    def spread(self) -> float:
        """Largest diameter; 0 without clusters."""
        return float(np.max(np.asarray(self.diameters))) if self.count else 0.0


def find_clusters(
    measure: Measure, threshold: ArrayLike, rule: Rule | None = None, mass_threshold: float = 0.0
) -> Clusters:
    """Clusters of a measure by the published rule of its dimension: "arcs" for d = 2, "linkage" above (or at will).

    Every particle counts, stragglers and weightless ones too; `mass_threshold` leaves out clusters that are lighter.
    Not for compiled code (the number of clusters is a shape): `arc_clusters`, `linkage_clusters` are. Cost as theirs.

    Raises:
        ValueError: threshold not in [0, pi]; "arcs" for d > 2; points that are not finite.
    """
    size = float(np.asarray(threshold))
    rule = rule or ("arcs" if measure.d == 2 else "linkage")
    if not 0 <= size <= math.pi:
        raise ValueError(f"threshold = {size}: expected an angle in [0, pi], such as cluster_threshold(beta, d)")
    if rule == "arcs" and measure.d != 2:
        raise ValueError(f'rule "arcs" for d = {measure.d}: it orders angles, so expected d = 2; use "linkage"')
    if not np.isfinite(measure.x).all():
        raise ValueError("points that are not finite; expected a finite measure: look at the result code of the run")
    threshold = jnp.asarray(threshold, measure.x.dtype)
    if rule == "arcs":
        labels, spans = (np.asarray(v) for v in _arcs(measure.x, threshold))
        diameters = spans[: labels.max() + 1]
    else:
        labels, reach = (np.asarray(v) for v in _linked(measure.x, threshold))
        diameters = np.zeros(labels.max() + 1, reach.dtype)
        np.maximum.at(diameters, labels, reach)
    return _gather(measure, labels, diameters, rule, mass_threshold)


@jax.jit
def _arcs(x: Points, threshold: Scalar) -> tuple[Labels, Angles]:
    """Labels, and the length of arc number i at entry i."""
    theta = sphere.to_angle(x)
    labels, _, _ = arc_clusters(theta, threshold)
    wrapped = _wrapped(theta)
    order = jnp.argsort(wrapped)
    u, cut = _unroll(wrapped[order])
    ranks = labels[jnp.roll(order, -cut)]
    first = jnp.full_like(u, jnp.inf).at[ranks].min(u)
    last = jnp.full_like(u, -jnp.inf).at[ranks].max(u)
    return labels, last - first


@jax.jit
def _linked(x: Points, threshold: Scalar) -> tuple[Labels, Angles]:
    """Labels, and how far from each particle the farthest of its cluster is."""
    labels, _, _ = linkage_clusters(x, threshold)
    return labels, _farthest(x, labels)


def _gather(measure: Measure, labels: np.ndarray, diameters: np.ndarray, rule: Rule, mass_threshold: float) -> Clusters:
    x, w = np.asarray(measure.x), np.asarray(measure.w)
    count = len(diameters)
    sizes = np.bincount(labels, minlength=count)
    # Equal weights: the quotient is exact where a sum of rounded 1/N is not.
    masses = sizes / len(w) if (w == w[0]).all() else np.bincount(labels, w, count)
    means = np.stack([np.bincount(labels, w * column, count) for column in x.T], axis=1)
    length = np.linalg.norm(means, axis=1)
    _, members = np.unique(labels, return_index=True)
    lost = length <= 1e-6 * masses
    centres = np.where(lost[:, None], x[members], means / np.where(lost, 1, length)[:, None])
    order = np.argsort(-masses, kind="stable")
    order = order[masses[order] >= mass_threshold]
    rename = np.full(count, -1, np.int32)
    rename[order] = np.arange(len(order), dtype=np.int32)
    dtype = measure.x.dtype
    return Clusters(
        labels=jnp.asarray(rename[labels]),
        masses=jnp.asarray(masses[order], dtype),
        diameters=jnp.asarray(diameters[order], dtype),
        centres=jnp.asarray(centres[order], dtype),
        rule=rule,
    )


def _wrapped(theta: Angles) -> Angles:
    return jnp.mod(theta, jnp.asarray(2 * math.pi, theta.dtype))


def _unroll(ordered: Angles) -> tuple[Angles, Count]:
    """Sorted angles in [0, 2 pi), begun after their largest gap and made increasing; and the index where they begin."""
    turn = jnp.asarray(2 * math.pi, ordered.dtype)
    gaps = jnp.append(ordered[1:] - ordered[:-1], ordered[0] + turn - ordered[-1])
    cut = (jnp.argmax(gaps) + 1) % ordered.shape[0]
    u = jnp.roll(ordered, -cut)
    return jnp.where(u < u[0], u + turn, u), cut


def _sweep(u: Angles, threshold: Scalar, starts: tuple[Array, ...]) -> tuple[Count, Scalar, tuple[Array, ...]]:
    """Greedy arcs along increasing `u`: their number, the longest, and where they begin, marked in each of `starts`.

    One turn of the loop an arc; its end by bisection on the published comparison `u_j - u_first <= threshold`.
    """
    n = u.shape[0]
    finite = jnp.isfinite(u).all()

    def arc(carry: tuple) -> tuple:
        first, count, spread, starts = carry
        low, high = first + 1, jnp.full_like(first, n)
        for _ in range(n.bit_length()):
            middle = (low + high) // 2
            inside = (middle < high) & (u[jnp.minimum(middle, n - 1)] - u[first] <= threshold)
            low, high = jnp.where(inside, middle + 1, low), jnp.where(inside, high, middle)
        starts = tuple(marks.at[first].set(True) for marks in starts)
        return low, count + 1, jnp.maximum(spread, u[low - 1] - u[first]), starts

    begin = jnp.where(finite, jnp.int32(0), jnp.int32(n))
    carry = (begin, jnp.int32(0), jnp.zeros_like(threshold), starts)
    _, count, spread, starts = jax.lax.while_loop(lambda carry: carry[0] < n, arc, carry)
    return jnp.where(finite, count, -1), jnp.where(finite, spread, jnp.nan), starts


def _squares(x: Float[Array, "M d"], y: Float[Array, "N d"], sign: int) -> Float[Array, "M N"]:
    """`|x_i + sign y_j|^2`, coordinate by coordinate: exact for near points, where `2 - 2 <x, y>` is not."""

    def add(total: Array, column: tuple[Array, Array]) -> tuple[Array, None]:
        gap = column[0][:, None] + sign * column[1][None, :]
        return total + gap * gap, None

    start = jnp.zeros((x.shape[0], y.shape[0]), x.dtype)
    return jax.lax.scan(add, start, (x.T, y.T), unroll=min(x.shape[1], 16))[0]


def _farthest(x: Points, labels: Labels) -> Angles:
    """Geodesic distance from each particle to the farthest of its cluster, by chords; past 90 degrees by `|x + y|`."""
    n = x.shape[0]
    rows = n if n <= _SMALL else _ROWS

    def far(y: Array, own: Array) -> Array:
        return jnp.max(jnp.where(labels[:, None] == own[None, :], _squares(x, y, -1), 0.0), axis=0)

    def near_antipode(y: Array, own: Array) -> Array:
        return jnp.min(jnp.where(labels[:, None] == own[None, :], _squares(x, y, 1), 4.0), axis=0)

    chord = _by_blocks(far, (x, labels), rows)
    wide = jnp.any(chord > 2)
    other = jax.lax.cond(wide, lambda: _by_blocks(near_antipode, (x, labels), rows), lambda: jnp.full_like(chord, 4.0))
    across = jnp.minimum(chord, 4.0)
    beyond = other < 2
    small = jnp.sqrt(jnp.where(beyond, other, across)) / 2
    angle = 2 * jnp.arcsin(jnp.minimum(small, 1.0))
    return jnp.where(beyond, math.pi - angle, angle)


def _by_blocks(fn, arrays: tuple[Array, ...], rows: int) -> Array:
    """`fn(*arrays)`, an array with an entry for each row, computed for `rows` rows at a time."""
    n = arrays[0].shape[0]
    if rows >= n:
        return fn(*arrays)
    pad = -n % rows
    blocks = [jnp.pad(v, ((0, pad),) + ((0, 0),) * (v.ndim - 1)).reshape(-1, rows, *v.shape[1:]) for v in arrays]
    return jax.lax.map(lambda block: fn(*block), tuple(blocks)).reshape(-1)[:n]
