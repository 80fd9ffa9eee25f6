"""Kernels: functions of the inner product `t = <x, y>`, closed under differentiation in their argument and
parameters.
"""

import abc
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Float, PyTree

from ._types import Scalar
from .measure import as_floating, concrete
from .special import harmonics, scaled_bessel

Convention = Literal["shifted", "exponential"]


class AbstractKernel(eqx.Module):
    """A zonal kernel `k(t)` and its derivatives `k^(n)(t)`, `n = order`."""

    @abc.abstractmethod
    def profile(self, t: Float[Array, "M N"], order: int = 0) -> Float[Array, "M N"]:
        """`k^(order)(t)`, element by element."""

    @abc.abstractmethod
    def cosine_series(self, modes: int, order: int = 0) -> Float[Array, " K"]:
        """`c_k` with `k^(order)(cos a) = sum_{k=0}^{modes} c_k cos(k a)`, on the circle."""

    @abc.abstractmethod
    def legendre_series(self, degree: int, order: int = 0) -> Float[Array, " L"]:
        """`c_l` with `k^(order)(t) = sum_{l=0}^{degree} c_l P_l(t)`, on the sphere `S^2`."""


class Exponential(AbstractKernel):
    """The attention kernel `k(t) = e^{beta (t - shift)} / beta`, `shift = 1` unless a matrix stretches the sphere.
    [paper A, (2.2)]

    Computed as `(e^{beta (t - shift)} - 1)/beta`, finite at beta = 0, plus the constant `offset` = `1/beta`, which a
    `centred` kernel leaves out (and beta = 0, where it is infinite). Derivatives: `k^(n) = beta^{n-1} e^{beta (t -
    shift)}`.

    Raises:
        ValueError: beta negative, not finite, or not a scalar.
    """

    beta: Scalar
    shift: Scalar
    centred: bool = eqx.field(static=True)
    table: tuple[Array, ...] | None = (
        None  # scaled Bessel functions, the same over beta, and what else an evaluator keeps
    )

    def __init__(self, beta: ArrayLike, shift: ArrayLike = 1.0, *, centred: bool = False):
        self.beta = as_floating(beta if isinstance(beta, jax.Array) else jnp.asarray(beta, float))
        if self.beta.ndim != 0:
            raise ValueError(f"beta of shape {self.beta.shape}: expected a scalar; for many betas use a sweep or vmap")
        if concrete(self.beta) and not 0 <= float(np.asarray(self.beta)) < np.inf:
            raise ValueError(f"beta = {np.asarray(self.beta)}: expected a finite inverse temperature beta >= 0")
        self.shift = jnp.asarray(shift, self.beta.dtype)
        self.centred = centred
        self.table = None

    @property
    def offset(self) -> Scalar:
        """The constant `1/beta` contained in the kernel; 0 if centred or at beta = 0."""
        if self.centred:
            return jnp.zeros_like(self.beta)
        positive = self.beta > 0
        return jnp.where(
            positive, 1 / jnp.where(positive, self.beta, jnp.ones_like(self.beta)), jnp.zeros_like(self.beta)
        )

    def profile(self, t: Float[Array, "M N"], order: int = 0) -> Float[Array, "M N"]:
        """`k^(order)(t)`, element by element."""
        beta = self.beta.astype(t.dtype)
        u = t - self.shift.astype(t.dtype)
        if order == 0:
            return u * relative_exponential(beta * u) + self.offset.astype(t.dtype)
        return _power(beta, order - 1) * jnp.exp(beta * u)

    def log_slope(self, t: Float[Array, "M N"]) -> Float[Array, "M N"]:
        """`log k'(t) = beta (t - shift)`."""
        return self.beta.astype(t.dtype) * (t - self.shift.astype(t.dtype))

    def cosine_series(self, modes: int, order: int = 0) -> Float[Array, " K"]:
        """`c_0 = ive(0, beta)`, `c_k = 2 ive(k, beta)` times `beta^{order - 1}`. [MATH: Jacobi-Anger]"""
        return self._series(modes, order, 2)

    def legendre_series(self, degree: int, order: int = 0) -> Float[Array, " L"]:
        """`c_l = (2 l + 1) (pi/2 beta)^{1/2} ive(l + 1/2, beta)` times `beta^{order - 1}`. [MATH, section 5]"""
        return self._series(degree, order, 3)

    def _series(self, modes: int, order: int, d: int) -> Array:
        values, divided = scaled_bessel(self.beta, modes, d) if self.table is None else self.table[:2]
        count = jnp.asarray(harmonics(np.arange(values.shape[0]), d), self.beta.dtype)
        if order == 0:
            return (count * divided).at[0].add(self.offset)
        return _power(self.beta, order - 1) * count * values

    def centre(self) -> "Exponential":
        """The same kernel without its constant `1/beta`."""
        centred = Exponential(self.beta, self.shift, centred=True)
        return eqx.tree_at(lambda k: k.table, centred, self.table, is_leaf=lambda v: v is None)

    def tabulate(self, modes: int, d: int = 2, *kept: Array) -> "Exponential":
        """The same kernel with its series on the circle (d = 2) or the sphere (d = 3), and whatever else is to be
        `kept`, computed once, outside the time loop.
        """
        table = (*scaled_bessel(self.beta, modes, d), *kept)
        return eqx.tree_at(lambda k: k.table, self, table, is_leaf=lambda v: v is None)


