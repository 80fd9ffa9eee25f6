"""What the null space of a Wasserstein Hessian consists of: rotations, atoms in dead zones, and the rest."""

from collections.abc import Callable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from .._numerics import inner
from .._types import Points
from ..drifts import AbstractDrift, FreePerceptron, Perceptron
from ..measure import Measure
from ..sphere import tangent_basis

_SAME = 1e-6  # sine of an angle between subspaces up to which they share a direction
_RANK = 1e-10


class NullSpace(eqx.Module):
    """Dimension of a null space, and of its parts.

    Attributes:
        dimension: all of it; a lower bound unless `complete`.
        rotation: fields `x_i -> A x_i`, A skew, within it: dimension of their span.
        dead_zone: vectors within it that move only atoms on which every neuron of every perceptron is dead.
        other: what neither rotations nor dead zones (nor their sums) explain.
        complete: whether all eigenvalues were computed.
    """

    dimension: int
    rotation: int
    dead_zone: int
    other: int
    complete: bool


def explain(
    apply: Callable[[np.ndarray], np.ndarray],
    null: Float[np.ndarray, "n K"],
    drift: AbstractDrift,
    mu: Measure,
    cutoff: float,
    *,
    complete: bool,
) -> NullSpace:
    """The parts of the null space of the Hessian `apply`, of which the columns of `null` are an orthonormal basis.

    A rotation counts if `|H xi| <= cutoff |xi|`, whether it is in `null` or not. Cost O(n d^4) and `d (d-1)/2`
    products.
    """
    turns = _rotations(mu)
    if turns.size:
        _, size, rows = np.linalg.svd(apply(turns), full_matrices=False)
        turns = turns @ rows[size <= cutoff].T
    live = np.repeat(~dead_atoms(drift, mu.x), mu.d - 1)
    frozen = null[:, :0] if live.all() else null @ _null(null[live], _SAME)
    explained = _rank(np.concatenate([turns, frozen], axis=1), _SAME)
    dimension = null.shape[1] if complete else _rank(np.concatenate([turns, null], axis=1), _SAME)
    other = max(0, dimension - explained)
    return NullSpace(dimension, turns.shape[1], frozen.shape[1], other, complete)


def dead_atoms(drift: AbstractDrift, x: Points) -> Bool[np.ndarray, " N"]:
    """At which points every neuron of every perceptron is dead (`sigma = 0` around it); nowhere without perceptron."""
    parts = [p for p in jax.tree.leaves(drift, is_leaf=_is_perceptron) if _is_perceptron(p)]
    dead = np.full(x.shape[0], bool(parts))
    for part in parts:
        below = np.asarray(_preactivation(part, x) < 0).all(axis=1)
        dead &= below if part.activation.dead else np.zeros_like(below)
    return dead


def _rotations(mu: Measure) -> Float[np.ndarray, "n R"]:
    """Orthonormal basis, in the metric, of the span of all fields `x_i -> A x_i`."""
    x = np.asarray(mu.x, np.float64)
    first, second = np.triu_indices(mu.d, 1)
    basis = np.asarray(tangent_basis(mu.x), np.float64)
    fields = basis[:, :, first] * x[:, None, second] - basis[:, :, second] * x[:, None, first]
    columns = (np.sqrt(np.asarray(mu.w, np.float64))[:, None, None] * fields).reshape(-1, len(first))
    left, size, _ = np.linalg.svd(columns, full_matrices=False)
    return left[:, size > max(_RANK, 8 * float(np.finfo(mu.x.dtype).eps)) * size.max(initial=0.0)]


def _null(matrix: np.ndarray, tol: float) -> np.ndarray:
    """Orthonormal basis of the vectors that `matrix` maps to at most `tol` of their length, as columns."""
    if matrix.shape[0] == 0 or matrix.shape[1] == 0:
        return np.eye(matrix.shape[1])
    _, size, rows = np.linalg.svd(matrix, full_matrices=True)
    return rows[np.concatenate([size, np.zeros(len(rows) - len(size))]) <= tol].T


def _rank(columns: np.ndarray, tol: float) -> int:
    return int(np.sum(np.linalg.svd(columns, compute_uv=False) > tol)) if columns.size else 0


def _preactivation(part: Perceptron | FreePerceptron, x: Array) -> Array:
    return inner(x, part.a.astype(x.dtype)) + part.bias.astype(x.dtype)[None, :]


def _is_perceptron(part: object) -> bool:
    return isinstance(part, Perceptron | FreePerceptron)
