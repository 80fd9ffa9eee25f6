"""Exponentially scaled Bessel functions of all orders at once, differentiable, finite at beta = 0."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ._types import Scalar


def scaled_bessel(beta: Scalar, orders: int) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """`ive(k, beta) = e^-beta I_k(beta)` for k = 0..orders, and the same divided by beta.

    The second array holds `(ive(0, beta) - 1)/beta` at k = 0 and `ive(k, beta)/beta` above: the Fourier coefficients of
    `(e^{beta(cos t - 1)} - 1)/beta`, finite down to beta = 0. Downward recurrence of the ratios `I_k/I_{k-1}` [DLMF
    10.29], normalised by `I_0 + 2 sum_k I_k = e^beta`; every term is positive, so nothing cancels. `orders` must
    reach past the tail (`fourier_modes`). Cost O(orders).
    """
    top = orders + orders // 2 + 32
    k = jnp.arange(top, 0, -1, dtype=beta.dtype)
    edge = top + 1.0
    start = 1 / (edge - 0.5 + jnp.sqrt((edge + 0.5) ** 2 + beta**2))  # r/beta beyond the top [Amos 1974]

    def down(r_over_beta: Array, k: Array) -> tuple[Array, Array]:
        below = 1 / (2 * k + beta * beta * r_over_beta)
        return below, below

    _, ratios = jax.lax.scan(down, start, k)
    ratios = ratios[::-1]  # I_k / (beta I_{k-1}), k = 1..top
    relative = jnp.cumprod(beta * ratios)  # I_k / I_0
    ive0 = 1 / (1 + 2 * jnp.sum(relative))
    below = jnp.concatenate([jnp.ones_like(relative[:1]), relative[:-1]])
    over_beta = ive0 * ratios * below
    values = jnp.concatenate([ive0[None], ive0 * relative[:orders]])
    divided = jnp.concatenate([-2 * jnp.sum(over_beta)[None], over_beta[:orders]])
    return values, divided


def scaled_bessel_host(beta: float, orders: int) -> np.ndarray:
    """`ive(k, beta)` for k = 0..orders in NumPy, for decisions that Python takes (how many modes)."""
    r = 0.0
    ratios = np.empty(orders + 1)
    for k in range(orders + 1, 0, -1):
        r = beta / (2 * k + beta * r)
        ratios[k - 1] = r
    relative = np.cumprod(ratios)
    ive0 = 1 / (1 + 2 * relative.sum())
    return np.concatenate([[ive0], ive0 * relative[:orders]])


def series_tails(beta: float, orders: int) -> np.ndarray:
    """`sum_{j>k} j ive(j, beta)` over the largest `j ive(j, beta)`, for k = 0..orders: what a velocity loses beyond
    mode k.
    """
    weighted = np.arange(orders + 1) * scaled_bessel_host(beta, orders)
    peak = weighted.max()
    if peak == 0:
        return np.zeros(orders + 1)
    return (np.cumsum(weighted[::-1])[::-1] - weighted) / peak


def fourier_modes(beta: float, dtype: DTypeLike) -> int:
    """Fewest modes whose neglected tail is below the dtype's share of the largest term (1e-16 or 1e-8), by summing it.

    About `9 sqrt(beta) + 8` in float64, `7 sqrt(beta) + 6` in float32.
    """
    tolerance = series_tolerance(dtype)
    orders = int(12 * math.sqrt(beta) + 40)
    return int(np.argmax(series_tails(beta, orders) < tolerance)) + 1  # one more for derivatives in beta


def series_tolerance(dtype: DTypeLike) -> float:
    """Tail that counts as rounding: 1e-16 of the largest term in float64, 1e-8 in float32."""
    return 1e-16 if np.dtype(dtype) == np.float64 else 1e-8
