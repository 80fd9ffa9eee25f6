"""Spectrum of attention at the uniform measure: growth rates, the number of clusters, exit times. NumPy, float64.

[paper B, section 4; MATH, section 5] The kernel is the shifted one, `e^{beta (t - 1)}/beta`; with paper B's
`e^{beta t}/beta` unnormalised rates are `e^beta` times larger and times `e^beta` times shorter.

Accuracy, for beta from 1e-6 to 1e6, degrees and d up to 1000: values to 1e-12 relative where float64 represents them
(they underflow to 0 elsewhere), logarithms to 1e-13 of `max(1, |log|)`, finite for every degree >= 1 and beta > 0.
"""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float

from ..gradient import sign
from ..measure import Measure
from .arguments import MAX_BETA, inverse_temperature, real, whole, whole_degrees
from .bessel import Exponents, Mantissas, bessel_ratios, products, scaled_by_powers

Degrees = ArrayLike | range | list[int] | tuple[int, ...]
Spectrum = Float[np.ndarray, "*degrees"]

_ROUNDINGS = 16  # a Fourier coefficient of fewer roundings has no phase


def eigenvalues(beta: ArrayLike, d: int, degrees: Degrees) -> Spectrum:
    """Funk-Hecke eigenvalues `Lambda_l = Gamma(d/2) (2/beta)^{d/2-1} ive(l + d/2 - 1, beta)`, one for each degree.

    `∫ e^{beta (x.y - 1)} Y_l(y) dsigma(y) = Lambda_l Y_l(x)`, sigma uniform of mass 1 on `S^{d-1}`; `Lambda_0 = 1` and
    0 above at beta = 0. Cost `O(max degree + sqrt(beta))`. [MATH, section 5]

    Raises:
        ValueError: beta outside [0, 1e8], d < 2, degrees that are not whole numbers from 0 to 10^6.
    """
    return np.asarray(np.ldexp(*_eigenvalues(beta, d, degrees)))


def log_eigenvalues(beta: ArrayLike, d: int, degrees: Degrees) -> Spectrum:
    """`log Lambda_l`, finite where `Lambda_l` underflows; -inf only at beta = 0, for l >= 1. Raises as
    `eigenvalues`.
    """
    return _log(*_eigenvalues(beta, d, degrees))


def growth_rates(
    beta: ArrayLike, d: int, degrees: Degrees, normalised: bool = False, direction: str = "ascent"
) -> Spectrum:
    """Linear growth rates `gamma_l = l (l + d - 2) Lambda_l / beta` of degree-l perturbations of the uniform measure.

    `normalised` attention (SA) divides by `Lambda_0`; descent has the opposite sign. At beta = 0 the limit: `(d - 1)/d`
    for l = 1, else 0. Cost `O(max degree + sqrt(beta))`. [paper B, section 4; MATH, section 5]

    Raises:
        ValueError: as `eigenvalues`; an unknown direction.
    """
    return np.asarray(sign(direction) * np.ldexp(*_growth_rates(beta, d, degrees, normalised)))


def log_growth_rates(beta: ArrayLike, d: int, degrees: Degrees, normalised: bool = False) -> Spectrum:
    """`log |gamma_l|`, finite where `gamma_l` underflows; -inf at l = 0, and at beta = 0 for l >= 2. Raises as
    `eigenvalues`.
    """
    return _log(*_growth_rates(beta, d, degrees, normalised))


def k_max(beta: ArrayLike, d: int = 2) -> int:
    """The degree that grows fastest, `argmax_{l >= 1} gamma_l`, about `sqrt(2 beta)` for small d; of two equal the
    smaller. USA and SA have the same one.

    `gamma_{l+1}/gamma_l = (1 + 1/l)(1 + 1/(l + d - 2)) I_{v+1}/I_v`, `v = l + d/2 - 1`: each factor falls in l (the
    last by the log-concavity of `I_v` in v), so that gamma has one peak, the first l at which the quotient is at most
    1; the range is doubled until it contains it. Cost `O(sqrt(beta))`. [paper B, section 4]

    Raises:
        ValueError: beta outside [0, 1e8] or d < 2.
    """
    beta, d = inverse_temperature(beta, MAX_BETA), whole("d", d, 2)
    top = int(1.6 * math.sqrt(beta)) + 3
    while True:
        degree = np.arange(1, top + 1)
        ratios = beta * bessel_ratios(beta, d / 2, top)
        falls = (1 + 1 / degree) * (1 + 1 / (degree + d - 2)) * ratios <= 1
        if falls.any():
            return int(degree[falls.argmax()])
        top *= 2


def exit_time(beta: ArrayLike, d: int, n: ArrayLike, normalised: bool = False) -> float:
    """Predicted end of the linear phase for `n` independent uniform particles, ascent: `log(n) / (2 gamma_kmax)`.

    Their modes start at amplitude `n^{-1/2}` and grow like `e^{gamma t}`. In the shifted kernel's time. inf where the
    time overflows float64 (`log_exit_time` does not). Cost `O(sqrt(beta))`. [paper B, section 4]

    Raises:
        ValueError: beta outside [0, 1e8], d < 2 or n < 2.
    """
    log = log_exit_time(beta, d, n, normalised)
    return math.exp(log) if log < math.log(np.finfo(float).max) else math.inf


