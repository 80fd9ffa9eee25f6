"""Run to stationarity: the flow to its end, by the integrator that suits it, and what that end is."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._results import RESULTS
from .._types import Count, Direction, Scalar
from ..drifts import AbstractDrift, AbstractEnergy, defect, prepare
from ..gradient import residual, sign
from ..measure import Measure, concrete
from ..special import fourier_modes
from ..stationary.classify import Sides, splitting_test
from ..stationary.second_order import field_derivative
from .linearised import DENSE, take_apart, unsuitable
from .loop import FlowState, Series, block, going, no_series, start
from .problem import Problem
from .rosenbrock import Rosenbrock
from .slots import Slots
from .stabilised import Memory, Stabilised
from .stopping import Look, MaxSteps, MaxTime, Stationary

_EVERY = 60  # steps between looks for particles that have come together; twice as many after one in vain
_SELDOM = 480


class Settled(eqx.Module):
    """The end of a flow, and what it is: transport-stationary at the speed `residual` from `time` on at the latest.

    Nothing is claimed beyond: whether atoms gain by splitting is in `splitting`, whether the measure is a minimiser is
    for `stationary.classify` and `stationary.minimise`.

    Attributes:
        mu: all N particles with their own masses, where their atoms are.
        atoms: the measure that moved at the end; particles that had come together are one.
        owner: `(N,)`, the atom of each particle.
        result: why the run ended: `stationary`, `max_steps`, `max_time`, `nonfinite` or `series_truncated`.
        residual, residual_l2: largest and mass-weighted speed.
        time, steps, evaluations: how far it went, and the work. Last steps are long: the speed fell to `residual` at
            some moment before `time`.
        energy: `E[mu]`; nan for a drift without one.
        defect: error of a truncated evaluator over what it promises.
        splitting: smallest eigenvalue of the Hessian of `U[mu]` at the atoms, as they are and on the lower and upper
            sides of the kinks within reach: negative, particles of an atom gain by parting.
        splitting_at: `(n,)`, the same for each atom, on its lower side.
        kinks: pairs of an atom and a kink within reach.
        series: speeds, times and steps along the way.
    """

    mu: Measure
    atoms: Measure
    owner: Int[np.ndarray, " N"]
    result: RESULTS
    residual: float
    residual_l2: float
    time: float
    steps: int
    evaluations: int
    energy: float
    defect: float
    splitting: Sides
    splitting_at: Float[np.ndarray, " n"]
    kinks: int
    series: Look


def settle(
    drift: AbstractDrift,
    mu: Measure,
    *,
    direction: Direction = "descent",
    tol: float = 1e-8,
    integrator: Rosenbrock | Stabilised | None = None,
    merge: float = 1e-6,
    reach: float = 1e-6,
    max_steps: int = 20_000,
    max_time: float | None = None,
    throw: bool = True,
) -> Settled:
    """Follows the flow until no particle is faster than `tol` after two steps in turn. Not for compiled code: arrays
    shrink on the way.

    Every 60 steps (up to 480 where there is nothing to join) particles closer than `merge` are joined if each is
    contracting: a neighbour would be drawn to it. They then move as one. The flow is followed to its own end, never
    taken a shortcut to another one.

    Args:
        drift, mu, direction: as `flow`. Parameters are not to be traced.
        tol: largest speed at the end.
        integrator: by default `Rosenbrock` in descent where the Jacobian has a form that is cheap to solve with, else
            `Stabilised`; both with their own tolerances, 1e-3 and 5e-4 radians a step.
        merge: radians; 0 keeps all particles apart.
        reach: radians from a kink within which an atom is tested on both its sides.
        max_steps, max_time: limits.
        throw: raise where the result is not to be used (not finite, truncated series).

    Raises:
        ValueError: what `Problem` refuses; tolerances that are not numbers of the right sign; a traced start.
        RuntimeError: with `throw`, a run that went non-finite or whose evaluator was truncated.
    """
    if not concrete(mu.x):
        raise ValueError("settle was given a traced start: its arrays shrink; inside jit use flow(integrator=...)")
    if not (0 <= merge < 1e-2 and reach >= 0):
        raise ValueError(f"merge = {merge}, reach = {reach}: expected 0 <= merge < 0.01 and reach >= 0, in radians")
    stop = Stationary(tol) | MaxSteps(max_steps)
    stop = stop if max_time is None else MaxTime(max_time) | stop
    problem = Problem(drift, mu, stop=stop, direction=direction)
    slots = Slots.of(mu, np.asarray(problem.u))
    problem = _on(slots, problem, integrator, None)
    clock, every = _clock(problem), _EVERY
    while True:
        clock, u, h, contracting = _advance(problem, clock, jnp.asarray(every, jnp.int32))
        u, contracting = np.asarray(u), np.asarray(contracting)
        joined = slots.merged(u, contracting, merge) if merge else None
        if bool(clock.result != RESULTS.running):
            return _report(drift, mu, slots.at(u), joined or slots.at(u), clock, direction, reach, throw)
        slots, every = (slots.at(u), min(2 * every, _SELDOM)) if joined is None else (joined, _EVERY)
        problem = _on(slots, problem, integrator, h)


def choose(drift: AbstractDrift, d: int, n: int, direction: Direction) -> Rosenbrock | Stabilised:
    """The integrator for `n` particles: implicit in descent, where the Jacobian has a form that is cheap to solve with.

    Attraction is hardly stiff, and particles that ascend along kinks of the potential keep implicit steps short.
    """
    if direction == "ascent":
        return Stabilised(2e-3)
    parts = take_apart(drift)
    modes = None
    if parts is not None and d == 2:
        betas = [head.kernel.beta for head in parts.heads]
        modes = fourier_modes(max(map(float, betas), default=0.0), np.float64)
    dear = d > 2 and n * (d - 1) > DENSE
    return Stabilised() if dear or unsuitable(drift, d, n, modes) else Rosenbrock(modes=modes)


class _Clock(eqx.Module):
    """What of a run's state does not depend on the number of slots."""

    time: Scalar
    time_low: Scalar
    step: Count
    evaluations: Count
    series: Series
    result: RESULTS


