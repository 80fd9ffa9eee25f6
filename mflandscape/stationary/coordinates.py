"""Tangent coordinates at the points of a measure: gradients and Hessians as vectors and matrices of size `N (d-1)`."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import sphere
from .._numerics import safe_sqrt
from .._types import Points
from ..drifts import AbstractDrift, AbstractPotential
from ..gradient import hessian_vector_product
from ..measure import Measure
from ..sphere import tangent, tangent_basis

_AT_ONCE = 64  # columns of a matrix computed together: memory O(64 N^2) with a dense evaluator


def displaced(x: Points, u: Float[Array, "N d-1"]) -> Points:
    """The points `exp_{x_i}(sum_k u_ik e_ik)`, `e_i` the basis `sphere.tangent_basis(x_i)`."""
    return sphere.exp(x, ambient(x, u))


def ambient(x: Points, u: Float[Array, "N d-1"]) -> Points:
    """Tangent vectors in `R^d` from their coordinates."""
    return jnp.sum(u[:, :, None] * tangent_basis(x), axis=1)


def components(x: Points, v: Points) -> Float[Array, "N d-1"]:
    """Coordinates of tangent vectors `v (N, d)` at `x`."""
    return jnp.sum(tangent_basis(x) * v[:, None, :], axis=2)


def gradient(drift: AbstractDrift, mu: Measure) -> Float[Array, "N k"]:
    """`P grad U[mu]` at the points, in the direction of ascent, in coordinates: 0 at a critical point."""
    return components(mu.x, tangent(mu.x, drift.field(mu.x, mu)))


def jacobian(drift: AbstractDrift, mu: Measure) -> Float[Array, "n n"]:
    """Covariant derivative of `gradient` as all points move, `n = N (d-1)`. Cost O(n) velocities.

    Row i is not weighted: for an energy `w_i J_ij = w_j J_ji^T`; for softmax attention there is no such symmetry.
    """
    n, k = mu.n, mu.d - 1

    def column(e: Array) -> Array:
        xi = ambient(mu.x, e.reshape(n, k))
        return components(mu.x, hessian_vector_product(drift, mu, xi)).reshape(-1)

    unit = jnp.eye(n * k, dtype=mu.x.dtype)
    return jax.lax.map(column, unit, batch_size=min(_AT_ONCE, n * k)).T


def wasserstein_hessian(drift: AbstractDrift, mu: Measure) -> Float[Array, "n n"]:
    """`W^{1/2} J W^{-1/2}`: the Wasserstein Hessian in an orthonormal basis of the metric `sum_i w_i |xi_i|^2`.

    Symmetric for an energy. All weights must be positive: a massless point moves no energy. [MATH, section 6]
    """
    root = jnp.repeat(safe_sqrt(mu.w), mu.d - 1)
    return root[:, None] * jacobian(drift, mu) / root[None, :]


def jet(
    drift: AbstractPotential, x: Float[Array, "M d"], mu: Measure
) -> tuple[Float[Array, " M"], Float[Array, "M d-1"], Float[Array, "M d-1 d-1"]]:
    """Value, gradient and Riemannian Hessian of `U[mu]` at points `x`, the measure held fixed. Cost of d velocities."""
    d = x.shape[1]

    def value(u: Array) -> Array:
        return drift.potential(displaced(x, u), mu)

    zero = jnp.zeros((x.shape[0], d - 1), x.dtype)
    slope = jax.grad(lambda u: jnp.sum(value(u)))
    steps = [jnp.broadcast_to(e[None, :], zero.shape) for e in jnp.eye(d - 1, dtype=x.dtype)]
    first = slope(zero)
    return value(zero), first, jnp.stack([jax.jvp(slope, (zero,), (step,))[1] for step in steps], axis=2)
