"""What kind of critical point a measure is: its residual, and three levels of stability, each with its own number."""

import math
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import sphere
from .._types import Direction
from ..drifts import AbstractDrift, AbstractEnergy, Attention, EnergySum, Perceptron, prepare
from ..gradient import sign
from ..kernels import Exponential
from ..measure import Measure
from .kinks import find_kinks
from .search import lowest
from .second_order import STATIONARY, AbstractHessian, Spectrum, field_derivative, hessian, spectrum, with_mass

STRICT, DEGENERATE, SADDLE, NOT_STATIONARY = "strictly SOPD", "degenerate", "saddle", "not stationary"
_STARTS = 64  # atoms from which the search for the extremum begins, besides its grid
_SAMPLE = 512  # points on which the range of a potential is read off


class Sides(eqx.Module):
    """A smallest eigenvalue as it is, and with each kink within reach of an atom on its lower or its upper side.

    `lower` is the smallest over all combinations of sides, `upper` the largest; all three agree away from kinks.
    """

    value: float
    lower: float
    upper: float


class Gap(eqx.Module):
    """Level 3: how far a measure is from having `U[mu]` lowest (ascent: highest) on its support.

    Attributes:
        value: `∫ U dmu - min U` (ascent: `max U - ∫ U dmu`), the extremum replaced by its proven bound.
        rigorous: whether that bound is proven and tight.
        certificate: whether `E[mu] - min E <= value`: descent, a strictly convex energy, a rigorous bound.
        stable: whether the value is 0 up to the tolerance.
        optimal: True with a certificate and the value 0; False if moving mass to `x` helps; None if neither is known.
        scale: the largest difference that values of `U` can have, about, which the tolerance is relative to.
        x: where `U` is extremal, `(d,)`.
    """

    value: float
    rigorous: bool
    certificate: bool
    stable: bool
    optimal: bool | None
    scale: float
    x: Float[np.ndarray, " d"]


class Classification(eqx.Module):
    """What `classify` found. Eigenvalues are stable if positive, for descent and ascent alike.

    Attributes:
        kind: `"strictly SOPD"`, `"degenerate"` or `"saddle"`; `"not stationary"` where the residual is too large.
        hessian_kind: what the Hessian alone says, stationary or not.
        residual, stationary: `max_i |P grad U(x_i)|`, and whether it is within the tolerance.
        transport: level 1, the smallest eigenvalue of the Wasserstein Hessian: atoms move.
        splitting: level 2, the smallest eigenvalue of the tangential Hessian of `U[mu]` at an atom: atoms split.
        splitting_stable: whether no atom gains by splitting, on any side of a kink within reach.
        splitting_at: `(N,)`, the same for each atom, as it is; nan for points without mass.
        gap: level 3; None if not asked for, or if the drift has no energy.
        kinks: pairs of an atom and a neuron's kink within reach.
        spectrum: the Hessian's spectrum, with its null space and the method.
    """

    kind: str = eqx.field(static=True)
    hessian_kind: str = eqx.field(static=True)
    residual: float
    stationary: bool
    transport: Sides
    splitting: Sides
    splitting_stable: bool
    splitting_at: Float[np.ndarray, " N"]
    gap: Gap | None
    kinks: int
    spectrum: Spectrum

    @property
    def smallest_eigenvalue(self) -> float:
        """Of the Wasserstein Hessian (its symmetric part if the drift has no energy)."""
        return self.transport.value

    @property
    def one_sided(self) -> bool:
        """Whether the class depends on which side of a kink the atoms lie."""
        cut = self.spectrum.cutoff
        return len({_kind(v, cut) for v in (self.transport.value, self.transport.lower, self.transport.upper)}) > 1


