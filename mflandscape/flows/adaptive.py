"""Adaptive integration by any explicit Diffrax solver, with the retraction as a wrapped solver."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._types import Key, Scalar
from ..sphere import AbstractChart
from .dynamics import Dynamics
from .integrators import AbstractIntegrator, Step


class Retracted(diffrax.AbstractWrappedSolver):
    """A Diffrax solver whose steps end on the sphere: the wrapped solver's step, then `chart.wrap`. Order is kept."""

    solver: diffrax.AbstractERK
    chart: AbstractChart

    @property
    def term_structure(self):
        """The wrapped solver's."""
        return self.solver.term_structure

    @property
    def interpolation_cls(self):
        """The wrapped solver's."""
        return self.solver.interpolation_cls

    @property
    def term_compatible_contr_kwargs(self):
        """The wrapped solver's."""
        return self.solver.term_compatible_contr_kwargs

    @property
    def scan_kind(self):
        """The wrapped solver's: how its stages are looped over decides which derivatives exist."""
        return self.solver.scan_kind

    def order(self, terms):
        """The wrapped solver's."""
        return self.solver.order(terms)

    def strong_order(self, terms):
        """The wrapped solver's."""
        return self.solver.strong_order(terms)

    def error_order(self, terms) -> float:
        """The wrapped solver's."""
        order = self.solver.error_order(terms)
        assert order is not None  # explicit Runge-Kutta methods have one
        return float(order)

    def init(self, terms, t0, t1, y0, args):
        """The wrapped solver's."""
        return self.solver.init(terms, t0, t1, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        """A step of the wrapped solver, brought back to the sphere."""
        y1, error, dense, state, result = self.solver.step(terms, t0, t1, y0, args, solver_state, made_jump)
        y1 = self.chart.wrap(y1)
        return y1, error, {**dense, "y1": y1} if "y1" in dense else dense, state, result

    def func(self, terms, t0, y0, args):
        """The wrapped solver's."""
        return self.solver.func(terms, t0, y0, args)


class Adaptive(AbstractIntegrator):
    """Steps whose length follows the error estimate: `rms(error / (atol + rtol |u|)) <= 1`. Rejected attempts count
    as steps.

    Args:
        solver: an explicit Diffrax solver with an error estimate; `diffrax.Dopri5()`, `Tsit5()`, `Dopri8()`, ...
            Built with `scan_kind="bounded"` (the default solver is) both reverse and forward derivatives go through it.
        rtol, atol: tolerances of a step, relative and in radians.

    Near an attracting state the step is held by stability, not accuracy: speeds stay near the tolerance unless it is
    well below the residual wanted (`rtol=1e-8, atol=1e-10` reaches 1e-8).

    Derivatives do not go through the step lengths: end a differentiated run by `MaxTime`, not by `MaxSteps`.

    Raises:
        ValueError: an implicit solver (its dense Jacobian of N d unknowns is out of the question) or one without an
            error estimate.
    """

    solver: diffrax.AbstractERK
    controller: diffrax.PIDController
    stages: int = eqx.field(static=True)

    def __init__(self, solver: diffrax.AbstractSolver | None = None, rtol: float = 1e-6, atol: float = 1e-8):
        solver = diffrax.Dopri5(scan_kind="bounded") if solver is None else solver
        if not isinstance(solver, diffrax.AbstractERK) or isinstance(solver, diffrax.Euler):
            raise ValueError(f"{type(solver).__name__}: expected an explicit Runge-Kutta solver with an error estimate")
        if not (rtol > 0 and atol > 0):
            raise ValueError(f"rtol = {rtol}, atol = {atol}: expected both positive")
        assert isinstance(solver.tableau, diffrax.ButcherTableau)
        self.solver, self.stages = solver, solver.tableau.num_stages
        self.controller = diffrax.PIDController(rtol=rtol, atol=atol)

    @property
    def evaluations(self) -> int:
        """One a stage."""
        return self.stages

    def init(self, dynamics: Dynamics, u: Array, du: Array) -> PyTree:
        """Proposed step, solver's and controller's states."""
        terms, solver, zero = self._parts(dynamics, u)
        first, control = self.controller.init(
            terms, zero, jnp.full_like(zero, jnp.inf), u, None, None, solver.func, solver.error_order(terms)
        )
        return first, solver.init(terms, zero, first, u, None), control, jnp.asarray(False)

    def step(self, dynamics: Dynamics, u: Array, du: Array, limit: Scalar, key: Key | None, state: PyTree) -> Step:
        """One attempt with the proposed length; if its error is too large the particles stay and the next is
        shorter.
        """
        proposed, memory, control, jumped = state
        terms, solver, zero = self._parts(dynamics, u)
        h = jnp.minimum(proposed, limit)
        moved, error, _, after, _ = solver.step(terms, zero, h, u, None, memory, jumped)
        keep, start, end, jumped, control, _ = self.controller.adapt_step_size(
            zero, h, u, moved, None, error, solver.error_order(terms), control
        )
        memory = jax.tree.map(lambda new, old: jnp.where(keep, new, old), after, memory)
        # A step cut short to land on a time tells nothing about the next one: keep the longer proposal.
        following = jnp.where(keep & (h < proposed), jnp.maximum(end - start, proposed), end - start)
        return Step(
            jnp.where(keep, moved, u), jnp.where(keep, h, zero), jnp.asarray(keep), (following, memory, control, jumped)
        )

    def steps_to(self, time: float) -> int | None:
        """Not known beforehand."""
        return None

    def _parts(self, dynamics: Dynamics, u: Array):
        chart = dynamics.chart
        term = diffrax.ODETerm(lambda t, u, args: dynamics.velocity(chart.wrap(u)))
        return term, Retracted(self.solver, chart), jnp.zeros((), u.dtype)
