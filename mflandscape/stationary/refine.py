"""From the end of a flow to a critical point: merge, Newton, and what became of each atom."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._numerics import safe_norm
from .._types import Direction, Scalar
from ..drifts import AbstractDrift, AbstractEnergy, check, prepare
from ..gradient import sign
from ..measure import Measure
from .clarke import may_jump, settle_at_jumps
from .coordinates import gradient
from .kinks import find_kinks
from .merge import Merged, angles, gather, merge
from .newton import newton, scaled

_LADDER = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)  # tolerances of the partitions that are tried
_UNKNOWNS = 64  # finer partitions with more are not tried
_TOUCH = 1e-6  # atoms nearer than this have collided
_AT_KINK = 1e-6  # an atom so near a kink is said to sit on it
_ROUNDS = 8  # of collisions, and of letting go of atoms that do not settle
_CULPRIT = 0.01  # atoms with more than this part of the largest residual hold Newton's method up
_FAR = 0.05  # radians, from which a particle may have left the flow's way
_ROUNDING = 1e-11  # of energies that are compared
_UNSTABLE = 1e-9  # growth rates above this part of the largest eigenvalue are instabilities


class Refined(eqx.Module):
    """A critical point beside a cloud, or the best that was found: see `converged` and `residual`.

    Attributes:
        mu: the atoms, heaviest first; masses are sums of the particles'.
        owner: `(N,)`, the atom of each particle; -1 for massless ones.
        merged: `(n,)`, how many particles each atom took.
        moved: `(n,)`, the angle from the weighted mean of an atom's particles to the atom.
        displacement: mass-weighted mean angle from the particles to their atoms.
        residuals, residual: `|P grad U[mu](x_i)|` and the largest of them; `residual_before`: that of the cloud.
        unsettled: `(n,)`, atoms whose residual stayed above the tolerance, unless in `clarke`.
        unresolved_mass: their mass.
        clarke: `(n,)`, atoms on a jump of the gradient, with 0 between its two sides (stationary in the sense of the
            Clarke subdifferential only).
        kinks: rows `(atom, neuron)`: the atom lies within 1e-6 radians of that neuron's kink.
        steps: Newton steps taken. converged: no atom is unsettled.
        energy_before, energy: of the cloud and of the atoms; nan for a drift without an energy.
        growth: largest growth rate of a perturbation of the atoms' positions under the flow; below 0 for a stable
            state, 0 (to rounding) where a symmetry leaves a direction free.
        against_flow: the flow would not have ended here: the state is unstable under it, or its energy lies on the
            wrong side of the cloud's.
        other_basin: that, or a particle travelled more than 0.05 radians, so that the flow may have ended elsewhere.
        merge_tolerance: the tolerance of the partition that was kept.
        massless: particles left out.
    """

    mu: Measure
    owner: Int[Array, " N"]
    merged: Int[Array, " n"]
    moved: Float[Array, " n"]
    displacement: float
    residuals: Float[Array, " n"]
    residual: float
    residual_before: float
    unsettled: Bool[Array, " n"]
    unresolved_mass: float
    clarke: Bool[Array, " n"]
    kinks: Int[Array, "K 2"]
    steps: int
    converged: bool
    energy_before: float
    energy: float
    growth: float
    against_flow: bool
    other_basin: bool
    merge_tolerance: float
    massless: int


def refine(
    drift: AbstractDrift,
    mu: Measure,
    *,
    merge_tolerance: float | None = None,
    tol: float = 1e-12,
    max_steps: int = 100,
    direction: Direction = "descent",
) -> Refined:
    """Merges a cloud into atoms and moves them, at fixed masses, to where `P grad U[mu](x_i) = 0`.

    Without a `merge_tolerance`, the partitions by single linkage at 0.1, 0.01, ... 1e-6 radians are tried, coarse to
    fine, until two in a row end in the same state. Kept is, among those for which Newton's method reaches `tol`, one
    that is not `against_flow` before one that is, then the one of least `displacement`. Partitions of more than 64
    unknowns are not tried, but for the coarsest. Atoms that come within 1e-6 of each other on the way merge. Atoms
    that do not settle are held where the method gave up, the others settle beside them, and their mass is
    `unresolved_mass`. The direction of the flow enters `growth`, `against_flow` and `other_basin` only. Not for
    compiled code.

    Raises:
        ValueError: tol or max_steps not positive; a drift made for another dimension; what `merge` refuses.
    """
    sign(direction)
    check(drift, mu.d)
    if not tol > 0 or max_steps < 1:
        raise ValueError(f"tol = {tol}, max_steps = {max_steps}: expected tol > 0 and at least one step")
    drift = prepare(drift)
    best, last = None, None
    for partition, tolerance in _partitions(mu, merge_tolerance):
        if best is not None and partition.mu.n * (mu.d - 1) > _UNKNOWNS:
            break
        found = _attempt(drift, mu, partition, tolerance, tol, max_steps, direction)
        best = found if best is None or _better(found, best) else best
        if last is not None and _same(found, last):
            break
        last = found
    assert best is not None  # there is always a partition
    return best


def _partitions(mu: Measure, tolerance: float | None):
    """Distinct partitions, coarse to fine: linkage is nested, so that they differ if their sizes do."""
    if tolerance is not None:
        yield merge(mu, tolerance), tolerance
        return
    seen = 0
    for each in _LADDER:
        merged = merge(mu, each)
        if merged.mu.n > seen:
            yield merged, each
        seen = merged.mu.n


def _attempt(
    drift: AbstractDrift,
    mu: Measure,
    start: Merged,
    tolerance: float,
    tol: float,
    max_steps: int,
    direction: Direction,
) -> Refined:
    atoms, owner, steps = start.mu, np.asarray(start.owner), 0
    held = np.zeros(atoms.n, bool)
    jumps = may_jump(drift)
    for _ in range(_ROUNDS):
        if jumps:
            atoms, held = settle_at_jumps(drift, atoms, ~(_residuals(drift, atoms) <= tol))
        atoms, taken = _settle(drift, atoms, held, tol, max_steps)
        steps += taken
        again = merge(atoms, min(_TOUCH, tolerance))
        if again.mu.n == atoms.n:
            break
        owner = np.where(owner >= 0, np.asarray(again.owner)[owner], -1)
        atoms, held = again.mu, np.zeros(again.mu.n, bool)
    if held.any():
        atoms, held = settle_at_jumps(drift, atoms, held)
    return _report(drift, mu, atoms, owner, steps, held, tolerance, tol, direction)


def _settle(drift: AbstractDrift, atoms: Measure, held: np.ndarray, tol: float, max_steps: int) -> tuple[Measure, int]:
    """Newton's method; if it fails, again and again without the atoms that hold it up."""
    padded = _padded(atoms)
    free, steps = np.concatenate([~held, np.ones(padded.n - atoms.n, bool)]), 0
    for _ in range(_ROUNDS):
        found = newton(drift, padded, tol=tol, max_steps=max_steps, free=jnp.asarray(free))
        padded, steps = Measure(found.x, padded.w), steps + int(found.steps)
        residuals = np.asarray(found.residuals)
        free = free & ~(residuals > max(tol, _CULPRIT * residuals.max()))
        if bool(found.converged) or not free[: atoms.n].any():
            break
    return Measure(jnp.asarray(np.asarray(padded.x)[: atoms.n]), atoms.w), steps


