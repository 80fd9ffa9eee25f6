"""What moves a particle: drifts, those that have a potential, those that are the variation of an energy; and their sums."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Scalar
from ..measure import Measure


class AbstractDrift(eqx.Module):
    """A vector field on the sphere that depends on a measure. Drifts add: `attention + perceptron`."""

    @abc.abstractmethod
    def field(self, x: Float[Array, "M d"], mu: Measure) -> Float[Array, "M d"]:
        """The field at `x`, in the direction of ascent, before projection on the tangent spaces."""

    @abc.abstractmethod
    def prepare(self) -> "AbstractDrift":
        """The same drift with what does not change along a run computed once."""

    @abc.abstractmethod
    def defect(self, mu: Measure) -> Scalar:
        """Error of a truncated evaluator in units of what it promises: above 1 the result is flagged."""

    @abc.abstractmethod
    def check(self, d: int) -> None:
        """Refuse (ValueError) points of a dimension that this drift is not made for."""

    def __add__(self, other: "AbstractDrift") -> "AbstractDrift":
        if not isinstance(other, AbstractDrift):
            return NotImplemented
        terms = (*_terms(self), *_terms(other))
        if all(isinstance(term, AbstractEnergy) for term in terms):
            return EnergySum(terms)
        return PotentialSum(terms) if all(isinstance(term, AbstractPotential) for term in terms) else DriftSum(terms)


class AbstractPotential(AbstractDrift):
    """A drift that is the gradient in `x` of a potential, the measure held fixed."""

    @abc.abstractmethod
    def potential(self, x: Float[Array, "M d"], mu: Measure) -> Float[Array, " M"]:
        """The potential at `x`."""

    def field(self, x: Float[Array, "M d"], mu: Measure) -> Float[Array, "M d"]:
        """`jax.grad` of the potential, the measure held fixed."""
        return jax.grad(lambda z: jnp.sum(self.potential(z, mu)))(x)


class AbstractEnergy(AbstractPotential):
    """A functional `E[mu]` of a measure; its `potential` is the first variation `U[mu]`."""

    @abc.abstractmethod
    def __call__(self, mu: Measure) -> Scalar:
        """The value `E[mu]`."""


class _Sum(AbstractDrift):
    terms: eqx.AbstractVar[tuple[AbstractDrift, ...]]

    def prepare(self) -> AbstractDrift:
        """The sum of prepared terms."""
        return eqx.tree_at(lambda s: s.terms, self, tuple(term.prepare() for term in self.terms))

    def defect(self, mu: Measure) -> Scalar:
        """The largest defect among the terms."""
        return jnp.max(jnp.stack([term.defect(mu) for term in self.terms]))

    def check(self, d: int) -> None:
        """Refuses what any term refuses."""
        for term in self.terms:
            term.check(d)


class DriftSum(_Sum):
    """A sum of drifts of which some have no potential."""

    terms: tuple[AbstractDrift, ...]

    def field(self, x: Float[Array, "M d"], mu: Measure) -> Float[Array, "M d"]:
        """Sum of the fields."""
        return sum(term.field(x, mu) for term in self.terms)


class PotentialSum(_Sum, AbstractPotential):
    """A sum of potentials of which some are not the variation of an energy."""

    terms: tuple[AbstractPotential, ...]

    def potential(self, x: Float[Array, "M d"], mu: Measure) -> Float[Array, " M"]:
        """Sum of the potentials."""
        return sum(term.potential(x, mu) for term in self.terms)


class EnergySum(_Sum, AbstractEnergy):
    """A sum of energies: multi-head attention, attention with a perceptron."""

    terms: tuple[AbstractEnergy, ...]

    def potential(self, x: Float[Array, "M d"], mu: Measure) -> Float[Array, " M"]:
        """Sum of the first variations."""
        return sum(term.potential(x, mu) for term in self.terms)

    def __call__(self, mu: Measure) -> Scalar:
        """Sum of the values."""
        return sum(term(mu) for term in self.terms)


def _terms(drift: AbstractDrift) -> tuple[AbstractDrift, ...]:
    return drift.terms if isinstance(drift, _Sum) else (drift,)
