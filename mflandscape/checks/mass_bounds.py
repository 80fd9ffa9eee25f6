"""Paper A's bounds on clusters of stable stationary states on the circle: theorem 3.5 and corollary 3.6."""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

from ..drifts import AbstractEnergy, Attention, EnergySum
from ..kernels import Convention
from ..measure import Measure
from ..stationary import BoundsCheck, check_bounds
from ..stationary.check_bounds import ClusterBounds
from ..stationary.classify import SADDLE
from .base import Check, Verdict, at_least, at_most, unmet
from .states import end_state, perceptron, published

_ROUNDING = 1e-9
HEAVY = 0.05  # mass from which on an atom counts


class Member(NamedTuple):
    """A state of the ensemble: where n particles end under descent with the published weights times `scale`; the
    exponential convention multiplies them by `e^{-beta}` besides.
    """

    beta: float
    activation: str
    scale: float = 1.0
    kernel: Convention = "shifted"
    n: int = 48


class State(NamedTuple):
    """A measure given instead of a flow's end."""

    energy: AbstractEnergy
    mu: Measure
    kernel: Convention = "shifted"


ENSEMBLE: tuple[Member, ...] = (
    Member(5.0, "relu", kernel="exponential"),
    Member(5.0, "gelu", kernel="exponential"),
    Member(25.0, "relu", kernel="exponential", n=96),
    Member(25.0, "relu", 0.1),
    Member(25.0, "relu", 0.3),
    Member(5.0, "gelu", 0.3),
    Member(25.0, "gelu", 0.03),
)


def cluster_masses(ensemble: Sequence[Member | State] = ENSEMBLE, share: float = 1.0) -> Verdict:
    """Theorem 3.5 over an ensemble: clusters of diameter at most `tau/2` beside the exact bound at their beta, lone
    atoms beside theirs, and those that meet the theorem's own hypotheses beside its constant 0.5742.

    A cluster is compared where the state is stationary and SOPD (a lone atom: splitting stable) and the bound is below
    1; where none is, all of them are, and the hypotheses are unmet. `share` of the bounds is what they may reach.
    """
    found = [_bounds(each) for each in ensemble]
    clusters = [cluster for each in found for cluster in each.clusters]
    usable = [c for c in clusters if not c.unmet and c.exact.informative]
    several, lone = ([c for c in usable or clusters if (c.atoms > 1) == many] for many in (True, False))
    own = [c for c in clusters if not c.theorem_unmet]
    constant = found[0].asymptotic
    return Verdict(
        CLUSTER_MASSES.name,
        CLUSTER_MASSES.statement,
        unmet(
            {
                "a stationary SOPD state with a cluster of two or more atoms and a bound below 1": any(
                    c.atoms > 1 for c in usable
                )
            }
        ),
        (
            at_most("mass over bound, clusters of two or more", _closest(several), share * (1 + _ROUNDING)),
            at_most("mass over bound, lone atoms", _closest(lone), share * (1 + _ROUNDING)),
            at_most("mass under the theorem's own hypotheses", max((c.mass for c in own), default=0.0), constant),
        ),
        {
            "states": len(found),
            "clusters of two or more compared": len(several),
            "lone atoms compared": len(lone),
            "clusters under the theorem's own hypotheses": len(own),
            "clusters whose bound says nothing": sum(not c.unmet and not c.exact.informative for c in clusters),
        },
    )


def heavy_atoms(
    ensemble: Sequence[Member | State] = ENSEMBLE, heavy_mass: float = HEAVY, share: float = 1.0
) -> Verdict:
    """Corollary 3.6 over an ensemble: how many atoms of mass `heavy_mass` or more there are beside how many there can
    be at most, `share` times that many.
    """
    found = [_bounds(each, heavy_mass) for each in ensemble]
    stable = [b for b in found if b.classification.stationary and b.classification.hessian_kind != SADDLE]
    ratios = [b.heavy_atoms / b.heavy.count for b in stable or found]
    return Verdict(
        HEAVY_ATOMS.name,
        HEAVY_ATOMS.statement,
        unmet({"a stationary SOPD state": bool(stable)}),
        (
            at_most("heavy atoms over their bound", max(ratios), share),
            at_least("heavy atoms in all states", sum(b.heavy_atoms for b in stable or found), 1),
        ),
        {
            "states": len(ratios),
            "most heavy atoms in a state": max(b.heavy_atoms for b in found),
        },
    )


def _bounds(state: Member | State, heavy_mass: float = HEAVY) -> BoundsCheck:
    if isinstance(state, State):
        return check_bounds(state.energy, state.mu, kernel=state.kernel, heavy_mass=heavy_mass)
    return _of_member(state, heavy_mass)


@functools.cache
def _of_member(member: Member, heavy_mass: float) -> BoundsCheck:
    """Kept: both checks look at the same ensemble."""
    factor = math.exp(-member.beta) if member.kernel == "exponential" else 1.0
    part = perceptron(published(2), factor * member.scale, member.activation)
    energy = EnergySum((Attention(member.beta), part))
    return check_bounds(energy, end_state(energy, 2, member.n).atoms, kernel=member.kernel, heavy_mass=heavy_mass)


def _closest(clusters: Sequence[ClusterBounds]) -> float:
    """Largest mass over its bound; 0 without clusters."""
    return max((c.mass / c.exact.value for c in clusters), default=0.0)


CLUSTER_MASSES = Check(
    "theorem-3.5",
    "clusters have bounded masses",
    "A cluster of two or more atoms within tau_beta/2, of an SOPD critical point on the circle under descent, has mass "
    "at most (b + p)/(b + c) (exact at each beta), which for the exponential kernel and large beta is below 0.5742. "
    "[paper A, theorem 3.5]",
    cluster_masses,
    {"ensemble": (ENSEMBLE[0], ENSEMBLE[4])},
)
HEAVY_ATOMS = Check(
    "corollary-3.6",
    "heavy atoms are O(sqrt(beta))",
    "An SOPD critical point on the circle under descent has at most sum_r ceil(2 L_r/tau_beta) max(1, floor(bound/m0)) "
    "atoms of mass m0 or more, L_r the lengths of the arcs that hold it. [paper A, corollary 3.6]",
    heavy_atoms,
    {"ensemble": (ENSEMBLE[0], ENSEMBLE[4])},
)
