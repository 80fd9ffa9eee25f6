"""Maxima on the sphere of functions that are quadratic on each region of a central hyperplane arrangement, by
enumeration of its regions. [paper A, (3.4) and (3.5)]

The functions are `v(x) = sum_j p_j max(a_j.x, 0)^2 + q_j max(-a_j.x, 0)^2`, a ReLU perceptron without biases for
`p = omega`, `q = 0`. On a region `v(x) = x^T S x`: there a principal eigenvector of `S` that lies in the region
attains the maximum, or else a wall of the region does, where the problem is the same, one dimension lower. On the host,
in float64.
"""

import heapq
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

Array = Float[np.ndarray, "..."]
SAME = 1e-9  # sine of the angle below which two lines or a line and a subspace are one: v is blind to it (its square)
NEAR = 1e-8  # distance below which two maximisers are one
_EPS = float(np.finfo(float).eps)


class Piece(NamedTuple):
    """Maximisers inside one face of the arrangement: the part of a linear space's unit sphere that lies in it."""

    point: Float[np.ndarray, " d"]
    space: Float[np.ndarray, "d k"]
    signs: Int[np.ndarray, " J"]  # of a_j.x on the face: 0 where it vanishes, 2 where the face does not fix it

    @property
    def dimension(self) -> int:
        """Dimension of the set: 0 for a point."""
        return self.space.shape[1] - 1


class Maximum(NamedTuple):
    """Largest value, every piece of the maximisers, an upper bound of the maximum, and what the search visited.

    `exhausted` says that the budget of regions ended the search: the bound still holds, maximisers may be missing (all
    of them: the value is then -inf).
    """

    value: float
    bound: float
    pieces: tuple[Piece, ...]
    regions: int
    exhausted: bool


def region_bound(hyperplanes: int, d: int) -> int:
    """Largest number of regions, `2 sum_{i < d} C(J - 1, i)`, attained in general position; 1 without hyperplanes."""
    return 2 * sum(math.comb(hyperplanes - 1, i) for i in range(d)) if hyperplanes else 1


def sign_regions(e: Float[np.ndarray, "J d"]) -> tuple[Int[np.ndarray, "R J"], Float[np.ndarray, "R d"]]:
    """The regions of the arrangement `{e_j.x = 0}`: the signs of `e_j.x` on each, and a unit vector inside each.

    Hyperplane by hyperplane: the next one cuts exactly the regions whose signs are those of a region of the
    arrangement that the earlier ones leave on it. Rows are unit vectors that span different lines (for d = 1: at most
    one). Cost O(J d^2) for each region.
    """
    j, d = e.shape
    if j == 0:
        return np.zeros((1, 0), int), np.eye(1, d)
    if j == 1:
        return np.array([[1], [-1]]), np.concatenate([e, -e])
    if d == 2:
        return _sectors(e)
    signs, points = sign_regions(e[:-1])
    cut, on = _restricted(e[:-1], _complement(e[-1]))
    depth = np.min(np.abs(on @ e[:-1].T), axis=1, keepdims=True) / 2
    sides = [on + depth * e[-1], on - depth * e[-1]]
    sides = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides]
    whole = ~np.isin(_words(signs), _words(cut))
    last = np.where(points[whole] @ e[-1] > 0, 1, -1)
    ones = np.ones((len(cut), 1), int)
    patterns = [np.hstack([cut, ones]), np.hstack([cut, -ones]), np.hstack([signs[whole], last[:, None]])]
    return np.concatenate(patterns), np.concatenate([*sides, points[whole]])


