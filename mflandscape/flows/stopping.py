"""When a run ends. Rules combine: `a | b` ends with the first that says so, `a & b` when all do. Limits come last:
`rule | MaxSteps(n)`.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._results import RESULTS
from .._types import Count, Scalar
from .integrators import positive


class Look(eqx.Module):
    """What a stopping rule sees, every `every` steps. Clusters: count, and largest diameter over the threshold; -1
    and nan unless observed.
    """

    step: Count
    time: Scalar
    residual: Scalar
    residual_l2: Scalar
    energy: Scalar
    clusters: Count
    spread: Scalar


class AbstractStop(eqx.Module):
    """A stopping rule: memory from look to look, and a verdict (`RESULTS.running` to go on)."""

    @abc.abstractmethod
    def init(self) -> PyTree:
        """Memory at the start."""

    @abc.abstractmethod
    def verdict(self, look: Look, memory: PyTree) -> tuple[RESULTS, PyTree]:
        """Whether and why to end, and the memory for the next look."""

    @property
    @abc.abstractmethod
    def needs_clusters(self) -> bool:
        """Whether the looks must count clusters."""

    @property
    @abc.abstractmethod
    def step_limit(self) -> int | None:
        """Steps after which the rule surely ends a run."""

    @property
    @abc.abstractmethod
    def time_limit(self) -> Scalar | None:
        """Time on which the last step is to land."""

    def __or__(self, other: "AbstractStop") -> "AbstractStop":
        return AnyStop((*_parts(self, AnyStop), *_parts(other, AnyStop)))

    def __and__(self, other: "AbstractStop") -> "AbstractStop":
        return AllStops((*_parts(self, AllStops), *_parts(other, AllStops)))


class _Condition(AbstractStop):
    """A rule that sets no limit beforehand."""

    @property
    def step_limit(self) -> int | None:
        """None."""
        return None

    @property
    def time_limit(self) -> Scalar | None:
        """None."""
        return None


class Stationary(_Condition):
    """Ends when the largest speed `max_i |v_i| <= tol` (and, if given, the mass-weighted speed `<= tol_l2`)."""

    tol: Scalar = eqx.field(converter=lambda value: positive("tol", value, zero=True))
    tol_l2: Scalar = eqx.field(converter=lambda value: _limit("tol_l2", value), default=jnp.inf)

    def init(self) -> PyTree:
        """Nothing to remember."""
        return None

    def verdict(self, look: Look, memory: PyTree) -> tuple[RESULTS, PyTree]:
        """Compares speeds with the tolerances."""
        still = (look.residual <= self.tol.astype(look.residual.dtype)) & (
            look.residual_l2 <= self.tol_l2.astype(look.residual.dtype)
        )
        return _when(still, RESULTS.stationary), memory

    @property
    def needs_clusters(self) -> bool:
        """No."""
        return False


class ClustersSettled(_Condition):
    """Ends when the last `window` looks counted the same number of clusters, none wider than `spread_factor` times
    the threshold.

    Raises:
        ValueError: window < 1.
    """

    window: int = eqx.field(static=True, default=5)
    spread_factor: Scalar = eqx.field(converter=lambda value: _limit("spread_factor", value), default=jnp.inf)

    def __check_init__(self):
        if self.window < 1:
            raise ValueError(f"window = {self.window}: expected at least 1 look")

    def init(self) -> PyTree:
        """Last count and how many looks in a row it was seen."""
        return jnp.asarray(-1, jnp.int32), jnp.asarray(0, jnp.int32)

    def verdict(self, look: Look, memory: PyTree) -> tuple[RESULTS, PyTree]:
        """Compares the count with the last ones."""
        last, seen = memory
        seen = jnp.where(look.clusters == last, seen + 1, jnp.ones_like(seen))
        settled = (
            (seen >= self.window) & (look.clusters >= 0) & (look.spread <= self.spread_factor.astype(look.spread.dtype))
        )
        return _when(settled, RESULTS.clusters_settled), (look.clusters, seen)

    @property
    def needs_clusters(self) -> bool:
        """Yes."""
        return True


class MaxTime(AbstractStop):
    """Ends at time `t`, on which the last step lands."""

    t: Scalar = eqx.field(converter=lambda value: positive("t", value))

    def init(self) -> PyTree:
        """Nothing to remember."""
        return None

    def verdict(self, look: Look, memory: PyTree) -> tuple[RESULTS, PyTree]:
        """Compares the time with the limit."""
        t = self.t.astype(look.time.dtype)
        return _when(look.time >= t - landing_slack(t), RESULTS.max_time), memory

    @property
    def needs_clusters(self) -> bool:
        """No."""
        return False

    @property
    def step_limit(self) -> int | None:
        """Not known from the time alone."""
        return None

    @property
    def time_limit(self) -> Scalar | None:
        """The time."""
        return self.t


class MaxSteps(AbstractStop):
    """Ends after `n` steps (attempts, for an adaptive integrator).

    Raises:
        ValueError: n < 1.
    """

    n: int = eqx.field(static=True)

    def __check_init__(self):
        if self.n < 1:
            raise ValueError(f"max steps = {self.n}: expected at least 1")

    def init(self) -> PyTree:
        """Nothing to remember."""
        return None

    def verdict(self, look: Look, memory: PyTree) -> tuple[RESULTS, PyTree]:
        """Compares the step with the limit."""
        return _when(look.step >= self.n, RESULTS.max_steps), memory

    @property
    def needs_clusters(self) -> bool:
        """No."""
        return False

    @property
    def step_limit(self) -> int | None:
        """The number of steps."""
        return self.n

    @property
    def time_limit(self) -> Scalar | None:
        """None."""
        return None


class _Combination(AbstractStop):
    stops: eqx.AbstractVar[tuple[AbstractStop, ...]]

    def init(self) -> PyTree:
        """The memories of the parts."""
        return tuple(stop.init() for stop in self.stops)

    def _verdicts(self, look: Look, memory: PyTree) -> tuple[list[RESULTS], PyTree]:
        pairs = [stop.verdict(look, part) for stop, part in zip(self.stops, memory, strict=True)]
        return [verdict for verdict, _ in pairs], tuple(part for _, part in pairs)

    @property
    def needs_clusters(self) -> bool:
        """Whether any part does."""
        return any(stop.needs_clusters for stop in self.stops)


class AnyStop(_Combination):
    """Ends with the first rule that says so; if several do at one look, the one listed first names the reason."""

    stops: tuple[AbstractStop, ...]

    def verdict(self, look: Look, memory: PyTree) -> tuple[RESULTS, PyTree]:
        """The first verdict other than running."""
        verdicts, memory = self._verdicts(look, memory)
        result = verdicts[-1]
        for verdict in reversed(verdicts[:-1]):
            result = RESULTS.where(verdict == RESULTS.running, result, verdict)
        return result, memory

    @property
    def step_limit(self) -> int | None:
        """The smallest of the parts."""
        return min((s.step_limit for s in self.stops if s.step_limit is not None), default=None)

    @property
    def time_limit(self) -> Scalar | None:
        """The earliest of the parts."""
        limits = [s.time_limit for s in self.stops if s.time_limit is not None]
        return jnp.min(jnp.stack(limits)) if limits else None


class AllStops(_Combination):
    """Ends when all rules say so at the same look: `RESULTS.converged`."""

    stops: tuple[AbstractStop, ...]

    def verdict(self, look: Look, memory: PyTree) -> tuple[RESULTS, PyTree]:
        """Converged if none says running."""
        verdicts, memory = self._verdicts(look, memory)
        return _when(jnp.all(jnp.stack([v != RESULTS.running for v in verdicts])), RESULTS.converged), memory

    @property
    def step_limit(self) -> int | None:
        """The largest of the parts, if all have one."""
        limits = [s.step_limit for s in self.stops if s.step_limit is not None]
        return max(limits) if len(limits) == len(self.stops) else None

    @property
    def time_limit(self) -> Scalar | None:
        """None: the other rules may hold later."""
        return None


def published_rule(window: int = 5, drift_tol: float = 1e-4, spread_factor: float = 1.0) -> AbstractStop:
    """The rule of the published code, which can hold before a state is stationary. [paper A, section 4]

    Count constant over the window, spread within `spread_factor` thresholds, largest speed at most `drift_tol`, all at
    one look.
    """
    return ClustersSettled(window, spread_factor) & Stationary(drift_tol)


def landing_slack(t: Array) -> Array:
    """How far from a requested time counts as having landed on it."""
    return 64 * jnp.finfo(t.dtype).eps * jnp.abs(t)


def _when(condition: Array, result: RESULTS) -> RESULTS:
    return RESULTS.where(condition, result, RESULTS.running)


def _limit(name: str, value) -> Scalar:
    return jnp.asarray(jnp.inf) if value is None or value == jnp.inf else positive(name, value)


def _parts(stop: AbstractStop, kind: type[AnyStop | AllStops]) -> tuple[AbstractStop, ...]:
    return stop.stops if isinstance(stop, kind) else (stop,)
