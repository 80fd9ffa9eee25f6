"""Particles beside the density that they approach: growth of single modes, propagation of chaos, Dobrushin's bound."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float

from .._types import Direction
from ..drifts import AbstractDrift, Attention, Perceptron
from ..flows import AbstractIntegrator, MaxSteps, MaxTime, SaveAt, flow
from ..measure import from_angles
from ..theory import curvature
from ..transport import wasserstein
from .density import Density
from .pde import solve_pde

_CURVATURE_GRID = 4097
_CELLS = 1 << 14  # of the density: errors of 1e-8 in both distances where it is smooth on its own scale


@dataclass(frozen=True)
class Fit:
    """A slope with its standard error, from `points` values."""

    slope: float
    error: float
    points: int


def growth_rate(
    times: ArrayLike | Sequence[float],
    amplitudes: ArrayLike | Sequence[float],
    floor: float = 0.0,
    ceiling: float = 0.02,
) -> Fit:
    """Rate of exponential growth: the slope of `log |M_k|` against time where `floor <= |M_k| <= ceiling`.

    Above the ceiling the phase is no longer linear: the relative error of a rate is of the square of the amplitude for
    one mode, of its first power where several interact.

    Raises:
        ValueError: fewer than 3 values in the window.
    """
    t, a = np.asarray(times, float), np.asarray(amplitudes, float)
    inside = np.isfinite(a) & (a > 0) & (a >= floor) & (a <= ceiling)
    if inside.sum() < 3:
        raise ValueError(
            f"{inside.sum()} amplitudes between {floor} and {ceiling}: expected at least 3; save more often"
        )
    return fit_line(t[inside], np.log(a[inside]))


def fit_line(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> Fit:
    """Least squares slope of y against x."""
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    left = y - y.mean() - slope * centred
    return Fit(slope, math.sqrt(float(left @ left) / max(len(x) - 2, 1) / float(centred @ centred)), len(x))


def dobrushin_constant(drift: AbstractDrift) -> float:
    """`C = L_x + L_y` with `W_1(mu_t, nu_t) <= e^{C t} W_1(mu_0, nu_0)`: Lipschitz constants of the pair field `s d/dx
    (k(<x, y>) + v(x)/2)` in both arguments, on the circle and in both directions. [paper B, section 3; MATH, section 5]

    Attention has `L_x = L_y = max |k2|`, 1 for every beta (at distance 0); a perceptron adds to `L_x` at most `sum_j
    |omega_j| (|sigma(a_j.x + b_j)| |a_j| + steepness |a_j|^2)`, its largest value over the circle.

    Raises:
        ValueError: drifts other than sums of `Attention` without a matrix and `Perceptron`.
    """
    total = 0.0
    for term in getattr(drift, "terms", (drift,)):
        if isinstance(term, Attention) and term.matrix is None:
            distance = np.linspace(0, np.pi, _CURVATURE_GRID)
            total += 2 * float(np.abs(curvature(distance, float(np.asarray(term.kernel.beta)))).max())
        elif isinstance(term, Perceptron):
            total += _perceptron_constant(term)
        else:
            raise ValueError(f"{type(term).__name__}: expected sums of attention without a matrix and perceptrons")
    return total


def _perceptron_constant(term: Perceptron) -> float:
    """`|d/dtheta (sigma(z) a.x')| <= |sigma'| |a|^2 + |sigma(z)| |a|`, `|z| <= |a| + |b|`."""
    a, omega, bias = (np.asarray(v, float) for v in (term.a, term.omega, term.bias))
    size, steep = np.linalg.norm(a, axis=1), float(term.activation.steepness)
    at_zero = abs(float(term.activation(jnp.zeros(1))[0]))
    return float(np.abs(omega) @ (steep * size**2 + (at_zero + steep * (size + np.abs(bias))) * size))


@dataclass(frozen=True, eq=False)
class Chaos:
    """Distances between N particles and the density: `w1` and `w2`, `(sizes, seeds, times)` in radians."""

    sizes: tuple[int, ...]
    times: np.ndarray
    w1: np.ndarray
    w2: np.ndarray

    def slope(self, order: int = 1, time: int = 0) -> Fit:
        """Exponent of N in the distance at one of the times: mean and standard error over seeds, each fitted alone."""
        distances = (self.w1 if order == 1 else self.w2)[:, :, time]
        slopes = [fit_line(np.log(np.asarray(self.sizes, float)), np.log(d)).slope for d in distances.T]
        return Fit(float(np.mean(slopes)), float(np.std(slopes, ddof=1) / math.sqrt(len(slopes))), len(slopes))


def chaos(
    drift: AbstractDrift,
    start: Density,
    times: Sequence[float] | Float[np.ndarray, " T"],
    sizes: Sequence[int],
    seeds: Sequence[int],
    *,
    direction: Direction = "ascent",
    integrator: AbstractIntegrator | None = None,
    max_steps: int = 100_000,
) -> Chaos:
    """Independent starts of N particles from a density, and the distances to its own solution as time goes by. [paper
    B, section 3]

    Particles of seed s are the quantiles of `default_rng(s)`, the same for all sizes up to their number; they move by
    `Adaptive(rtol=1e-6)` unless an `integrator` is given. Give attention `CircleFourier` as its evaluator.

    Raises:
        ValueError: the density cannot be followed to the last time with its modes; fewer than 2 seeds or sizes.
    """
    from ..flows.adaptive import Adaptive

    if len(seeds) < 2 or len(sizes) < 2:
        raise ValueError(
            f"{len(seeds)} seeds and {len(sizes)} sizes: expected at least 2 of each, for slopes and errors"
        )
    limit = solve_pde(drift, start, times, direction=direction)
    if not bool(limit.reached.all()):
        raise ValueError(
            f"the density was followed to t = {float(limit.time):.4g} of {times[-1]:.4g} with {start.modes} modes; "
            "take more modes or a shorter time"
        )
    integrator = Adaptive(rtol=1e-6, atol=1e-9) if integrator is None else integrator
    found = np.empty((2, len(sizes), len(seeds), len(times)))
    for i, n in enumerate(sizes):
        for j, seed in enumerate(seeds):
            solution = flow(
                drift, start.sample(seed, n), stop=MaxTime(times[-1]) | MaxSteps(max_steps), direction=direction,
                integrator=integrator, save=SaveAt(times),
            )  # fmt: skip
            for k, theta in enumerate(np.asarray(solution.saved_u)):
                cloud, density = from_angles(theta), limit.densities.at(k)
                found[:, i, j, k] = [wasserstein(cloud, density, order, _CELLS) for order in (1, 2)]
    return Chaos(tuple(sizes), np.asarray(times, float), *found)
