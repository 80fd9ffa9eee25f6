"""The lowest value of a first variation over the sphere: certified on the circle and on `S^2`, multi-start above."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import sphere
from .._numerics import safe_norm
from ..drifts import AbstractPotential
from ..measure import Measure
from .cells import Cells, arcs, triangles
from .coordinates import displaced, jet
from .kinks import find_kinks
from .smoothness import third_derivative_bound

_BUCKETS = (256, 2048, 16384)  # points evaluated together: shapes that are compiled once
_GRID = {2: 1024, 3: 4096}
_RANDOM = 2048  # points of a multi-start search, for d > 3
_STARTS = 96  # lowest points of the grid that Newton's method starts from
_MOST_STARTS = 160  # with those of the grid they fill the first bucket
_RETURNS = 16  # times that a cell lower than all minima found may send the search back to its start
_ROUNDS = 60
_LONGEST = 0.2  # of a Newton step, radians
_SAME = 1e-6  # minima closer than this are one


class Lowest(eqx.Module):
    """What a search over the sphere found.

    Attributes:
        value, x: the lowest value found, and where `(d,)`.
        bound: a lower bound of all values, up to rounding (a few 1e-16 of the largest value); for d > 3 the lowest
            value found, which bounds nothing.
        rigorous: whether `bound` was proved to within the tolerance.
        cells: number of cells examined.
        minima, values: the local minima found `(P, d)`, lowest first, and their values.
    """

    value: float = eqx.field(static=True)
    x: np.ndarray
    bound: float = eqx.field(static=True)
    rigorous: bool = eqx.field(static=True)
    cells: int = eqx.field(static=True)
    minima: np.ndarray
    values: np.ndarray


def lowest(
    energy: AbstractPotential,
    mu: Measure,
    *,
    tol: float = 1e-12,
    sign: int = 1,
    starts: np.ndarray | None = None,
    budget: int = 1_000_000,
) -> Lowest:
    """The minimum over the sphere of `sign * U[mu](x)`, `U` the first variation of `energy`, with a proof.

    Local minima are found by Newton's method from a grid (and from `starts (P, d)`). For d <= 3 the sphere is then
    covered by cells, and a cell is closed when the second-order expansion at its centre, with the third derivative
    bounded (`third_derivative_bound`) and each kink inside counted on its lower side, stays above the lowest value
    minus `tol`; or when it lies in a ball around a local minimum on which `U` is convex. The others are divided, up to
    `budget` cells; those left open lower the bound, and `rigorous` is False. [MATH, section 6]

    Raises:
        ValueError: traced parameters; `sign` not 1 or -1.
    """
    if sign not in (1, -1):
        raise ValueError(f"sign = {sign}: expected 1 (lowest) or -1 (highest value of U)")
    third = third_derivative_bound(energy)
    found = local_minima(energy, mu, sign=sign, starts=starts)
    if mu.d > 3 or not math.isfinite(third):
        return Lowest(float(found[1][0]), found[0][0], float(found[1][0]), False, 0, *found)
    total = 0
    for _ in range(_RETURNS):
        value = float(found[1][0])
        slack = max(tol, 4 * np.finfo(float).eps * abs(value))  # below rounding there is no order to search for
        balls = _convex_balls(energy, mu, sign, third, found)
        bound, count, lower = _cover(energy, mu, sign, third, balls, value, slack, budget - total)
        total += count
        if lower is None:
            return Lowest(value, found[0][0], min(bound, value), bool(bound >= value - slack), total, *found)
        found = local_minima(energy, mu, sign=sign, starts=np.concatenate([lower[None], found[0]])[:_MOST_STARTS])
    return Lowest(float(found[1][0]), found[0][0], -math.inf, False, total, *found)


def local_minima(
    energy: AbstractPotential, mu: Measure, *, sign: int = 1, starts: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Local minima `(P, d)` of `sign * U[mu]` and their values, lowest first: Newton's method from a grid and `starts`.

    A multi-start: complete on the circle and `S^2` as long as minima are wider than the grid (0.006 and 0.055 rad).
    """
    points, neighbours = _grid(mu.d)
    values = np.concatenate([_values(energy, mu, part, sign) for part in _parts(points)])
    if neighbours is None:
        order = np.argsort(values)
    else:
        low = np.flatnonzero((values[:, None] <= values[neighbours]).all(axis=1))
        order = low[np.argsort(values[low], kind="stable")]
    given = np.zeros((0, mu.d)) if starts is None else np.asarray(starts)
    first = np.concatenate([points[order[:_STARTS]], given])
    x, u = (np.asarray(v) for v in _polish(energy, mu, jnp.asarray(_padded(first)), jnp.asarray(float(sign))))
    return _distinct(x[: len(first)], u[: len(first)])


