"""Modes of points on the circle: one after the other, or in products of two short tables, `z^{k + K j} = z^k z^Kj`."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics import matmul
from .dense import tiles

Complex = tuple[Array, Array]


def product_moments(y: Float[Array, "N 2"], q: Float[Array, "N c"], modes: int) -> Float[Array, "K 2 c"]:
    """`sum_j q_j (cos k theta_j, sin k theta_j)`, k = 0..modes, in one matrix product of two tables of `sqrt(modes)`
    powers.

    Cost O(N modes c) at the speed of matrix products, memory O(N sqrt(modes) c).
    """
    low, high = _split(modes)
    c = q.shape[1]
    step, powers = _powers(_one(y), (y[:, 0], y[:, 1]), low)
    charged = _powers((q.T, jnp.zeros_like(q.T)), (step[0][None], step[1][None]), high)[1]
    pairs = matmul(charged.reshape(high * 2 * c, -1), powers.reshape(low * 2, -1).T).reshape(high, 2, c, low, 2)
    re = pairs[:, 0, :, :, 0] - pairs[:, 1, :, :, 1]
    im = pairs[:, 0, :, :, 1] + pairs[:, 1, :, :, 0]
    return jnp.stack([re, im]).transpose(1, 3, 0, 2).reshape(high * low, 2, c)[: modes + 1]


def product_series(x: Float[Array, "M 2"], a: Float[Array, "K 2 c"]) -> Float[Array, "M c"]:
    """`sum_k a_k0 cos k theta_i + a_k1 sin k theta_i`: the transpose. Cost and memory as `product_moments`."""
    low, high = _split(a.shape[0] - 1)
    c = a.shape[2]
    step, powers = _powers(_one(x), (x[:, 0], x[:, 1]), low)
    padded = jnp.pad(a, [(0, high * low - a.shape[0]), (0, 0), (0, 0)]).reshape(high, low, 2, c).transpose(0, 2, 3, 1)
    re, im = padded[:, 0], padded[:, 1]  # each (high, c, low)
    turned = jnp.stack([jnp.stack([re, im], axis=-1), jnp.stack([im, -re], axis=-1)], axis=1)
    rows = matmul(turned.reshape(high * 2 * c, low * 2), powers.reshape(low * 2, -1)).reshape(high, 2, c, -1)

    def add(carry: tuple[Array, Complex], row: Array) -> tuple[tuple[Array, Complex], None]:
        total, z = carry
        return (total + row[0] * z[0][None] + row[1] * z[1][None], _times(z, step)), None

    return jax.lax.scan(add, (jnp.zeros((c, x.shape[0]), x.dtype), _one(x)), rows)[0][0].T


def loop_series(x: Float[Array, "M 2"], a: Float[Array, "K 2 c"], group: int) -> Float[Array, "M c"]:
    """The same, `group` modes in a turn of a loop (one fused kernel). Cost O(M K c), memory O(M c)."""
    step = x[:, 0], x[:, 1]

    def add(carry: tuple[Array, Complex], part: Array) -> tuple[tuple[Array, Complex], None]:
        total, z = carry
        terms = []
        for m in part:
            terms.append(m[0][:, None] * z[0][None] + m[1][:, None] * z[1][None])
            z = _times(z, step)
        return (total + _pairwise(terms), z), None  # a group is summed before it is added: less rounding

    return jax.lax.scan(add, (jnp.zeros((a.shape[2], x.shape[0]), x.dtype), _one(x)), tiles(a, group))[0][0].T


def _pairwise(terms: list[Array]) -> Array:
    while len(terms) > 1:
        terms = [sum(terms[i + 1 : i + 2], terms[i]) for i in range(0, len(terms), 2)]
    return terms[0]


def _split(modes: int) -> tuple[int, int]:
    low = math.isqrt(modes) + 1
    return low, -(-(modes + 1) // low)


def _powers(start: Complex, step: Complex, count: int) -> tuple[Complex, Array]:
    """`start step^count`, and the table `(count, 2, ...)` of the powers before it."""
    # A loop, not an unrolled expression: XLA would compute the lower powers again for each higher one.
    return jax.lax.scan(lambda z, _: (_times(z, step), jnp.stack(z)), start, None, length=count)


def _one(x: Array) -> Complex:
    return jnp.ones_like(x[:, 0]), jnp.zeros_like(x[:, 0])


def _times(z: Complex, w: Complex) -> Complex:
    return z[0] * w[0] - z[1] * w[1], z[0] * w[1] + z[1] * w[0]