def largest_piecewise_quadratic(
    a: Float[np.ndarray, "J d"],
    positive: Float[np.ndarray, " J"],
    negative: Float[np.ndarray, " J"],
    *,
    tolerance: float = 1e-10,
    max_regions: int = 200_000,
) -> Maximum:
    """Maximum over the unit sphere of `sum_j p_j max(a_j.x, 0)^2 + q_j max(-a_j.x, 0)^2`, with all maximisers.

    Best-first over the flats of the arrangement, the whole space first: on each flat all regions at once, then the
    walls of those whose largest eigenvalue exceeds the best value but is not attained inside. Exact up to the rounding
    of the eigenvalues, `O(eps sum_j (|p_j| + |q_j|) |a_j|^2)`; maximisers whose values differ by less than `tolerance`
    times that sum count as equal. Cost: an eigen-decomposition for each region, at most `region_bound(J, d)` on the
    whole space and `region_bound(J - i, d - i)` on each of at most C(J, i) flats.
    """
    length = np.linalg.norm(a, axis=1)
    kept = (length > 0) & ((positive != 0) | (negative != 0))
    weights = np.stack([positive, negative])[:, kept] * length[kept] ** 2
    problem = _Problem(a[kept] / length[kept, None], weights[0], weights[1], tolerance)
    best, pieces, visited, count, exhausted = -math.inf, [], set(), 0, False
    order = itertools.count()
    queue: list[tuple[float, int, Array]] = [(-math.inf, next(order), np.eye(a.shape[1]))]
    while queue and -queue[0][0] >= best - problem.tie and not exhausted:
        exhausted = count >= max_regions
        basis = queue[0][2] if exhausted else heapq.heappop(queue)[2]
        contained = frozenset(np.flatnonzero(np.linalg.norm(problem.u @ basis, axis=1) < SAME).tolist())
        if exhausted or contained in visited:
            continue
        visited.add(contained)
        found = _Flat(problem, basis).search(best)
        best, count = found.best, count + found.regions
        pieces += found.pieces
        for bound, wall in found.walls:
            heapq.heappush(queue, (-bound, next(order), wall))
    bound = max(best, -queue[0][0]) if exhausted else best
    chosen = _different(pieces, best - problem.tie)
    points = np.array([piece.point for piece in chosen]).reshape(-1, a.shape[1])
    value = float(np.max(problem.value(points), initial=-math.inf))
    return Maximum(value, bound + problem.rounding, chosen, count, exhausted)


class _Problem:
    def __init__(self, u: Array, positive: Array, negative: Array, tolerance: float):
        self.u, self.positive, self.negative = u, positive, negative
        self.scale = float(np.sum(np.abs(positive) + np.abs(negative)))
        self.tie = tolerance * self.scale
        self.rounding = 2 * (len(u) + u.shape[1]) * _EPS * self.scale

    def value(self, x: Array) -> Array:
        """`v` at points `(M, d)`."""
        s = x @ self.u.T
        return np.maximum(s, 0) ** 2 @ self.positive + np.maximum(-s, 0) ** 2 @ self.negative


class _Found(NamedTuple):
    best: float
    pieces: list[tuple[float, Piece]]
    walls: list[tuple[float, Array]]
    regions: int


class _Flat:
    """The problem on one linear space, in its coordinates: the regions and the quadratic form of each."""

    def __init__(self, problem: _Problem, basis: Array):
        self.problem, self.basis = problem, basis
        rows = problem.u @ basis
        size = np.linalg.norm(rows, axis=1)
        self.seen = size >= SAME
        rows, size = rows[self.seen], size[self.seen]
        positive, negative = problem.positive[self.seen], problem.negative[self.seen]
        lines, group, side = _lines(rows / size[:, None])
        jump = np.zeros(len(lines))
        np.add.at(jump, group, side * (positive - negative) * size**2)
        smooth = np.abs(jump) <= 4 * _EPS * problem.scale  # the same form on both sides
        self.normals = lines[~smooth]
        signs, self.inside = sign_regions(self.normals)
        self.signs = signs
        column = np.where(smooth, -1, np.cumsum(~smooth) - 1)[group]
        free = column < 0
        self.faces = side * np.hstack([signs, np.ones((len(signs), 1), int)])[:, column]
        m = basis.shape[1]
        outer = (rows[:, :, None] * rows[:, None, :]).reshape(-1, m * m)
        forms = (np.where(self.faces > 0, positive, negative) @ outer).reshape(-1, m, m)
        self.values, self.vectors = np.linalg.eigh(forms)
        self.faces[:, free] = 2

    def search(self, best: float) -> _Found:
        """The pieces on this flat that may be maximisers, the best value, and the walls left to search."""
        top, tie = self.values[:, -1], self.problem.tie
        multiplicity = np.sum(self.values >= top[:, None] - tie, axis=1)
        single = multiplicity == 1
        heights = self.signs * (self.vectors[:, :, -1] @ self.normals.T)
        pieces = []
        attained = np.zeros(len(top), bool)
        for direction in (1, -1):
            lies = single & (np.min(direction * heights, axis=1, initial=1.0) > SAME)
            attained |= lies
            best = max(best, float(np.max(top[lies], initial=-math.inf)))
            for r in np.flatnonzero(lies & (top >= best - tie)).tolist():
                pieces.append(self._piece(r, direction * self.vectors[r, :, -1:], direction * self.vectors[r, :, -1]))
        several = np.flatnonzero(~single & (top >= best - tie))
        for r in several[np.argsort(-top[several], kind="stable")].tolist():
            if top[r] < best - tie:
                break
            space = self.vectors[r, :, -multiplicity[r] :]
            point = self._in_region(r, space)
            if point is not None:
                attained[r], best = True, max(best, float(top[r]))
                pieces.append(self._piece(r, space, point))
        left = ~attained & (top >= best - tie)
        return _Found(best, [p for p in pieces if p[0] >= best - tie], self._walls(left), len(top))

    def _in_region(self, r: int, space: Array) -> Array | None:
        """A unit vector of `space` inside region r, or None."""
        if space.shape[1] == self.basis.shape[1]:
            return self.inside[r]
        if len(self.normals) and np.min(np.linalg.norm(self.normals @ space, axis=1)) < SAME:
            return None
        signs, points = _restricted(self.normals, space)
        match = np.flatnonzero((signs == self.signs[r]).all(axis=1))
        return points[match[0]] if len(match) else None

    def _piece(self, r: int, space: Array, point: Array) -> tuple[float, Piece]:
        signs = np.zeros(len(self.seen), int)
        signs[self.seen] = self.faces[r]
        x = self.basis @ point
        return float(self.values[r, -1]), Piece(x / np.linalg.norm(x), self.basis @ space, signs)

    def _walls(self, left: np.ndarray) -> list[tuple[float, Array]]:
        """Bases of the hyperplanes that bound the regions `left`, each with the largest eigenvalue next to it."""
        if not left.any() or self.basis.shape[1] == 1:
            return []
        known, walls = _words(self.signs), []
        for g, normal in enumerate(self.normals):
            across = self.signs[left]
            across[:, g] *= -1
            bounds = np.isin(_words(across), known)
            if bounds.any():
                bound = float(np.max(self.values[left, -1][bounds]))
                walls.append((bound, self.basis @ _complement(normal)))
        return walls


