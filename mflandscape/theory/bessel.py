"""Modified Bessel functions of large or small order and argument, to rounding, without overflow. NumPy, float64.

Ratios come from the downward continued fraction, the one value that fixes the scale from Debye's uniform expansion;
products are kept as mantissa and power of two.
"""

import math
from fractions import Fraction
from functools import cache

import numpy as np
from jaxtyping import Float, Int

Mantissas = Float[np.ndarray, " L"]
Exponents = Int[np.ndarray, " L"]

_DEBYE_FROM = 32.0  # lowest order of the expansion: its first neglected term is below 1e-18 there
_TERMS = 12
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)


def bessel_ratios(beta: float, order: float, count: int) -> Float[np.ndarray, " {count}"]:
    """`I_v(beta) / (beta I_{v-1}(beta))` for `v = order + 1, .., order + count`; `1/(2 v)` at beta = 0.

    Downward recurrence `I_{v-1} = I_{v+1} + (2 v/beta) I_v` [DLMF 10.29.1] for the ratio: errors change sign and shrink
    from step to step, so that ratios and their products keep 14 digits. It starts `8 sqrt(beta) + 30` orders above the
    last one from Amos's bound (1974), whose error shrinks by `exp(-2 sum asinh(v/beta))`, below 1e-24. Cost
    `O(count + sqrt(beta))`.
    """
    extra = int(8 * math.sqrt(beta)) + 30
    edge = order + count + extra + 1
    ratio = 1 / (edge - 0.5 + math.hypot(edge + 0.5, beta))
    ratios = np.empty(count)
    for k in range(count + extra, 0, -1):
        ratio = 1 / (2 * (order + k) + beta * (beta * ratio))
        if k <= count:
            ratios[k - 1] = ratio
    return ratios


def scaled_by_powers(beta: float, order: float) -> tuple[float, int]:
    """`Gamma(order + 1) (2/beta)^order e^-beta I_order(beta)` as mantissa and power of two; 1 at beta = 0.

    From Debye's expansion at the first order `v >= 32` that differs from `order` by a whole number, and the ratios down
    from there. Relative error below 1e-13 plus a rounding of the value's logarithm. Cost `O(sqrt(beta))`.
    """
    steps = max(0, math.ceil(_DEBYE_FROM - order))
    mantissa, exponent = _debye(beta, order + steps)
    for k, ratio in enumerate(bessel_ratios(beta, order, steps), start=1):
        mantissa, shift = math.frexp(mantissa / (2 * (order + k) * float(ratio)))
        exponent += shift
    return mantissa, exponent


def products(factors: Float[np.ndarray, " L"], step: float) -> tuple[Mantissas, Exponents]:
    """`step^k factors[0] .. factors[k]` for k = 0, 1, .. as mantissas and powers of two. Cost O(L)."""
    step_mantissa, step_exponent = math.frexp(step)
    mantissas, exponents = np.empty(len(factors)), np.zeros(len(factors), np.int64)
    mantissa, exponent = 1.0, -step_exponent
    for k, factor in enumerate(factors):
        mantissa, shift = math.frexp(mantissa * float(factor) * (step_mantissa if k else 1.0))
        exponent += shift + step_exponent
        mantissas[k], exponents[k] = mantissa, exponent
    return mantissas, exponents


def _debye(beta: float, v: float) -> tuple[float, int]:
    """The value of `scaled_by_powers` at an order v >= 32. [DLMF 10.41.3, 5.11.1]

    With `z = beta/v`, `w = sqrt(1 + z^2)`, Stirling's leading part cancels exactly: `e^{-v (f + g)} w^{-1/2}` is left,
    `f = 1 - 1/(w + z)`, `g = log((1 + w)/2)`, both positive.
    """
    z = beta / v
    w = math.hypot(1.0, z)
    above = z * z / (1 + w)  # w - 1
    exponent = -v * ((z + above) / (w + z) + math.log1p(above / 2))
    pieces = 2 ** max(0, math.ceil(math.log2(1 + abs(exponent) / 256)))
    mantissa, power = math.frexp(math.exp(exponent / pieces))
    mantissa, shift = math.frexp(mantissa**pieces)
    stirling = sum(c / v ** (2 * k + 1) for k, c in enumerate(_STIRLING))
    p = 1 / w
    series = sum((p / v) ** k * float(np.polyval(u, p * p)) for k, u in enumerate(_debye_polynomials()))
    mantissa, more = math.frexp(mantissa * math.exp(stirling) * series * math.sqrt(p))
    return mantissa, power * pieces + shift + more


@cache
def _debye_polynomials() -> tuple[np.ndarray, ...]:
    """`u_k` with `U_k(p) = p^k u_k(p^2)`, highest power first, k = 0.._TERMS. [DLMF 10.41.9]"""
    found = [{0: Fraction(1)}]
    for _ in range(_TERMS):
        new: dict[int, Fraction] = {}
        for n, c in found[-1].items():
            new[n + 1] = new.get(n + 1, Fraction(0)) + c * (Fraction(n, 2) + Fraction(1, 8 * (n + 1)))
            new[n + 3] = new.get(n + 3, Fraction(0)) - c * (Fraction(n, 2) + Fraction(5, 8 * (n + 3)))
        found.append(new)
    return tuple(np.array([float(u.get(k + 2 * j, 0)) for j in range(k, -1, -1)]) for k, u in enumerate(found))