def _read(state: FlowState) -> _Clock:
    return _Clock(state.time, state.time_low, state.step, state.evaluations, state.series, state.result)


@eqx.filter_jit
def _clock(problem: Problem) -> _Clock:
    """Before the first step; its records are yet to be made."""
    zero, none = jnp.zeros((), problem.mu.x.dtype), jnp.asarray(0, jnp.int32)
    look = Look(none, zero, zero, zero, zero, none, zero)
    return _Clock(zero, zero, none, none, no_series(problem, look), RESULTS.running)


def _on(slots: Slots, before: Problem, integrator: Rosenbrock | Stabilised | None, h: Scalar | None) -> Problem:
    """The same problem for the slots, going on with the step's length."""
    dtype = before.mu.x.dtype
    u = jnp.asarray(slots.u, dtype)
    mu = Measure(jnp.asarray(slots.points, dtype), jnp.asarray(slots.w, dtype))
    chosen = choose(before.drift, mu.d, mu.n, before.direction) if integrator is None else integrator
    first = chosen.first.astype(dtype) if h is None else h
    chosen = eqx.tree_at(lambda i: (i.first, i.live), chosen, (first, jnp.asarray(slots.in_use)), is_leaf=_is_none)
    angles = u if mu.d == 2 else None
    return Problem(before.drift, mu, stop=before.stop, direction=before.direction, integrator=chosen, angles=angles)


@eqx.filter_jit
def _advance(problem: Problem, clock: _Clock, every: Count) -> tuple[_Clock, Array, Scalar, Bool[Array, " S"]]:
    """So many steps: the clock, the coordinates, the step to try, and which particles are contracting."""
    problem, until = problem.prepared(), clock.step + every
    state = start(problem)
    first = clock.step == 0
    known = jax.tree.map(lambda new, old: jnp.where(first, new, old), _read(state), clock)
    of = lambda s: (s.time, s.time_low, s.step, s.evaluations, s.series, s.result)  # noqa: E731
    state = eqx.tree_at(of, state, of(known))

    def one(carry: tuple[FlowState, Array]) -> tuple[FlowState, Array]:
        """A step; the first to say stationary is asked again, from so much nearer."""
        after = block(problem, carry[0])
        still = after.result == RESULTS.stationary
        result = RESULTS.where(still & ~carry[1], RESULTS.running, after.result)
        return eqx.tree_at(lambda s: s.result, after, result), still

    more = lambda carry: going(carry[0]) & (carry[0].step < until)  # noqa: E731
    state = jax.lax.while_loop(more, one, (state, jnp.asarray(False)))[0]
    h = state.memory.h if isinstance(state.memory, Memory) else state.memory
    contracting = _contracting(problem.drift, problem.dynamics.measure(state.u), problem.direction)
    return _read(state), state.u, h, contracting


def _contracting(drift: AbstractDrift, mu: Measure, direction: Direction) -> Bool[Array, " S"]:
    """Where particles close by are drawn nearer, the measure held fixed."""
    blocks = sign(direction) * field_derivative(drift, mu)
    if mu.d == 2:
        return blocks[:, 0, 0] < 0
    return jnp.linalg.eigvalsh((blocks + jnp.swapaxes(blocks, 1, 2)) / 2)[:, -1] < 0


@eqx.filter_jit
def _final(drift: AbstractDrift, mu: Measure) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    drift = prepare(drift)
    energy = drift(mu) if isinstance(drift, AbstractEnergy) else jnp.full((), jnp.nan, mu.x.dtype)
    return *residual(drift, mu), energy, defect(drift, mu)


def _report(
    drift: AbstractDrift,
    mu: Measure,
    slots: Slots,
    atoms: Slots,
    clock: _Clock,
    direction: Direction,
    reach: float,
    throw: bool,
) -> Settled:
    end = Measure(jnp.asarray(slots.points[slots.owner], mu.x.dtype), mu.w)
    speed, weighted, energy, error = (float(v) for v in _final(drift, end))
    broken = bool(clock.result == RESULTS.nonfinite)
    result = RESULTS.series_truncated if error > 1 and not broken else clock.result
    seen = Measure(jnp.asarray(atoms.points[: atoms.live]), jnp.asarray(atoms.w[: atoms.live]))
    splitting, each, kinks = splitting_test(drift, seen, direction=direction, reach=reach)
    settled = Settled(
        mu=end,
        atoms=seen,
        owner=atoms.owner,
        result=result,
        residual=speed,
        residual_l2=weighted,
        time=float(clock.time),
        steps=int(clock.step),
        evaluations=int(clock.evaluations),
        energy=energy,
        defect=error,
        splitting=splitting,
        splitting_at=each,
        kinks=kinks,
        series=jax.tree.map(lambda column: column[: int(clock.series.count)], clock.series.rows),
    )
    if throw and (broken or error > 1):
        raise RuntimeError(RESULTS[result])
    return settled


def _is_none(leaf: object) -> bool:
    return leaf is None
