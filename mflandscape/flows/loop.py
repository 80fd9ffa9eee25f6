"""The loop of a run: steps, and a look after every block of them. Everything in it is masked, so that many runs can
share one loop.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._numerics import safe_sqrt
from .._results import RESULTS
from .._types import Count, Scalar
from ..clusters import arc_count, linkage_clusters
from ..drifts import AbstractEnergy
from ..measure import Measure
from .dynamics import Dynamics
from .problem import Problem
from .stopping import Look, landing_slack


class Snapshots(eqx.Module):
    """Coordinates at the marks of the schedule; the last row takes what is not to be kept. `count` rows are filled."""

    u: Float[Array, "S1 *point"]
    time: Float[Array, " S1"]
    step: Int[Array, " S1"]
    count: Count


class Series(eqx.Module):
    """The looks of a run; the last row takes what is not to be kept. `count` rows are filled, the first at the
    start.
    """

    rows: Look
    count: Count


class FlowState(eqx.Module):
    """All that a run needs to go on."""

    u: Array
    du: Array
    time: Scalar
    time_low: Scalar
    step: Count
    evaluations: Count
    memory: PyTree
    stop_memory: PyTree
    snapshots: Snapshots
    series: Series
    result: RESULTS


def going(state: FlowState) -> Bool[Array, "*batch"]:
    """Whether the run has not ended."""
    return state.result == RESULTS.running


def start(problem: Problem) -> FlowState:
    """The state before the first step: the start is observed, and saved if it is on the schedule."""
    dynamics, x, u = problem.dynamics, problem.mu.x, problem.u
    du = dynamics.velocity(u)
    zero, none = jnp.zeros((), x.dtype), jnp.asarray(0, jnp.int32)
    rows = problem.marks.shape[0] + 1
    snapshots = Snapshots(
        jnp.full((rows, *u.shape), jnp.nan, x.dtype),
        jnp.full(rows, jnp.nan, x.dtype),
        jnp.full(rows, -1, jnp.int32),
        none,
    )
    look = _observe(problem, dynamics, u, du, none, zero)
    finite = jnp.isfinite(look.residual)
    state = FlowState(
        u=u,
        du=du,
        time=zero,
        time_low=zero,
        step=none,
        evaluations=none + 1,
        memory=problem.integrator.init(dynamics, u, du),
        stop_memory=problem.stop.init(),
        snapshots=snapshots,
        series=_record(no_series(problem, look), look, jnp.asarray(True)),
        result=RESULTS.where(finite, RESULTS.running, RESULTS.nonfinite),
    )
    return _save(problem, state, jnp.asarray(True))


def no_series(problem: Problem, look: Look) -> Series:
    """Room for the looks of a run, which are like `look`."""
    rows = problem.max_looks + 2
    empty = jax.tree.map(lambda v: jnp.full(rows, -1 if v.dtype == jnp.int32 else jnp.nan, v.dtype), look)
    return Series(empty, jnp.asarray(0, jnp.int32))


def block(problem: Problem, state: FlowState) -> FlowState:
    """`observe.every` steps and a look; nothing, once the run has ended."""
    after, _ = jax.lax.scan(lambda s, _: (_step(problem, s), None), state, None, length=problem.observe.every)
    return _look(problem, state, after)


def _step(problem: Problem, state: FlowState) -> FlowState:
    end, mark = _landings(problem, state)
    active = going(state)
    if not problem.ends_at_looks:
        active = active & (state.step < problem.max_steps) & (end - state.time > landing_slack(state.time))
    limit = jnp.minimum(end, mark) - state.time
    dynamics, integrator = problem.dynamics, problem.integrator
    key = None if problem.key is None else jax.random.fold_in(problem.key, state.step)
    step = integrator.step(dynamics, state.u, state.du, limit, key, state.memory)
    time, time_low = _add(state.time, state.time_low, step.h)
    taken = 1 + integrator.evaluations if step.evaluations is None else step.evaluations
    moved = eqx.tree_at(
        lambda s: (s.u, s.du, s.time, s.time_low, s.step, s.evaluations, s.memory),
        state,
        (
            step.u,
            dynamics.velocity(step.u) if step.du is None else step.du,
            time,
            time_low,
            state.step + 1,
            state.evaluations + taken,
            step.state,
        ),
        is_leaf=lambda v: v is None,
    )
    return _save(problem, moved if problem.ends_at_looks else _select(active, moved, state), active)


def _landings(problem: Problem, state: FlowState) -> tuple[Scalar, Scalar]:
    """The time on which the run must end, and the next time on which it must land."""
    forever = jnp.full((), jnp.inf, state.time.dtype)
    end = problem.stop.time_limit
    end = forever if end is None else end.astype(state.time.dtype)
    if problem.marks.dtype == jnp.int32 or problem.marks.shape[0] == 0:
        return end, forever
    at = jnp.minimum(state.snapshots.count, problem.marks.shape[0] - 1)
    return end, jnp.where(state.snapshots.count < problem.marks.shape[0], problem.marks[at], forever)


def _save(problem: Problem, state: FlowState, active: Bool[Array, ""]) -> FlowState:
    """Takes a snapshot if one is due; writes to the spare row otherwise, which costs a row and no branch."""
    last = problem.marks.shape[0]
    if last == 0:
        return state
    kept = state.snapshots
    mark = problem.marks[jnp.minimum(kept.count, last - 1)]
    here = state.step if problem.marks.dtype == jnp.int32 else state.time + landing_slack(state.time)
    due = active & (kept.count < last) & (here >= mark)
    row = jnp.where(due, kept.count, last)
    snapshots = Snapshots(
        kept.u.at[row].set(state.u),
        kept.time.at[row].set(state.time),
        kept.step.at[row].set(state.step),
        kept.count + due.astype(jnp.int32),
    )
    return eqx.tree_at(lambda s: s.snapshots, state, snapshots)


def _look(problem: Problem, before: FlowState, after: FlowState) -> FlowState:
    """Observes, records, and asks the stopping rule. A state that is not finite is given up for the one before the
    block.
    """
    active = going(before)
    finite = jnp.all(jnp.isfinite(after.u)) & jnp.all(jnp.isfinite(after.du))
    small = eqx.tree_at(lambda s: s.series, _select(active & finite, after, before), after.series)
    look = _observe(problem, problem.dynamics, small.u, small.du, small.step, small.time)
    verdict, memory = problem.stop.verdict(look, small.stop_memory)
    verdict = RESULTS.where(finite, verdict, RESULTS.nonfinite)
    verdict = RESULTS.where(
        (verdict == RESULTS.running) & (small.step >= problem.max_steps), RESULTS.max_steps, verdict
    )
    return eqx.tree_at(
        lambda s: (s.stop_memory, s.series, s.result),
        small,
        (
            _select(active, memory, small.stop_memory),
            _record(small.series, look, active & finite),
            RESULTS.where(active, verdict, before.result),
        ),
        is_leaf=lambda v: v is None,
    )


def _observe(problem: Problem, dynamics: Dynamics, u: Array, du: Array, step: Count, time: Scalar) -> Look:
    speed = dynamics.chart.speed(du)
    nan = jnp.full((), jnp.nan, time.dtype)
    clusters, spread = jnp.asarray(-1, jnp.int32), nan
    if problem.observe.threshold is not None:
        threshold = problem.observe.threshold.astype(time.dtype)
        clusters, spread = arc_count(u, threshold) if dynamics.d == 2 else linkage_clusters(u, threshold)[1:]
        spread = spread / threshold
    return Look(
        step=step,
        time=time,
        residual=jnp.max(speed),
        residual_l2=safe_sqrt(jnp.sum(dynamics.w * speed * speed)),
        energy=_energy(problem, dynamics.measure(u)) if problem.observe.energy else nan,
        clusters=clusters,
        spread=spread,
    )


def _energy(problem: Problem, mu: Measure) -> Scalar:
    assert isinstance(problem.drift, AbstractEnergy)  # Problem refuses to observe the energy of another drift
    return problem.drift(mu)


def _record(series: Series, look: Look, keep: Bool[Array, ""]) -> Series:
    row = jnp.where(keep, series.count, series.rows.step.shape[0] - 1)
    rows = jax.tree.map(lambda column, value: column.at[row].set(value), series.rows, look)
    return Series(rows, series.count + keep.astype(jnp.int32))


def _select(choose: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    """One state or the other; the big buffers, which are only ever appended to, are passed by."""

    def pick(a, b):
        return a if a is b else jnp.where(choose, a, b)

    if not isinstance(new, FlowState):
        return jax.tree.map(pick, new, old)
    count = pick(new.snapshots.count, old.snapshots.count)
    light = lambda s: (s.snapshots, s.series)  # noqa: E731
    picked = jax.tree.map(pick, eqx.tree_at(light, new, (None, None)), eqx.tree_at(light, old, (None, None)))
    snapshots = eqx.tree_at(lambda s: s.count, new.snapshots, count)
    return eqx.tree_at(light, picked, (snapshots, new.series), is_leaf=lambda v: v is None)


def _add(high: Scalar, low: Scalar, h: Scalar) -> tuple[Scalar, Scalar]:
    """Compensated sum of times: 10 000 steps of 0.1 end at 1000 to the last bit."""
    h = h + low
    total = high + h
    return total, h - (total - high)