def classify(
    drift: AbstractDrift,
    mu: Measure,
    *,
    direction: Direction = "descent",
    tol: float = 1e-9,
    reach: float = 1e-6,
    gap: bool = True,
    stationary_tol: float = STATIONARY,
    number: int | None = None,
) -> Classification:
    """Class and stability of a critical point at three levels: transport, splitting, global. [MATH, section 6]

    1. Transport: smallest eigenvalue of the Wasserstein Hessian: strictly SOPD above the cutoff of
       `hessian_spectrum`, a saddle below minus it, degenerate between (rotations always are).
    2. Splitting: smallest eigenvalue of the Hessian of `U[mu]` at the atoms. A particle counts as an atom.
    3. Global: the gap, by `search.lowest`, which is the expensive part.

    An atom within the angle `reach` of a kink is examined on both its sides: pressed against a ReLU's kink a cluster
    may be a strict minimum as it is, and lose mass across the kink to the smallest kick. Points without mass are left
    out. Without an energy (softmax attention, free output vectors) the class follows the eigenvalues of the
    linearised flow where all are computed, else those of its symmetric part, which may say saddle where the flow is
    stable; level 2 is about the potential `(1/beta) log Z + v/2`, and level 3 is left out, as nothing is minimised.
    The jumps of free output vectors at a kink are not examined.

    Raises:
        ValueError: as `hessian_spectrum`; `reach` or `stationary_tol` negative.
    """
    if not (reach >= 0 and stationary_tol >= 0):
        raise ValueError(f"reach = {reach}, stationary_tol = {stationary_tol}: expected both at least 0")
    if not 0 <= tol < 1:
        raise ValueError(f"tol = {tol}: expected a share of the largest eigenvalue, 0 <= tol < 1")
    kept, nu = with_mass(mu)
    operator = hessian(drift, nu, direction, number)
    found = spectrum(operator, drift, mu, kept, number=number, tol=tol)
    blocks, down, up, near = _sided(drift, nu, direction, reach)
    transport = _transport(operator, found, down, up, near)
    splitting, each = _splitting(blocks, down, up)
    splitting_at = np.full(mu.n, np.nan)
    splitting_at[kept] = each
    stationary = found.residual <= max(stationary_tol, 64 * float(jnp.finfo(nu.x.dtype).eps))
    decisive = found.smallest_real_part if math.isfinite(found.smallest_real_part) else transport.value
    kind = _kind(decisive, found.cutoff)
    energy = drift if gap and isinstance(drift, AbstractEnergy) else None
    return Classification(
        kind if stationary else NOT_STATIONARY,
        kind,
        found.residual,
        stationary,
        transport,
        splitting,
        splitting.lower >= -found.cutoff,
        splitting_at,
        None if energy is None else frank_wolfe_gap(energy, nu, direction=direction, tol=tol),
        near,
        found,
    )


def splitting_test(
    drift: AbstractDrift, mu: Measure, *, direction: Direction = "descent", reach: float = 1e-6
) -> tuple[Sides, Float[np.ndarray, " N"], int]:
    """Level 2 of `classify` by itself: the smallest over the points, each point's with every kink within reach on its
    lower side, and the number of such kinks. Cost of d velocities.
    """
    blocks, down, up, near = _sided(drift, mu, direction, reach)
    return _splitting(blocks, down, up)[0], _splitting(blocks + down, down, up)[1], near


def frank_wolfe_gap(energy: AbstractEnergy, mu: Measure, *, direction: Direction = "descent", tol: float = 1e-9) -> Gap:
    """Level 3 of `classify` by itself; the gap counts as 0 up to `tol` of the largest difference of values of `U`.

    With `self_interaction=False` it is about the energy with its terms i = j, which is the one that is convex.

    Raises:
        ValueError: an unknown direction; traced parameters.
    """
    s = -sign(direction)
    energy = _conditioned(energy)
    mean, scale = (float(v) for v in _mean_and_scale(energy, mu))
    found = lowest(energy, mu, sign=s, starts=np.asarray(mu.x)[:_STARTS], tol=tol * scale / 100)
    value, least = s * mean - found.bound, s * mean - found.value
    certificate = direction == "descent" and found.rigorous and strictly_convex(energy)
    stable = value <= tol * scale
    optimal = False if least > tol * scale else True if certificate and stable else None
    return Gap(value, found.rigorous, certificate, stable, optimal, scale, np.asarray(found.x, np.float64))


