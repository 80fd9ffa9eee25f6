"""The velocity of a density, and its energy, on an even grid of the circle."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Direction, Scalar
from ..drifts import AbstractDrift, AbstractEnergy, Attention, FreePerceptron, Perceptron, SoftmaxAttention
from ..gradient import sign
from ..measure import Measure
from ..sphere import AngleChart, from_angle
from .fourier import grid, times_ik, values

Head = Attention | SoftmaxAttention
_CHART = AngleChart()


class GridField(eqx.Module):
    """`s d/dtheta U[rho]` of a drift, apart by how it is evaluated: attention in Fourier modes, what does not depend on
    the density once for all, anything else as the field of the measure on the grid.
    """

    heads: tuple[Head, ...]
    series: tuple[Float[Array, " K"], ...]
    others: tuple[AbstractDrift, ...]
    fixed: Float[Array, " P"]
    points: Float[Array, "P 2"]
    direction: Direction = eqx.field(static=True)

    def velocity(self, moments: Float[Array, "K 2"]) -> Float[Array, " P"]:
        """Angular velocity on the grid."""
        field = self.fixed
        for head, series in zip(self.heads, self.series, strict=True):
            field = field + self._slope(head, series, moments)
        if self.others:
            mu = self.measure(moments)
            for drift in self.others:
                field = field + _CHART.components(mu.x, drift.field(mu.x, mu))
        return sign(self.direction) * field

    def measure(self, moments: Float[Array, "K 2"]) -> Measure:
        """The density as a measure carried by the grid: the trapezoidal rule, exact for what the modes resolve."""
        size = self.points.shape[0]
        return Measure(self.points, values(moments, size) / size)

    def _slope(self, head: Head, series: Array, moments: Array) -> Array:
        """`U'`; for softmax attention `(log Z)'/beta`, with `Z/Z_0 = 1 + beta ∫ k/Z_0`, `k` without its constant."""
        size = self.points.shape[0]
        potential = series[:, None] * moments[: series.shape[0]]
        slope = values(-times_ik(potential), size)
        if isinstance(head, Attention):
            return slope
        total = values(potential.at[0].set(0), size)
        return slope / (1 + head.kernel.beta.astype(total.dtype) * total)


def grid_field(drift: AbstractDrift, modes: int, size: int, direction: Direction, dtype) -> GridField:
    """The field of a drift for densities of so many modes, on a grid of `size` points. Traceable in the drift."""
    heads, series, others, fixed = [], [], [], []
    for term in getattr(drift, "terms", (drift,)):
        if isinstance(term, Attention | SoftmaxAttention) and term.matrix is None:
            heads.append(term)
            series.append(coefficients(term, modes, dtype))
        else:
            (fixed if isinstance(term, Perceptron | FreePerceptron) else others).append(term)
    points = from_angle(grid(size, dtype))
    still = jnp.zeros(size, dtype)
    for term in fixed:
        still = still + _CHART.components(points, term.field(points, Measure(points, still)))
    return GridField(tuple(heads), tuple(series), tuple(others), still, points, direction)


def energy(drift: AbstractEnergy, moments: Float[Array, "K 2"], size: int) -> Scalar:
    """`E[rho]`: attention by its modes, `1/2 sum_k c_k |M_k|^2`; the rest by the trapezoidal rule on the grid."""
    dtype = moments.dtype
    points = from_angle(grid(size, dtype))
    mu = Measure(points, values(moments, size) / size)
    total = jnp.zeros((), dtype)
    for term in getattr(drift, "terms", (drift,)):
        if isinstance(term, Attention) and term.matrix is None:
            series = term.kernel.cosine_series(moments.shape[0] - 1).astype(dtype)
            total = total + jnp.sum(series * jnp.sum(moments * moments, axis=-1)) / 2
        else:
            total = total + term(mu)
    return total


def coefficients(head: Head, modes: int, dtype) -> Array:
    """`c_k/2`, by which the k-th moment enters the potential's; for softmax attention over `Z_0`."""
    series = head.kernel.cosine_series(modes).astype(dtype) / 2
    if isinstance(head, SoftmaxAttention):
        return series / head.kernel.cosine_series(modes, 1)[0].astype(dtype)
    return series
