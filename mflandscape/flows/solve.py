"""The verb `flow` and its `Solution`."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._numerics import safe_sqrt
from .._results import RESULTS
from .._types import Count, Direction, Key, Scalar
from ..drifts import AbstractDrift, AbstractEnergy, defect
from ..measure import Measure
from ..sphere import chart
from .adjoints import AbstractAdjoint, Unrolled
from .integrators import AbstractIntegrator
from .loop import FlowState, block, going, start
from .problem import Problem
from .saving import AbstractSave, Observe
from .stopping import AbstractStop, Look


class Solution(eqx.Module):
    """What a run gave.

    Attributes:
        mu: the final measure.
        time, steps, evaluations: how far it went, and the work it took (velocity evaluations).
        result: why it ended, a `RESULTS` code.
        residual, residual_l2: largest and mass-weighted speed at the end.
        energy: `E[mu]` at the end; nan for a drift without one.
        defect: error of a truncated evaluator over what it promises (above 1: `RESULTS.series_truncated`).
        u: the final coordinates in which particles move (angles `(N,)` for d = 2, else the points).
        saved_u, times, steps_saved: snapshots in coordinates `(S, N)` or `(S, N, d)`, with times and steps; `saved`
            of them were taken, the rest is nan. `x` has them as points `(S, N, d)`.
        series: the looks (arrays of length `looks`, of which `looked` were taken).
    """

    mu: Measure
    time: Scalar
    steps: Count
    evaluations: Count
    result: RESULTS
    residual: Scalar
    residual_l2: Scalar
    energy: Scalar
    defect: Scalar
    u: Array
    saved_u: Float[Array, "S *point"]
    times: Float[Array, " S"]
    steps_saved: Int[Array, " S"]
    saved: Count
    series: Look
    looked: Count

    @property
    def x(self) -> Float[Array, "*batch S N d"]:
        """Snapshots as points of the sphere; nan where none was taken."""
        return chart(self.mu.d).points(jnp.asarray(self.saved_u))


def finish(problem: Problem, state: FlowState) -> Solution:
    """The solution contained in the last state of a run."""
    dynamics, snapshots = problem.dynamics, state.snapshots
    mu = dynamics.measure(state.u)
    speed = dynamics.chart.speed(state.du)
    error = defect(problem.drift, mu)
    energy = problem.drift(mu) if isinstance(problem.drift, AbstractEnergy) else jnp.full_like(state.time, jnp.nan)
    rows = snapshots.u.shape[0] - 1
    taken = jnp.arange(rows, dtype=jnp.int32) < snapshots.count
    keep = taken.reshape(-1, *[1] * state.u.ndim)
    broken = state.result == RESULTS.nonfinite
    return Solution(
        mu=mu,
        time=state.time,
        steps=state.step,
        evaluations=state.evaluations,
        result=RESULTS.where((error > 1) & ~broken, RESULTS.series_truncated, state.result),
        residual=jnp.max(speed),
        residual_l2=safe_sqrt(jnp.sum(mu.w * speed * speed)),
        energy=energy,
        defect=error,
        u=state.u,
        saved_u=jnp.where(keep, snapshots.u[:rows], jnp.nan),
        times=jnp.where(taken, snapshots.time[:rows], jnp.nan),
        steps_saved=jnp.where(taken, snapshots.step[:rows], -1),
        saved=snapshots.count,
        series=jax.tree.map(lambda column: column[:-1], state.series.rows),
        looked=state.series.count,
    )


@eqx.filter_jit
def solve(problem: Problem, adjoint: AbstractAdjoint) -> Solution:
    """The whole run as one compiled program."""
    problem = problem.prepared()
    stepped = adjoint.enter(problem)
    state = adjoint.loop(lambda s: block(stepped, s), going, start(stepped), problem.max_looks)
    return finish(problem, eqx.tree_at(lambda s: s.u, state, adjoint.leave(problem.dynamics, state.u)))


def flow(
    drift: AbstractDrift,
    mu: Measure,
    *,
    stop: AbstractStop,
    direction: Direction = "descent",
    integrator: AbstractIntegrator | None = None,
    save: AbstractSave | None = None,
    observe: Observe | None = None,
    adjoint: AbstractAdjoint | None = None,
    key: Key | None = None,
    throw: bool = True,
) -> Solution:
    """Integrates `dx_i/dt = s P grad U[mu](x_i)` until the stopping rule says so. [paper A, (2.5)]

    Args:
        drift: what moves the particles; sums are written with `+`.
        mu: the start.
        stop: when to end, for example `Stationary(1e-8) | MaxSteps(10_000)`.
        direction: `"descent"` (repulsive) or `"ascent"` (attractive).
        integrator: `Euler(0.1)` by default.
        save: schedule of snapshots; none by default.
        observe: how often to look, and at what; every step, speeds only, by default.
        adjoint: `Unrolled()` (reverse mode) by default, `Forward()`, or `Implicit()` (of a stationary end).
        key: for `Brownian`.
        throw: raise where the result is not to be used (not finite, truncated series).

    Raises:
        ValueError: what `Problem` refuses.
        RuntimeError: with `throw`, a run that went non-finite or whose evaluator was truncated.
    """
    problem = Problem(
        drift, mu, stop=stop, direction=direction, integrator=integrator, save=save, observe=observe, key=key
    )
    solution = solve(problem, Unrolled() if adjoint is None else adjoint)
    if not throw:
        return solution
    bad = (solution.result == RESULTS.nonfinite) | (solution.result == RESULTS.series_truncated)
    return solution.result.error_if(solution, bad)
