"""Paper B near the uniform measure: growth rates, the fastest mode and its clusters, propagation of chaos."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from .._types import Direction
from ..clusters import cluster_threshold, find_clusters
from ..drifts import AbstractDrift, Attention, SoftmaxAttention
from ..flows import RK4, MaxSteps, MaxTime, SaveAt, flow
from ..interactions import CircleFourier
from ..meanfield import (
    Density,
    chaos,
    cosine_density,
    dobrushin_constant,
    growth_rate,
    measure_moments,
    prepared_density,
    solve_pde,
)
from ..measure import Measure, equispaced
from ..theory import growth_rates, k_max
from .base import Check, Verdict, at_least, at_most, unmet

_RATE_ERROR = 0.01  # relative
_LINEAR = 1e-3  # amplitudes below this grow as the linearised equation says, up to their own size
_MODES = 64  # of densities
_LOOKS = 6
_SPAN = 2.0  # of the fastest mode's growth, e-fold times
_STEPS = 80
_STRAGGLERS = 0.01  # lighter clusters are not counted


class Case(NamedTuple):
    """A way to measure growth rates: the equation's solution or particles, softmax or plain attention."""

    kind: str
    normalised: bool
    direction: Direction


CASES = (
    Case("density", False, "ascent"),
    Case("density", False, "descent"),
    Case("particles", False, "ascent"),
    Case("particles", True, "ascent"),
)


def rates(
    beta: float = 5.0, amplitude: float = 1e-6, n: int = 512, cases: Sequence[Case] = CASES, factor: float = 1.0
) -> Verdict:
    """Growth rates of the modes `k_max - 2` to `k_max + 2`, all present at once with the same amplitude, beside
    `factor` times `gamma_k`; particles carry the perturbation as weights of equispaced points.
    """
    fastest, evaluator = k_max(beta), CircleFourier.for_beta(beta)
    modes = np.arange(max(1, fastest - 2), fastest + 3)
    comparisons, grown = [], 0.0
    for case in cases:
        drift = (SoftmaxAttention if case.normalised else Attention)(beta, interaction=evaluator)
        gamma = growth_rates(beta, 2, modes, case.normalised, case.direction)
        found, largest = _measured_rates(drift, modes, gamma, amplitude, n if case.kind == "particles" else None)
        error = float(np.abs(found / (factor * gamma) - 1).max())
        attention = "softmax attention" if case.normalised else "attention"
        what = f"rates of {case.kind}, {attention}, {case.direction}: relative error"
        comparisons.append(at_most(what, error, _RATE_ERROR))
        grown = max(grown, largest)
    small = {"beta > 0": beta > 0, f"amplitudes below {_LINEAR}": grown <= _LINEAR}
    return Verdict(RATES.name, RATES.statement, unmet(small), tuple(comparisons), {"largest amplitude reached": grown})


def fastest_mode(
    betas: Sequence[float] = (1.0, 5.0, 25.0, 50.0, 100.0), n: int = 2000, predicted: Sequence[int] | None = None
) -> Verdict:
    """The mode that grows fastest in the density's equation, and the clusters that n particles form from `1 + 0.01
    cos(k_max theta)` with noise of 1e-3 at `gamma t = 16` (20 for beta up to 1), beside `k_max`.
    """
    expected = [k_max(beta) for beta in betas] if predicted is None else predicted
    evaluator, comparisons = CircleFourier.for_beta(max(betas)), []
    for beta, k in zip(betas, expected, strict=True):
        modes = np.arange(1, k + 4)
        found = _measured_rates(Attention(beta, interaction=evaluator), modes, growth_rates(beta, 2, modes))[0]
        fastest = abs(modes[found.argmax()] - k)
        comparisons.append(at_most(f"fastest mode less k_max = {k}, beta = {beta:g}", fastest, 0))
        count = _clusters(Attention(beta, interaction=evaluator), k, float(growth_rates(beta, 2, [k])[0]), n)
        comparisons.append(at_most(f"clusters less k_max = {k}, beta = {beta:g}", abs(count - k), 0))
    return Verdict(FASTEST.name, FASTEST.statement, unmet({"beta > 0": min(betas) > 0}), tuple(comparisons))