def strictly_convex(energy: AbstractEnergy) -> bool:
    """Whether `E[mu]` is known to be strictly convex in the measure: attention at beta > 0 without a matrix or with a
    positive definite one, plus attention at beta >= 0 with positive semidefinite ones, plus perceptrons. [paper A,
    proposition 3.7]
    """
    terms = energy.terms if isinstance(energy, EnergySum) else (energy,)
    heads = [term for term in terms if isinstance(term, Attention)]
    others = [term for term in terms if not isinstance(term, Attention | Perceptron)]
    least = [1.0 if h.matrix is None else float(np.min(np.linalg.eigvalsh(np.asarray(h.matrix)))) for h in heads]
    strict = any(float(h.kernel.beta) > 0 and value > 0 for h, value in zip(heads, least, strict=True))
    return strict and not others and all(value >= 0 for value in least)


def _transport(operator: AbstractHessian, found: Spectrum, down: np.ndarray, up: np.ndarray, near: int) -> Sides:
    value = float(found.eigenvalues[0])
    if not near:
        return Sides(value, value, value)
    lower, upper = (float(operator.plus(jnp.asarray(side)).smallest(1).values[0]) for side in (down, up))
    return Sides(value, min(lower, value), max(upper, value))


def _sided(drift: AbstractDrift, mu: Measure, direction: Direction, reach: float) -> tuple:
    """Hessians at the points, positive if stable, their lower and upper changes at kinks, and how many are near."""
    s = -sign(direction)
    blocks, down, up, near = (np.asarray(v) for v in _local(drift, mu, jnp.asarray(reach, mu.x.dtype)))
    return s * blocks, *((down, up) if s > 0 else (-up, -down)), int(near)


def _splitting(blocks: np.ndarray, down: np.ndarray, up: np.ndarray) -> tuple[Sides, np.ndarray]:
    """The smallest over atoms on each side, and each atom's as it is."""
    value, lower, upper = (np.linalg.eigvalsh(part)[:, 0] for part in (blocks, blocks + down, blocks + up))
    return Sides(float(value.min()), float(lower.min()), float(upper.min())), value


def _kind(value: float, cutoff: float) -> str:
    if value < -cutoff:
        return SADDLE
    return STRICT if value > cutoff else DEGENERATE


def _conditioned(energy: AbstractEnergy) -> AbstractEnergy:
    """The energy with its evaluators' tables, its kernels without the constant `1/beta` where that is large."""

    def centred(part: object) -> object:
        return part.centre() if isinstance(part, Exponential) and float(part.beta) < 1 else part

    changed = jax.tree.map(centred, prepare(energy), is_leaf=lambda part: isinstance(part, Exponential))
    return cast(AbstractEnergy, changed)


@eqx.filter_jit
def _mean_and_scale(energy: AbstractEnergy, mu: Measure) -> tuple[Array, Array]:
    """`∫ U dmu`, and the kernel's range plus that of `v/2` on random points."""
    scale = jnp.zeros((), mu.x.dtype)
    points = sphere.uniform(jax.random.key(0), _SAMPLE, mu.d, mu.x.dtype)
    for term in energy.terms if isinstance(energy, EnergySum) else (energy,):
        if isinstance(term, Attention):
            ends = term.kernel.shift * jnp.asarray([[1.0, -1.0]], mu.x.dtype)
            scale = scale + jnp.ptp(term.kernel.profile(ends))
        else:
            scale = scale + jnp.ptp(term.potential(points, mu))
    return jnp.sum(mu.w * energy.potential(mu.x, mu)), scale


@eqx.filter_jit
def _local(drift: AbstractDrift, mu: Measure, reach: Array) -> tuple[Array, Array, Array, Array]:
    """At the atoms: symmetric part of the field's derivative, the kinks' lower and upper changes, and their number."""
    found = find_kinks(drift, mu.x)
    blocks = field_derivative(prepare(drift), mu)
    blocks = (blocks + jnp.swapaxes(blocks, 1, 2)) / 2
    near = jnp.sum(found.near(reach), dtype=jnp.int32)
    return blocks, found.lower(mu.x, reach), found.upper(mu.x, reach), near
