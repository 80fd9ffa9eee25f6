"""Inner products at full precision, and square roots and norms whose gradients stay finite at zero."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def inner(x: Float[Array, "M d"], y: Float[Array, "N d"]) -> Float[Array, "M N"]:
    """All inner products `<x_i, y_j>` at the highest precision the device has (TF32 would cost 4% of the kernel at
    beta 50).
    """
    return jnp.matmul(x, y.T, precision="highest")


def matmul(a: Array, b: Array) -> Array:
    """Matrix product at the highest precision the device has."""
    return jnp.matmul(a, b, precision="highest")


def dot(x: Float[Array, "*#batch d"], y: Float[Array, "*#batch d"]) -> Float[Array, "*out"]:
    """Row-wise inner products `<x_i, y_i>`, as a sum of products (never a reduced-precision matrix unit)."""
    return jnp.sum(x * y, axis=-1)


def safe_sqrt(s: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """`sqrt(s)` with derivative 0 where `s <= 0` (where the square root itself has none)."""
    positive = s > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, s, jnp.ones_like(s))), jnp.zeros_like(s))


def safe_norm(x: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
    """Euclidean norm of the last axis with derivative 0 at the origin, without overflow or underflow of the squares."""
    size = jnp.max(jnp.abs(x), axis=-1, keepdims=True)
    # The norm does not depend on the scale: without its derivative, higher orders neither overflow nor cancel.
    scale = jax.lax.stop_gradient(jnp.where((size > 0) & jnp.isfinite(size), size, jnp.ones_like(size)))
    scaled = x / jnp.broadcast_to(scale, x.shape)
    return scale[..., 0] * safe_sqrt(jnp.sum(scaled * scaled, axis=-1))
