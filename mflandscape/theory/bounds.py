"""Bounds on the clusters of stationary measures on the circle, descent. NumPy, float64.

[paper A, lemma 5.3, theorem 3.5, corollary 3.6; MATH, section 7] All of them rest on `k2`, the second derivative of the
kernel along the circle. The measures are stable to second order (SOPD); a lone atom also when it splits.
"""

import math
from collections.abc import Sequence

import equinox as eqx
import numpy as np
from jaxtyping import ArrayLike, Float

from ..kernels import KernelConvention
from .arguments import inverse_temperature, real

_ROUNDING = 1e-12  # relative: quotients are raised by so much before they are rounded down to a count


class MassBound(eqx.Module):
    """`value = (b + p)/(b + c)`, an upper bound of a mass; `informative` if it is below 1, the mass there is.

    `b` is the largest `k2`, `c` the smallest `-k2` within the cluster (1 for a lone atom), `p` the largest positive
    curvature of the perceptron's `v/2` in the shifted kernel's units. `value` is inf where c <= 0: no bound at all.
    """

    value: float
    informative: bool
    b: float
    c: float
    p: float


class HeavyAtoms(eqx.Module):
    """At most `count` atoms of mass >= m0: `per_interval` in each of `intervals`, by the mass `bound` of a cluster."""

    count: int
    intervals: int
    per_interval: int
    bound: MassBound


def concavity_window(beta: ArrayLike) -> float:
    """`tau_beta`: `k_beta(cos t)` is strictly concave for `|t| < tau_beta`; about `beta^{-1/2}`, pi/2 at beta = 0.

    `cos tau = (sqrt(1 + 4 beta^2) - 1)/(2 beta)`, as `tan(tau/2) = (sqrt(1 + 4 beta^2) + 2 beta)^{-1/2}`, which loses
    no digits for any beta. [paper A, lemma 5.3]

    Raises:
        ValueError: beta negative or not finite.
    """
    beta = inverse_temperature(beta)
    return 2 * math.atan(1 / math.sqrt(math.hypot(1, 2 * beta) + 2 * beta))


def curvature(t: ArrayLike | Sequence[float], beta: ArrayLike) -> Float[np.ndarray, "*t"]:
    """`k2(t) = (beta sin^2 t - cos t) e^{beta (cos t - 1)}`, the second derivative of `k_beta(cos t)`. [paper A, (5.7)]

    Raises:
        ValueError: beta negative or not finite.
    """
    beta, t = inverse_temperature(beta), np.asarray(t, float)
    return np.asarray((beta * np.sin(t) ** 2 - np.cos(t)) * np.exp(-2 * beta * np.sin(t / 2) ** 2))


def maximal_curvature(beta: ArrayLike, diameter: ArrayLike = math.pi) -> float:
    """`max k2(t)` over `|t| <= diameter`, exact; over the circle `0.44626 = 2 e^{-3/2}` for large beta, 1 at beta = 0.

    `k2` increases from -1 at t = 0 up to `cos t = (sqrt(5 + 4 beta^2) - 3)/(2 beta)`, at most pi (beta <= 1/3), and
    decreases from there on: in a shorter window the maximum is at its end. [MATH, section 7]

    Raises:
        ValueError: beta negative or not finite; a diameter outside [0, pi].
    """
    beta = inverse_temperature(beta)
    diameter = real("diameter", diameter, 0.0, math.pi, "the largest geodesic distance is pi")
    if beta <= 1 / 3:
        return float(curvature(diameter, beta))
    root = math.sqrt(5 + 4 * beta * beta)
    depth = (3 - 5 / (root + 2 * beta)) / 2  # beta (1 - cos t)
    if diameter <= 2 * math.asin(min(1.0, math.sqrt(depth / (2 * beta)))):
        return float(curvature(diameter, beta))
    return (1 + 4 * beta * beta) / (beta * (root + 2)) * math.exp(-depth)


def mass_bound_asymptotic() -> float:
    """`4 e^{-3/2} / (4 e^{-3/2} + (3/4) e^{-1/8}) = 0.574192`: paper A's bound for large beta, exponential kernel.

    For a cluster of two or more atoms within `tau_beta/2`. [paper A, theorem 3.5]
    """
    repulsion = 4 * math.exp(-1.5)
    return repulsion / (repulsion + 0.75 * math.exp(-0.125))


