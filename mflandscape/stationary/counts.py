"""How many atoms the global minimiser has, and whether float64 can tell."""

import math

import equinox as eqx
import jax.numpy as jnp

from ..drifts import AbstractEnergy
from ..measure import Measure
from .minimiser import Minimum, minimise
from .uniform import uniform_quadrature

GAPS = (1e-10, 1e-12, 1e-14)


class AtomCounts(eqx.Module):
    """The number of atoms of a minimiser at several gaps.

    Attributes:
        minima: the minimiser at each gap, the largest first, each with the fewest atoms that its gap allows.
        counts: their numbers of atoms.
        resolved: whether the number is the same at all of them, and every gap was reached and proved.
        uniform_excess: `E[uniform] - E[mu]` over the scale of `U`, `mu` the last of them: below about 1e-15 float64
            cannot tell the minimiser from the uniform measure.
    """

    minima: tuple[Minimum, ...]
    counts: tuple[int, ...] = eqx.field(static=True)
    resolved: bool = eqx.field(static=True)
    uniform_excess: float = eqx.field(static=True)


def count_atoms(energy: AbstractEnergy, *, d: int | None = None, gaps: tuple[float, ...] = GAPS) -> AtomCounts:
    """The atoms of the global minimiser, counted at several gaps (relative to the scale of `U`).

    A count is a property of the minimiser only while it does not depend on the gap. Each gap starts from the minimiser
    at the one before, then, back from the last, from the one after, and the fewest atoms count. [paper A, open question
    1; MATH, section 6] Cost of some five `minimise`. Raises as `minimise`.
    """
    gaps = tuple(sorted(gaps, reverse=True))
    found: list[Minimum] = []
    for gap in gaps:
        found.append(minimise(energy, d=d, tol=gap, start=found[-1].mu if found else None))
    for i in range(len(gaps) - 2, -1, -1):
        again = minimise(energy, d=d, tol=gaps[i], start=found[i + 1].mu)
        found[i] = again if again.converged and again.mu.n < found[i].mu.n else found[i]
    minima, counts = tuple(found), tuple(each.mu.n for each in found)
    best = minima[-1]
    proved = all(each.converged and each.rigorous for each in minima)
    return AtomCounts(minima, counts, proved and len(set(counts)) == 1, _uniform_excess(energy, best))


def _uniform_excess(energy: AbstractEnergy, best: Minimum) -> float:
    if best.mu.d > 3:
        return math.nan
    x, w, _ = uniform_quadrature(400.0, best.mu.d)
    flat = Measure(jnp.asarray(x), jnp.asarray(w))
    return (float(energy(flat)) - best.energy) / best.scale
