"""What evaluators on the circle share: two linear maps between points and modes that are each other's transpose, and
their derivatives.
"""

import abc
import functools
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from .._types import Scalar
from ..kernels import AbstractKernel, Exponential
from ..special import series_tail
from .spectral import AbstractSpectral


class AbstractCircle(AbstractSpectral):
    """`sum_k c_k Re(M_k conj(z^k))` with moments `M_k = sum_j q_j z_j^k`, `z = x_0 + i x_1`. [Jacobi-Anger; MATH,
    section 4]

    An evaluator implements `moments` and `series`, without derivatives. These are closed: with `theta'` the angular
    speed of a point, a series moves by `theta'` times the series of `k (a_1, -a_0)`, moments by those of the charges
    `q theta'` times `i k`, and each map is the transpose of the other. A derivative of any order, forward or reverse,
    is made of the two maps alone, in memory linear in the points.
    """

    dimension: ClassVar[int] = 2
    modes: eqx.AbstractVar[int]

    @abc.abstractmethod
    def moments(self, y: Float[Array, "N 2"], q: Float[Array, "N c"]) -> Float[Array, "K 2 c"]:
        """`sum_j q_j (cos k theta_j, sin k theta_j)`, k = 0..modes."""

    @abc.abstractmethod
    def series(self, x: Float[Array, "M 2"], a: Float[Array, "K 2 c"]) -> Float[Array, "M c"]:
        """`sum_k a_k0 cos k theta_i + a_k1 sin k theta_i`."""

    def source(self, y: Float[Array, "N 2"], q: Float[Array, "N c"]) -> Float[Array, "K 2 c"]:
        """Moments of the sources, real and imaginary parts, k = 0..modes: additive over sources."""
        return _moments_p.bind(y, q, evaluator=self)

    def at(
        self, kernel: AbstractKernel, x: Float[Array, "M 2"], moments: Float[Array, "K 2 c"], order: int
    ) -> Float[Array, "M c"]:
        """`sum_k c_k Re(M_k conj(z^k))` at the targets."""
        weighted = kernel.cosine_series(self.modes, order).astype(moments.dtype)[:, None, None] * moments
        return _series_p.bind(x, weighted, evaluator=self)

    def prepare(self, kernel: Exponential) -> AbstractKernel:
        """The kernel with its Bessel table."""
        return kernel.tabulate(self.modes)

    def series_tail(self, kernel: Exponential) -> Scalar:
        """`sum_{k > modes} k ive(k, beta)` over its largest term, in units of the tolerance (1e-16 or 1e-8)."""
        return series_tail(kernel.beta, self.modes)


# The two maps are primitives because no wrapper of JAX's carries a transpose through vmap, forward and reverse mode at
# once. Both take leading batch axes *A: points (*A, N, 2), charges (*A, N, c), coefficients (*A, K, 2, c).
_moments_p, _series_p = Primitive("circle_moments"), Primitive("circle_series")


@functools.partial(jax.jit, static_argnames="evaluator")
def _moments(y: Array, q: Array, *, evaluator: AbstractCircle) -> Array:
    return mapped(evaluator.moments, y.ndim - 2)(y, q)


@functools.partial(jax.jit, static_argnames="evaluator")
def _series(x: Array, a: Array, *, evaluator: AbstractCircle) -> Array:
    return mapped(evaluator.series, x.ndim - 2)(x, a)


def mapped(fn: Callable, times: int) -> Callable:
    """`fn` over so many axes in front."""
    return functools.reduce(lambda f, _: jax.vmap(f), range(times), fn)


def _moments_shape(y, q, *, evaluator):
    return q.update(shape=(*q.shape[:-2], evaluator.modes + 1, 2, q.shape[-1]))


def _series_shape(x, a, *, evaluator):
    return a.update(shape=(*a.shape[:-3], x.shape[-2], a.shape[-1]))


def _moments_jvp(primals, tangents, *, evaluator):
    (y, q), (dy, dq) = primals, tangents
    out, change = _moments_p.bind(y, q, evaluator=evaluator), []
    if type(dq) is not ad.Zero:
        change.append(_moments_p.bind(y, dq, evaluator=evaluator))
    if type(dy) is not ad.Zero:
        change.append(-_turn(_moments_p.bind(y, q * _angular(y, dy), evaluator=evaluator)))
    return out, sum(change[1:], change[0])


def _series_jvp(primals, tangents, *, evaluator):
    (x, a), (dx, da) = primals, tangents
    out, change = _series_p.bind(x, a, evaluator=evaluator), []
    if type(da) is not ad.Zero:
        change.append(_series_p.bind(x, da, evaluator=evaluator))
    if type(dx) is not ad.Zero:
        change.append(_series_p.bind(x, _turn(a), evaluator=evaluator) * _angular(x, dx))
    return out, sum(change[1:], change[0])


def _moments_transpose(cotangent, y, q, *, evaluator):
    return None, _series_p.bind(y, cotangent, evaluator=evaluator)


def _series_transpose(cotangent, x, a, *, evaluator):
    return None, _moments_p.bind(x, cotangent, evaluator=evaluator)


def _moments_batch(args, axes, *, evaluator):
    return _batch(_moments_p, args, axes, evaluator)


def _series_batch(args, axes, *, evaluator):
    return _batch(_series_p, args, axes, evaluator)


def _batch(primitive, args, axes, evaluator):
    """Charges alone: more of them, on the same points; else a batch axis in front."""
    (x, v), (i, j) = args, axes
    if i is batching.not_mapped:
        v = jnp.moveaxis(v, j, -1)
        out = primitive.bind(x, v.reshape(*v.shape[:-2], -1), evaluator=evaluator)
        return out.reshape(*out.shape[:-1], *v.shape[-2:]), out.ndim
    x = jnp.moveaxis(x, i, 0)
    v = jnp.broadcast_to(v, (x.shape[0], *v.shape)) if j is batching.not_mapped else jnp.moveaxis(v, j, 0)
    return primitive.bind(x, v, evaluator=evaluator), 0


def _angular(x: Array, dx: Array) -> Array:
    """Angular speed `(*A, N, 1)` of points that move by `dx`: that of `x/|x|`."""
    turned = x[..., 0] * dx[..., 1] - x[..., 1] * dx[..., 0]
    return (turned / (x[..., 0] * x[..., 0] + x[..., 1] * x[..., 1]))[..., None]


def _turn(a: Array) -> Array:
    """`k (a_1, -a_0)`: coefficients of the derivative in the angle; minus it, the transpose, is `i k M_k`."""
    k = jnp.arange(a.shape[-3], dtype=a.dtype).reshape(*(1,) * (a.ndim - 3), -1, 1)
    return jnp.stack([k * a[..., 1, :], -k * a[..., 0, :]], axis=-2)


for _primitive, _run, _shape, _jvp, _transpose, _rule in (
    (_moments_p, _moments, _moments_shape, _moments_jvp, _moments_transpose, _moments_batch),
    (_series_p, _series, _series_shape, _series_jvp, _series_transpose, _series_batch),
):
    _primitive.def_impl(_run)
    _primitive.def_abstract_eval(_shape)
    ad.primitive_jvps[_primitive] = _jvp
    ad.primitive_transposes[_primitive] = _transpose
    batching.primitive_batchers[_primitive] = _rule
    mlir.register_lowering(_primitive, mlir.lower_fun(_run, multiple_results=False))
