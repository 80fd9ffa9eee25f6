"""Global maximisers of the energy: the Diracs at the maximisers of the perceptron's potential. [paper A, prop. 3.7]"""

import math
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._numerics import dot, matmul
from ..drifts import AbstractDrift, AbstractPotential, Attention, Perceptron, check
from ..drifts.base import DriftSum, EnergySum, PotentialSum
from ..measure import Measure, concrete, empirical
from .arrangement import largest_piecewise_quadratic, region_bound
from .coordinates import jet
from .neurons import Neurons, row_space
from .search import Lowest, local_minima, lowest

Method = Literal["arrangement", "branch and bound", "multi-start"]
_SAME = 1e-6  # distance at which two points found by a search are one
_FLAT = 1e-7  # curvature, relative to the largest, that counts as none


class Maximisers(eqx.Module):
    """The Diracs that maximise an energy.

    Attributes:
        value: the maximum of `v(x) = sum_j omega_j phi(a_j.x + b_j)` (plus `k_beta(x . B x)` for heads with a matrix).
        energy: `E[delta_x]` there, the terms i = j of the attention contained.
        points: `(P, d)`, the maximisers found: isolated points, and one point for each piece of a continuum.
        dimensions: `(P,)`, the dimension of the piece that a point stands for; 0 for an isolated point.
        gap: an upper bound of the maximum, less `value`; inf where there is none (multi-start).
        method: `"arrangement"` (exact up to rounding), `"branch and bound"`, or `"multi-start"`.
        rigorous: whether the search was finished, so that `gap` is at the level asked for.
    """

    value: float = eqx.field(static=True)
    energy: float = eqx.field(static=True)
    points: Float[Array, "P d"]
    dimensions: Int[np.ndarray, " P"]
    gap: float = eqx.field(static=True)
    method: Method = eqx.field(static=True)
    rigorous: bool = eqx.field(static=True)

    @property
    def continuum(self) -> bool:
        """Whether there is more than a finite number of maximisers."""
        return bool((self.dimensions > 0).any())


class _Found(NamedTuple):
    value: float
    bound: float
    points: np.ndarray
    dimensions: np.ndarray
    method: Method
    rigorous: bool


def maximise(
    energy: AbstractDrift, *, d: int | None = None, tol: float = 1e-10, max_regions: int = 200_000
) -> Maximisers:
    """The global maximisers of an energy over all measures: `delta_x` with `x` in argmax `v`. [paper A, prop. 3.7 (i)]

    The energy is convex in the measure, so that Diracs maximise it; no other measure does where there is attention
    without a matrix or with a positive definite one. ReLU and leaky ReLU without biases: by the regions of the
    arrangement `{a_j.x = 0}` (`largest_piecewise_quadratic`; its cost). Otherwise, and beyond `max_regions` regions: by
    a certified search where d <= 3 or the input vectors span at most two dimensions; else by a multi-start, which
    proves nothing. Values that differ by less than `tol` of the perceptron's size count as equal. Continua are exact in
    an arrangement; a search finds them by the rank of the active neurons and, unproved, by flat directions. With a
    matrix B that is no multiple of the identity: `k_beta(x . B x) + v(x)`, by multi-start, or the principal
    eigenvectors where there is no perceptron.

    Args:
        energy: a sum of `Attention` and `Perceptron` terms.
        d: dimension of the points; needed where no term has one.
        tol: relative tolerance of ties, and of the certificate of a search.
        max_regions: largest number of regions to look at.

    Raises:
        ValueError: another drift, traced or non-finite weights, an unknown or a wrong dimension, a matrix that is not
            positive semidefinite (the energy is then not convex).
    """
    heads, perceptrons = _split(energy)
    d = _dimension(heads, perceptrons, d)
    check(energy, d)
    if not (math.isfinite(tol) and tol > 0):
        raise ValueError(f"tol = {tol}: expected a small positive number such as 1e-10")
    stretched = [head for head in heads if _stretches(head)]
    with np.errstate(over="ignore", invalid="ignore"):
        neurons = Neurons(perceptrons)
    if stretched:
        found = _with_matrices(stretched, neurons, d, tol)
    elif neurons.homogeneous and region_bound(len(neurons.a), d) <= max_regions:
        found = _by_regions(neurons, d, tol, max_regions)
    else:
        found = _by_search(neurons, d, tol)
    value = found.value + neurons.constant
    plain = sum(float(head.kernel.offset) for head in heads if not _stretches(head))
    dtypes = [part.a.dtype for part in perceptrons] or [head.kernel.beta.dtype for head in heads]
    return Maximisers(
        value,
        (value + plain) / 2,
        jnp.asarray(found.points, np.result_type(*dtypes)),
        found.dimensions,
        max(found.bound - found.value, 0.0),
        found.method,
        found.rigorous,
    )


