"""Exponentially scaled Bessel functions of all orders at once, differentiable, finite at beta = 0."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ._types import Scalar


def scaled_bessel(beta: Scalar, orders: int, d: int = 2) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """Eigenvalues `L_k` of the kernel `e^{beta (t - 1)}` on `S^{d-1}`, k = 0..orders, and the same divided by beta.

    On the circle (d = 2) `L_k = ive(k, beta) = e^-beta I_k(beta)`, on the sphere (d = 3) `L_k = (pi/2 beta)^{1/2} ive(k
    + 1/2, beta)`: `e^{beta (t - 1)} = sum_k n_k L_k P_k(t)`, `n_k = harmonics(k, d)`, `P_k` Chebyshev's or Legendre's
    polynomial. The second array holds `(L_0 - 1)/beta` at k = 0 and `L_k/beta` above: the coefficients of `(e^{beta (t
    - 1)} - 1)/beta`, finite down to beta = 0. Downward recurrence of the ratios `L_k/L_{k-1}` [DLMF 10.29, 10.51],
    normalised by `sum_k n_k L_k = 1`; every term is positive, so nothing cancels. `orders` must reach past the tail
    (`fourier_modes`). Cost O(orders).
    """
    top = orders + orders // 2 + 32
    k = jnp.arange(top, 0, -1, dtype=beta.dtype)
    v = d / 2 - 1  # I_{v+k} are the Bessel functions
    edge = top + 1.0 + v
    start = 1 / (edge - 0.5 + jnp.sqrt((edge + 0.5) ** 2 + beta**2))  # r/beta beyond the top [Amos 1974]

    def down(r_over_beta: Array, k: Array) -> tuple[Array, Array]:
        below = 1 / (2 * (k + v) + beta * beta * r_over_beta)
        return below, below

    _, ratios = jax.lax.scan(down, start, k)
    ratios = ratios[::-1]  # I_{v+k} / (beta I_{v+k-1}), k = 1..top
    relative = jnp.cumprod(beta * ratios)  # L_k / L_0
    count = jnp.asarray(harmonics(np.arange(1, top + 1), d), beta.dtype)
    first = 1 / (1 + jnp.sum(count * relative))
    below = jnp.concatenate([jnp.ones_like(relative[:1]), relative[:-1]])
    over_beta = first * ratios * below
    values = jnp.concatenate([first[None], first * relative[:orders]])
    divided = jnp.concatenate([-jnp.sum(count * over_beta)[None], over_beta[:orders]])
    return values, divided


def harmonics(k: np.ndarray, d: int) -> np.ndarray:
    """Number of spherical harmonics of degree k on the circle (d = 2: 1, 2, 2, ..) or the sphere (d = 3: 2 k + 1)."""
    return np.where(k == 0, 1, 2) if d == 2 else 2 * k + 1


def scaled_bessel_host(beta: float, orders: int, d: int = 2) -> np.ndarray:
    """The same eigenvalues in NumPy, for decisions that Python takes (how many modes)."""
    r = 0.0
    ratios = np.empty(orders + 1)
    for k in range(orders + 1, 0, -1):
        r = beta / (2 * k + d - 2 + beta * r)
        ratios[k - 1] = r
    relative = np.cumprod(ratios)
    first = 1 / (1 + np.sum(harmonics(np.arange(1, orders + 2), d) * relative))
    return np.concatenate([[first], first * relative[:orders]])


def series_tails(beta: float, orders: int, d: int = 2) -> np.ndarray:
    """What is lost beyond degree k, for k = 0..orders: on the circle `sum_{j>k} j n_j L_j` over the largest `j n_j
    L_j`; on the sphere `sum_{j>k} n_j L_j max(1, j/beta)`, which bounds the losses of a kernel, of its derivative in
    beta (`|dL_j/dbeta| <= max(1, j/beta) L_j`) and of a velocity whose own bound is 1.
    """
    k, values = np.arange(orders + 1), scaled_bessel_host(beta, orders, d)
    if beta == 0:
        return np.zeros(orders + 1)
    weighted = harmonics(k, d) * values * (k if d == 2 else np.maximum(k / beta, 1))
    scale = weighted.max() if d == 2 else 1.0
    return (np.cumsum(weighted[::-1])[::-1] - weighted) / scale


def fourier_modes(beta: float, dtype: DTypeLike, d: int = 2) -> int:
    """Fewest modes (d = 2) or least degree (d = 3) whose neglected tail (`series_tails`) is below the dtype's tolerance
    (1e-16 or 1e-8), by summing it.

    About `9 sqrt(beta) + 8` in float64, `7 sqrt(beta) + 6` in float32.
    """
    tolerance = series_tolerance(dtype)
    orders = int(12 * math.sqrt(beta) + 40)
    fewest = int(np.argmax(series_tails(beta, orders, d) < tolerance))
    return fewest + 1 if d == 2 else max(fewest, 1)  # on the circle one more, for derivatives in beta


def series_tail(beta: Scalar, modes: int, d: int = 2) -> Scalar:
    """The tail that `series_tails` sums, in units of the dtype's tolerance (1e-16 or 1e-8)."""
    k = np.arange(modes + modes // 2 + 33)
    count, (values, divided) = jnp.asarray(harmonics(k, d), beta.dtype), scaled_bessel(beta, len(k) - 1, d)
    k = jnp.asarray(k, beta.dtype)
    weighted = count * (k * values if d == 2 else jnp.maximum(k * divided, values))
    scale = jnp.maximum(jnp.max(weighted), jnp.finfo(beta.dtype).tiny) if d == 2 else 1.0
    return jnp.sum(weighted[modes + 1 :]) / scale / series_tolerance(np.dtype(beta.dtype))


def series_tolerance(dtype: DTypeLike) -> float:
    """Tail that counts as rounding: 1e-16 in float64, 1e-8 in float32."""
    return 1e-16 if np.dtype(dtype) == np.float64 else 1e-8
