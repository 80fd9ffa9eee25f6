"""How derivatives go through a run."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree


class AbstractAdjoint(eqx.Module):
    """Repeats a block of steps up to `count` times, as long as `going(state)`; the way it loops decides which
    derivatives exist.
    """

    @abc.abstractmethod
    def loop(self, block, going, state: PyTree, count: int) -> PyTree:
        """The state after the last block."""


class Unrolled(AbstractAdjoint):
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


class Forward(AbstractAdjoint):
    """Forward mode (`jax.jvp`, `jax.jacfwd`) through every step taken, at the memory of a run. Reverse mode is
    refused.
    """

    def loop(self, block, going, state: PyTree, count: int) -> PyTree:
        """A while-loop that ends with the run."""

        def more(carry: tuple[Array, PyTree]) -> Bool[Array, ""]:
            return going(carry[1]) & (carry[0] < count)

        _, state = jax.lax.while_loop(
            more, lambda carry: (carry[0] + 1, block(carry[1])), (jnp.asarray(0, jnp.int32), state)
        )
        from equinox.internal import nondifferentiable_backward  # slow to import

        return nondifferentiable_backward(
            state,
            msg="Reverse-mode differentiation of a flow with adjoint=Forward(): "
            "expected jax.jvp or jax.jacfwd; use Unrolled().",
        )