def _padded(atoms: Measure) -> Measure:
    """With massless copies of the first atom, up to a power of two: few sizes are compiled."""
    x, w = np.asarray(atoms.x), np.asarray(atoms.w)
    fill = max(4, 1 << (atoms.n - 1).bit_length()) - atoms.n
    return Measure(
        jnp.asarray(np.concatenate([x, np.repeat(x[:1], fill, axis=0)])),
        jnp.asarray(np.concatenate([w, np.zeros(fill, w.dtype)])),
    )


@eqx.filter_jit
def _slopes(drift: AbstractDrift, mu: Measure) -> Float[Array, " N"]:
    return safe_norm(gradient(drift, mu))


@eqx.filter_jit
def _value(drift: AbstractDrift, mu: Measure) -> Scalar:
    return drift(mu) if isinstance(drift, AbstractEnergy) else jnp.full((), jnp.nan, mu.x.dtype)


@eqx.filter_jit
def _second_order(drift: AbstractDrift, mu: Measure) -> tuple[Float[Array, "n n"], Bool[Array, "N P"]]:
    return scaled(drift, mu)[1], find_kinks(drift, mu.x).near(_AT_KINK)


def _residuals(drift: AbstractDrift, atoms: Measure) -> np.ndarray:
    return np.asarray(_slopes(drift, _padded(atoms)))[: atoms.n]


