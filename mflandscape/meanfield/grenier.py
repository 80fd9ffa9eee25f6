"""Grenier's expansion of the mean-field solution in powers of the distance to the uniform measure on the circle."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._types import Direction
from ..drifts import AbstractDrift, Attention, SoftmaxAttention
from ..gradient import sign
from . import fourier
from .density import Density
from .field import coefficients
from .pde import checked_times


class Expansion(eqx.Module):
    """`rho_delta(t) = 1/2 pi + sum_n delta^n g_n(t) + O(delta^{n + 1})`, the solution that starts at `1/2 pi + delta
    g_1(0)`.

    `terms (n, S, K + 1, 2)` are the moments of `g_1, g_2, ..` at the `times (S,)`.
    """

    times: Float[Array, " S"]
    terms: Float[Array, "n S K 2"]

    def density(self, order: int | None = None, delta: ArrayLike = 1.0) -> Density:
        """The sum of the terms up to an order (all, by default), one density for each time.

        Raises:
            ValueError: an order that was not computed.
        """
        most = self.terms.shape[0]
        order = most if order is None else order
        if not 0 <= order <= most:
            raise ValueError(f"order = {order}: expected 0 to {most}, those computed")
        powers = jnp.asarray(delta, self.terms.dtype) ** jnp.arange(1, order + 1, dtype=self.terms.dtype)
        return Density(jnp.tensordot(powers, self.terms[:order], axes=1).at[:, 0, 0].set(1))


def grenier(
    drift: AbstractDrift,
    start: Density,
    times: ArrayLike | Sequence[float],
    order: int = 3,
    *,
    direction: Direction = "ascent",
    rtol: float = 1e-11,
) -> Expansion:
    """Orders 1 to `order` of the solution that starts at `start = 1/2 pi + g_1(0)`. [paper B, section 4.3 and appendix
    C.4; Grenier 2000]

    `d_t g_n = L g_n + sum_{0 < j < n} Q(g_j, g_{n-j})`, `g_n(0) = 0` for n >= 2: `L` the linearised operator, whose
    eigenvalues are the growth rates `gamma_k`, `Q(f, g) = -s d_theta (f d_theta U[g])`; for softmax attention `Q` has
    the terms of its quotient. Each `g_n` is a trigonometric polynomial where `start` is one, of degree n times as high:
    the modes of `start` above `order` times its own are zeros, and with as many as that nothing is neglected. What is
    left out at order n is of size `(|g_1(0)| e^{gamma t})^{n + 1}`.

    All orders are solved together (Dopri8, `rtol` of every moment, each divided by the growth `e^{n gamma t}` of the
    fastest mode of the start). O(order^2 K log K) a step.

    Args:
        drift: attention, softmax attention, or a sum of them: the uniform measure must be stationary.
        start: one density. times: increasing, from 0 on. order: at least 1.

    Raises:
        ValueError: another drift, a start that is uniform, times that are not increasing, order < 1.
    """
    terms = getattr(drift, "terms", (drift,))
    if not all(isinstance(term, Attention | SoftmaxAttention) and term.matrix is None for term in terms):
        raise ValueError(
            f"{type(drift).__name__}: expected attention without a matrix, softmax attention or a sum of them, for "
            "which the uniform measure is stationary"
        )
    at = checked_times(times)
    if order < 1 or start.moments.ndim != 2:
        raise ValueError(f"order = {order}, moments of shape {start.moments.shape}: expected order >= 1, one density")
    size = float(np.abs(np.asarray(start.moments)[1:]).max())
    if size == 0:
        raise ValueError("a uniform start: there is nothing to expand in; perturb it (cosine_density)")
    dtype = start.moments.dtype
    numbers = tuple(jnp.asarray(v, dtype) for v in (at, size, rtol))
    return Expansion(numbers[0], _solve(tuple(terms), start.moments, numbers, order, sign(direction)))


@eqx.filter_jit
def _solve(heads: tuple, pairs: Array, numbers: tuple, order: int, s: int) -> Float[Array, "n S K 2"]:
    import diffrax

    times, size, rtol = numbers
    count, dtype = pairs.shape[0], pairs.dtype
    points = fourier.grid_size(count - 1)
    series = [coefficients(head, count - 1, dtype) for head in heads]
    first = pairs.at[0].set(0) / size
    k = jnp.arange(count, dtype=dtype)
    rates = s * k * k * sum(series[1:], series[0])
    present = jnp.max(jnp.abs(first), axis=-1) > 0
    growth = jnp.max(jnp.where(present, rates, -jnp.inf))
    n = jnp.arange(1, order + 1, dtype=dtype)

    def rate(h: Float[Array, "n K 2"]) -> Float[Array, "n K 2"]:
        rho = fourier.values(h, points)
        slopes = [_slopes(head, c, h, points) for head, c in zip(heads, series, strict=True)]
        velocity = s * sum(slopes[1:], slopes[0])
        flux = velocity + _products(rho, velocity)
        return fourier.times_ik(fourier.moments(flux, count)) - (n * growth)[:, None, None] * h

    found = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, h, args: rate(h)),
        diffrax.Dopri8(),
        t0=jnp.zeros((), dtype),
        t1=jnp.maximum(times[-1], jnp.finfo(dtype).tiny),
        dt0=None,
        y0=jnp.zeros((order, count, 2), dtype).at[0].set(first),
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=diffrax.ClipStepSizeController(
            diffrax.PIDController(rtol=rtol, atol=1e-2 * rtol), step_ts=times
        ),
        max_steps=100_000,
    )
    scale = size ** n[:, None] * jnp.exp(growth * n[:, None] * times[None, :])
    assert found.ys is not None
    return jnp.moveaxis(found.ys, 0, 1) * scale[:, :, None, None]


def _slopes(head: Attention | SoftmaxAttention, series: Array, h: Array, points: int) -> Float[Array, "n P"]:
    """`d_theta U` order by order. For softmax attention `v (1 + z) = y'`, `z = beta y = Z/Z_0 - 1`: `v_n = y'_n -
    sum_{0 < j < n} z_j v_{n-j}`.
    """
    potential = series[None, :, None] * h
    slopes = fourier.values(-fourier.times_ik(potential), points)
    if isinstance(head, Attention):
        return slopes
    z = head.kernel.beta.astype(h.dtype) * fourier.values(potential, points)
    found = [slopes[0]]
    for n in range(1, len(slopes)):
        found.append(slopes[n] - sum((z[j] * found[n - 1 - j] for j in range(1, n)), z[0] * found[n - 1]))
    return jnp.stack(found)


def _products(f: Float[Array, "n P"], g: Float[Array, "n P"]) -> Float[Array, "n P"]:
    """`sum_{0 < j < n} f_j g_{n-j}` for the orders n = 1, 2, .."""
    rows = [jnp.zeros_like(f[0])]
    for n in range(1, len(f)):
        rows.append(sum((f[j] * g[n - 1 - j] for j in range(1, n)), f[0] * g[n - 1]))
    return jnp.stack(rows)
