"""Wasserstein distances between measures, in geodesic distance: exact on the circle, by assignment on spheres.

NumPy and SciPy in float64 on the host, whatever the dtype of the points.
"""

import abc
import importlib.util
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float

from .measure import Measure

TURN = 2 * np.pi
CELLS = 1 << 16  # of a density: the error of W_1 is 1e-9 times its total variation
_LARGEST_PLAN = 4096  # points of a sphere: a matrix of 128 MB and, at worst, minutes
_STEPS, _ROUNDING = 200, 1e-14  # of the search for the shift
_NEGATIVE = 1e-6  # of the mass of a density that may be negative


class AbstractCircleDensity(eqx.Module):
    """A density on the circle of which the mass of every arc is known."""

    @abc.abstractmethod
    def cell_masses(self, cells: int) -> Float[np.ndarray, " {cells}"]:
        """Masses of the arcs `[2 pi i/cells, 2 pi (i + 1)/cells)`."""


Law = Measure | AbstractCircleDensity


class _Polygon(NamedTuple):
    """The graph of a distribution function on `[0, 2 pi]`, both axes not decreasing: atoms are its vertical pieces."""

    theta: np.ndarray
    level: np.ndarray


def wasserstein(mu: Law, nu: Law, order: int = 1, cells: int = CELLS) -> float:
    """`W_p(mu, nu)`, p = 1 or 2, in radians: `W_p^p = min ∫ distance(x, y)^p dpi(x, y)` over couplings pi.

    On the circle, for any weights and numbers of atoms, exact to rounding in `O(N log N)`: `W_1 = min_a ∫ |F - G - a|`,
    whose a is a median of `F - G`; `W_2^2 = min_a ∫ (F^-1(u + a) - G^-1(u))^2 du`, convex in a. [Delon, Salomon and
    Sobolevski 2010; Rabin, Delon and Gousseau 2011] (Of measures that coincide W_2 may come out as 1e-8, the root of
    rounding.) A density takes part as one that is constant on each of `cells` arcs of length h and has their exact
    masses: error at most `h^2/12` times its total variation for W_1, `h^2/8 max |rho'|/rho` for W_2 (and never h).

    On spheres of `d >= 3`, equal weights and numbers: an optimal assignment, `O(N^3)` at worst. Otherwise POT's network
    simplex, the extra `transport`. At most 4096 points.

    Raises:
        ValueError: an order other than 1 and 2, measures of different dimension, a density that is negative on more
            than 1e-6 of its mass; on spheres too many points, or POT is missing where it is needed.
    """
    if order not in (1, 2):
        raise ValueError(f"order = {order}: expected 1 or 2")
    d = {law.d if isinstance(law, Measure) else 2 for law in (mu, nu)}
    if len(d) > 1:
        raise ValueError(f"measures of dimensions {sorted(d)}: expected both on the same sphere")
    if isinstance(mu, Measure) and isinstance(nu, Measure) and mu.d > 2:
        return _on_sphere(mu, nu, order)
    first, second = _polygon(mu, cells), _polygon(nu, cells)
    return _first(first, second) if order == 1 else _second(first, second)


def _polygon(law: Law, cells: int) -> _Polygon:
    if isinstance(law, Measure):
        return _of_atoms(law)
    masses = np.asarray(law.cell_masses(cells), float)
    negative = float(-masses[masses < 0].sum())
    if not negative <= _NEGATIVE * masses.sum():
        raise ValueError(
            f"a density of which {negative:.1e} of the mass is negative: expected at most {_NEGATIVE}; it is "
            "under-resolved, take more modes"
        )
    level = np.concatenate([[0.0], np.cumsum(np.maximum(masses, 0.0))])
    return _Polygon(np.linspace(0.0, TURN, cells + 1), level / level[-1])


def _of_atoms(mu: Measure) -> _Polygon:
    x, w = np.asarray(mu.x, float), np.asarray(mu.w, float)
    theta = np.mod(np.arctan2(x[:, 1], x[:, 0]), TURN)
    order = np.argsort(theta, kind="stable")
    theta = theta[order]
    if np.all(w == w[0]):
        level = np.arange(len(w) + 1) / len(w)
    else:
        level = np.concatenate([[0.0], np.cumsum(w[order])])
        level /= level[-1]
    return _Polygon(
        np.concatenate([[0.0], np.repeat(theta, 2), [TURN]]),
        np.concatenate([[0.0], np.repeat(level, 2)[1:-1], [1.0]]),
    )