def _report(
    drift: AbstractDrift,
    mu: Measure,
    atoms: Measure,
    owner: np.ndarray,
    steps: int,
    clarke: np.ndarray,
    tolerance: float,
    tol: float,
    direction: Direction,
) -> Refined:
    cloud, residuals = gather(mu, owner), _residuals(drift, atoms)
    unsettled = ~(residuals <= tol) & ~clarke
    moved, taken = angles(np.asarray(cloud.mu.x), np.asarray(atoms.x)), owner >= 0
    travelled = angles(np.asarray(mu.x)[taken], np.asarray(atoms.x)[owner[taken]])
    before, after = float(_value(drift, mu)), float(_value(drift, _padded(atoms)))
    wrong_way = sign(direction) * (before - after) > _ROUNDING * max(1.0, abs(before))
    matrix, near = (np.asarray(v) for v in _second_order(drift, _padded(atoms)))
    unknowns = atoms.n * (mu.d - 1)
    rates = np.linalg.eigvals(sign(direction) * matrix[:unknowns, :unknowns])
    growth = float(rates.real.max())
    against = bool(growth > _UNSTABLE * np.abs(rates).max() or wrong_way)
    return Refined(
        mu=atoms,
        owner=jnp.asarray(owner, jnp.int32),
        merged=cloud.particles,
        moved=jnp.asarray(moved),
        displacement=float(np.asarray(mu.w)[taken] @ travelled),
        residuals=jnp.asarray(residuals),
        residual=float(residuals.max()),
        residual_before=float(_slopes(drift, mu).max()),
        unsettled=jnp.asarray(unsettled),
        unresolved_mass=float(np.asarray(atoms.w)[unsettled].sum()),
        clarke=jnp.asarray(clarke),
        kinks=jnp.asarray(np.argwhere(near[: atoms.n]), jnp.int32),
        steps=steps,
        converged=not unsettled.any(),
        energy_before=before,
        energy=after,
        growth=growth,
        against_flow=against,
        other_basin=bool(against or travelled.max() > _FAR),
        merge_tolerance=tolerance,
        massless=cloud.massless,
    )


def _better(new: Refined, old: Refined) -> bool:
    """Converged before not, with the flow before against it, then nearer; of two unconverged, by unresolved mass."""
    if new.converged != old.converged or not new.converged:
        return new.converged or (not old.converged and new.unresolved_mass < old.unresolved_mass)
    if new.against_flow != old.against_flow:
        return old.against_flow
    return new.displacement < 0.999 * old.displacement - _TOUCH


def _same(a: Refined, b: Refined) -> bool:
    """Whether two attempts ended in the same state."""
    if not (a.converged and b.converged) or a.mu.n != b.mu.n:
        return False
    near = angles(np.asarray(a.mu.x), np.asarray(b.mu.x)).max() < _TOUCH
    return bool(near) and np.array_equal(np.asarray(a.owner), np.asarray(b.owner))
