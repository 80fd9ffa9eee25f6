"""Cells that cover the circle (arcs) and `S^2` (spherical triangles), and their division."""

import abc
import math

import equinox as eqx
import numpy as np


class Cells(eqx.Module):
    """Many cells at once, each inside the geodesic disc of its `centre (P, d)` and `radius (P,)` in radians."""

    centre: eqx.AbstractVar[np.ndarray]
    radius: eqx.AbstractVar[np.ndarray]

    def __len__(self) -> int:
        return len(self.radius)

    @abc.abstractmethod
    def where(self, mask: np.ndarray) -> "Cells":
        """Those of the cells that the mask names."""

    @abc.abstractmethod
    def divided(self) -> "Cells":
        """Smaller cells that cover the same."""

    def within(self, centres: np.ndarray, radii: np.ndarray) -> np.ndarray:
        """Which cells lie in one of the balls, as booleans."""
        inside = np.zeros(len(self), bool)
        for x, r in zip(centres, radii, strict=True):
            chord = np.linalg.norm(self.centre - x, axis=1)
            inside |= 2 * np.arcsin(np.minimum(chord / 2, 1.0)) + self.radius <= r
        return inside


class Arcs(Cells):
    """Arcs of the circle by their middle angle and half length."""

    angle: np.ndarray
    radius: np.ndarray

    def __init__(self, angle: np.ndarray, radius: np.ndarray):
        self.angle, self.radius = angle, radius

    @property
    def centre(self) -> np.ndarray:
        """The middles, as points."""
        return np.stack([np.cos(self.angle), np.sin(self.angle)], axis=1)

    def where(self, mask: np.ndarray) -> "Arcs":
        """Those of the arcs that the mask names."""
        return Arcs(self.angle[mask], self.radius[mask])

    def divided(self) -> "Arcs":
        """Both halves of each."""
        half = self.radius / 2
        return Arcs(np.concatenate([self.angle - half, self.angle + half]), np.concatenate([half, half]))


class Triangles(Cells):
    """Spherical triangles by their corners `(P, 3, 3)`."""

    corners: np.ndarray
    centre: np.ndarray
    radius: np.ndarray

    def __init__(self, corners: np.ndarray):
        mean = corners.sum(axis=1)
        self.corners = corners
        self.centre = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        # Distance from a point is convex in a small disc: the farthest point of a triangle is a corner.
        chord = np.linalg.norm(corners - self.centre[:, None, :], axis=2).max(axis=1, initial=0.0)
        self.radius = 2 * np.arcsin(chord / 2) * (1 + 1e-12)

    def where(self, mask: np.ndarray) -> "Triangles":
        """Those of the triangles that the mask names."""
        return Triangles(self.corners[mask])

    def divided(self) -> "Triangles":
        """The four triangles between the corners and the middles of the sides."""
        a, b, c = (self.corners[:, i] for i in range(3))
        middles = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (b + c, c + a, a + b)]
        p, q, r = middles
        parts = [(a, r, q), (r, b, p), (q, p, c), (p, q, r)]
        return Triangles(np.concatenate([np.stack(part, axis=1) for part in parts]))


def arcs(number: int) -> Arcs:
    """`number` equal arcs that cover the circle."""
    half = math.pi / number
    return Arcs((2 * np.arange(number) + 1) * half, np.full(number, half * (1 + 1e-12)))


def triangles(divisions: int) -> Triangles:
    """The octahedron's eight faces, divided in four `divisions` times: they cover `S^2`."""
    x, y, z = np.eye(3)
    faces = [(i * x, j * y, k * z) for i in (1, -1) for j in (1, -1) for k in (1, -1)]
    cells = Triangles(np.array(faces))
    for _ in range(divisions):
        cells = cells.divided()
    return cells