def _pieces(edges: np.ndarray, *graphs: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Lengths of the pieces between sorted edges, and each function's values at the two ends of every piece, from
    inside: graphs `(at, values)` are straight there.
    """
    left, right = edges[:-1], edges[1:]
    wide = right > left
    left, right = left[wide], right[wide]
    ends = []
    for at, values in graphs:
        i = np.clip(np.searchsorted(at, (left + right) / 2), 1, len(at) - 1)
        start, width = at[i - 1], at[i] - at[i - 1]
        rise, width = values[i] - values[i - 1], np.where(width > 0, width, 1.0)
        shares = (np.clip((end - start) / width, 0.0, 1.0) for end in (left, right))
        ends.append(np.stack([values[i - 1] + rise * share for share in shares]))
    return right - left, ends


def _merged(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.sort(np.concatenate([a, b]), kind="stable")


def _first(f: _Polygon, g: _Polygon) -> float:
    """`min_a ∫ |F - G - a| dtheta`."""
    length, (ff, gg) = _pieces(_merged(f.theta, g.theta), f, g)
    ends = np.sort(ff - gg, axis=0)
    low, high = ends - _median(ends[0], ends[1], length)
    crossing = (low < 0) & (high > 0)
    width = np.where(crossing, high - low, 1.0)
    mean = np.where(crossing, (low * low + high * high) / (2 * width), np.abs(low + high) / 2)
    return float(length @ mean)


def _median(low: np.ndarray, high: np.ndarray, length: np.ndarray) -> float:
    """The level below which a function, uniform on `[low, high]` on each piece, is half of the time: by bisection, over
    the pieces that are still undecided.
    """
    below, half = 0.0, length.sum() / 2
    a, b = float(low.min()), float(high.max())
    while a < (middle := (a + b) / 2) < b:
        width = np.where(high > low, high - low, 1.0)
        share = np.where(high > low, np.clip((middle - low) / width, 0.0, 1.0), low <= middle)
        if below + length @ share < half:
            a, keep = middle, high > middle
            below += length[~keep].sum()
        else:
            b, keep = middle, low <= middle
        low, high, length = low[keep], high[keep], length[keep]
    return b


def _second(f: _Polygon, g: _Polygon) -> float:
    """`min_a (∫ (F^-1(u + a) - G^-1(u))^2 du)^{1/2}`, `|a| <= 1`: convex, so that tangents bound it from below.

    Steps go where the slope vanishes by the secant (the cost is smooth for densities) and where the tangents meet (it
    has kinks between atoms) in turn, until the bound is reached.
    """
    turns = np.arange(-1, 3)
    level = (f.level[None] + turns[:, None]).ravel()
    theta = (f.theta[None] + TURN * turns[:, None]).ravel()
    left, right = (_tangent(a, level, theta, g) for a in (-1.0, 1.0))
    best = min(left.cost, right.cost)
    for step in range(_STEPS):
        meeting = (left.cost - right.cost + right.slope * right.a - left.slope * left.a) / (right.slope - left.slope)
        bound = left.cost + left.slope * (meeting - left.a)
        if best - bound <= _ROUNDING * best:
            break
        secant = left.a - left.slope * (right.a - left.a) / (right.slope - left.slope)
        a = meeting if step % 3 < 2 else secant
        if not left.a < a < right.a:
            break
        found = _tangent(a, level, theta, g)
        best = min(best, found.cost)
        if found.slope == 0:
            break
        left, right = (found, right) if found.slope < 0 else (left, found)
    return float(np.sqrt(best))


class _Tangent(NamedTuple):
    a: float
    cost: float
    slope: float


def _tangent(a: float, level: np.ndarray, theta: np.ndarray, g: _Polygon) -> _Tangent:
    """The cost of a shift and its derivative `2 ∫ (F^-1(u + a) - G^-1(u)) dF^-1(u + a)`, along the pieces and over the
    jumps between them.
    """
    start, stop = np.searchsorted(level, [a, 1 + a])
    near = slice(max(start - 1, 0), stop + 1)
    edges = _merged(np.clip(level[start:stop] - a, 0.0, 1.0), g.level)
    length, (x, y) = _pieces(edges, (level[near] - a, theta[near]), (g.level, g.theta))
    gap = x - y
    cost = float(length @ (gap[0] * gap[0] + gap[0] * gap[1] + gap[1] * gap[1])) / 3
    x, y = x.T.ravel(), y.T.ravel()
    x, y = np.append(x, x[0] + TURN), np.append(y, y[0] + TURN)
    return _Tangent(a, cost, float(np.diff(x) @ (x[1:] + x[:-1] - y[1:] - y[:-1])))


def _on_sphere(mu: Measure, nu: Measure, order: int) -> float:
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    x, y = np.asarray(mu.x, float), np.asarray(nu.x, float)
    if max(len(x), len(y)) > _LARGEST_PLAN:
        raise ValueError(
            f"{len(x)} and {len(y)} points on a sphere of d = {mu.d}: expected at most {_LARGEST_PLAN} for a plan; "
            "take random samples of both"
        )
    cost = (2 * np.arctan2(cdist(x, y), cdist(x, -y))) ** order
    a, b = (np.asarray(w, float) for w in (mu.w, nu.w))
    a, b = a / a.sum(), b / b.sum()
    if len(a) == len(b) and np.all(a == a[0]) and np.all(b == b[0]):
        return float(cost[linear_sum_assignment(cost)].mean() ** (1 / order))
    if importlib.util.find_spec("ot") is None:
        raise ValueError(
            "measures of different weights or numbers of points on a sphere need POT; expected equal ones, or "
            "pip install 'mflandscape[transport]'"
        )
    import ot

    total, log = ot.emd2(a, b, cost, numItermax=10_000_000, log=True)
    if log["warning"] is not None:
        raise ValueError(f"no optimal plan was found ({log['warning']}); take fewer points")
    return float(max(total, 0.0) ** (1 / order))
