"""One step in time: explicit fixed-step methods, and Brownian motion around any of them."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, PyTree

from .._types import Count, Key, Scalar
from ..measure import concrete
from ..sphere import tangent
from .dynamics import Dynamics


class Step(eqx.Module):
    """What one attempt gave: coordinates, time gone by (0 if rejected), the integrator's memory; where the step knows
    better than the loop, the velocity at its end and how many were evaluated, that one included.
    """

    u: Array
    h: Scalar
    accepted: Bool[Array, ""]
    state: PyTree
    du: Array | None = None
    evaluations: Count | None = None


class AbstractIntegrator(eqx.Module):
    """Advances coordinates `u` whose velocity `du` is known, by at most `limit` in time. `evaluations` more
    velocities a step, unless the `Step` says how many.
    """

    @property
    @abc.abstractmethod
    def evaluations(self) -> int:
        """Velocity evaluations a step, besides the one at its start."""

    @abc.abstractmethod
    def init(self, dynamics: Dynamics, u: Array, du: Array) -> PyTree:
        """Memory carried from step to step."""

    @abc.abstractmethod
    def step(self, dynamics: Dynamics, u: Array, du: Array, limit: Scalar, key: Key | None, state: PyTree) -> Step:
        """One attempted step."""

    @abc.abstractmethod
    def steps_to(self, time: float) -> int | None:
        """Steps that surely reach `time`, if that is known beforehand."""


class AbstractFixedStep(AbstractIntegrator):
    """Steps of length `dt`, shortened only to land on a requested time."""

    dt: eqx.AbstractVar[Scalar]

    @abc.abstractmethod
    def move(self, dynamics: Dynamics, u: Array, du: Array, h: Scalar) -> Array:
        """Coordinates after a step of length `h`, before they are wrapped."""

    def init(self, dynamics: Dynamics, u: Array, du: Array) -> PyTree:
        """Nothing to remember."""
        return None

    def step(self, dynamics: Dynamics, u: Array, du: Array, limit: Scalar, key: Key | None, state: PyTree) -> Step:
        """One step of length `dt`, or of what is left up to the next requested time."""
        dt = self.dt.astype(u.dtype)
        h = jnp.where(limit < dt * (1 - 1e-6), limit, dt)
        return Step(dynamics.chart.wrap(self.move(dynamics, u, du, h)), h, jnp.asarray(True), state)

    def steps_to(self, time: float) -> int | None:
        """`time/dt`, rounded up."""
        return int(np.ceil(time / float(self.dt) * (1 - 1e-9))) if concrete(self.dt) else None


class Euler(AbstractFixedStep):
    """Explicit Euler, order 1: on the circle the exponential map, above normalisation of `x + dt v`. [paper A,
    section 4]
    """

    dt: Scalar = eqx.field(converter=lambda dt: positive("dt", dt))

    @property
    def evaluations(self) -> int:
        """None besides the one at the start."""
        return 0

    def move(self, dynamics: Dynamics, u: Array, du: Array, h: Scalar) -> Array:
        """`u + h v(u)`."""
        return u + h * du


class Midpoint(AbstractFixedStep):
    """The explicit midpoint rule, order 2; stages are evaluated at wrapped (normalised) points."""

    dt: Scalar = eqx.field(converter=lambda dt: positive("dt", dt))

    @property
    def evaluations(self) -> int:
        """One at the midpoint."""
        return 1

    def move(self, dynamics: Dynamics, u: Array, du: Array, h: Scalar) -> Array:
        """`u + h v(u + h/2 v(u))`."""
        return u + h * dynamics.velocity(dynamics.chart.wrap(u + h / 2 * du))


class RK4(AbstractFixedStep):
    """The classical Runge-Kutta method, order 4; stages are evaluated at wrapped (normalised) points."""

    dt: Scalar = eqx.field(converter=lambda dt: positive("dt", dt))

    @property
    def evaluations(self) -> int:
        """Three stages."""
        return 3

    def move(self, dynamics: Dynamics, u: Array, du: Array, h: Scalar) -> Array:
        """`u + h/6 (k1 + 2 k2 + 2 k3 + k4)`."""
        wrap = dynamics.chart.wrap
        k2 = dynamics.velocity(wrap(u + h / 2 * du))
        k3 = dynamics.velocity(wrap(u + h / 2 * k2))
        k4 = dynamics.velocity(wrap(u + h * k3))
        return u + h / 6 * (du + 2 * k2 + 2 * k3 + k4)


class Brownian(AbstractIntegrator):
    """Adds Brownian motion of temperature T: `dX = v dt + sqrt(2 T) P_X o dW` (Stratonovich), weak order 1. [paper
    B, outlook]

    After each step of the fixed-step `drift` method the particles take an independent Gaussian tangent step of
    variance `2 T h` a direction (exact in law on the circle). Needs a `key`; step n uses `fold_in(key, n)`.

    Raises:
        ValueError: a negative temperature, an integrator that is not of fixed step.
    """

    drift: AbstractFixedStep
    temperature: Scalar = eqx.field(converter=lambda value: positive("temperature", value, zero=True))

    def __check_init__(self):
        if not isinstance(self.drift, AbstractFixedStep):
            raise ValueError(
                f"Brownian around {type(self.drift).__name__}: expected a fixed-step method (Euler, Midpoint, RK4)"
            )

    @property
    def evaluations(self) -> int:
        """Those of the drift's method."""
        return self.drift.evaluations

    def init(self, dynamics: Dynamics, u: Array, du: Array) -> PyTree:
        """Nothing to remember."""
        return None

    def step(self, dynamics: Dynamics, u: Array, du: Array, limit: Scalar, key: Key | None, state: PyTree) -> Step:
        """A step of the drift, then a random one."""
        calm = self.drift.step(dynamics, u, du, limit, key, state)
        assert key is not None  # Problem refuses noise without one
        noise = jax.random.normal(key, u.shape, u.dtype)
        if u.ndim == 2:
            noise = tangent(calm.u, noise)
        kick = jnp.sqrt(2 * self.temperature.astype(u.dtype) * calm.h) * noise
        return Step(dynamics.chart.wrap(calm.u + kick), calm.h, calm.accepted, state)

    def steps_to(self, time: float) -> int | None:
        """Those of the drift's method."""
        return self.drift.steps_to(time)


def positive(name: str, value: ArrayLike, zero: bool = False) -> Scalar:
    """The value as a scalar array, refused (ValueError, by name) unless finite and positive, or zero where that is
    allowed.
    """
    value = jnp.asarray(value, value.dtype if isinstance(value, jax.Array) else float)
    if value.ndim != 0:
        raise ValueError(f"{name} of shape {value.shape}: expected a scalar")
    if concrete(value):
        number = float(np.asarray(value))
        if not np.isfinite(number) or number < 0 or (number == 0 and not zero):
            raise ValueError(f"{name} = {number}: expected a finite number {'>= 0' if zero else '> 0'}")
    return value
