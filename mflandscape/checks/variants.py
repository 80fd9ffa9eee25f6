"""Paper A's theorems for other models: biases and a matrix B (remark 3.4), softmax attention (proposition 6.1)."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float

from .. import sphere
from .._numerics import safe_norm
from ..drifts import Attention, Perceptron, SoftmaxAttention
from ..gradient import velocity
from ..measure import Measure
from ..weights import PerceptronWeights
from .atomicity import few_atoms, no_density
from .base import Check, Verdict, at_least, at_most, unmet
from .kernel import odd_parts, smallest_singular_value
from .regions import find_regions, largest_jump
from .states import end_state, perceptron, published

_SPEED = 1e-3  # of a field, in units of the perceptron's, that is not rounding
_DEGREE = 4  # of the moments that a potential must determine
_SCALAR = 1e-9  # traceless part of a matrix, relative, up to which it is a multiple of the identity
_MATRIX = np.array([[1.0, 0.3], [0.3, -0.5]])  # symmetric, invertible, indefinite


def biases_and_matrices(beta: float = 2.0, bias: float = 0.3, matrix: ArrayLike = _MATRIX) -> Verdict:
    """Remark 3.4: (i) with the published weights and a bias for every neuron the densities that could be stationary on
    some arc are not, as in theorem 3.1; (ii) with a symmetric B the potential still determines the measure, which is
    all that the kernel is needed for.
    """
    part = perceptron(published(2, bias=bias))
    stretched = Attention(beta, matrix=matrix)
    even, uneven = odd_parts(stretched, 0, 4)
    least = float(np.abs(np.linalg.eigvalsh(np.asarray(matrix))).min())
    return Verdict(
        BIASES.name,
        BIASES.statement,
        unmet({"a hyperplane that cuts the circle twice": largest_jump(part) > 0, "B invertible": least > 1e-12}),
        (
            *no_density(beta, part),
            at_least(f"least singular value, moments up to degree {_DEGREE} to the potential of B, relative",
                     smallest_singular_value(stretched, _DEGREE), 1e-9),
            at_most("odd part of the potential of a symmetric measure", even, 1e-13),
            at_least("odd part of that of an unsymmetric one", uneven, 1e-3),
        ),
    )  # fmt: skip


def softmax_atoms(
    beta: float = 2.0, weights: PerceptronWeights | None = None, particles: Sequence[int] = (32, 128)
) -> Verdict:
    """Proposition 6.1: what is stationary on a region beyond finitely many points is `Z = C e^{-beta x.S_A x/2}`, even,
    and so lives on the region's antipode too, where its field is `P (S_{A'} - S_A) x`; flows of softmax attention end
    in few atoms.
    """
    weights = published(2) if weights is None else weights
    part = perceptron(weights)
    ends = [end_state(SoftmaxAttention(beta) + part, weights.dim, n).atoms for n in particles]
    moving, skew = _antipodal(part)
    return Verdict(
        SOFTMAX.name,
        SOFTMAX.statement,
        unmet({"no S_A - S_A' a multiple of the identity": skew > _SCALAR, "no biases": weights.bias is None}),
        (
            at_least("largest field on a region's antipode, least over the regions", moving, _SPEED),
            *few_atoms(ends, particles),
        ),
        {"least traceless part of S_A - S_A', relative": skew}
        | {f"atoms of {n} particles": mu.n for n, mu in zip(particles, ends, strict=True)},
    )


def _antipodal(part: Perceptron) -> tuple[float, float]:
    """Largest field of a region's candidate on the antipodal region, in units of the perceptron's, and the traceless
    part of `S_A - S_A'` over its norm: the least of both over the regions.
    """
    regions = find_regions(part)
    x = jnp.asarray(regions.x)
    own = np.asarray(velocity(part, Measure(x, jnp.zeros(len(x))), "ascent"))
    fields, skews = [], []
    for active in regions.active:
        s = _quadratic(part, active)
        difference = s - _quadratic(part, ~active)
        trace = np.trace(difference) / len(s)
        skews.append(np.linalg.norm(difference - trace * np.eye(len(s))) / max(np.linalg.norm(difference), 1e-300))
        there = (regions.active[regions.at] == ~active).all(axis=1)
        left = own - np.asarray(sphere.tangent(x, jnp.asarray(regions.x @ s)))
        fields.append(float(np.linalg.norm(left[there], axis=1).max(initial=0.0)))
    unit = float(jnp.max(safe_norm(jnp.asarray(own))))
    return min(fields) / unit, float(min(skews))


def _quadratic(part: Perceptron, active: np.ndarray) -> Float[np.ndarray, "d d"]:
    """`S_A = sum_{j in A} omega_j a_j a_j^T`. [paper A, (3.4)]"""
    a, omega = np.asarray(part.a)[active], np.asarray(part.omega)[active]
    return (a.T * omega) @ a


BIASES = Check(
    "remark-3.4",
    "biases, and a matrix B",
    "Theorem 3.1 holds with biases if some hyperplane a_j.x + b_j = 0 cuts the circle in more than one point, and with "
    "a symmetric invertible B in x.By. [paper A, remarks 3.4 and 5.2]",
    biases_and_matrices,
)
SOFTMAX = Check(
    "prop-6.1",
    "softmax attention",
    "With softmax attention and a ReLU perceptron for which no S_A - S_A' is a multiple of the identity (A' active at "
    "the antipodes of A's region), stationary measures are singular, on the circle atomic with finite support. "
    "[paper A, proposition 6.1]",
    softmax_atoms,
    {"particles": (32, 64)},
)
