"""Sums of waves `e^{i (m phi + k theta)}` over points of the torus by jax-finufft, differentiable to any order.

The package's own derivatives mix dtypes, which strict promotion refuses. These are as on the circle: a series moves by
the angles' speeds times the series of `i m a` and `i k a`, moments by `i m` and `i k` times those of the charges times
the speeds, and each map is the transpose of the other.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Complex, Float

from .circle import mapped
from .nufft import finufft, options


def moments(angles: Float[Array, "n 2"], q: Complex[Array, "h n"], size: int) -> Complex[Array, "h W W"]:
    """`sum_j q_j e^{i (m phi_j + k theta_j)}`, |m|, |k| < size, W = 2 size - 1: a transform of type 1. Cost O(h (n +
    W^2 log W)).
    """
    return _moments_p.bind(angles, q, size=size)


def series(angles: Float[Array, "n 2"], a: Complex[Array, "h W W"]) -> Complex[Array, "h n"]:
    """`sum_{m k} a_mk e^{i (m phi_i + k theta_i)}` at the points `(phi_i, theta_i)`: a transform of type 2."""
    return _series_p.bind(angles, a)


# Both take leading batch axes *A: angles (*A, n, 2), charges (*A, h, n), coefficients (*A, h, W, W).
_moments_p, _series_p = Primitive("torus_moments"), Primitive("torus_series")


@functools.partial(jax.jit, static_argnames="size")
def _moments(angles: Array, q: Array, *, size: int) -> Array:
    def one(angles: Array, q: Array) -> Array:
        width = 2 * size - 1
        return finufft().nufft1((width, width), q, angles[:, 0], angles[:, 1], iflag=1, **options(angles))

    return mapped(one, angles.ndim - 2)(angles, q)


@jax.jit
def _series(angles: Array, a: Array) -> Array:
    def one(angles: Array, a: Array) -> Array:
        return finufft().nufft2(a, angles[:, 0], angles[:, 1], iflag=1, **options(angles))

    return mapped(one, angles.ndim - 2)(angles, a)


def _moments_shape(angles, q, *, size):
    return q.update(shape=(*q.shape[:-1], 2 * size - 1, 2 * size - 1))


def _series_shape(angles, a):
    return a.update(shape=(*a.shape[:-2], angles.shape[-2]))


def _moments_jvp(primals, tangents, *, size):
    (angles, q), (dangles, dq) = primals, tangents
    change = [] if type(dq) is ad.Zero else [moments(angles, dq, size)]
    if type(dangles) is not ad.Zero:
        speeds = _speeds(dangles, q)
        change += [_rise(moments(angles, q * speeds[i], size), axis) for i, axis in enumerate((-2, -1))]
    return moments(angles, q, size), sum(change[1:], change[0])


def _series_jvp(primals, tangents):
    (angles, a), (dangles, da) = primals, tangents
    change = [] if type(da) is ad.Zero else [series(angles, da)]
    if type(dangles) is not ad.Zero:
        speeds = _speeds(dangles, a)
        change += [series(angles, _rise(a, axis)) * speeds[i] for i, axis in enumerate((-2, -1))]
    return series(angles, a), sum(change[1:], change[0])


def _moments_transpose(cotangent, angles, q, *, size):
    return None, series(angles, cotangent)


def _series_transpose(cotangent, angles, a):
    return None, moments(angles, cotangent, (a.aval.shape[-1] + 1) // 2)


def _batch(primitive, args, axes, **size):
    """Charges alone: more of them, on the same points; else a batch axis in front."""
    (angles, v), (i, j) = args, axes
    if i is batching.not_mapped:
        lead = angles.ndim - 2
        v = jnp.moveaxis(v, j, lead)
        out = primitive.bind(angles, v.reshape(*v.shape[:lead], -1, *v.shape[lead + 2 :]), **size)
        return out.reshape(*v.shape[: lead + 2], *out.shape[lead + 1 :]), lead
    angles = jnp.moveaxis(angles, i, 0)
    v = jnp.broadcast_to(v, (angles.shape[0], *v.shape)) if j is batching.not_mapped else jnp.moveaxis(v, j, 0)
    return primitive.bind(angles, v, **size), 0


def _speeds(dangles: Array, like: Array) -> list[Array]:
    """Of both angles, `(*A, 1, n)`."""
    return [dangles[..., None, :, i].astype(like.dtype) for i in range(2)]


def _rise(a: Array, axis: int) -> Array:
    """`i m a` along one of the last two axes, m = 1 - size .. size - 1."""
    most = a.shape[-1] // 2
    orders = 1j * np.arange(-most, most + 1)
    return a * jnp.asarray(np.expand_dims(orders, tuple(i for i in range(-a.ndim, 0) if i != axis)), a.dtype)


for _primitive, _run, _shape, _jvp, _transpose in (
    (_moments_p, _moments, _moments_shape, _moments_jvp, _moments_transpose),
    (_series_p, _series, _series_shape, _series_jvp, _series_transpose),
):
    _primitive.def_impl(_run)
    _primitive.def_abstract_eval(_shape)
    ad.primitive_jvps[_primitive] = _jvp
    ad.primitive_transposes[_primitive] = _transpose
    batching.primitive_batchers[_primitive] = functools.partial(_batch, _primitive)
    mlir.register_lowering(_primitive, mlir.lower_fun(_run, multiple_results=False))