class _OfDiracs(AbstractPotential):
    """`E[delta_x]` as a function of x, without the constants `1/beta`."""

    heads: tuple[Attention, ...]
    neurons: tuple[Perceptron, ...]

    def potential(self, x: Float[Array, "M d"], mu: Measure) -> Float[Array, " M"]:
        """`(sum_h k_h(x . B_h x) + v(x))/2`, whatever the measure."""
        total = sum((part.potential(x, mu) for part in self.neurons), jnp.zeros_like(x[:, 0]))
        for head in self.heads:
            assert head.matrix is not None
            t = dot(x, matmul(x, head.matrix.astype(x.dtype)))
            total = total + head.kernel.centre().profile(t[:, None])[:, 0] / 2
        return total


def _by_regions(neurons: Neurons, d: int, tol: float, max_regions: int) -> _Found:
    a = neurons.a if len(neurons.a) else np.zeros((0, d))
    found = largest_piecewise_quadratic(a, neurons.positive, neurons.negative, tolerance=tol, max_regions=max_regions)
    if found.exhausted or not found.pieces:
        search = _by_search(neurons, d, tol)
        return search if search.rigorous else search._replace(bound=min(search.bound, found.bound))
    points = np.stack([piece.point for piece in found.pieces])
    dimensions = np.array([piece.dimension for piece in found.pieces])
    return _Found(found.value, found.bound, points, dimensions, "arrangement", True)


def _by_search(neurons: Neurons, d: int, tol: float) -> _Found:
    """In fewer dimensions where the input vectors span fewer: `v` sees no more of x than its part in their span."""
    span = row_space(neurons.a, d)
    r = span.shape[1]
    if r + 1 < d:
        hidden = np.linalg.svd(span, full_matrices=True)[0][:, r:]
        lift = np.concatenate([span, hidden[:, :1]], axis=1)
    else:
        lift = np.eye(d)
    potential, mu = neurons.on(lift), _anywhere(lift.shape[1])
    minima, values = local_minima(potential, mu, sign=-1)
    limit = -neurons.upper / (2 * neurons.scale)
    if values[0] <= limit + tol / 2:
        low = Lowest(float(values[0]), minima[0], limit, True, 0, minima, values)
    else:
        low = lowest(potential, mu, tol=tol / 2, sign=-1)
    points = low.minima[low.values <= low.value + tol / 2] @ lift.T
    return _labelled(low, neurons.scale, *_pieces(neurons, points))


