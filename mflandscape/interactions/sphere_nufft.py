"""The sphere `S^2` by nonuniform FFTs of the optional package jax-finufft."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Complex, Float

from ..kernels import largest_beta
from ..special import fourier_modes
from .double_fourier import AbstractPoints, basis
from .nufft import finufft
from .sphere import AbstractSphere
from .torus import moments, series


class SphereNonuniformFFT(AbstractSphere):
    """`sum_l c_l P_l(<x, y>)` to a degree, the sums over points by jax-finufft. [Barnett, Magland, af Klinteberg 2019]

    The same sums and derivatives as `SphereFourier`, float64 to 1e-13 and float32 to 1e-5 of the largest. Cost O((M +
    N) c + degree^3 c), memory O((M + N) c + degree^2 c + degree^3): that of a point hardly depends on the degree, the
    Legendre functions are `SphereFourier`'s. Needs `pip install mflandscape[nufft]`.

    Raises:
        ValueError: degree < 1; jax-finufft not installed.
    """

    degree: int = eqx.field(static=True)

    def __check_init__(self):
        if self.degree < 1:
            raise ValueError(f"degree = {self.degree}: expected at least 1")
        finufft("SphereNonuniformFFT", "SphereFourier")

    @classmethod
    def for_beta(cls, beta: ArrayLike, dtype: DTypeLike = np.float64) -> "SphereNonuniformFFT":
        """The evaluator with the degree that the largest of the given betas needs, chosen by summing the tail.

        Raises:
            ValueError: a traced beta (the degree is a shape and must be known before tracing), or an invalid one;
                jax-finufft not installed.
        """
        return cls(fourier_modes(largest_beta(beta, "SphereNonuniformFFT"), dtype, d=3))

    def at_points(self, fn: Callable, x: Float[Array, "M 3"], *rows: Array) -> Array:
        """All points at once."""
        return fn(points(x, self.size), *rows)

    def summed(self, fn: Callable, y: Float[Array, "N 3"], q: Float[Array, "N *c"]) -> Array:
        """All points at once."""
        return fn(points(y, self.size), q)


class TorusPoints(AbstractPoints):
    """Points by their angles `(phi, theta)`, in the frame of `double_fourier.basis`: there as here no coordinate axis
    is a pole. Two real series, or two charges, travel as one complex.
    """

    angles: Float[Array, "n 2"]
    radius: Float[Array, " n"]
    along: Float[Array, "2 n 3"]
    size: int = eqx.field(static=True)

    def synthesis(self, a: Float[Array, "h 2 J 2 K"], swap: bool = False) -> Float[Array, "h n"]:
        """Values of `h` series: half as many transforms of type 2."""
        return _apart(series(self.angles, _waves(_paired(a), swap)), a.shape[0])

    def analysis(self, q: Float[Array, "h n"], swap: bool = False) -> Float[Array, "h 2 J 2 K"]:
        """Sums over the points: half as many transforms of type 1."""
        pairs, k = _paired(q), 2 * self.size
        found = moments(self.angles, pairs, k)
        shape = jax.ShapeDtypeStruct((pairs.shape[0], 2, self.size, 2, k), pairs.dtype)
        return _apart(jax.linear_transpose(lambda a: _waves(a, swap), shape)(found)[0], q.shape[0])


def points(x: Float[Array, "n 3"], size: int) -> TorusPoints:
    """The directions of points `x`, for series with `J = size`. Cost and memory O(n)."""
    first = basis(x, 1)  # k = 0, 1 and m = 0, 1
    (_, cos_t), (_, sin_t) = first.colatitude
    cos_p, sin_p = first.longitude[1]
    angles = jnp.stack([jnp.arctan2(sin_p, cos_p), jnp.arctan2(sin_t, cos_t)], axis=-1)
    return TorusPoints(angles=angles, radius=first.radius, along=first.along, size=size)


def _waves(a: Complex[Array, "h 2 J 2 K"], swap: bool) -> Complex[Array, "h W W"]:
    """The coefficients of `e^{i (m phi + k theta)}`, |m|, |k| < K, of double Fourier series."""
    h, _, _, _, k = a.shape
    cosines = (np.arange(2)[:, None, None, None] == int(swap)).astype(a.dtype)
    cosines = jnp.asarray(np.broadcast_to(cosines, a.shape[1:]))[None]
    thetas = _two_sided(a * cosines, a * (1 - cosines))
    orders = jnp.moveaxis(thetas, 1, 2).reshape(h, k, 2, -1)  # m, cosine and sine of m phi, k
    both = _two_sided(*(jnp.moveaxis(orders[:, :, i], 1, 2) for i in range(2)))
    return jnp.moveaxis(both, 1, 2)


def _two_sided(cosines: Complex[Array, "*A K"], sines: Complex[Array, "*A K"]) -> Complex[Array, "*A W"]:
    """Coefficients of `e^{i k t}` from those of `cos k t` and `sin k t`."""
    half, turned = 0.5 * cosines[..., 1:], 0.5j * sines[..., 1:]
    return jnp.concatenate([jnp.flip(half + turned, axis=-1), cosines[..., :1], half - turned], axis=-1)


def _paired(v: Float[Array, "h *shape"]) -> Complex[Array, "half *shape"]:
    v = jnp.concatenate([v, jnp.zeros_like(v[:1])]) if v.shape[0] % 2 else v
    return jax.lax.complex(v[::2], v[1::2])


def _apart(z: Complex[Array, "half *shape"], h: int) -> Float[Array, "h *shape"]:
    return jnp.stack([z.real, z.imag], axis=1).reshape(-1, *z.shape[1:])[:h]
