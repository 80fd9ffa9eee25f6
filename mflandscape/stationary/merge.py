"""From a cloud to atoms: particles that lie together become one, masses kept."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..clusters import linkage_clusters
from ..measure import Measure

_linked = jax.jit(lambda x, angle: linkage_clusters(x, angle)[0])


class Merged(eqx.Module):
    """A cloud seen as atoms, heaviest first.

    Attributes:
        mu: the atomic measure.
        owner: `(N,)`, the atom that took each particle; -1 for massless particles, which are left out.
        particles: `(n,)`, how many particles each atom took.
        spread: `(n,)`, the angle from each atom to the farthest of its particles.
        massless: how many particles were left out.
    """

    mu: Measure
    owner: Int[Array, " N"]
    particles: Int[Array, " n"]
    spread: Float[Array, " n"]
    massless: int


def merge(mu: Measure, tolerance: float) -> Merged:
    """Single linkage: particles joined by a chain of steps of at most `tolerance` radians become one atom.

    An atom sits at the normalised weighted mean of its particles (at the first of them where the mean vanishes) and
    has the sum of their masses (the share of particles where all masses are equal). Cost O(N^2 d) a round of the
    linkage, about `log N` rounds. Not for compiled code: the number of atoms is a shape.

    Raises:
        ValueError: tolerance not in [0, pi], points or masses that are not finite, no mass at all.
    """
    x, w = np.asarray(mu.x), np.asarray(mu.w)
    if not 0 <= tolerance <= math.pi:
        raise ValueError(f"tolerance = {tolerance}: expected an angle in [0, pi]")
    if not (np.isfinite(x).all() and np.isfinite(w).all()):
        raise ValueError("points or masses that are not finite: expected a finite measure; look at the run's result")
    massive = np.flatnonzero(w > 0)
    if not len(massive):
        raise ValueError("no particle has mass: expected masses of sum 1")
    labels = _labels(x[massive], tolerance)
    heaviest_first = np.argsort(-np.bincount(labels, w[massive]), kind="stable")
    rank = np.empty_like(heaviest_first)
    rank[heaviest_first] = np.arange(len(heaviest_first))
    owner = np.full(len(w), -1, np.int32)
    owner[massive] = rank[labels]
    return gather(mu, owner)


def gather(mu: Measure, owner: np.ndarray) -> Merged:
    """The atoms of a given partition: `owner (N,)` numbers them from 0, -1 leaves a particle out."""
    x, w = np.asarray(mu.x), np.asarray(mu.w)
    kept = owner >= 0
    group, points, weights = owner[kept], x[kept], w[kept]
    particles = np.bincount(group)
    equal = (weights == weights[0]).all()
    masses = particles * (weights.sum() / len(weights)) if equal else np.bincount(group, weights)
    # Means of differences to a member: rounding is that of the spread, and equal points stay what they are.
    _, first = np.unique(group, return_index=True)
    base = points[first]
    shifts = [np.bincount(group, weights * gap) for gap in (points - base[group]).T]
    means = base + np.stack(shifts, axis=1) / masses[:, None]
    length = np.linalg.norm(means, axis=1)
    lost = (length <= 1e-6) | (particles == 1)
    atoms = np.where(lost[:, None], base, means / np.where(lost, 1, length)[:, None])
    spread = np.zeros(len(particles), x.dtype)
    np.maximum.at(spread, group, angles(points, atoms[group]))
    return Merged(
        mu=Measure(jnp.asarray(atoms, mu.x.dtype), jnp.asarray(masses, mu.w.dtype)),
        owner=jnp.asarray(owner, jnp.int32),
        particles=jnp.asarray(particles, jnp.int32),
        spread=jnp.asarray(spread, mu.x.dtype),
        massless=int((~kept).sum()),
    )


def angles(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Geodesic distances between rows, as `sphere.distance`, on the host."""
    return 2 * np.arctan2(np.linalg.norm(x - y, axis=-1), np.linalg.norm(x + y, axis=-1))


def _labels(x: np.ndarray, tolerance: float) -> np.ndarray:
    """Labels of the linkage; the cloud is filled up with copies of its first point, so that few sizes are compiled."""
    fill = (1 << (len(x) - 1).bit_length()) - len(x)
    padded = np.concatenate([x, np.repeat(x[:1], fill, axis=0)])
    return np.asarray(_linked(jnp.asarray(padded), jnp.asarray(tolerance, x.dtype)))[: len(x)]
