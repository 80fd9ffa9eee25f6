"""What moves a particle: drifts, those that have a potential, those that are the variation of an energy; and their
sums.
"""

import abc
import functools
import operator
from collections.abc import Iterable
from typing import Any

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

    def __add__(self, other: "AbstractDrift") -> "AbstractDrift":
        if not isinstance(other, AbstractDrift):
            return NotImplemented
        terms = (*_terms(self), *_terms(other))
        energies = tuple(term for term in terms if isinstance(term, AbstractEnergy))
        potentials = tuple(term for term in terms if isinstance(term, AbstractPotential))
        if len(energies) == len(terms):
            return EnergySum(energies)
        return PotentialSum(potentials) if len(potentials) == len(terms) else DriftSum(terms)


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


class AbstractSized(eqx.Module):
    """Part of a drift that is made for points of certain dimensions only."""

    @abc.abstractmethod
    def check(self, d: int) -> None:
        """Refuse (ValueError) points of a dimension that this part is not made for."""


class AbstractEvaluated(AbstractSized):
    """Part of a drift that is summed by an evaluator with tables and a finite accuracy."""

    @abc.abstractmethod
    def prepare(self) -> "AbstractEvaluated":
        """The same with what does not change along a run computed once."""

    @abc.abstractmethod
    def defect(self, mu: Measure) -> Scalar:
        """Error of the evaluator in units of what it promises."""


def prepare(drift: AbstractDrift) -> AbstractDrift:
    """The drift with the tables of its evaluators computed, wherever in it they are."""
    return jax.tree.map(lambda part: part.prepare() if _evaluated(part) else part, drift, is_leaf=_evaluated)


def defect(drift: AbstractDrift, mu: Measure) -> Scalar:
    """Largest error of the drift's evaluators in units of what they promise: above 1 a result is flagged."""
    parts = [part for part in jax.tree.leaves(drift, is_leaf=_evaluated) if _evaluated(part)]
    found = [part.defect(mu).astype(mu.x.dtype) for part in parts]
    return jnp.max(jnp.stack(found)) if found else jnp.zeros((), mu.x.dtype)


def check(drift: AbstractDrift, d: int) -> None:
    """Refuse points of a dimension that a part of the drift is not made for.

    Raises:
        ValueError: with the part's own sentence.
    """
    for part in jax.tree.leaves(drift, is_leaf=_sized):
        if _sized(part):
            part.check(d)


class DriftSum(AbstractDrift):
    """A sum of drifts of which some have no potential."""

    terms: tuple[AbstractDrift, ...]

    def field(self, x: Float[Array, "M d"], mu: Measure) -> Float[Array, "M d"]:
        """Sum of the fields."""
        return _total(term.field(x, mu) for term in self.terms)


class PotentialSum(AbstractPotential):
    """A sum of potentials of which some are not the variation of an energy."""

    terms: tuple[AbstractPotential, ...]

    def potential(self, x: Float[Array, "M d"], mu: Measure) -> Float[Array, " M"]:
        """Sum of the potentials."""
        return _total(term.potential(x, mu) for term in self.terms)


class EnergySum(AbstractEnergy):
    """A sum of energies: multi-head attention, attention with a perceptron."""

    terms: tuple[AbstractEnergy, ...]

    def potential(self, x: Float[Array, "M d"], mu: Measure) -> Float[Array, " M"]:
        """Sum of the first variations."""
        return _total(term.potential(x, mu) for term in self.terms)

    def __call__(self, mu: Measure) -> Scalar:
        """Sum of the values."""
        return _total(term(mu) for term in self.terms)


def _terms(drift: AbstractDrift) -> tuple[AbstractDrift, ...]:
    return drift.terms if isinstance(drift, (DriftSum, PotentialSum, EnergySum)) else (drift,)


def _total(values: Iterable[Array]) -> Array:
    return functools.reduce(operator.add, values)


def _evaluated(part: Any) -> bool:
    return isinstance(part, AbstractEvaluated)


def _sized(part: Any) -> bool:
    return isinstance(part, AbstractSized)