def _distinct(x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(u, kind="stable")
    kept: list[int] = []
    for i in order:
        if all(np.linalg.norm(x[i] - x[k]) > _SAME for k in kept):
            kept.append(int(i))
    return x[kept], u[kept]


@functools.lru_cache(maxsize=4)
def _grid(d: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Points that cover the sphere and, where they are regular, the neighbours of each."""
    if d == 2:
        i = np.arange(_GRID[2])
        return np.asarray(sphere.equispaced(len(i))), np.stack([i - 1, (i + 1) % len(i)], axis=1)
    if d == 3:
        x = np.asarray(sphere.fibonacci(_GRID[3]))
        return x, np.argpartition(-x @ x.T, 8, axis=1)[:, :8]
    return np.asarray(sphere.uniform(jax.random.key(0), _RANDOM, d)), None


def _parts(x: np.ndarray) -> list[np.ndarray]:
    return [x[i : i + _BUCKETS[-1]] for i in range(0, len(x), _BUCKETS[-1])]


def _padded(x: np.ndarray) -> np.ndarray:
    size = next(b for b in _BUCKETS if b >= len(x))
    return np.concatenate([x, np.broadcast_to(x[:1], (size - len(x), *x.shape[1:]))])


def _values(energy: AbstractPotential, mu: Measure, x: np.ndarray, sign: int) -> np.ndarray:
    return sign * np.asarray(variation_at(energy, mu, jnp.asarray(_padded(x))))[: len(x)]


@eqx.filter_jit
def variation_at(energy: AbstractPotential, mu: Measure, x: Float[Array, "M d"]) -> Float[Array, " M"]:
    """`U[mu](x)`, compiled once for each number of points."""
    return energy.potential(x, mu)


@eqx.filter_jit
def _lower_jet(energy: AbstractPotential, mu: Measure, x: Array, reach: Array, sign: Array) -> tuple[Array, ...]:
    """Value, gradient, and a lower bound of the Hessian of `sign U` near `x` as far as kinks within reach go."""
    value, slope, hessian = jet(energy, x, mu)
    kinks = find_kinks(energy, x)
    low, high = hessian + kinks.lower(x, reach), hessian + kinks.upper(x, reach)
    return sign * value, sign * slope, jnp.where(sign > 0, low, -high)


def _jets(
    energy: AbstractPotential, mu: Measure, x: np.ndarray, reach: np.ndarray, sign: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    flag = jnp.asarray(float(sign))
    out = []
    for i in range(0, len(x), _BUCKETS[-1]):
        part, r = x[i : i + _BUCKETS[-1]], reach[i : i + _BUCKETS[-1]]
        found = _lower_jet(energy, mu, jnp.asarray(_padded(part)), jnp.asarray(_padded(r)), flag)
        out.append([np.asarray(v)[: len(part)] for v in found])
    value, slope, hessian = (np.concatenate(column) for column in zip(*out, strict=True))
    return value, slope, hessian


@eqx.filter_jit
def _polish(energy: AbstractPotential, mu: Measure, x: Array, sign: Array) -> tuple[Array, Array]:
    """Newton's method for `sign U` from each of the points, in the absolute value of the Hessian, steps that rise cut.

    Every kink counts on the side on which the point is.
    """

    def look(x: Array) -> tuple[Array, Array]:
        value, slope, hessian = jet(energy, x, mu)
        curvature, axes = jnp.linalg.eigh(sign * hessian)
        along = jnp.einsum("nij,ni->nj", axes, sign * slope, precision="highest")
        step = -along / jnp.maximum(jnp.abs(curvature), 1e-12)
        return sign * value, jnp.einsum("nij,nj->ni", axes, step, precision="highest")

    def more(carry: tuple) -> Array:
        turn, _, _, step, radius = carry
        size = jnp.minimum(safe_norm(step), radius)
        return (turn < _ROUNDS) & jnp.any(size > 1e-15)

    def move(carry: tuple) -> tuple:
        turn, x, value, step, radius = carry
        size = safe_norm(step)
        part = jnp.minimum(1.0, radius / jnp.where(size > 0, size, jnp.ones_like(size)))
        trial = sphere.retract(displaced(x, part[:, None] * step))
        found, ahead = look(trial)
        taken = found < value
        keep = taken[:, None]
        wider = jnp.minimum(2 * radius, _LONGEST)
        narrower = jnp.where(size < 1e-12, jnp.zeros_like(radius), jnp.minimum(radius, size) / 4)
        return (
            turn + 1,
            jnp.where(keep, trial, x),
            jnp.where(taken, found, value),
            jnp.where(keep, ahead, step),
            jnp.where(taken, wider, narrower),
        )

    value, step = look(x)
    start = (jnp.asarray(0, jnp.int32), x, value, step, jnp.full_like(value, _LONGEST))
    _, x, value, _, _ = jax.lax.while_loop(more, move, start)
    return x, value


def _convex_balls(
    energy: AbstractPotential, mu: Measure, sign: int, third: float, found: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Balls around local minima (centres, radii) on which `sign U` is strongly convex, and its least value in each.

    The curvature at the centre, kinks within the radius on their lower sides, exceeds twice `third` times the radius.
    """
    x = found[0]
    radius = np.full(len(x), 1.0)
    for _ in range(40):
        value, slope, hessian = _jets(energy, mu, x, radius, sign)
        curvature = np.linalg.eigvalsh(hessian)[:, 0]
        fits = curvature >= 2 * third * radius
        if fits.all():
            break
        radius = np.where(fits, radius, np.minimum(radius / 2, np.maximum(curvature, 0) / (2 * third) + radius / 4))
    keep = fits & (radius > 1e-9)
    floor = value - np.sum(slope**2, axis=1) / np.where(keep, curvature, 1)
    return x[keep], radius[keep], floor[keep]


def _cover(
    energy: AbstractPotential,
    mu: Measure,
    sign: int,
    third: float,
    balls: tuple[np.ndarray, np.ndarray, np.ndarray],
    value: float,
    tol: float,
    budget: int,
) -> tuple[float, int, np.ndarray | None]:
    """A lower bound over all cells, how many were examined, and a point that is lower than `value`, where one is met:
    then the cover is left unfinished.
    """
    cells: Cells = arcs(128) if mu.d == 2 else triangles(3)
    centres, radii, floors = (column[balls[2] >= value - tol] for column in balls)
    bound, count = float(np.min(floors, initial=math.inf)), 0
    while len(cells):
        inside = cells.within(centres, radii)
        cells = cells.where(~inside)
        if not len(cells):
            break
        count += len(cells)
        jets = _jets(energy, mu, cells.centre, cells.radius, sign)
        deepest = int(np.argmin(jets[0]))
        if jets[0][deepest] < value - tol:
            return bound, count, cells.centre[deepest]
        below = _expansion_bound(*jets, cells.radius, third)
        closed = below >= value - tol
        if count + 4 * np.sum(~closed) > budget:
            closed[:] = True
        bound = min(bound, float(np.min(below[closed], initial=math.inf)))
        cells = cells.where(~closed).divided()
    return bound, count, None


def _expansion_bound(
    value: np.ndarray, slope: np.ndarray, hessian: np.ndarray, radius: np.ndarray, third: float
) -> np.ndarray:
    """Least value of the second-order expansion on a disc, eigenvector by eigenvector, less the remainder."""
    curvature, axes = np.linalg.eigh(hessian)
    along = np.abs(np.einsum("nij,ni->nj", axes, slope))
    r = radius[:, None]
    safe = np.where(curvature > 0, curvature, 1)
    inside = (curvature > 0) & (along < curvature * r)
    least = np.where(inside, -(along**2) / (2 * safe), -along * r + curvature * r**2 / 2)
    return value + least.sum(axis=1) - third * radius**3 / 6
