"""Particles that have come together move as one: which slot of a shorter array stands for each of them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..measure import Measure
from ..sphere import chart
from ..stationary.merge import gather

_BUCKETS = tuple(6 * 4**k for k in range(18))  # lengths of arrays: few, for each is compiled


class Slots:
    """Where the N particles are kept: `u` and masses `w` of the slots, of which the first `live` are in use, and the
    slot of each particle. Idle slots are massless copies of the first.
    """

    def __init__(self, u: np.ndarray, w: np.ndarray, owner: Int[np.ndarray, " N"], live: int, d: int):
        self.u, self.w, self.owner, self.live, self.d = u, w, owner, live, d

    @classmethod
    def of(cls, mu: Measure, u: np.ndarray) -> "Slots":
        """A slot a particle."""
        return cls(np.asarray(u), np.asarray(mu.w), np.arange(mu.n), mu.n, mu.d)

    @property
    def in_use(self) -> Bool[np.ndarray, " S"]:
        """Which slots are."""
        return np.arange(len(self.u)) < self.live

    @property
    def points(self) -> Float[np.ndarray, "S d"]:
        """Points of the sphere."""
        return _points(self.u, self.d)

    def at(self, u: np.ndarray) -> "Slots":
        """The same slots elsewhere."""
        return Slots(u, self.w, self.owner, self.live, self.d)

    def merged(self, u: np.ndarray, contracting: Bool[np.ndarray, " S"], angle: float) -> "Slots | None":
        """The slots at `u` with those joined that lie within `angle` of each other and are both contracting; None if
        there are none.

        An atom sits at the mean of its particles and has the sum of their masses; the array shrinks to the smallest
        of a few lengths that holds all.
        """
        labels = _linked(u[: self.live], contracting[: self.live], angle, self.d)
        count = int(labels.max()) + 1
        if count == self.live:
            return None
        weights = np.maximum(self.w[: self.live], 1e-300)  # massless ones have a mean, too
        cloud = Measure(jnp.asarray(_points(u[: self.live], self.d)), jnp.asarray(weights))
        means = np.asarray(_to_coordinates(gather(cloud, labels).mu.x))
        _, first, sizes = np.unique(labels, return_index=True, return_counts=True)
        single = sizes == 1 if self.d == 2 else (sizes == 1)[:, None]
        atoms = np.where(single, u[: self.live][first], means)
        masses = np.bincount(labels, self.w[: self.live])
        length = min((size for size in _BUCKETS if size >= count), default=count)
        spare = max(min(length, len(u)) - count, 0)
        return Slots(
            np.concatenate([atoms, np.repeat(atoms[:1], spare, axis=0)]),
            np.concatenate([masses, np.zeros(spare, masses.dtype)]).astype(self.w.dtype),
            labels[self.owner],
            count,
            self.d,
        )


@functools.partial(jax.jit, static_argnames="d")
def _to_points(u: Array, d: int) -> Array:
    return chart(d).points(u)


@jax.jit
def _to_coordinates(x: Array) -> Array:
    return chart(x.shape[1]).coordinates(x)


def _points(u: np.ndarray, d: int) -> np.ndarray:
    return np.asarray(_to_points(u, d))


def _linked(u: np.ndarray, contracting: Bool[np.ndarray, " S"], angle: float, d: int) -> Int[np.ndarray, " S"]:
    """Numbers from 0 of the groups that single linkage makes of contracting particles; each other one is its own."""
    if d == 2:
        first, second = _neighbours(u, angle)
    else:
        from scipy.spatial import KDTree  # slow to import

        first, second = KDTree(u).query_pairs(2 * np.sin(angle / 2), output_type="ndarray").T
    both = contracting[first] & contracting[second]
    return _components(len(u), first[both], second[both])


def _neighbours(theta: Float[np.ndarray, " S"], angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Pairs next to each other on the circle."""
    order = np.argsort(theta, kind="stable")
    gaps = np.mod(np.roll(theta[order], -1) - theta[order], 2 * np.pi)
    close = gaps < angle
    return order[close], np.roll(order, -1)[close]


def _components(n: int, first: np.ndarray, second: np.ndarray) -> Int[np.ndarray, " n"]:
    """Connected components, numbered in the order of their first members."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components  # slow to import

    graph = coo_array((np.ones(len(first), bool), (first, second)), (n, n))
    return connected_components(graph, directed=False)[1]
