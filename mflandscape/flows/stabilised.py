"""An explicit integrator for stiff flows that needs velocities only: any dimension, drift and evaluator."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from .._numerics import safe_sqrt
from .._types import Count, Key, Scalar
from .dynamics import Dynamics
from .integrators import AbstractIntegrator, Step, positive
from .rosenbrock import growth, root_mean_square, synchronised

_EPS = 2 / 13  # damping of the Chebyshev polynomials
_MOST = 200  # stages: a longer step is cut
_ROUNDS = 10  # products with the Jacobian before the first step
_LASTS = 5  # steps that an estimate of the spectral radius is good for
_REFUSED = 1 << 20  # a refused step asks for another
_SLACK = 1.0  # steps shorter than this over the spectral radius are stable whatever it is by now
_SAFE = 1.2  # the spectral radius is at most so many times its estimate
_GROW = 5.0
_SHARE = 0.1  # of the distance moved that the error may be


class Memory(eqx.Module):
    """What is carried from step to step: the step to try, the Jacobian's largest eigenvalue, its vector, and how many
    steps ago it was found.
    """

    h: Scalar
    rate: Scalar
    vector: Array
    age: Count


class Stabilised(AbstractIntegrator):
    """RKC2: as many Chebyshev stages as the step needs to be stable, about `sqrt(1.54 h rho)`. [Sommeijer, Shampine
    and Verwer 1998]

    `rho`, the Jacobian's spectral radius, is followed by a finite difference (power iteration) every five steps, but
    for steps shorter than `1/rho`, which two stages hold. The error of a step may also be at most a tenth of the
    distance moved: the stages damp modes that they do not resolve by 5% a step only, so that without this steps would
    grow in vain near a stationary state. No reverse derivative goes through the steps (their number of stages is
    data): take `Forward` or `Implicit`.

    Args:
        tol: error of a step in radians, root mean square over the particles.
        first: first step tried.
        live: which particles count (all if None); others are idle copies of the first, of no mass.

    Raises:
        ValueError: tol or first not positive.
    """

    tol: Scalar = eqx.field(converter=lambda value: positive("tol", value), default=5e-4)
    first: Scalar = eqx.field(converter=lambda value: positive("first", value), default=0.1)
    live: Bool[Array, " N"] | None = None

    @property
    def evaluations(self) -> int:
        """Besides the stages, which `Step.evaluations` counts: none."""
        return 0

    def init(self, dynamics: Dynamics, u: Array, du: Array) -> PyTree:
        """The step to try, and some rounds of the power iteration."""
        seed = jax.random.normal(jax.random.key(0), u.shape, u.dtype)
        h, zero, new = self.first.astype(u.dtype), jnp.zeros((), u.dtype), jnp.asarray(0, jnp.int32)
        memory = Memory(h, zero, seed / _length(seed), new)
        return jax.lax.fori_loop(0, _ROUNDS, lambda _, m: _sharpened(dynamics, u, du, m), memory)

    def step(self, dynamics: Dynamics, u: Array, du: Array, limit: Scalar, key: Key | None, state: PyTree) -> Step:
        """One attempt; the particles stay where they are if its error is too large."""
        due = (state.age >= _REFUSED) | (state.age >= _LASTS) & (state.h * state.rate > _SLACK)
        state = jax.lax.cond(due, lambda m: _sharpened(dynamics, u, du, m), lambda m: m, state)
        rate = _SAFE * state.rate
        h = jnp.minimum(jnp.minimum(state.h, limit), (_MOST * _MOST - 1) / (1.54 * rate))
        stages = jnp.maximum(jnp.ceil(jnp.sqrt(1 + 1.54 * h * rate)), 2.0).astype(jnp.int32)
        straight = _chebyshev(dynamics, u, du, h, stages)
        moved = synchronised(dynamics.chart.wrap(straight), self.live)
        ahead = dynamics.velocity(moved)
        error = 0.8 * (u - straight) + 0.4 * h * (du + ahead)
        moves = root_mean_square(dynamics.chart.speed(straight - u), self.live)
        allowed = jnp.minimum(self.tol.astype(u.dtype), _SHARE * moves)
        ratio = root_mean_square(dynamics.chart.speed(error), self.live) / allowed
        kept = ratio <= 1
        following = h * growth(ratio, 3, _GROW)
        following = jnp.where(kept & (limit < state.h), jnp.maximum(following, state.h), following)
        age = jnp.where(kept, state.age + 1, jnp.full_like(state.age, _REFUSED))
        return Step(
            jnp.where(kept, moved, u),
            jnp.where(kept, h, jnp.zeros_like(h)),
            kept,
            Memory(following, state.rate, state.vector, age),
            jnp.where(kept, ahead, du),
            stages + due.astype(jnp.int32),
        )

    def steps_to(self, time: float) -> int | None:
        """Not known beforehand."""
        return None


class _Chebyshev(eqx.Module):
    """`T_j(w0)` with two derivatives, for j - 1 and j - 2."""

    value: tuple[Scalar, Scalar]
    first: tuple[Scalar, Scalar]
    second: tuple[Scalar, Scalar]

    def next(self, w0: Scalar) -> "_Chebyshev":
        """For j and j - 1."""
        value = 2 * w0 * self.value[0] - self.value[1]
        first = 2 * w0 * self.first[0] - self.first[1] + 2 * self.value[0]
        second = 2 * w0 * self.second[0] - self.second[1] + 4 * self.first[0]
        return _Chebyshev((value, self.value[0]), (first, self.first[0]), (second, self.second[0]))


def _chebyshev(dynamics: Dynamics, u: Array, du: Array, h: Scalar, stages: Count) -> Array:
    """Where the stages end, in coordinates before they are wrapped."""
    n = stages.astype(u.dtype)
    w0 = 1 + _EPS / (n * n)
    root = jnp.sqrt(w0 * w0 - 1)
    turn = n * jnp.log(w0 + root)
    w1 = jnp.sinh(turn) * root * root / (jnp.cosh(turn) * n * root - w0 * jnp.sinh(turn))
    zero, one = jnp.zeros_like(w0), jnp.ones_like(w0)
    b = 1 / (4 * w0 * w0)

    def stage(_, carry):
        polynomial, b, before, last, earlier = carry
        ahead = polynomial.next(w0)
        scale = ahead.second[0] / (ahead.first[0] * ahead.first[0])
        mu, nu = 2 * w0 * scale / b, -scale / before
        slope = dynamics.velocity(dynamics.chart.wrap(last)) - (1 - polynomial.value[0] * b) * du
        there = mu * last + nu * earlier + (1 - mu - nu) * u + h * mu * w1 / w0 * slope
        return ahead, scale, b, there, last

    start = _Chebyshev((w0, one), (one, zero), (zero, zero)), b, b, u + h * w1 * b * du, u
    return jax.lax.fori_loop(2, stages + 1, stage, start)[3]


def _sharpened(dynamics: Dynamics, u: Array, du: Array, memory: Memory) -> Memory:
    """One round of the power iteration, by a finite difference; a vector without an image is kept."""
    step = jnp.sqrt(jnp.asarray(jnp.finfo(u.dtype).eps * u.size, u.dtype))
    image = (dynamics.velocity(dynamics.chart.wrap(u + step * memory.vector)) - du) / step
    rate = _length(image)
    vector = jnp.where(rate > 0, image / jnp.where(rate > 0, rate, jnp.ones_like(rate)), memory.vector)
    return Memory(memory.h, rate, vector, jnp.asarray(0, jnp.int32))


def _length(v: Array) -> Scalar:
    return safe_sqrt(jnp.sum(v * v))
