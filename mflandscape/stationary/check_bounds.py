"""The clusters of a critical point on the circle beside the bounds on their masses, and whether the bounds apply."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..clusters import find_clusters
from ..drifts import AbstractEnergy, Attention, EnergySum, Perceptron
from ..kernels import Convention, KernelConvention
from ..measure import Measure
from ..theory import (
    HeavyAtoms,
    MassBound,
    concavity_window,
    heavy_atom_bound,
    lone_atom_bound,
    mass_bound,
    mass_bound_asymptotic,
)
from .classify import SADDLE, Classification, classify
from .coordinates import jet
from .kinks import find_kinks
from .second_order import STATIONARY, with_mass

_ROUNDING = 1e-9  # of a mass, when it is compared with a bound


class ClusterBounds(eqx.Module):
    """A cluster, its mass, and what bounds it.

    Attributes:
        points: indices of its points in the measure; `atoms` is their number.
        centre: angle in `[0, 2 pi)`.
        mass, diameter: measured.
        exact: bound at this beta with the perceptron's term, from the Hessian for two or more atoms, from splitting
            for a lone one.
        unmet: what the exact bound asks for and is not so (empty: it applies).
        theorem_unmet: the same for theorem 3.5 and its constant `BoundsCheck.asymptotic`, beyond its `o(1)`.
    """

    points: tuple[int, ...] = eqx.field(static=True)
    centre: float
    mass: float
    diameter: float
    exact: MassBound
    unmet: tuple[str, ...] = eqx.field(static=True)
    theorem_unmet: tuple[str, ...] = eqx.field(static=True)

    @property
    def atoms(self) -> int:
        """Number of points."""
        return len(self.points)

    @property
    def within_exact(self) -> bool:
        """Whether the mass is at most the exact bound, applicable or not."""
        return self.mass <= self.exact.value + _ROUNDING

    @property
    def within_asymptotic(self) -> bool:
        """Whether the mass is at most paper A's constant, applicable or not."""
        return self.mass <= mass_bound_asymptotic() + _ROUNDING

    @property
    def verdict(self) -> str:
        """What the exact bound says of this cluster: holds, violated, says nothing, or not applicable and why."""
        if self.unmet:
            return f"not applicable: {'; '.join(self.unmet)}"
        if not self.exact.informative:
            return "says nothing: the bound is not below 1"
        return "holds" if self.within_exact else "violated: accuracy of the state or a cutoff too wide"


class BoundsCheck(eqx.Module):
    """What `check_bounds` found.

    Attributes:
        beta, tau: inverse temperature, and the window in which the kernel is concave.
        threshold: the clusters' (`find_clusters`, rule "arcs").
        kernel: convention of the run, on which theorem 3.5 depends.
        asymptotic: 0.5742, the constant of theorem 3.5, valid up to `o(1)` as beta grows.
        clusters: heaviest first.
        heavy_mass, heavy_atoms: the mass from which on an atom counts, and how many there are.
        heavy: how many there can be at most by corollary 3.6, with the exact bound.
        classification: residual, class and splitting stability of the whole state.
    """

    beta: float
    tau: float
    threshold: float
    kernel: str = eqx.field(static=True)
    asymptotic: float
    clusters: tuple[ClusterBounds, ...]
    heavy_mass: float
    heavy_atoms: int
    heavy: HeavyAtoms
    classification: Classification


