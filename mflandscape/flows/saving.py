"""What to keep of a run: snapshots of the particles on a schedule, and what is observed at every look."""

import abc
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from .._types import Scalar
from .integrators import positive


class AbstractSave(eqx.Module):
    """A schedule of snapshots: at steps (integer marks) or at times (floating-point marks), increasing."""

    @abc.abstractmethod
    def marks(self, max_steps: int) -> Int[Array, " S"] | Float[Array, " S"]:
        """The schedule of a run of at most `max_steps` steps."""


class SaveNothing(AbstractSave):
    """No snapshots; the final state is always in the solution."""

    def marks(self, max_steps: int) -> Int[Array, " S"]:
        """None."""
        return jnp.zeros(0, jnp.int32)


class SaveEvery(AbstractSave):
    """A snapshot every `n` steps, the start included.

    Raises:
        ValueError: n < 1.
    """

    n: int = eqx.field(static=True)

    def __check_init__(self):
        if self.n < 1:
            raise ValueError(f"a snapshot every {self.n} steps: expected at least 1")

    def marks(self, max_steps: int) -> Int[Array, " S"]:
        """`0, n, 2 n, ...`"""
        return jnp.arange(0, max_steps + 1, self.n, dtype=jnp.int32)


class SaveLog(AbstractSave):
    """About `count` snapshots at logarithmically spaced steps, the start and the step limit included.

    Raises:
        ValueError: count < 2.
    """

    count: int = eqx.field(static=True)

    def __check_init__(self):
        if self.count < 2:
            raise ValueError(f"{self.count} logarithmically spaced snapshots: expected at least 2")

    def marks(self, max_steps: int) -> Int[Array, " S"]:
        """0 and the distinct roundings of a geometric sequence from 1 to the step limit."""
        steps = np.unique(np.rint(np.geomspace(1, max_steps, self.count - 1)).astype(int))
        return jnp.asarray(np.concatenate([[0], steps]), jnp.int32)


class SaveAt(AbstractSave):
    """Snapshots at given times; steps are shortened to land on them.

    Raises:
        ValueError: times not finite, negative, or not increasing.
    """

    times: Float[Array, " S"]

    def __init__(self, times: ArrayLike | Sequence[float]):
        values = np.asarray(times, float)
        if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any() or (np.diff(values) <= 0).any():
            raise ValueError(f"save times {values}: expected finite increasing times >= 0")
        self.times = jnp.asarray(values)

    def marks(self, max_steps: int) -> Float[Array, " S"]:
        """The times."""
        return self.times


class Observe(eqx.Module):
    """What is looked at along the way: every `every` steps speeds, and on request the energy and the clusters.

    Stopping rules are asked at these looks. `threshold` (radians) turns counting on: arcs on the circle, single
    linkage above (`clusters.cluster_threshold` gives the published one).

    Raises:
        ValueError: every < 1, a threshold that is not positive.
    """

    every: int = eqx.field(static=True, default=1)
    energy: bool = eqx.field(static=True, default=False)
    threshold: Scalar | None = eqx.field(
        converter=lambda value: None if value is None else positive("threshold", value), default=None
    )

    def __check_init__(self):
        if self.every < 1:
            raise ValueError(f"a look every {self.every} steps: expected at least 1")
