"""Regions on which a ReLU perceptron is one quadratic, and the densities that would be stationary on each of them.

On a region `v` is the quadratic `v_A(x) = sum_{j in A} omega_j (a_j.x + b_j)^2` of its active neurons. A measure whose
support has a point of accumulation there, where the field is analytic, has `K[mu] = c - v_A/2` on the whole sphere:
the kernel is injective, so that it can only be one density, a polynomial of degree 2. [paper A, (5.11) and (5.20)]
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .. import sphere
from .._numerics import safe_norm
from ..drifts import AbstractDrift, Attention, Perceptron
from ..gradient import velocity
from ..measure import Measure
from ..stationary.uniform import uniform_quadrature
from ..theory import eigenvalues

_POINTS = 65_536  # on which regions are found
_KEPT = 256  # of each region, on which fields are measured
_BESIDE = 1e-3  # nearer to a kink a point is left out


class Regions(NamedTuple):
    """Points `x (M, d)`, the active neurons `(R, J)` of each region met, and the region `(M,)` of each point."""

    x: Float[np.ndarray, "M d"]
    active: Bool[np.ndarray, "R J"]
    at: Int[np.ndarray, " M"]


def find_regions(perceptron: Perceptron) -> Regions:
    """The regions of a perceptron that 65 536 points of the circle or of `S^2` meet, with some points of each, none of
    them beside a kink.
    """
    a, bias = np.asarray(perceptron.a), np.asarray(perceptron.bias)
    x = np.asarray(sphere.equispaced(_POINTS) if a.shape[1] == 2 else sphere.fibonacci(_POINTS))
    reach = x @ a.T + bias
    x, reach = (v[(np.abs(reach) > _BESIDE).all(axis=1)] for v in (x, reach))
    active, at = np.unique(reach > 0, axis=0, return_inverse=True)
    at = at.reshape(-1)
    inside = [np.flatnonzero(at == r) for r in range(len(active))]
    kept = np.concatenate([each[:: -(-len(each) // _KEPT)] for each in inside])
    return Regions(x[kept], active, at[kept])


def largest_jump(perceptron: Perceptron) -> float:
    """Largest jump of the second derivative of `v` across a hyperplane that cuts the sphere in more than one point;
    0 if `v` is real-analytic. Neurons that share a hyperplane add up, with opposite signs if they face each other.
    """
    a, omega, bias = (np.asarray(v) for v in (perceptron.a, perceptron.omega, perceptron.bias))
    size = np.linalg.norm(a, axis=1)
    plane = np.concatenate([a, bias[:, None]], axis=1) / np.where(size > 0, size, 1)[:, None]
    cuts = (np.abs(bias) < size) & (size > 0)
    jumps = [0.0]
    for j in np.flatnonzero(cuts):
        side = np.where(np.abs(plane - plane[j]).max(axis=1) < 1e-9, 1.0, 0.0)
        side -= np.where(np.abs(plane + plane[j]).max(axis=1) < 1e-9, 1.0, 0.0)
        jumps.append(abs(float(np.sum(2 * omega * size**2 * side))))
    return max(jumps)


class Continuation(NamedTuple):
    """What the densities of all regions give: the field on their own region, and beyond it.

    `inside`: the largest speed on its own region, over all regions: 0 up to rounding. `beyond`: the largest speed
    elsewhere, the smallest over all regions: above 0 none of the densities is stationary. Both in units of the largest
    speed that the perceptron alone gives. `positive`: how many of the densities are measures at all.
    """

    inside: float
    beyond: float
    positive: int
    regions: int


def continue_densities(beta: float, perceptron: Perceptron) -> Continuation:
    """The only density that can be stationary on each region, and its field on the whole sphere. d = 2 or 3.

    `rho_A = 1 - sum_l (beta/Lambda_l) (v_A/2)_l`, l = 1 and 2, integrated by a quadrature that is exact for it.
    """
    regions = find_regions(perceptron)
    d = regions.x.shape[1]
    y, w, _ = uniform_quadrature(beta, d)
    energy, at = Attention(beta) + perceptron, jnp.asarray(regions.x)
    alone = float(jnp.max(safe_norm(velocity(perceptron, Measure(at, jnp.zeros(len(at)))))))
    speeds = np.zeros((len(regions.active), len(regions.x)))
    positive = 0
    for r, active in enumerate(regions.active):
        rho = _density(beta, perceptron, active, y)
        positive += bool(_density(beta, perceptron, active, regions.x).min() >= 0)
        speeds[r] = _speeds(energy, Measure(jnp.asarray(y), jnp.asarray(w * rho)), at)
    own = regions.at[None, :] == np.arange(len(speeds))[:, None]
    inside, beyond = (np.where(side, speeds, 0).max(axis=1) for side in (own, ~own))
    unit = max(alone, np.finfo(float).tiny)
    return Continuation(float(inside.max()) / unit, float(beyond.min()) / unit, positive, len(speeds))


def _density(beta: float, perceptron: Perceptron, active: np.ndarray, x: np.ndarray) -> np.ndarray:
    a, omega, bias = (np.asarray(v)[active] for v in (perceptron.a, perceptron.omega, perceptron.bias))
    d = x.shape[1]
    first, second = eigenvalues(beta, d, [1, 2])
    linear = x @ np.sum((omega * bias)[:, None] * a, axis=0)
    quadratic = (x @ a.T) ** 2 @ omega / 2 - np.sum(omega * np.sum(a * a, axis=1)) / (2 * d)
    return 1 - beta * (linear / first + quadratic / second)


@eqx.filter_jit
def _speeds(energy: AbstractDrift, mu: Measure, at: Float[Array, "M d"]) -> Float[Array, " M"]:
    return safe_norm(velocity(energy, mu, at=at))
