"""The integrator for runs to stationarity: adaptive, linearly implicit, with the exact Jacobian in a form that is cheap
to solve with.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from .._numerics import safe_sqrt
from .._types import Key, Scalar
from .dynamics import Dynamics
from .integrators import AbstractIntegrator, Step, positive
from .linearised import linearise, refuse

_SAFETY, _SHRINK, _GROW = 0.9, 0.2, 6.0
_REFUSED = 0.25  # the next step's length after one longer than an instability
_FARTHEST = 1.0  # radians a step may move a particle


class Rosenbrock(AbstractIntegrator):
    """Rodas3 (order 3(2), L-stable, 4 solves) on the exact Jacobian, adaptive. [Sandu et al. 1997]

    On the circle the Jacobian is diagonal plus low rank (2 modes of the kernel), solved with by Woodbury's formula,
    O(N K^2 + K^3) a step; up to 128 particles, and up to 512 unknowns `N (d-1)` on other spheres, it is a matrix. It
    covers sums of attention heads without a matrix, or one softmax attention, with perceptrons of both kinds.
    A step is refused unless `2/h - J` is positive definite, so that it never exceeds twice the time scale of an
    instability: particles that leave an unstable place are followed, not frozen there, and the run ends where the
    flow does. Near a stable state the error vanishes, steps grow without bound and become Newton's.

    Args:
        tol: error of a step in radians, root mean square over the particles.
        first: first step tried.
        modes: of the circle's kernel, where evaluators other than `CircleFourier` sum it.
        live: which particles count (all if None); others are idle copies of the first, of no mass.

    Raises:
        ValueError: tol or first not positive; when a run starts, a drift whose Jacobian is not of this form.
    """

    tol: Scalar = eqx.field(converter=lambda value: positive("tol", value), default=1e-3)
    first: Scalar = eqx.field(converter=lambda value: positive("first", value), default=0.1)
    modes: int | None = eqx.field(static=True, default=None)
    live: Bool[Array, " N"] | None = None

    @property
    def evaluations(self) -> int:
        """Two stages besides the start; the Jacobian, about as dear again, is not counted."""
        return 2

    def init(self, dynamics: Dynamics, u: Array, du: Array) -> PyTree:
        """The step to try."""
        refuse(dynamics.drift, dynamics.d, u.shape[0], self.modes)
        return self.first.astype(u.dtype)

    def step(self, dynamics: Dynamics, u: Array, du: Array, limit: Scalar, key: Key | None, state: PyTree) -> Step:
        """One attempt; the particles stay where they are if its error is too large or it is longer than an
        instability.
        """
        wrap = dynamics.chart.wrap
        jacobian = linearise(dynamics, u, du, self.modes, self.live)
        h = jnp.minimum(jnp.minimum(state, limit), jacobian.longest())
        factor = jacobian.factor(h)
        first = factor.solve(du)
        second = factor.solve(du + 4 / h * first)
        there = u + 2 * first
        third = factor.solve(dynamics.velocity(wrap(there)) + (first - second) / h)
        last = dynamics.velocity(wrap(there + third)) + (first - second - 8 / 3 * third) / h
        error = factor.solve(last)
        size = dynamics.chart.speed(error)
        far = jnp.max(dynamics.chart.speed(2 * first + third + error)) > _FARTHEST
        ratio = root_mean_square(size, self.live) / self.tol.astype(u.dtype)
        sound = factor.definite & ~far & jnp.isfinite(ratio)
        kept = sound & (ratio <= 1)
        moved = synchronised(wrap(there + third + error), self.live)
        following = h * jnp.where(sound, growth(ratio, 3, _GROW), _REFUSED)
        # A step cut short to land on a time tells nothing about the next one: keep the longer proposal.
        following = jnp.where(kept & (limit < state), jnp.maximum(following, state), following)
        return Step(jnp.where(kept, moved, u), jnp.where(kept, h, jnp.zeros_like(h)), kept, following)

    def steps_to(self, time: float) -> int | None:
        """Not known beforehand."""
        return None


def root_mean_square(size: Array, live: Bool[Array, " N"] | None) -> Scalar:
    """Over the particles that count."""
    if live is None:
        return safe_sqrt(jnp.mean(size * size))
    counted = jnp.where(live, size, jnp.zeros_like(size))
    return safe_sqrt(jnp.sum(counted * counted) / jnp.sum(live, dtype=size.dtype))


def growth(ratio: Scalar, order: int, most: float) -> Scalar:
    """Factor of the next step's length, the error being `ratio` times what is allowed."""
    safe = jnp.where(jnp.isfinite(ratio) & (ratio > 0), ratio, jnp.full_like(ratio, 1e-30))
    return jnp.clip(_SAFETY * safe ** (-1 / order), _SHRINK, most)


def synchronised(u: Array, live: Bool[Array, " N"] | None) -> Array:
    """Idle copies put where the first particle is."""
    if live is None:
        return u
    return jnp.where(live if u.ndim == 1 else live[:, None], u, jnp.broadcast_to(u[:1], u.shape))
