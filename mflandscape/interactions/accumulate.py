"""Sums over blocks of points, as accurate as their terms: in float64, or compensated where x64 is disabled."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array

Running = tuple[Array, ...]  # a sum, and in float32 what its additions have lost


def wide() -> np.dtype:
    """Dtype of accumulators: float64 where JAX has it (x64 enabled), else float32."""
    return jnp.zeros((), float).dtype


def nothing(shape: tuple[int, ...]) -> Running:
    """An empty sum."""
    zero = jnp.zeros(shape, wide())
    return (zero, zero) if zero.dtype == jnp.float32 else (zero,)


def added(running: Running, term: Array) -> Running:
    """A sum with a term added: in float64, or with what is lost by it carried along. [Neumaier 1974]"""
    total, new = running[0], term.astype(running[0].dtype)
    both = total + new
    if len(running) == 1:
        return (both,)
    larger = jnp.abs(total) >= jnp.abs(new)
    return both, running[1] + jnp.where(larger, (total - both) + new, (new - both) + total)


def summed(running: Running, dtype: DTypeLike) -> Array:
    """The value of a sum, in the dtype of its terms."""
    return (running[0] if len(running) == 1 else running[0] + running[1]).astype(dtype)


def accumulate(part: Callable[[Array], Array], count: int) -> Array:
    """`sum_i part(i)`, i = 0..count-1, as accurate as its terms; the result has their dtype."""
    if count == 1:
        return part(jnp.zeros((), jnp.int32))
    term = jax.eval_shape(part, jax.ShapeDtypeStruct((), jnp.int32))
    add = lambda running, i: (added(running, part(i)), None)  # noqa: E731
    start = nothing(term.shape)
    return summed(jax.lax.scan(add, start, jnp.arange(count, dtype=jnp.int32))[0], term.dtype)


def equal_block(n: int, largest: int, least: int = 1) -> int:
    """Rows a block where `n` rows are shared evenly: at most `largest`, and `least` blocks where there are as many
    rows.
    """
    return -(-n // max(-(-n // largest), min(least, n)))


def rows(v: Array, i: Array, block: int, mask: bool = False) -> Array:
    """Block `i` of `block` rows, without a copy of the whole: the last block ends at the last row. With `mask`, those
    of its rows that belong to the block before are 0.
    """
    end = v.shape[0] - block
    start = jnp.minimum(i * block, end)
    part = jax.lax.dynamic_slice_in_dim(v, start, block)
    if not mask:
        return part
    fresh = jnp.arange(block, dtype=i.dtype) >= i * block - start
    return jnp.where(fresh.reshape(-1, *(1,) * (v.ndim - 1)), part, jnp.zeros_like(part))


def by_rows(fn: Callable[[Array], Array], x: Array, block: int) -> Array:
    """`fn` of the rows of `x`, a block at a time, written in place: beside the result, the memory of a block."""
    n = x.shape[0]
    block = min(block, n)
    count = -(-n // block)
    if count == 1:
        return fn(x)
    shape = jax.eval_shape(fn, jax.ShapeDtypeStruct((block, *x.shape[1:]), x.dtype))

    def step(out: Array, i: Array) -> tuple[Array, None]:
        start = jnp.minimum(i * block, n - block)
        return jax.lax.dynamic_update_slice_in_dim(out, fn(rows(x, i, block)), start, 0), None

    start = jnp.zeros((n, *shape.shape[1:]), shape.dtype)
    return jax.lax.scan(step, start, jnp.arange(count, dtype=jnp.int32))[0]