def _lines(u: Array) -> tuple[Array, np.ndarray, np.ndarray]:
    """Unit vectors sorted by the lines they span: a vector for each line, and of each row its line and its side."""
    apart = u[:, None, :] - u[None, :, :]
    summed = u[:, None, :] + u[None, :, :]
    same, opposite = (np.sum(v * v, axis=2) < SAME**2 for v in (apart, summed))
    first = np.argmax(same | opposite, axis=1) if len(u) else np.zeros(0, int)
    lines, group = np.unique(first, return_inverse=True)
    return u[lines], group, np.where(same[np.arange(len(u)), first], 1, -1)


def _restricted(e: Array, space: Array) -> tuple[np.ndarray, Array]:
    """`sign_regions` of the arrangement that the hyperplanes leave on a linear space that none of them contains."""
    rows = e @ space
    lines, group, side = _lines(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    signs, points = sign_regions(lines)
    return side * signs[:, group], points @ space.T


def _sectors(e: Array) -> tuple[np.ndarray, Array]:
    """`sign_regions` on the plane: the sectors between the lines, by angle."""
    normal = np.arctan2(e[:, 1], e[:, 0])
    border = np.sort(np.concatenate([normal, normal + math.pi]) + math.pi / 2)
    border = np.sort(np.mod(border, 2 * math.pi))
    middle = (border + np.append(border[1:], border[0] + 2 * math.pi)) / 2
    points = np.stack([np.cos(middle), np.sin(middle)], axis=1)
    return np.where(points @ e.T > 0, 1, -1), points


def _complement(normal: Array) -> Array:
    """Orthonormal basis `(m, m - 1)` of the space orthogonal to a unit vector: columns of a Householder reflection."""
    v = normal.copy()
    v[-1] += 1.0 if normal[-1] >= 0 else -1.0
    return (np.eye(len(v)) - np.outer(v, v) / (1 + abs(normal[-1])))[:, :-1]


def _words(signs: np.ndarray) -> np.ndarray:
    """Each row of signs as one word that NumPy can sort and look up."""
    letters = np.ascontiguousarray(signs + 2, dtype=np.uint8)
    return letters.view(f"S{signs.shape[1]}").ravel() if signs.shape[1] else np.full(len(signs), b"")


def _different(pieces: Sequence[tuple[float, Piece]], least: float) -> tuple[Piece, ...]:
    """The pieces of value at least `least`, largest dimensions first, without those inside another's closure."""
    kept: list[Piece] = []
    for _, piece in sorted((p for p in pieces if p[0] >= least), key=lambda p: -p[1].dimension):
        if not any(_inside(piece, other) for other in kept):
            kept.append(piece)
    return tuple(kept)


def _inside(piece: Piece, other: Piece) -> bool:
    if piece.dimension == 0 and other.dimension == 0:
        return bool(np.linalg.norm(piece.point - other.point) < NEAR)
    outside = piece.space - other.space @ (other.space.T @ piece.space)
    agree = (other.signs == 2) | (piece.signs == 0) | (piece.signs == other.signs)
    return bool(np.max(np.abs(outside)) < NEAR and agree.all())