def log_exit_time(beta: ArrayLike, d: int, n: ArrayLike, normalised: bool = False) -> float:
    """`log(exit_time)`, always finite. Raises as `exit_time`."""
    n = real("n", n, 2.0, advice="give the number of particles")
    fastest = log_growth_rates(beta, d, k_max(beta, d), normalised)
    return math.log(math.log(n) / 2) - float(fastest)


def cluster_phases(start: Measure | ArrayLike, k: int) -> Float[np.ndarray, " k"]:
    """Predicted angles of the k clusters on the circle: `(arg M_k + 2 pi j)/k`, `M_k = sum_i w_i e^{i k theta_i}` of
    the start, in increasing order in `[0, 2 pi)`.

    `start` is a measure on the circle, or angles of equal weights; usually `k = k_max(beta)`. Cost O(N + k). [paper B,
    section 4]

    Raises:
        ValueError: a measure with d > 2 (a degree has many harmonics there, no one phase), no points, angles that are
            not finite, k < 1, or `|M_k|` below 16 k roundings, where the start has no phase.
    """
    k = whole("k", k, 1)
    theta, w, resolution = _on_circle(start)
    mode = complex(np.sum(w * np.exp(1j * k * theta)))
    if abs(mode) < _ROUNDINGS * k * resolution:
        raise ValueError(
            f"|M_{k}| = {abs(mode):.1e}: the start has no mode {k} above rounding, so no phase; perturb it or choose k"
        )
    turn = 2 * np.pi
    phases = np.mod((np.arctan2(mode.imag, mode.real) + turn * np.arange(k)) / k, turn)
    return np.sort(np.where(phases < turn, phases, 0.0))


def _on_circle(start: Measure | ArrayLike) -> tuple[np.ndarray, np.ndarray, float]:
    """Angles, weights and machine precision of a measure on the circle, or of angles."""
    if isinstance(start, Measure):
        if start.d != 2:
            raise ValueError(f"start with d = {start.d}: cluster phases exist on the circle only; expected d = 2")
        x = np.asarray(start.x, float)
        return np.arctan2(x[:, 1], x[:, 0]), np.asarray(start.w, float), float(jnp.finfo(start.x.dtype).eps)
    theta = np.asarray(start, float)
    if theta.ndim != 1 or theta.size == 0 or not np.isfinite(theta).all():
        raise ValueError(
            f"start of shape {theta.shape}: expected a measure on the circle or finite angles (N,), N >= 1"
        )
    return theta, np.full(theta.size, 1 / theta.size), float(np.finfo(float).eps)


def _eigenvalues(beta: ArrayLike, d: int, degrees: Degrees) -> tuple[np.ndarray, np.ndarray]:
    """`Lambda_l` as mantissas and powers of two: `Lambda_l = Lambda_0 prod_v I_v/I_{v-1}`."""
    beta, d, degree = inverse_temperature(beta, MAX_BETA), whole("d", d, 2), whole_degrees(degrees)
    mantissas, exponents = _relative(beta, d, int(degree.max()))
    step, shift = math.frexp(beta)
    lowest, power = scaled_by_powers(beta, d / 2 - 1)
    above = degree > 0
    mantissas = np.where(above, step * mantissas[degree], 1.0) * lowest
    return np.asarray(mantissas), np.asarray(np.where(above, exponents[degree] + shift, 0) + power)


def _growth_rates(beta: ArrayLike, d: int, degrees: Degrees, normalised: bool) -> tuple[np.ndarray, np.ndarray]:
    """`gamma_l` for ascent as mantissas and powers of two."""
    beta, d, degree = inverse_temperature(beta, MAX_BETA), whole("d", d, 2), whole_degrees(degrees)
    mantissas, exponents = _relative(beta, d, int(degree.max()))
    lowest, power = (1.0, 0) if normalised else scaled_by_powers(beta, d / 2 - 1)
    rates = (degree * (degree + d - 2)).astype(float) * mantissas[degree] * lowest
    return np.asarray(rates), np.asarray(exponents[degree] + power)


def _relative(beta: float, d: int, top: int) -> tuple[Mantissas, Exponents]:
    """`Lambda_l / (beta Lambda_0)` for l = 1..top, preceded by a zero."""
    mantissas, exponents = products(bessel_ratios(beta, d / 2 - 1, top), beta)
    return np.concatenate([[0.0], mantissas]), np.concatenate([[0], exponents])


def _log(mantissas: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """The logarithm of `mantissa 2^exponent`, mantissas brought near 1 first: values near 1 keep their digits."""
    mantissas, shift = np.frexp(mantissas)
    small = mantissas < math.sqrt(0.5)
    mantissas, exponents = np.where(small, 2 * mantissas, mantissas), exponents + shift - small
    positive = mantissas > 0
    logs = np.log(np.where(positive, mantissas, 1.0)) + exponents * math.log(2)
    return np.asarray(np.where(positive, logs, -np.inf))
