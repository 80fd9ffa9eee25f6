"""The circle in Fourier modes: linear in the number of particles, exact to rounding."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Float

from .._types import Scalar
from ..kernels import AbstractKernel, Exponential
from ..measure import concrete
from ..special import fourier_modes, scaled_bessel, series_tolerance
from .base import AbstractInteraction, log_of_mean
from .dense import tiles, untile

_GROUP = 4  # modes a loop turn: 1.4 times faster than one on a CPU, and summed before they are added to the rest
Complex = tuple[Array, Array]


class CircleFourier(AbstractInteraction):
    """`sum_k c_k Re(M_k conj(z^k))` with moments `M_k = sum_j q_j z_j^k`, `z = x_0 + i x_1`. [Jacobi-Anger; MATH,
    section 4]

    Cost O((M + N) K c), memory O((M + N) c + block K). The number of modes is a shape:
    `CircleFourier.for_beta(largest beta)` takes as many as make the neglected tail rounding; with fewer, runs say so
    (`RESULTS.series_truncated`).

    Raises:
        ValueError: modes < 1.
    """

    modes: int = eqx.field(static=True)
    block: int = eqx.field(static=True, default=4096)

    def __check_init__(self):
        if self.modes < 1 or self.block < 1:
            raise ValueError(f"modes = {self.modes}, block = {self.block}: expected both at least 1")

    @classmethod
    def for_beta(cls, beta: ArrayLike, dtype: DTypeLike = np.float64) -> "CircleFourier":
        """The evaluator with the modes that the largest of the given betas needs, chosen by summing the tail.

        Raises:
            ValueError: a traced beta (the number of modes is a shape and must be known before tracing), or an
                invalid one.
        """
        if not concrete(beta):
            raise ValueError(
                "CircleFourier.for_beta was given a traced beta: the number of modes is a shape; "
                "choose it outside jit, vmap "
                "and grad from the largest beta, CircleFourier.for_beta(max(betas))"
            )
        largest = float(np.max(np.asarray(beta)))
        if not (np.isfinite(np.asarray(beta)).all() and np.min(np.asarray(beta)) >= 0):
            raise ValueError(f"beta = {beta}: expected finite inverse temperatures beta >= 0")
        return cls(fourier_modes(largest, dtype))

    def evaluate(
        self, kernel: AbstractKernel, x: Float[Array, "M d"], y: Float[Array, "N d"], q: Float[Array, "N c"], order: int
    ) -> Float[Array, "M c"]:
        """Moments of the sources, then the series at the targets."""
        return self.at(kernel, x, self.source(y, q), order)

    def source(self, y: Float[Array, "N 2"], q: Float[Array, "N c"]) -> Float[Array, "K 2 c"]:
        """Moments `sum_j q_j z_j^k` (real and imaginary parts), k = 0..modes: additive over sources."""
        if y.shape[0] <= self.block:
            return self._moments(y, q)
        block = jax.checkpoint(lambda total, part: (total + self._moments(*part), None))
        start = jnp.zeros((self.modes + 1, 2, q.shape[1]), q.dtype)
        return jax.lax.scan(block, start, (tiles(y, self.block), tiles(q, self.block)))[0]

    def at(
        self, kernel: AbstractKernel, x: Float[Array, "M 2"], moments: Float[Array, "K 2 c"], order: int
    ) -> Float[Array, "M c"]:
        """`sum_k c_k Re(M_k conj(z^k))` at the targets."""
        weighted = kernel.cosine_series(self.modes, order).astype(moments.dtype)[:, None, None] * moments
        if x.shape[0] <= self.block:
            return self._synthesis(x, weighted)
        return untile(
            jax.lax.map(jax.checkpoint(lambda xs: self._synthesis(xs, weighted)), tiles(x, self.block)), x.shape[0]
        )

    def _moments(self, y: Array, q: Array) -> Array:
        charges, step = q.T, (y[:, 0], y[:, 1])

        def group(z: Complex, _: None):
            rungs, z = _climb(z, step)
            return z, jnp.stack([jnp.stack([_weigh(charges, re), _weigh(charges, im)]) for re, im in rungs])

        groups = jax.lax.scan(group, _one(y), None, length=-(-(self.modes + 1) // _GROUP))[1]
        return groups.reshape(-1, 2, q.shape[1])[: self.modes + 1]

    def _synthesis(self, x: Array, weighted: Array) -> Array:
        step = x[:, 0], x[:, 1]

        def group(carry: tuple[Array, Complex], part: Array):
            total, z = carry
            rungs, z = _climb(z, step)
            pairs = zip(part, rungs, strict=True)
            terms = [m[0][:, None] * re[None, :] + m[1][:, None] * im[None, :] for m, (re, im) in pairs]
            return (total + sum(terms[1:], terms[0]), z), None

        start = jnp.zeros((weighted.shape[2], x.shape[0]), x.dtype)
        return jax.lax.scan(group, (start, _one(x)), tiles(weighted, _GROUP))[0][0].T

    def soft_maximum(
        self, kernel: Exponential, x: Float[Array, "M d"], y: Float[Array, "N d"], w: Float[Array, " N"]
    ) -> Float[Array, " M"]:
        """From the series of the centred kernel: absolute accuracy only, see `softmax_defect`."""
        return log_of_mean(self, kernel, x, y, w)

    def softmax_defect(self, kernel: Exponential, y: Float[Array, "N d"], w: Float[Array, " N"]) -> Scalar:
        """1e-6 over the smallest normaliser: a sum below 1e-6 has lost six of its digits."""
        total = self.apply(kernel, y, y, w[:, None], order=1)
        return 1e-6 / jnp.maximum(jnp.min(total), jnp.asarray(jnp.finfo(total.dtype).tiny, total.dtype))

    def prepare(self, kernel: Exponential) -> AbstractKernel:
        """The kernel with its Bessel table."""
        return kernel.tabulate(self.modes)

    def series_tail(self, kernel: Exponential) -> Scalar:
        """`sum_{k > modes} k ive(k, beta)` over its largest term, in units of the tolerance (1e-16 or 1e-8)."""
        reach = self.modes + self.modes // 2 + 32
        values = scaled_bessel(kernel.beta, reach)[0] * jnp.arange(reach + 1, dtype=kernel.beta.dtype)
        largest = jnp.maximum(jnp.max(values), jnp.asarray(jnp.finfo(values.dtype).tiny, values.dtype))
        return jnp.sum(values[self.modes + 1 :]) / largest / series_tolerance(np.dtype(values.dtype))

    def check(self, d: int, matrix: bool) -> None:
        """Refuses dimensions other than 2, and matrices.

        Raises:
            ValueError: d != 2, or a matrix B in the inner product.
        """
        if d != 2:
            raise ValueError(
                f"CircleFourier on points of dimension {d}: it works on the circle, d = 2; use Dense or Blocked"
            )
        if matrix:
            raise ValueError(
                "CircleFourier with a matrix B: <x, B y> is not a function of an angle; use Dense or Blocked"
            )


def _one(x: Array) -> Complex:
    return jnp.ones_like(x[:, 0]), jnp.zeros_like(x[:, 0])


def _times(z: Complex, w: Complex) -> Complex:
    return z[0] * w[0] - z[1] * w[1], z[0] * w[1] + z[1] * w[0]


def _climb(z: Complex, step: Complex) -> tuple[list[Complex], Complex]:
    """`z, z step, ...`: the powers of one group, and the first of the next."""
    rungs = [z]
    for _ in range(_GROUP):
        rungs.append(_times(rungs[-1], step))
    return rungs[:-1], rungs[-1]


def _weigh(charges: Array, z: Array) -> Array:
    return jnp.matmul(charges, z, precision="highest")
