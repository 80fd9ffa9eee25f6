"""Between moments and values on an even grid of the circle. Complex numbers are pairs of real ones here."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def grid_size(modes: int) -> int:
    """Fewest points, of the form `2^a`, `3 2^a` or `5 2^a`, on which products of two series of so many modes are free
    of aliasing: the 3/2 rule.
    """
    least = 3 * modes + 1
    powers = 1 << least.bit_length()
    return min(size for size in (powers, powers * 3 // 4, powers * 5 // 8) if size >= least)


def grid(size: int, dtype) -> Float[Array, " P"]:
    """Angles `2 pi i / size`."""
    return jnp.arange(size, dtype=dtype) * (2 * jnp.pi / size)


def values(moments: Float[Array, "*batch K 2"], size: int) -> Float[Array, "*batch {size}"]:
    """`M_0 + 2 sum_{k >= 1} Re(M_k e^{-ik theta})` on the grid: `2 pi` times the density of these moments."""
    return jnp.fft.irfft(jax.lax.complex(moments[..., 0], -moments[..., 1]), size, axis=-1) * size


def moments(on_grid: Float[Array, "*batch P"], count: int) -> Float[Array, "*batch {count} 2"]:
    """Moments `M_k`, k < count, of the density whose `2 pi`-fold has these values."""
    series = jnp.fft.rfft(on_grid, axis=-1)[..., :count] / on_grid.shape[-1]
    return jnp.stack([jnp.real(series), -jnp.imag(series)], axis=-1)


def times_ik(pairs: Float[Array, "*batch K 2"]) -> Float[Array, "*batch K 2"]:
    """`i k M_k`; with the opposite sign the moments of the derivative in the angle."""
    k = jnp.arange(pairs.shape[-2], dtype=pairs.dtype)
    k = k.reshape(*(1,) * (pairs.ndim - 2), -1)
    return jnp.stack([-k * pairs[..., 1], k * pairs[..., 0]], axis=-1)