def propagation(
    beta: float = 5.0,
    sizes: Sequence[int] = (100, 800, 6400),
    seeds: Sequence[int] = tuple(range(8)),
    times: Sequence[float] = (0.0, 5.0),
    constant: float | None = None,
) -> Verdict:
    """Distances `W_1` of N independent particles to the solution of the density's equation, from `1 + 0.3 cos(theta) +
    0.2 cos(3 theta)`, ascent: their exponent in N, and Dobrushin's bound with its constant or the one given.
    """
    drift = Attention(beta, interaction=CircleFourier.for_beta(beta))
    c = dobrushin_constant(drift) if constant is None else constant
    start = cosine_density(_MODES, {1: (0.3, 0.0), 3: (0.2, 0.0)})
    found = chaos(drift, start, times, sizes, seeds, integrator=RK4(0.05))
    slope = found.slope(1, -1)
    bound = np.exp(c * found.times[1:]) * found.w1[:, :, :1]
    return Verdict(
        CHAOS.name,
        CHAOS.statement,
        unmet({"beta > 0": beta > 0}),
        (
            at_least(f"exponent of N in W_1 at t = {times[-1]:g}", slope.slope, -0.6),
            at_most(f"exponent of N in W_1 at t = {times[-1]:g}, from above", slope.slope, -0.4),
            at_most("W_1 over Dobrushin's bound", float((found.w1[:, :, 1:] / bound).max()), 1 + 1e-6),
        ),
        {"standard error of the exponent": slope.error, "Dobrushin's constant": c, "runs": len(sizes) * len(seeds)},
    )


def _measured_rates(
    drift: AbstractDrift,
    modes: Int[np.ndarray, " K"],
    gamma: Float[np.ndarray, " K"],
    amplitude: float = 1e-6,
    n: int | None = None,
) -> tuple[Float[np.ndarray, " K"], float]:
    """Rates of the modes in n particles, or in the density's equation, and the largest amplitude that they reached;
    `gamma` tells the direction and how long to look.
    """
    times = np.linspace(0, _SPAN / np.abs(gamma).max(), _LOOKS)
    direction = "ascent" if gamma[0] > 0 else "descent"
    phases = np.random.default_rng(0).uniform(0, 2 * math.pi, len(modes))
    start = cosine_density(_MODES, {int(k): (amplitude, float(p)) for k, p in zip(modes, phases, strict=True)})
    if n is None:
        moments = np.asarray(solve_pde(drift, start, times, direction=direction).densities.moments)
    else:
        moments = _particles(drift, start, times, n, direction)
    sizes = np.hypot(moments[..., 0], moments[..., 1])[:, modes]
    return np.array([growth_rate(times, each, ceiling=1.0).slope for each in sizes.T]), float(np.nanmax(sizes))


def _particles(
    drift: AbstractDrift, start: Density, times: np.ndarray, n: int, direction: Direction
) -> Float[np.ndarray, "S K 2"]:
    """Moments of equispaced points with the density's values as weights, as they move."""
    values = np.asarray(start.values(n))
    mu = Measure(equispaced(n).x, jnp.asarray(values / values.sum()))
    found = flow(
        drift, mu, stop=MaxTime(times[-1]) | MaxSteps(4 * _STEPS), direction=direction,
        integrator=RK4(times[-1] / _STEPS), save=SaveAt(times),
    )  # fmt: skip
    return np.stack([np.asarray(measure_moments(Measure(x, mu.w), start.modes)) for x in found.x])


def _clusters(drift: Attention, k: int, gamma: float, n: int) -> int:
    """Clusters at the end of the quasi-linear phase, stragglers left out."""
    beta = float(drift.kernel.beta)
    end = flow(
        drift, prepared_density(k, 0.01, 1e-3, 0).lattice(n), direction="ascent",
        stop=MaxTime((20 if beta <= 1 else 16) / gamma) | MaxSteps(20_000), integrator=RK4(0.1 / gamma),
    )  # fmt: skip
    return find_clusters(end.mu, cluster_threshold(beta, 2), mass_threshold=_STRAGGLERS).count


RATES = Check(
    "rates",
    "growth rates at the uniform measure",
    "Small perturbations of degree k of the uniform measure grow like e^(gamma_k t) under ascent, gamma_k = k^2 "
    "Lambda_k/beta (over Lambda_0 for softmax attention), and decay so under descent. [paper B, section 4]",
    rates,
    {"cases": CASES[:3:2]},
)
FASTEST = Check(
    "k-max",
    "the fastest mode is the number of clusters",
    "k_max = argmax gamma_k, and a perturbation of that degree grows into k_max clusters on the circle. [paper B, "
    "section 4]",
    fastest_mode,
    {"betas": (1.0, 5.0), "n": 1000},
)
CHAOS = Check(
    "chaos",
    "propagation of chaos",
    "N independent particles stay at a distance W_1 of order N^(-1/2) from the solution of the mean-field equation, at "
    "most e^(C t) times that at the start, C = L_x + L_y. [paper B, section 3]",
    propagation,
    {"sizes": (100, 1600), "seeds": tuple(range(6)), "times": (0.0, 2.0)},
)
