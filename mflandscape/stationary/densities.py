"""Smooth rivals of atomic minimisers on the circle: positive densities whose first variation is nearly constant."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .. import sphere
from ..drifts import AbstractEnergy, Attention, EnergySum, Perceptron
from ..measure import Measure
from ..special import scaled_bessel_host

_GRID = 4096


class Rival(eqx.Module):
    """A density `rho = 1 + 2 Re sum_{k=1}^K rho_k e^{ik theta}` relative to the uniform measure.

    Attributes:
        coefficients: `(K,)` complex, `rho_k`.
        least: the least value of the density on a grid, at least 0.
        gap: its Frank-Wolfe gap `∫ U rho - min U` on the grid, of 4096 points: `E[rho] - min E <= gap`.
    """

    coefficients: np.ndarray
    least: float = eqx.field(static=True)
    gap: float = eqx.field(static=True)


def smooth_rival(energy: AbstractEnergy, most_modes: int = 256) -> Rival:
    """The smooth density of smallest gap among the truncations of `rho_k = -v_k / (2 c_k)`, which makes `U` constant.

    `c_k`, `v_k` are the Fourier coefficients of the kernel and of `v`. Where such a density is positive and its gap
    below rounding, no number computed in float64 tells the minimiser from it: an atom count then counts rounding
    errors. The uniform measure (no modes) is among the truncations. [deconvolution as in paper A, lemma 5.1]

    Raises:
        ValueError: not `Attention(beta > 0)` plus perceptrons on the circle, without a matrix B.
    """
    attention, perceptrons = _parts(energy)
    theta = 2 * np.pi * np.arange(_GRID) / _GRID
    x = sphere.from_angle(jnp.asarray(theta))
    nowhere = Measure(x, jnp.zeros(_GRID))
    v = sum((np.asarray(term.potential(x, nowhere)) for term in perceptrons), np.zeros(_GRID))
    half_v = np.fft.rfft(v) / _GRID
    beta = float(attention.kernel.beta)
    kernel = scaled_bessel_host(beta, most_modes) / beta
    known = int(np.sum(kernel[1:] > 1e-290))
    best = Rival(np.zeros(0, complex), 1.0, _gap(half_v, 0, np.ones(_GRID)))
    for modes in range(1, known + 1):
        rho = np.zeros_like(half_v)
        rho[0], rho[1 : modes + 1] = 1, -half_v[1 : modes + 1] / kernel[1 : modes + 1]
        density = np.fft.irfft(rho * _GRID, _GRID)
        gap = _gap(half_v, modes, density)
        if density.min() >= 0 and gap < best.gap:
            best = Rival(rho[1 : modes + 1], float(density.min()), gap)
    return best


def _gap(half_v: np.ndarray, modes: int, density: np.ndarray) -> float:
    """`U` is what the truncation leaves of `v/2`, up to a constant."""
    left = half_v.copy()
    left[: modes + 1] = 0
    u = np.fft.irfft(left * _GRID, _GRID)
    return float(np.mean(u * density) - u.min())


def _parts(energy: AbstractEnergy) -> tuple[Attention, list[Perceptron]]:
    terms = energy.terms if isinstance(energy, EnergySum) else (energy,)
    attention = [term for term in terms if isinstance(term, Attention)]
    perceptrons = [term for term in terms if isinstance(term, Perceptron)]
    plane = all(term.a.shape[1] == 2 for term in perceptrons)
    if len(attention) != 1 or len(attention) + len(perceptrons) != len(terms) or not plane:
        raise ValueError("an energy without smooth rivals: expected one Attention and Perceptrons on the circle, d = 2")
    if attention[0].matrix is not None or not float(attention[0].kernel.beta) > 0:
        raise ValueError("a matrix B, or beta = 0: expected Attention(beta) with beta > 0 and no matrix")
    return attention[0], perceptrons
