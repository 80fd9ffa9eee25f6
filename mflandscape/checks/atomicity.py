"""Paper A's theorems 3.1 to 3.3: when stationary measures are atomic, and what keeps densities from being so."""

from collections.abc import Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..drifts import AbstractDrift, Attention, EnergySum, Perceptron, prepare
from ..measure import Measure
from ..stationary import classify, count_atoms, hessian_spectrum
from ..stationary.second_order import field_derivative
from ..weights import PerceptronWeights
from .base import Check, Comparison, Verdict, at_least, at_most, unmet
from .regions import continue_densities, largest_jump
from .states import end_state, perceptron, published, smooth_state

_FIELD_ERROR = 1e-9  # of the field of a density that is stationary on its region, in units of the perceptron's
_SPEED = 1e-3  # a field above this, in the same units, is not rounding
_GROWTH = 1.5  # of the number of atoms, at most, as that of particles grows; that of a density grows as much
_STRICT = 1e-6  # smallest eigenvalue of a strictly SOPD state, relative to the largest
_ISOLATED = 1e-4  # least |eigenvalue| at an isolated zero of the field, relative to the largest


def relu_atoms(
    beta: float = 5.0,
    weights: PerceptronWeights | None = None,
    particles: Sequence[int] = (32, 128),
    gaps: tuple[float, ...] = (1e-10, 1e-14),
) -> Verdict:
    """Theorem 3.1: the only density that could be stationary on some arc moves on another one; flows end in a number
    of atoms that does not grow with the particles'; the minimiser has the same number at every gap.
    """
    part = perceptron(published(2) if weights is None else weights)
    energy = EnergySum((Attention(beta), part))
    ends = [end_state(energy, 2, n).atoms for n in particles]
    comparisons = no_density(beta, part) + few_atoms(ends, particles)
    context = {f"atoms of {n} particles": mu.n for n, mu in zip(particles, ends, strict=True)}
    if gaps:
        counts = count_atoms(energy, d=2, gaps=gaps)
        comparisons += (at_least("minimiser: one certified count at all gaps", counts.resolved, 1),)
        context["atoms of the minimiser"] = counts.counts[-1]
    return Verdict(
        RELU_ATOMS.name, RELU_ATOMS.statement, unmet({"v not analytic": largest_jump(part) > 0}), comparisons, context
    )


def strict_atoms(
    beta: float = 5.0,
    weights: PerceptronWeights | None = None,
    particles: Sequence[int] = (32, 128),
    activation: str = "gelu",
) -> Verdict:
    """Theorem 3.2: where flows end in strictly SOPD states, the number of atoms does not grow with the particles'; a
    stationary density, which two opposite neurons have, is degenerate.
    """
    energy = Attention(beta) + perceptron(published(2) if weights is None else weights, activation=activation)
    ends = [end_state(energy, 2, n).atoms for n in particles]
    found = [classify(energy, mu, gap=False, tol=_STRICT) for mu in ends]
    opposite, density = smooth_state(beta)
    smooth = Attention(beta) + perceptron(opposite)
    spectrum = hessian_spectrum(smooth, density)
    lowest = float(spectrum.eigenvalues[0])
    return Verdict(
        STRICT_ATOMS.name,
        STRICT_ATOMS.statement,
        unmet({"end states strictly SOPD": all(each.kind == "strictly SOPD" for each in found)}),
        (
            *few_atoms(ends, particles),
            at_most("field of a stationary density", spectrum.residual, 1e-10),
            at_most("its smallest eigenvalue, absolute, over the largest", abs(lowest) / spectrum.scale, 1e-9),
        ),
        {"smallest eigenvalue of the end states": min(each.smallest_eigenvalue for each in found)}
        | {f"atoms of {n} particles": mu.n for n, mu in zip(particles, ends, strict=True)},
    )


def sphere_atoms(
    beta: float = 2.0,
    weights: PerceptronWeights | None = None,
    n: int = 48,
    activations: Sequence[str] = ("gelu", "relu"),
) -> Verdict:
    """Theorem 3.3, d = 3: (i) no density is stationary with ReLU; (ii, iii) where the weights are generic the zeros of
    the field are isolated: at the atoms in active regions that a flow of n particles ends in, the Hessian of `U` is not
    singular.
    """
    weights = published(3) if weights is None else weights
    part = perceptron(weights)
    comparisons = no_density(beta, part)
    context = {}
    for name in activations:
        energy = Attention(beta) + perceptron(weights, activation=name)
        mu = end_state(energy, 3, n).atoms
        live = (np.asarray(mu.x) @ weights.a.T > 0).any(axis=1) | (name != "relu")
        bends = np.abs(np.linalg.eigvalsh(np.asarray(_hessians(energy, mu))))[live]
        least = bends.min() / bends.max()
        comparisons += (at_least(f"least |eigenvalue| of Hess U over the largest, {name}", least, _ISOLATED),)
        context[f"atoms, {name}"] = mu.n
    return Verdict(
        SPHERE_ATOMS.name,
        SPHERE_ATOMS.statement,
        unmet(
            {
                "v not analytic": largest_jump(part) > 0,
                "d neurons, linearly independent": np.linalg.matrix_rank(weights.a) == weights.dim,
            }
        ),
        comparisons,
        context,
    )


def no_density(beta: float, part: Perceptron) -> tuple[Comparison, ...]:
    """That no density is stationary: of each region's only candidate, the field there and elsewhere."""
    found = continue_densities(beta, part)
    return (
        at_most("field of a region's density inside it, of the perceptron's", found.inside, _FIELD_ERROR),
        at_least("its largest field elsewhere, least over the regions", found.beyond, _SPEED),
    )


def few_atoms(ends: Sequence[Measure], particles: Sequence[int]) -> tuple[Comparison, ...]:
    """That the number of atoms in which flows end does not grow with the number of particles."""
    if not ends:
        return ()
    what = f"atoms of {particles[-1]} particles over those of {particles[0]}"
    return (at_most(what, ends[-1].n / ends[0].n, _GROWTH),)


@eqx.filter_jit
def _hessians(drift: AbstractDrift, mu: Measure) -> Float[Array, "N k k"]:
    return field_derivative(prepare(drift), mu)


RELU_ATOMS = Check(
    "theorem-3.1",
    "ReLU on the circle: finitely many atoms",
    "On the circle with a ReLU perceptron whose v is not real-analytic, every stationary measure is atomic with finite "
    "support. [paper A, theorem 3.1]",
    relu_atoms,
    {"particles": (32, 64), "gaps": ()},
)
STRICT_ATOMS = Check(
    "theorem-3.2",
    "strictly stable and analytic: finitely many atoms",
    "On the circle with a real-analytic activation such as GeLU, every strictly SOPD critical point is atomic with "
    "finite support; one of infinite support is degenerate. [paper A, theorem 3.2]",
    strict_atoms,
    {"particles": (32, 64)},
)
SPHERE_ATOMS = Check(
    "theorem-3.3",
    "above the circle: singular, generically atomic",
    "On S^2, (i) with a ReLU perceptron whose v is not real-analytic no stationary measure has a density; (ii, iii) "
    "for generic weights stationary measures are atomic (ReLU: in the active regions). [paper A, theorem 3.3]",
    sphere_atoms,
    {"n": 24, "activations": ("gelu",)},
)
