"""How derivatives go through a run."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from .._types import Scalar
from ..sphere import AngleChart
from ..stationary.implicit import implicit_points
from .dynamics import Dynamics
from .integrators import positive


class AbstractAdjoint(eqx.Module):
    """Repeats a block of steps up to `count` times, as long as `going(state)`; the way it loops decides which
    derivatives exist.
    """

    @abc.abstractmethod
    def enter(self, problem: PyTree) -> PyTree:
        """The problem as the steps see it: what is cut off here has no derivative through them."""

    @abc.abstractmethod
    def leave(self, dynamics: Dynamics, u: Array) -> Array:
        """The final coordinates with what derivative the steps did not give them."""

    @abc.abstractmethod
    def loop(self, block, going, state: PyTree, count: int) -> PyTree:
        """The state after the last block."""


class _AbstractStepwise(AbstractAdjoint):
    """Derivatives come from the steps alone."""

    def enter(self, problem: PyTree) -> PyTree:
        """The problem itself."""
        return problem

    def leave(self, dynamics: Dynamics, u: Array) -> Array:
        """The coordinates themselves."""
        return u


class Unrolled(_AbstractStepwise):
    """Reverse mode, and forward over reverse, through every step taken. Memory O(sqrt(blocks)) states, twice the
    time of a run.

    A scan of scans, each checkpointed, that skips what comes after the end. Under `vmap` nothing is skipped: for
    many runs at once use a sweep.
    """

    def loop(self, block, going, state: PyTree, count: int) -> PyTree:
        """A checkpointed scan over groups of blocks."""
        inner = max(int(count**0.5), 1)
        outer = -(-count // inner)

        def advance(state: PyTree, repeat) -> PyTree:
            return jax.lax.cond(going(state), repeat, lambda state: state, state)

        @jax.checkpoint
        def one(state: PyTree, _: None):
            return advance(state, block), None

        @jax.checkpoint
        def group(state: PyTree, _: None):
            return advance(state, lambda state: jax.lax.scan(one, state, None, length=inner)[0]), None

        return jax.lax.scan(group, state, None, length=outer)[0]


class Forward(_AbstractStepwise):
    """Forward mode (`jax.jvp`, `jax.jacfwd`) through every step taken, at the memory of a run. Reverse mode is
    refused.
    """

    def loop(self, block, going, state: PyTree, count: int) -> PyTree:
        """A while-loop that ends with the run."""

        state = _while(block, going, state, count)
        from equinox.internal import nondifferentiable_backward  # slow to import

        return nondifferentiable_backward(
            state,
            msg="Reverse-mode differentiation of a flow with adjoint=Forward(): "
            "expected jax.jvp or jax.jacfwd; use Unrolled().",
        )


class Implicit(AbstractAdjoint):
    """The derivative of the stationary state that the run ended in, by the implicit function theorem: the memory of a
    run, no derivative through a step; all of forward, reverse and higher modes, as `stationary_state`.

    With respect to the drift's numbers and the masses; 0 with respect to the start, the integrator and the rest.
    `Solution.mu`, `u` and `energy` carry it; times, residuals, snapshots and series have derivative 0. It needs a run
    that ended stationary: `tol` is the largest final speed with which a derivative is given (its error is about that
    speed over the smallest rate of decay).

    Raises:
        RuntimeError: where it is differentiated, with `throw`: a final speed above `tol`, an atom on a kink, an
            eigenvalue that crosses zero. Without `throw` these give least-norm answers.
    """

    tol: Scalar = eqx.field(converter=lambda value: positive("tol", value), default=1e-6)
    throw: bool = eqx.field(static=True, default=True)

    def loop(self, block, going, state: PyTree, count: int) -> PyTree:
        """A while-loop that ends with the run."""
        return _while(block, going, state, count)

    def enter(self, problem: PyTree) -> PyTree:
        """The problem with no derivative in it."""
        numbers, rest = eqx.partition(problem, eqx.is_inexact_array)
        return eqx.combine(jax.lax.stop_gradient(numbers), rest)

    def leave(self, dynamics: Dynamics, u: Array) -> Array:
        """The same coordinates, differentiable."""
        mu = dynamics.measure(jax.lax.stop_gradient(u))
        x = implicit_points(dynamics.drift, mu, tol=self.tol, throw=self.throw)
        if not isinstance(dynamics.chart, AngleChart):
            return u + (x - jax.lax.stop_gradient(x))
        here = jax.lax.stop_gradient(x)
        turn = jnp.arctan2(here[:, 0] * x[:, 1] - here[:, 1] * x[:, 0], jnp.sum(here * x, axis=1))
        return u + (turn - jax.lax.stop_gradient(turn))


def _while(block, going, state: PyTree, count: int) -> PyTree:
    def more(carry: tuple[Array, PyTree]) -> Bool[Array, ""]:
        return going(carry[1]) & (carry[0] < count)

    start = jnp.asarray(0, jnp.int32), state
    return jax.lax.while_loop(more, lambda carry: (carry[0] + 1, block(carry[1])), start)[1]