def mass_bound(
    beta: ArrayLike, diameter: ArrayLike | None = None, perceptron: ArrayLike = 0.0, kernel: str = "shifted"
) -> MassBound:
    """Mass that a cluster of two or more atoms can have at most, at this beta: `(b + p)/(b + c)`.

    Zero-mean vectors on the cluster in the Hessian of an SOPD measure: `m c <= (1 - m) b + p`, with `c = -max_{|t| <=
    diameter} k2`, `b = max k2` and `p = max (v''/2)_+` over the cluster. [paper A, theorem 3.5; MATH, section 7]

    Args:
        beta: inverse temperature.
        diameter: of the cluster, in radians; `tau_beta/2` by default. From `tau_beta` on there is no bound.
        perceptron: `max (v''/2)_+` over the cluster, as in the energy of the convention `kernel`.
        kernel: `"shifted"`, or `"exponential"`, where the perceptron counts `e^{-beta}` times.

    Raises:
        ValueError: beta or perceptron negative or not finite, a diameter outside [0, pi], an unknown kernel.
    """
    beta = inverse_temperature(beta)
    within = concavity_window(beta) / 2 if diameter is None else diameter
    return _bound(maximal_curvature(beta), -maximal_curvature(beta, within), _weight(beta, perceptron, kernel))


def lone_atom_bound(beta: ArrayLike, perceptron: ArrayLike = 0.0, kernel: str = "shifted") -> MassBound:
    """Mass that one atom can have at most if it is stable when it splits: `(b + p)/(b + 1)`, 0.3086 for large beta.

    From `U'' = -m + ∫ k2 + v''/2 >= 0` at the atom; arguments as `mass_bound`. [MATH, section 7]

    Raises:
        ValueError: as `mass_bound`.
    """
    beta = inverse_temperature(beta)
    return _bound(maximal_curvature(beta), 1.0, _weight(beta, perceptron, kernel))


def heavy_atom_bound(
    beta: ArrayLike,
    arc_lengths: Sequence[float] | ArrayLike,
    m0: ArrayLike,
    perceptron: ArrayLike = 0.0,
    kernel: str = "shifted",
) -> HeavyAtoms:
    """Number of atoms of mass >= m0 that arcs of lengths `L_r` can hold at most: `sum_r ceil(2 L_r/tau_beta)` intervals
    of length `tau_beta/2` (one at least an arc), each with `max(1, floor(min(bound, 1)/m0))` atoms: `O(sqrt(beta))`.

    `perceptron` is the largest `(v''/2)_+` over the arcs; other arguments as `mass_bound`. [paper A, corollary 3.6]

    Raises:
        ValueError: as `mass_bound`; no arcs, lengths outside [0, 2 pi], m0 outside (0, 1].
    """
    lengths = np.asarray(arc_lengths, float)
    if lengths.ndim != 1 or lengths.size == 0 or not ((lengths >= 0) & (lengths <= 2 * math.pi)).all():
        raise ValueError(f"arc_lengths = {arc_lengths}: expected one length in [0, 2 pi] for each arc of the support")
    m0 = real("m0", m0, math.ulp(0.0), 1.0, "the mass from which on an atom counts")
    bound = mass_bound(beta, None, perceptron, kernel)
    half = concavity_window(beta) / 2
    intervals = int(np.maximum(1, np.ceil(lengths / half)).sum())
    per_interval = max(1, math.floor(min(bound.value, 1.0) / m0 * (1 + _ROUNDING)))
    return HeavyAtoms(intervals * per_interval, intervals, per_interval, bound)


def _weight(beta: float, perceptron: ArrayLike, kernel: str) -> float:
    p = real("perceptron", perceptron, 0.0, advice="give max (v''/2)_+, which is not negative")
    return p * math.exp(-beta) if KernelConvention(kernel).name == "exponential" else p


def _bound(b: float, c: float, p: float) -> MassBound:
    value = (b + p) / (b + c) if c > 0 else math.inf
    return MassBound(value, value < 1, b, c, p)
