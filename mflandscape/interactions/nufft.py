"""The circle by nonuniform FFTs of the optional package jax-finufft."""

import functools
import os
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Float

from ..kernels import largest_beta
from ..special import fourier_modes
from .circle import AbstractCircle

_THREADED = 100_000  # points from which all cores are faster than one


class NonuniformFFT(AbstractCircle):
    """`sum_k c_k Re(M_k conj(z^k))` with moments and series by jax-finufft. [Barnett, Magland, af Klinteberg 2019]

    The same sums and derivatives as `CircleFourier`, float64 to 1e-14 and float32 to 1e-6 of the largest. Cost O((M +
    N) c + K log K c), memory O((M + N) c + K c). Needs `pip install mflandscape[nufft]`.

    Raises:
        ValueError: modes < 1; jax-finufft not installed.
    """

    modes: int = eqx.field(static=True)

    def __check_init__(self):
        if self.modes < 1:
            raise ValueError(f"modes = {self.modes}: expected at least 1")
        finufft()

    @classmethod
    def for_beta(cls, beta: ArrayLike, dtype: DTypeLike = np.float64) -> "NonuniformFFT":
        """The evaluator with the modes that the largest of the given betas needs, chosen by summing the tail.

        Raises:
            ValueError: a traced beta (the number of modes is a shape and must be known before tracing), or an
                invalid one; jax-finufft not installed.
        """
        return cls(fourier_modes(largest_beta(beta, "NonuniformFFT"), dtype))

    def moments(self, y: Float[Array, "N 2"], q: Float[Array, "N c"]) -> Float[Array, "K 2 c"]:
        """`sum_j q_j (cos k theta_j, sin k theta_j)`, k = 0..modes: a transform of type 1."""
        strengths = jax.lax.complex(q.T, jnp.zeros_like(q.T))
        found = finufft().nufft1(2 * self.modes + 1, strengths, _angles(y), iflag=1, **options(y))
        found = found[:, self.modes :].T
        return jnp.stack([found.real, found.imag], axis=1)

    def series(self, x: Float[Array, "M 2"], a: Float[Array, "K 2 c"]) -> Float[Array, "M c"]:
        """`sum_k a_k0 cos k theta_i + a_k1 sin k theta_i`: a transform of type 2."""
        above = jax.lax.complex(a[:, 0], a[:, 1]).T
        both = jnp.concatenate([jnp.zeros_like(above[:, 1:]), above], axis=1)
        return finufft().nufft2(both, _angles(x), iflag=-1, **options(x)).real.T


def _angles(x: Float[Array, "N 2"]) -> Float[Array, " N"]:
    return jnp.arctan2(x[:, 1], x[:, 0])


def options(x: Float[Array, "N *d"]) -> dict[str, Any]:
    """Of a transform at `N` points: accuracy by the dtype; one thread for few points, where starting more costs up to
    tens of milliseconds a call.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = cores if x.shape[0] >= _THREADED else 1
    opts = finufft().options.Opts(nthreads=threads)
    return {"eps": 1e-14 if np.dtype(x.dtype) == np.float64 else 1e-6, "opts": opts}


@functools.cache
def finufft(needing: str = "NonuniformFFT", instead: str = "CircleFourier") -> ModuleType:
    """The package jax-finufft, imported when it is first needed.

    Raises:
        ValueError: it is not installed.
    """
    try:
        import jax_finufft  # pyright: ignore[reportMissingImports]
    except ImportError as reason:
        raise ValueError(
            f"{needing} needs the package jax-finufft ({reason}): install it by pip install 'mflandscape[nufft]', "
            f"or take {instead}"
        ) from reason
    return jax_finufft
