"""What a flow is asked to do: one frozen object, so that a whole run can be batched, stored and resumed."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from .._types import Direction, Key
from ..drifts import AbstractDrift, AbstractEnergy, check, prepare
from ..gradient import sign
from ..measure import Measure, concrete
from ..sphere import chart
from .dynamics import Dynamics
from .integrators import AbstractIntegrator, Brownian, Euler
from .saving import AbstractSave, Observe, SaveNothing
from .stopping import AbstractStop


class Problem(eqx.Module):
    """A drift, a start, a direction, and how to integrate, end, save and observe.

    Numbers (beta, weights, dt, tolerances, positions) are leaves and may differ between the members of a sweep; the
    number of particles, the step limit and the schedule's length are shapes and may not. `angles (N,)` are the
    start's on the circle, where they are known to the bit; `mu.x` gives them to rounding.

    Raises:
        ValueError: a drift made for another dimension; a stopping rule without any limit, or one that counts
            clusters where none are observed; an energy observed of a drift that has none; noise without a key.
    """

    drift: AbstractDrift
    mu: Measure
    u: Array
    integrator: AbstractIntegrator
    stop: AbstractStop
    observe: Observe
    marks: Array
    noise: UInt32[Array, "..."] | None
    direction: Direction = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    generator: str = eqx.field(static=True)

    def __init__(
        self,
        drift: AbstractDrift,
        mu: Measure,
        *,
        stop: AbstractStop,
        direction: Direction = "descent",
        integrator: AbstractIntegrator | None = None,
        save: AbstractSave | None = None,
        observe: Observe | None = None,
        key: Key | None = None,
        angles: Float[Array, " N"] | None = None,
    ):
        sign(direction)
        check(drift, mu.d)
        # A key as numbers: JAX cannot keep a typed one as a residual of a conditional.
        self.noise = None if key is None else jax.random.key_data(key)
        self.generator = "" if key is None else str(jax.random.key_impl(key))
        self.drift, self.mu, self.direction, self.stop = drift, mu, direction, stop
        self.u = chart(mu.d).coordinates(mu.x) if angles is None else angles
        self.integrator = Euler(0.1) if integrator is None else integrator
        self.observe = Observe() if observe is None else observe
        self.max_steps = _step_limit(stop, self.integrator)
        marks = (SaveNothing() if save is None else save).marks(self.max_steps)
        self.marks = marks.astype(mu.x.dtype) if jnp.issubdtype(marks.dtype, jnp.floating) else marks
        if stop.needs_clusters and self.observe.threshold is None:
            raise ValueError(
                "a rule on cluster counts without clusters: give observe=Observe(threshold=...), in radians"
            )
        if self.observe.energy and not isinstance(drift, AbstractEnergy):
            raise ValueError(
                f"{type(drift).__name__} is not an energy: observe its residual only, Observe(energy=False)"
            )
        if isinstance(self.integrator, Brownian) and key is None:
            raise ValueError("Brownian motion without a key: give key=jax.random.key(seed)")

    @property
    def key(self) -> Key | None:
        """The key of the noise."""
        return None if self.noise is None else jax.random.wrap_key_data(self.noise, impl=self.generator)

    @property
    def dynamics(self) -> Dynamics:
        """The system to integrate."""
        return Dynamics(self.drift, self.mu.w, self.direction, self.mu.d)

    @property
    def max_looks(self) -> int:
        """Looks in a run that reaches the step limit."""
        return -(-self.max_steps // self.observe.every)

    @property
    def ends_at_looks(self) -> bool:
        """Whether a run can only end at a look: then nothing needs to be masked between looks."""
        return self.max_steps % self.observe.every == 0 and self.stop.time_limit is None

    def prepared(self) -> "Problem":
        """With the evaluators' tables computed."""
        return eqx.tree_at(lambda p: p.drift, self, prepare(self.drift))


def _step_limit(stop: AbstractStop, integrator: AbstractIntegrator) -> int:
    if stop.step_limit is not None:
        return stop.step_limit
    limit = stop.time_limit
    steps = integrator.steps_to(float(np.asarray(limit))) if limit is not None and concrete(limit) else None
    if steps is None:
        raise ValueError(
            "a stopping rule without a step limit: the longest run must be known; write stop | MaxSteps(n)"
        )
    return max(steps, 1)
