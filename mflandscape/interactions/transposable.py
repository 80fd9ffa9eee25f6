"""A sum over pairs as a primitive of JAX: what a sum that JAX cannot look into needs to be linear in its charges."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from ..kernels import AbstractKernel

Operands = tuple[Array, ...]  # leaves of the kernel, x, y, q; all with the same axes of batches in front

_pair_sum = Primitive("pair_sum")


def pair_sum(
    interaction: Any,
    kernel: AbstractKernel,
    x: Float[Array, "M d"],
    y: Float[Array, "N d"],
    q: Float[Array, "N c"],
    order: int,
) -> Float[Array, "M c"]:
    """`interaction.total(kernel, x, y, q, order)`, which JAX takes as one operation: its transpose in `q` is
    `interaction.apply` with targets and sources exchanged, its derivative that of `interaction.apply`.
    """
    leaves, form = jax.tree.flatten(kernel)
    return _pair_sum.bind(*leaves, x, y, q, interaction=interaction, form=form, order=order)


def _each(method: Callable, operands: Operands, form, order: int) -> Array:
    """`method` for each member of the batch."""

    def one(*operands: Array) -> Array:
        *leaves, x, y, q = operands
        return method(jax.tree.unflatten(form, leaves), x, y, q, order)

    for _ in range(operands[-1].ndim - 2):
        one = jax.vmap(one)
    return one(*operands)


def _total(*operands: Array, interaction, form, order: int) -> Array:
    return _each(interaction.total, operands, form, order)


def _change(primals: Operands, tangents: Operands, *, interaction, form, order: int) -> tuple[Array, Array]:
    tangents = tuple(map(ad.instantiate_zeros, tangents))
    return jax.jvp(lambda *operands: _each(interaction.apply, operands, form, order), primals, tangents)


def _transpose(cotangent: Array, *operands: Any, interaction, form, order: int) -> list[Array | None]:
    *leaves, x, y, q = operands
    assert ad.is_undefined_primal(q) and not any(map(ad.is_undefined_primal, (*leaves, x, y)))
    back = _each(interaction.apply, (*leaves, y, x, ad.instantiate_zeros(cotangent)), form, order)
    return [None] * (len(operands) - 1) + [back]


def _batch(operands: Operands, axes: tuple[int | None, ...], **parameters: Any) -> tuple[Array, int]:
    size = next(v.shape[axis] for v, axis in zip(operands, axes, strict=True) if axis is not None)

    def front(v: Array, axis: int | None) -> Array:
        return jnp.broadcast_to(v[None], (size, *v.shape)) if axis is None else jnp.moveaxis(v, axis, 0)

    return _pair_sum.bind(*map(front, operands, axes), **parameters), 0


def _shape(*operands: Any, **_: Any) -> Any:
    x, _, q = operands[-3:]
    return q.update(shape=(*q.shape[:-2], x.shape[-2], q.shape[-1]))


_pair_sum.def_impl(jax.jit(_total, static_argnames=("interaction", "form", "order")))
_pair_sum.def_abstract_eval(_shape)
mlir.register_lowering(_pair_sum, mlir.lower_fun(_total, multiple_results=False))
ad.primitive_jvps[_pair_sum] = _change
ad.primitive_transposes[_pair_sum] = _transpose
batching.primitive_batchers[_pair_sum] = _batch