def _pieces(neurons: Neurons, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points found, those of one continuum replaced by the first of them, and the dimensions of the continua."""
    free = [neurons.free(x) for x in points]
    kept: list[int] = []
    for i, (dimension, seen) in enumerate(free):
        if not any(dimension > 0 and np.linalg.norm(seen - free[k][1]) < _SAME for k in kept):
            kept.append(i)
    points, dimensions = points[kept], np.array([free[i][0] for i in kept])
    return _flat_directions(neurons.on(np.eye(points.shape[1])), points, dimensions)


def _flat_directions(
    potential: AbstractPotential, points: np.ndarray, dimensions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of several points that have flat directions and no known dimension, one is left to stand for the continuum."""
    if len(points) < 2:
        return points, dimensions
    hessian = jet(potential, jnp.asarray(points), _anywhere(points.shape[1]))[2]
    curvature = np.abs(np.linalg.eigvalsh(np.asarray(hessian)))
    flat = np.sum(curvature <= _FLAT * max(1.0, float(curvature.max())), axis=1) * (dimensions == 0)
    if np.sum(flat > 0) < 2:
        return points, dimensions
    keep = (flat == 0) | (np.arange(len(points)) == np.argmax(flat))
    return points[keep], (dimensions + flat)[keep]


def _with_matrices(heads: list[Attention], neurons: Neurons, d: int, tol: float) -> _Found:
    offset = sum(float(head.kernel.offset) for head in heads)
    if len(heads) == 1 and not neurons.parts:
        eigenvalues, vectors = np.linalg.eigh(np.asarray(heads[0].matrix, float))
        found = largest_piecewise_quadratic(vectors.T, eigenvalues, eigenvalues, tolerance=tol)
        top = heads[0].kernel.profile(jnp.asarray([[found.value, found.bound]]))
        points = np.stack([piece.point for piece in found.pieces])
        dimensions = np.array([piece.dimension for piece in found.pieces])
        return _Found(float(top[0, 0]), float(top[0, 1]), points, dimensions, "arrangement", True)
    potential = _OfDiracs(tuple(heads), tuple(neurons.parts))
    low = lowest(potential, _anywhere(d), tol=tol / 2, sign=-1)
    near = low.minima[low.values <= low.value + tol / 2 * max(1.0, abs(low.value))]
    found = _labelled(low, 1.0, *_flat_directions(potential, near, np.zeros(len(near), int)))
    return found._replace(value=found.value + offset, bound=found.bound + offset)


def _labelled(low: Lowest, scale: float, points: np.ndarray, dimensions: np.ndarray) -> _Found:
    value = -2 * scale * low.value
    if low.cells == 0 and not low.rigorous:
        return _Found(value, math.inf, points, dimensions, "multi-start", False)
    return _Found(value, -2 * scale * low.bound, points, dimensions, "branch and bound", low.rigorous)


def _split(energy: AbstractDrift) -> tuple[list[Attention], list[Perceptron]]:
    terms = energy.terms if isinstance(energy, DriftSum | PotentialSum | EnergySum) else (energy,)
    for term in terms:
        if not isinstance(term, Attention | Perceptron):
            raise ValueError(
                f"{type(term).__name__} in the energy: expected a sum of Attention and Perceptron terms, whose "
                "maximisers are known to be Diracs"
            )
    if not all(concrete(leaf) for leaf in jax.tree.leaves(energy)):
        raise ValueError("traced parameters: maximise works on numbers; call it outside jit, vmap and grad")
    return [t for t in terms if isinstance(t, Attention)], [t for t in terms if isinstance(t, Perceptron)]


def _dimension(heads: list[Attention], perceptrons: list[Perceptron], d: int | None) -> int:
    known = [part.a.shape[1] for part in perceptrons]
    known += [head.matrix.shape[0] for head in heads if head.matrix is not None]
    if d is None and not known:
        raise ValueError("the dimension is not known without a perceptron: give d, the dimension of the points")
    d = known[0] if d is None else d
    if d < 2:
        raise ValueError(f"d = {d}: expected d >= 2 (the sphere S^(d-1) in R^d)")
    return d


def _stretches(head: Attention) -> bool:
    """Whether `x . B x` changes along the sphere; refuses a B for which the energy is not convex."""
    if head.matrix is None:
        return False
    eigenvalues = np.linalg.eigvalsh(np.asarray(head.matrix, float))
    size = float(np.max(np.abs(eigenvalues)))
    if eigenvalues[0] < -1e-12 * size:
        raise ValueError(
            f"matrix B has the eigenvalue {eigenvalues[0]:.3g}: expected B positive semidefinite; the energy is not "
            "convex, and its maximisers need not be Diracs"
        )
    return bool(eigenvalues[-1] - eigenvalues[0] > 1e-12 * size)


def _anywhere(d: int) -> Measure:
    return empirical(jnp.eye(1, d))
