"""Paper A's lemmas about the kernel: its potentials determine the measure (5.1), and where it is concave (5.3)."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from .. import sphere
from ..drifts import AbstractEnergy, Attention
from ..kernels import Exponential
from ..measure import Measure, empirical, from_angles
from ..stationary.uniform import uniform_quadrature
from ..theory import concavity_window, eigenvalues
from .base import Check, Verdict, at_least, at_most, unmet

_GRID = 64  # points of the circle on which a potential is known
_DEGREES = 4  # of the moments on S^2 that are recovered


def injectivity(
    beta: float = 3.0, seeds: Sequence[int] = (0, 1, 2), atoms: int = 4, deconvolve_at: float | None = None
) -> Verdict:
    """Lemma 5.1: random atoms on the circle are recovered from their potential, moments on `S^2` too, and a potential
    is even only where the measure is.

    Potentials are divided by the kernel's Funk-Hecke eigenvalues, `beta U_k/Lambda_k`; on the circle Prony's method
    makes atoms of the moments. `deconvolve_at` is the beta of the kernel that is divided by.
    """
    known = beta if deconvolve_at is None else deconvolve_at
    moments, angles, zonal = 0.0, 0.0, 0.0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        theta = (np.arange(atoms) + rng.uniform(0.2, 0.8, atoms)) * (2 * math.pi / atoms)
        mu = from_angles(theta, _masses(rng, atoms))
        found = _moments(Attention(beta), mu, known, atoms)
        true = np.exp(-1j * np.outer(np.arange(atoms + 1), theta)) @ np.asarray(mu.w)
        moments = _worst(moments, found - true)
        angles = _worst(angles, _prony(found) - theta if np.isfinite(found).all() else np.nan)
        zonal = _worst(zonal, _zonal_errors(beta, known, rng, atoms))
    even, uneven = odd_parts(Attention(beta), seeds[0], atoms)
    limit = 1e-13 / _relative(beta, 2, atoms)
    return Verdict(
        LEMMA_5_1.name,
        LEMMA_5_1.statement,
        unmet({"beta > 0": beta > 0}),
        (
            at_most("error of the moments, circle", moments, limit),
            at_most("error of the atoms' angles, circle", angles, 1e4 * limit),
            at_most("error of the moments, S^2", zonal, 1e-13 / _relative(beta, 3, _DEGREES)),
            at_most("odd part of the potential of a symmetric measure", even, 1e-13),
            at_least("odd part of that of an unsymmetric one", uneven, 1e-3),
        ),
    )


def concavity(betas: Sequence[float] = (0.1, 1.0, 5.0, 50.0, 1e3, 1e5), window: float = 1.0) -> Verdict:
    """Lemma 5.3: second derivatives of the kernel along the circle, by automatic differentiation.

    `window` times `tau_beta` is the window in which they should be negative; the two constants are compared at the
    largest beta, from which they differ by `O(1/beta)`.
    """
    inside, at_end, rising = -math.inf, 0.0, math.inf
    for beta in betas:
        t = np.linspace(0, window * concavity_window(beta), 513)
        k2 = _second_derivative(beta, t)
        inside = max(inside, float(k2[:-1].max()))
        at_end = max(at_end, abs(float(k2[-1])))
        rising = min(rising, float(np.diff(k2).min()))
    largest = max(betas)
    half = float(_second_derivative(largest, np.array([window * concavity_window(largest) / 2]))[0])
    near = min(2 / largest, 0.02)
    top = float(_second_derivative(largest, np.linspace(0, min(math.pi, 5 / math.sqrt(largest)), 20_001)).max())
    return Verdict(
        LEMMA_5_3.name,
        LEMMA_5_3.statement,
        unmet({"beta > 0": min(betas) > 0, "a large beta for the two constants": largest >= 100}),
        (
            at_most("largest second derivative inside the window", inside, -1e-6),
            at_most("its absolute value at the end of the window", at_end, 1e-9),
            at_least("its least increase from the centre outwards", rising, 0.0),
            at_most("-k2(tau/2) - (3/4) e^(-1/8), absolute", abs(-half - 0.75 * math.exp(-0.125)), near),
            at_most("max k2 - 2 e^(-3/2), absolute", abs(top - 2 * math.exp(-1.5)), near),
        ),
    )


def smallest_singular_value(energy: AbstractEnergy, degree: int) -> float:
    """Of the map from the moments of degree at most `degree` of a measure on the circle to its potential, over the
    largest: above 0 if and only if the potential determines them.
    """
    theta = 2 * math.pi / _GRID * np.arange(_GRID)
    at = sphere.from_angle(jnp.asarray(theta))
    waves = [np.ones(_GRID)] + [f(k * theta) for k in range(1, degree + 1) for f in (np.cos, np.sin)]
    columns = [np.asarray(energy.potential(at, Measure(at, jnp.asarray(wave / _GRID)))) for wave in waves]
    values = np.linalg.svd(np.stack(columns, axis=1), compute_uv=False)
    return float(values[-1] / values[0])


def _moments(energy: AbstractEnergy, mu: Measure, beta: float, degree: int) -> Complex[np.ndarray, " K"]:
    """`∫ e^{-ik theta} dmu`, k = 0..degree, from the potential on a grid; nan where the kernel has no such mode."""
    potential = np.asarray(energy.potential(sphere.equispaced(_GRID), mu))
    kernel = _kernel_modes(beta, 2, degree)
    with np.errstate(invalid="ignore"):
        return np.fft.fft(potential)[: degree + 1] / _GRID / np.where(kernel > 0, kernel, np.nan)


def _prony(moments: Complex[np.ndarray, " K"]) -> Float[np.ndarray, " n"]:
    """Angles of the n atoms that have the moments of degree 0..n: roots of the null vector of their Toeplitz matrix."""
    n = len(moments) - 1
    rows = np.arange(n + 1)[:, None] - np.arange(n + 1)
    toeplitz = np.where(rows >= 0, moments[np.abs(rows)], np.conj(moments[np.abs(rows)]))
    null = np.linalg.eigh(toeplitz)[1][:, 0]
    return np.sort(np.angle(np.roots(null[::-1])) % (2 * math.pi))


def _zonal_errors(beta: float, known: float, rng: np.random.Generator, atoms: int) -> Float[np.ndarray, "L z"]:
    """`∫ P_l(y.z) dmu(y)` from the potential on `S^2`, less the same by the atoms; for some z, l up to 4."""
    y = rng.normal(size=(atoms, 3))
    mu = empirical(y / np.linalg.norm(y, axis=1, keepdims=True), _masses(rng, atoms))
    z = rng.normal(size=(5, 3))
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    x, w, _ = uniform_quadrature(max(beta, 1.0), 3)
    seen = _legendre(x @ z.T) * (w * np.asarray(Attention(beta).potential(jnp.asarray(x), mu)))[None, :, None]
    kernel = _kernel_modes(known, 3, _DEGREES)
    found = seen.sum(axis=1) / np.where(kernel > 0, kernel, np.nan)[:, None]
    return found - np.einsum("lnz,n->lz", _legendre(np.asarray(mu.x) @ z.T), np.asarray(mu.w))


def odd_parts(energy: AbstractEnergy, seed: int, atoms: int) -> tuple[float, float]:
    """Largest odd part of the potential of a measure with its antipodes, and of the measure alone."""
    rng = np.random.default_rng(seed)
    theta, m = rng.uniform(0, 2 * math.pi, atoms), _masses(rng, atoms)
    both = from_angles(np.concatenate([theta, theta + math.pi]), np.concatenate([m, m]) / 2)
    at = sphere.equispaced(_GRID)
    odd = [
        float(jnp.max(jnp.abs(energy.potential(at, mu) - energy.potential(-at, mu)))) / 2
        for mu in (both, from_angles(theta, m))
    ]
    return odd[0], odd[1]


def _second_derivative(beta: float, t: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
    """Of `k_beta(cos t)`."""
    return np.asarray(_bend(Exponential(beta), jnp.asarray(t)))


@eqx.filter_jit
def _bend(kernel: Exponential, t: Float[Array, " K"]) -> Float[Array, " K"]:
    def value(s: Array) -> Array:
        return kernel.profile(jnp.cos(s)[None, None])[0, 0]

    return jax.vmap(jax.grad(jax.grad(value)))(t)


def _legendre(t: Float[np.ndarray, "N z"]) -> Float[np.ndarray, "L N z"]:
    return np.stack([np.polynomial.legendre.Legendre.basis(degree)(t) for degree in range(_DEGREES + 1)])


def _kernel_modes(beta: float, d: int, degree: int) -> Float[np.ndarray, " K"]:
    """`Lambda_l/beta`; at beta = 0 the limits of degree 1 and above."""
    values = eigenvalues(beta, d, range(degree + 1))
    return values / beta if beta > 0 else np.where(np.arange(degree + 1) == 1, 1 / d, 0.0)


def _relative(beta: float, d: int, degree: int) -> float:
    """How much smaller the last mode's eigenvalue is: rounding errors are divided by it."""
    values = eigenvalues(beta, d, [0, degree])
    return float(values[1] / values[0]) if beta > 0 else 1.0


def _masses(rng: np.random.Generator, atoms: int) -> Float[np.ndarray, " n"]:
    m = rng.uniform(0.5, 1.5, atoms)
    return m / m.sum()


def _worst(before: float, errors: np.ndarray | float) -> float:
    """The largest absolute value so far; nan if there is one."""
    return float(np.max(np.abs(np.append(errors, before))))


LEMMA_5_1 = Check(
    "lemma-5.1",
    "potentials determine measures",
    "For beta > 0 the potential x -> int e^(beta x.y) dmu(y) determines the measure mu; it is even if and only if mu "
    "is antipodally symmetric. [paper A, lemma 5.1]",
    injectivity,
)
LEMMA_5_3 = Check(
    "lemma-5.3",
    "the kernel is concave near 0",
    "t -> e^(beta cos t) is strictly concave for |t| < tau_beta, its second derivative k2 increases up to there, and "
    "for large beta -k2(tau/2) tends to (3/4) e^(-1/8), max k2 to 2 e^(-3/2) (shifted kernel). [paper A, lemma 5.3]",
    concavity,
)