def check_bounds(
    energy: AbstractEnergy,
    mu: Measure,
    *,
    kernel: Convention = "shifted",
    threshold: float | None = None,
    heavy_mass: float = 0.05,
    tol: float = 1e-9,
    stationary_tol: float = STATIONARY,
) -> BoundsCheck:
    """Diameter, mass and bounds of each cluster of a critical point under descent, on the circle. [paper A, theorem
    3.5, corollary 3.6; MATH, section 7]

    A point with mass counts as an atom: merge coincident points first where they are to count as one. `energy` is in
    the shifted kernel's units, as everything is computed (in the exponential convention its perceptron already
    contains `e^{-beta}`); `kernel` tells the run's convention, on which the theorem's hypotheses depend. The
    perceptron's term is `max (v''/2)_+` over the cluster's atoms, which is what the Hessian contains, kinks within
    1e-6 on their upper side. Clusters are those of threshold `tau_beta/2` unless given. Cost of `classify`.

    Raises:
        ValueError: d other than 2; an energy other than one attention without matrix, with or without perceptrons;
            an unknown kernel; a threshold outside [0, pi]; a heavy mass outside (0, 1].
    """
    beta, perceptrons = _parts(energy, mu.d)
    KernelConvention(kernel)
    tau = concavity_window(beta)
    threshold = tau / 2 if threshold is None else float(threshold)
    kept, nu = with_mass(mu)
    groups = find_clusters(nu, threshold)
    state = classify(energy, nu, tol=tol, stationary_tol=stationary_tol, gap=False)
    bend, names, weak = _bend(perceptrons, nu), np.flatnonzero(kept), kernel == "exponential" or not perceptrons
    clusters = []
    for number in range(groups.count):
        inside = np.flatnonzero(np.asarray(groups.labels) == number)
        p, diameter = float(bend[inside].max()), float(groups.diameters[number])
        lone = len(inside) == 1
        exact = lone_atom_bound(beta, p) if lone else mass_bound(beta, min(diameter, np.pi), p)
        centre = np.asarray(groups.centres[number], float)
        clusters.append(
            ClusterBounds(
                tuple(names[inside].tolist()),
                float(np.arctan2(centre[1], centre[0]) % (2 * np.pi)),
                float(groups.masses[number]),
                diameter,
                exact,
                _unmet(state, float(state.splitting_at[inside[0]]) if lone else None, exact),
                _theorem_unmet(state, lone, diameter > tau / 2 * (1 + _ROUNDING), weak),
            )
        )
    heavy = heavy_atom_bound(beta, np.asarray(groups.diameters), heavy_mass, float(bend.max()))
    count = int(np.sum(np.asarray(nu.w) >= heavy_mass))
    return BoundsCheck(
        beta,
        tau,
        threshold,
        kernel,
        mass_bound_asymptotic(),
        tuple(clusters),
        float(heavy_mass),
        count,
        heavy,
        state,
    )


def _unmet(state: Classification, splitting: float | None, exact: MassBound) -> tuple[str, ...]:
    """What the exact bound asks for and is not so; `splitting` is given for a lone atom."""
    reasons = [] if state.stationary else [f"not stationary, residual {state.residual:.1e}"]
    if splitting is None:
        reasons += _saddle(state) + (["wider than the kernel is concave"] if exact.c <= 0 else [])
    elif splitting < -state.spectrum.cutoff:
        reasons += [f"the atom gains by splitting, eigenvalue {splitting:.1e}"]
    return tuple(reasons)


def _theorem_unmet(state: Classification, lone: bool, wide: bool, weak: bool) -> tuple[str, ...]:
    """What theorem 3.5 asks for and is not so, large beta aside."""
    reasons = [] if state.stationary else [f"not stationary, residual {state.residual:.1e}"]
    reasons += _saddle(state)
    reasons += ["a lone atom: the theorem is about two or more"] if lone else []
    reasons += ["wider than tau/2"] if wide else []
    reasons += [] if weak else ["shifted kernel: the perceptron's share does not vanish for large beta"]
    return tuple(reasons)


def _saddle(state: Classification) -> list[str]:
    return [f"a saddle, eigenvalue {state.smallest_eigenvalue:.1e}"] if state.hessian_kind == SADDLE else []


def _parts(energy: AbstractEnergy, d: int) -> tuple[float, tuple[Perceptron, ...]]:
    terms = energy.terms if isinstance(energy, EnergySum) else (energy,)
    heads = [term for term in terms if isinstance(term, Attention) and term.matrix is None]
    perceptrons = tuple(term for term in terms if isinstance(term, Perceptron))
    if d != 2:
        raise ValueError(f"d = {d}: the bounds are theorems about the circle, expected d = 2")
    if len(heads) != 1 or len(heads) + len(perceptrons) < len(terms):
        names = ", ".join(type(term).__name__ for term in terms)
        raise ValueError(f"energy of {names}: expected one Attention without matrix, and Perceptrons if any")
    return float(heads[0].kernel.beta), perceptrons


@eqx.filter_jit
def _curvatures(perceptrons: tuple[Perceptron, ...], mu: Measure) -> Float[Array, " N"]:
    total = jnp.zeros(mu.n, mu.x.dtype)
    for part in perceptrons:
        upper = find_kinks(part, mu.x).upper(mu.x, 1e-6)
        total = total + (jet(part, mu.x, mu)[2] + upper)[:, 0, 0]
    return total


def _bend(perceptrons: tuple[Perceptron, ...], mu: Measure) -> Float[np.ndarray, " N"]:
    """`(v''/2)_+` at the atoms."""
    return np.maximum(np.asarray(_curvatures(perceptrons, mu), np.float64), 0.0)