class KernelTangent(AbstractKernel):
    """Derivative of a kernel along a change `tangent` of its parameters (`None` where a parameter does not move):
    again a kernel.
    """

    kernel: AbstractKernel
    tangent: PyTree

    def profile(self, t: Float[Array, "M N"], order: int = 0) -> Float[Array, "M N"]:
        """Derivative of the profile along the tangent."""
        return self._push(lambda kernel: kernel.profile(t, order))

    def cosine_series(self, modes: int, order: int = 0) -> Float[Array, " K"]:
        """Derivative of the series along the tangent."""
        return self._push(lambda kernel: kernel.cosine_series(modes, order))

    def legendre_series(self, degree: int, order: int = 0) -> Float[Array, " L"]:
        """Derivative of the series along the tangent."""
        return self._push(lambda kernel: kernel.legendre_series(degree, order))

    def _push(self, fn) -> Array:
        moves = jax.tree.map(lambda v: v is not None, self.tangent, is_leaf=lambda v: v is None)
        moving, still = eqx.partition(self.kernel, moves)
        return jax.jvp(lambda part: fn(eqx.combine(part, still)), (moving,), (self.tangent,))[1]


def _power(beta: Scalar, n: int) -> Scalar:
    power = jnp.ones_like(beta)
    for _ in range(n):
        power = power * beta
    return power


def relative_exponential(u: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """`(e^u - 1)/u`, by its series for |u| < 1/2: exact to rounding, and differentiable to all orders, through u =
    0.
    """
    small = jnp.abs(u) < 0.5
    inside = jnp.where(small, u, jnp.zeros_like(u))
    series = jnp.ones_like(u)
    for n in range(17, 1, -1):
        series = 1 + inside / n * series
    outside = jnp.where(small, jnp.ones_like(u), u)
    return jnp.where(small, series, jnp.expm1(outside) / outside)


def relative_logarithm(u: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """`log(1 + u)/u`, by its series for |u| < 1/10: exact to rounding, and differentiable to all orders, through u =
    0.
    """
    small = jnp.abs(u) < 0.1
    inside = jnp.where(small, u, jnp.zeros_like(u))
    series = jnp.zeros_like(u)
    for n in range(18, 0, -1):
        series = 1 / n - inside * series
    outside = jnp.where(small, jnp.ones_like(u), u)
    return jnp.where(small, series, jnp.log1p(outside) / outside)


def largest_beta(beta: ArrayLike, evaluator: str) -> float:
    """The largest of the betas that a series is to be long enough for.

    Raises:
        ValueError: a traced beta (the number of modes is a shape and must be known before tracing), or an invalid one.
    """
    if not concrete(beta):
        raise ValueError(
            f"{evaluator}.for_beta was given a traced beta: the number of modes is a shape; choose it outside jit, "
            f"vmap and grad from the largest beta, {evaluator}.for_beta(max(betas))"
        )
    values = np.asarray(beta)
    if not (np.isfinite(values).all() and np.min(values) >= 0):
        raise ValueError(f"beta = {beta}: expected finite inverse temperatures beta >= 0")
    return float(np.max(values))


class KernelConvention(eqx.Module):
    """How a kernel convention reads in the shifted kernel's units, in which everything is computed. [MATH, section 2]

    `"exponential"` is paper A's kernel `e^{beta t}/beta`: the shifted one with perceptron weights times `e^{-beta}`,
    and times times `e^{-beta}`, energies and velocities times `e^{beta}` in what is reported.

    Raises:
        ValueError: unknown name; beta so large that `e^beta` overflows the dtype.
    """

    name: str = eqx.field(static=True)

    def __check_init__(self):
        if self.name not in get_args(Convention):
            raise ValueError(f"kernel {self.name!r}: expected one of {', '.join(get_args(Convention))}")

    def check(self, beta: float, dtype: DTypeLike) -> None:
        """Refuse a beta whose `e^beta` the dtype cannot hold."""
        limit = float(np.log(np.finfo(np.dtype(dtype)).max))
        if self.name == "exponential" and beta > limit:
            raise ValueError(
                f"beta = {beta} in the exponential convention: e^beta overflows {np.dtype(dtype).name} "
                f"(limit {limit:.1f}); "
                "use the shifted kernel"
            )

    def perceptron_factor(self, beta: Scalar) -> Scalar:
        """Factor of the perceptron's weights in the shifted kernel's equations."""
        return jnp.exp(-beta) if self.name == "exponential" else jnp.ones_like(beta)

    def energy_factor(self, beta: ArrayLike) -> np.ndarray:
        """Factor from computed to reported energies and velocities."""
        beta = np.asarray(beta, float)
        return np.asarray(np.exp(beta) if self.name == "exponential" else np.ones_like(beta))

    @property
    def sentence(self) -> str:
        """The convention in words, for every output."""
        if self.name == "shifted":
            return "kernel exp(beta (x.y - 1)) / beta (shifted, as in the published simulations)"
        return (
            "kernel exp(beta x.y) / beta (exponential, as in the theorems): integrated as the shifted kernel with "
            "perceptron weights times e^-beta; dt, times, stops and residuals are in the shifted kernel's time; "
            "times times e^-beta and energies and velocities times e^beta are the exponential kernel's"
        )
