"""Paper A's proposition 3.7: the Diracs that maximise the energy, and its one minimiser."""

import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float

from .. import sphere
from ..drifts import Attention, EnergySum, Perceptron
from ..measure import Measure, empirical
from ..stationary import Minimum, maximise, minimise
from ..weights import PerceptronWeights
from .base import Check, Verdict, at_most, unmet
from .states import perceptron, published

_ROUNDING = 1e-12


def maximisers(
    beta: float = 2.0, d: int = 3, seeds: Sequence[int] = (0, 1, 2), matrix: ArrayLike | None = None
) -> Verdict:
    """Proposition 3.7 (i): energies of Diracs where the closed forms put them, beside the search for the largest
    energy of any measure and the energies of random measures. With a `matrix` B the proposition is not about this
    energy.
    """
    below, missed, better = 0.0, 0.0, -math.inf
    for seed in seeds:
        rng = np.random.default_rng(seed)
        for part, x, value in _closed_forms(rng, d):
            energy = EnergySum((Attention(beta, matrix=matrix), part))
            best = float(energy(empirical(x[None, :])))
            found = maximise(energy)
            nowhere = Measure(jnp.asarray(x[None, :]), jnp.zeros(1))
            below = max(below, abs(2 * float(part.potential(jnp.asarray(x[None, :]), nowhere)[0]) - value))
            missed = max(missed, abs(found.energy - best))
            others = [float(energy(mu)) for mu in _random_measures(rng, d)]
            better = max(better, max(others) - best)
    return Verdict(
        MAXIMISERS.name,
        MAXIMISERS.statement,
        unmet({"beta > 0": beta > 0, "no matrix B": matrix is None}),
        (
            at_most("v at the Diracs less the maximum of the closed forms, absolute", below, _ROUNDING),
            at_most("their energy less the largest found, absolute", missed, 1e-10),
            at_most("energy of random measures less theirs", better, 0.0),
        ),
        {"closed forms compared": 3 * len(seeds)},
    )


def minimisers(
    beta: float = 5.0,
    weights: PerceptronWeights | None = None,
    seed: int = 0,
    scale: float = 0.05,
    tol: float = 1e-12,
    reflect: ArrayLike | None = None,
) -> Verdict:
    """Proposition 3.7 (ii): the minimiser from two starts, with a certified gap, and its image under the reflection
    that fixes a single neuron.

    Distances are those of the energy's own kernel K, in which a measure is at most `(2 gap)^{1/2}` away from the
    minimiser (at beta = 0, where it is none, those of the kernel at beta = 1). `reflect` is the vector along which is
    reflected; it should be orthogonal to every `a_j` of `weights` (one neuron, on the circle).
    """
    weights = published(2, 1) if weights is None else weights
    part = perceptron(weights, scale)
    energy = EnergySum((Attention(beta), part))
    rng = np.random.default_rng(seed)
    start = empirical(np.asarray(sphere.retract(jnp.asarray(rng.normal(size=(8, weights.dim))))))
    one, two = minimise(energy, d=weights.dim, tol=tol), minimise(energy, d=weights.dim, tol=tol, start=start)
    normal = np.array([-weights.a[0, 1], weights.a[0, 0]]) if reflect is None else np.asarray(reflect, float)
    normal = normal / np.linalg.norm(normal)
    image = Measure(one.mu.x - 2 * (one.mu.x @ jnp.asarray(normal))[:, None] * jnp.asarray(normal)[None, :], one.mu.w)
    fixed = float(np.abs(weights.a @ normal).max())
    apart = 2 * math.sqrt(2 * max(tol, _ROUNDING) * one.scale)
    return Verdict(
        MINIMISERS.name,
        MINIMISERS.statement,
        unmet({"beta > 0": beta > 0, "the reflection fixes every neuron": fixed < _ROUNDING}),
        (
            at_most("certified gap of the first start", _certified(one), tol * one.scale),
            at_most("certified gap of the second start", _certified(two), tol * two.scale),
            at_most("distance of the two minimisers", _distance(beta, one.mu, two.mu), apart),
            at_most("distance of the minimiser and its reflection", _distance(beta, one.mu, image), apart),
            at_most(
                "energies of random measures below the minimum",
                max(one.energy - float(energy(mu)) for mu in _random_measures(rng, weights.dim)),
                0.0,
            ),
        ),
        {"atoms": one.mu.n, "atoms from the second start": two.mu.n, "energy": one.energy},
    )


def _closed_forms(rng: np.random.Generator, d: int) -> list[tuple[Perceptron, Float[np.ndarray, " d"], float]]:
    """ReLU perceptrons of the three cases of section 3.3, a maximiser of `v`, and the maximum."""
    e = rng.normal(size=d)
    e, tau, size, omega = (
        e / np.linalg.norm(e),
        rng.choice([-1.0, 1.0], 4),
        rng.uniform(0.5, 1.5, 4),
        rng.normal(size=4),
    )
    sums = [float(np.sum((omega * size**2)[tau == side])) for side in (1.0, -1.0)]
    across = np.linalg.svd(e[None, :])[2][-1]
    along = e if sums[0] >= sums[1] else -e
    alpha, weight = rng.normal(size=d), rng.normal(size=d)
    c = weight * alpha**2
    top = int(np.argmax(c))
    axis = np.sign(alpha[top]) * np.eye(d)[top]
    rows, positive = rng.uniform(0, 1, (4, d)), rng.uniform(0.2, 1, 4)
    _, values, vectors = np.linalg.svd(np.sqrt(positive)[:, None] * rows)
    return [
        (Perceptron((tau * size)[:, None] * e[None, :], omega), along if max(sums) > 0 else across, max(*sums, 0.0)),
        (Perceptron(np.diag(alpha), weight), axis if c[top] > 0 else -axis, max(float(c[top]), 0.0)),
        (Perceptron(rows, positive), np.abs(vectors[0]), float(values[0] ** 2)),
    ]


def _random_measures(rng: np.random.Generator, d: int) -> list[Measure]:
    """Four of five atoms, and two Diracs."""
    found = []
    for n in (5, 5, 5, 5, 1, 1):
        x, m = rng.normal(size=(n, d)), rng.uniform(0.1, 1, n)
        found.append(empirical(x / np.linalg.norm(x, axis=1, keepdims=True), m / m.sum()))
    return found


def _certified(found: Minimum) -> float:
    """The gap; nan where it is not proved."""
    return found.gap if found.rigorous else math.nan


def _distance(beta: float, mu: Measure, nu: Measure) -> float:
    """`|mu - nu|_K = (∬ k d(mu - nu) d(mu - nu))^{1/2}`, 0 for equal measures only."""
    both = Measure(jnp.concatenate([mu.x, nu.x]), jnp.concatenate([mu.w, -nu.w]))
    return math.sqrt(max(0.0, 2 * float(Attention(beta or 1.0)(both))))


MAXIMISERS = Check(
    "prop-3.7-i",
    "maximisers",
    "For beta > 0 the global maximisers of E are the Diracs at the maximisers of v; for collinear, orthogonal and "
    "entry-wise nonnegative ReLU neurons these are known in closed form. [paper A, proposition 3.7 (i), section 3.3]",
    maximisers,
    {"seeds": (0,)},
)
MINIMISERS = Check(
    "prop-3.7-ii",
    "the minimiser",
    "For beta > 0 E has one global minimiser, which is invariant under the rotations (orthogonal maps) that fix every "
    "a_j. [paper A, proposition 3.7 (ii)]",
    minimisers,
)
