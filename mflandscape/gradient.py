"""From a drift to a velocity: the only file with a sign.

Ascent follows the gradient of the first variation (attraction), descent its opposite (repulsion); the measure is
held fixed while the first variation is differentiated, so particles of weight 0 move too.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._numerics import dot, safe_norm, safe_sqrt
from ._types import Direction, Scalar
from .drifts import AbstractDrift, AbstractPotential, check
from .measure import Measure
from .sphere import tangent

_SIGNS = {"ascent": 1, "descent": -1}


def sign(direction: str) -> int:
    """+1 for `"ascent"`, -1 for `"descent"`.

    Raises:
        ValueError: any other word.
    """
    if direction not in _SIGNS:
        raise ValueError(f"direction {direction!r}: expected 'ascent' or 'descent'")
    return _SIGNS[direction]


def first_variation(drift: AbstractDrift, x: Float[Array, "M d"], mu: Measure) -> Float[Array, " M"]:
    """`U[mu](x)`, `U = dE/dmu`, at points `x (M, d)`. [paper A, (2.6)]

    Raises:
        ValueError: a drift that has no potential.
    """
    if not isinstance(drift, AbstractPotential):
        raise ValueError(f"{type(drift).__name__} has no potential: a first variation needs a sum of potentials")
    check(drift, x.shape[1])
    return drift.potential(x, mu)


def velocity(
    drift: AbstractDrift, mu: Measure, direction: Direction = "descent", at: Float[Array, "M d"] | None = None
) -> Float[Array, "M d"]:
    """`s P_x grad U[mu](x)` at the particles, or at other points `at (M, d)`. [paper A, (2.5)]

    Raises:
        ValueError: an unknown direction, points of a dimension that the drift is not made for.
    """
    x = mu.x if at is None else at
    check(drift, x.shape[1])
    return sign(direction) * tangent(x, drift.field(x, mu))


def residual(drift: AbstractDrift, mu: Measure) -> tuple[Scalar, Scalar]:
    """Largest speed `max_i |v_i|` and mass-weighted speed `(sum_i w_i |v_i|^2)^{1/2}`: both 0 at a critical point."""
    v = velocity(drift, mu)
    return jnp.max(safe_norm(v)), safe_sqrt(jnp.sum(mu.w * dot(v, v)))


def dissipation(drift: AbstractDrift, mu: Measure, direction: Direction = "descent") -> Scalar:
    """`dE/dt = s sum_i w_i |v_i|^2` along the flow of an energy."""
    v = velocity(drift, mu, direction)
    return sign(direction) * jnp.sum(mu.w * dot(v, v))


def hessian_vector_product(drift: AbstractDrift, mu: Measure, xi: Float[Array, "N d"]) -> Float[Array, "N d"]:
    """The Wasserstein Hessian of `E` at `mu` applied to tangent vectors `xi (N, d)`, in the metric `sum_i w_i <xi_i,
    eta_i>`.

    The covariant derivative of the gradient field as all particles move: `H[xi, eta] = sum_i w_i <eta_i, result_i>`,
    symmetric if the drift is an energy. Cost and memory of a few velocities. [MATH, section 6]
    """

    def gradient(x: Array) -> Array:
        return tangent(x, drift.field(x, mu.at(x)))

    return tangent(mu.x, jax.jvp(gradient, (mu.x,), (tangent(mu.x, xi),))[1])
