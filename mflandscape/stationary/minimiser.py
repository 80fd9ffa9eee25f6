"""The global minimiser among all probability measures, with a certificate: `E[mu] - min E <= gap`."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import sphere
from ..drifts import AbstractEnergy, Attention, EnergySum, Perceptron, check
from ..kernels import Exponential
from ..measure import Measure, concrete
from .active_set import simplex_minimum
from .optimality import bucket, newton, padded, quadratic_form
from .search import Lowest, local_minima, lowest, variation_at
from .uniform import uniform_quadrature

_GRID = {2: 256, 3: 512}
_MOST = 128  # atoms that are merged and left out one by one
_MERGED = 0.5  # farther apart than this chord, atoms are not merged
_NEAR = 1e-6  # points closer than this are one


class Minimum(eqx.Module):
    """What `minimise` found.

    Attributes:
        mu: the atoms, heaviest first.
        energy: `E[mu]`.
        gap: `∫ U dmu - min_x U`, with the certified bound of `min_x U`: `E[mu] - min E <= gap` where `rigorous`.
        multiplier: `∫ U dmu`, the value of `U` on the support of a minimiser.
        rigorous: whether `gap` is proved: a certified search (circle, `S^2`) that closed every cell, and a strictly
            convex energy. Otherwise it is an estimate.
        why_not: the sentence that says why it is not rigorous; empty if it is.
        scale: the largest difference that values of `U` can have, which tolerances are relative to.
        converged: whether `gap <= tol * scale`.
        iterations: rounds of the fully corrective method.
        cells: cells of the certified search.
    """

    mu: Measure
    energy: float = eqx.field(static=True)
    gap: float = eqx.field(static=True)
    multiplier: float = eqx.field(static=True)
    rigorous: bool = eqx.field(static=True)
    why_not: str = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    converged: bool = eqx.field(static=True)
    iterations: int = eqx.field(static=True)
    cells: int = eqx.field(static=True)


def minimise(
    energy: AbstractEnergy,
    *,
    d: int | None = None,
    tol: float | None = None,
    start: Measure | None = None,
    max_iterations: int = 60,
    budget: int = 1_000_000,
) -> Minimum:
    """The minimiser of `E` over all probability measures on the sphere, by a fully corrective conditional gradient
    method and Newton's method. [paper A, proposition 3.7 (ii); MATH, section 6]

    Each round finds the best masses on the points at hand, then the local minima of `U`, then lets Newton's method
    move the atoms there (positions, masses and multiplier together); points that lower the energy stay. It ends when
    the Frank-Wolfe gap is below `tol` times the scale of `U`, and the gap is then certified (`lowest`). Atoms that
    can be merged or left out within `tol` are: their number belongs to the tolerance. Attention alone is minimised by
    the uniform measure, returned as a quadrature. On the host; a tenth of a second for a few atoms after the first
    calls, which compile.

    Args:
        energy: a sum of `Attention` and `Perceptron` terms.
        d: the dimension, needed where no term tells it.
        tol: of the gap, relative to `scale`; 1e-12 on the circle and 1e-9 above by default. Below 1e-15 is rounding.
        start: a guess, such as the minimiser at a neighbouring beta; its atoms are kept where they will do.
        max_iterations: rounds at most.
        budget: cells of the certified search at most.

    Raises:
        ValueError: terms that are no energy of a known form, no attention, a matrix B that is not positive definite,
            `self_interaction=False`, traced or single-precision parameters, no dimension.
    """
    d = _dimension(energy, d)
    tol = (1e-12 if d == 2 else 1e-9) if tol is None else tol
    terms = _terms(energy)
    _check(terms, d, tol)
    inner = _conditioned(terms)
    scale = _scale(inner, d)
    if len(terms) == 1 and isinstance(terms[0], Attention) and terms[0].matrix is None and d <= 3:
        return _uniform(terms[0], d, scale, tol)
    x, m, rounds = _solve(inner, _guess(inner, d, start), tol * scale, max_iterations)
    x, m = sparsest(inner, x, m, tol * scale)
    order = np.argsort(-m, kind="stable")
    x, m = x[order], m[order]
    mu = Measure(jnp.asarray(x), jnp.asarray(m))
    value, level = _value(energy, mu)
    found = lowest(inner, padded(x, m), tol=tol * scale / 4, starts=x, budget=budget)
    gap = max(_level(inner, x, m) - found.bound, 0.0)
    why_not = _why_not(terms, d, found)
    return Minimum(
        mu=mu,
        energy=value,
        gap=gap,
        multiplier=level,
        rigorous=not why_not,
        why_not=why_not,
        scale=scale,
        converged=gap <= tol * scale,
        iterations=rounds,
        cells=found.cells,
    )


def _uniform(attention: Attention, d: int, scale: float, tol: float) -> Minimum:
    """The uniform measure, as a quadrature: the minimiser of attention alone, its certificate the kernel's tail."""
    x, w, off = uniform_quadrature(float(attention.kernel.beta), d)
    mu = Measure(jnp.asarray(x), jnp.asarray(w))
    value, level = _value(attention, mu)
    gap = max(2 * off, level - float(jnp.min(attention.potential(mu.x, mu))))
    why_not = _degenerate((attention,))
    return Minimum(mu, value, gap, level, not why_not, why_not, scale, gap <= tol * scale, 0, 0)


def _value(energy: AbstractEnergy, mu: Measure) -> tuple[float, float]:
    """The energy and the multiplier of a measure."""
    return float(energy(mu)), float(jnp.sum(mu.w * energy.potential(mu.x, mu)))


def _guess(energy: EnergySum, d: int, start: Measure | None) -> tuple[np.ndarray, np.ndarray]:
    """A grid, or the atoms of a guess after Newton's method."""
    if start is not None:
        if start.d != d:
            raise ValueError(f"a start of dimension {start.d}: expected d = {d}, as the energy has")
        x, m = np.asarray(start.x, float), np.asarray(start.w, float)
        return newton(energy, x[m > 0], m[m > 0] / m.sum())[:2]
    x = _start(d)
    return x, np.full(len(x), 1 / len(x))


def _solve(
    energy: EnergySum, guess: tuple[np.ndarray, np.ndarray], tol: float, max_iterations: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Rounds of the fully corrective method, up to an estimated gap of half of `tol`: the best atoms and masses."""
    (x, m), starts = guess, None
    best = math.inf, x, m
    stalled = 0
    for turn in range(max_iterations):
        minima, values = local_minima(energy, padded(x, m), starts=starts)
        gap = _level(energy, x, m) - float(values[0])
        stalled = 0 if gap < 0.7 * best[0] else stalled + 1
        best = min(best, (gap, x, m), key=lambda state: state[0])
        if gap <= tol / 2 or stalled > 6:
            return best[1], best[2], turn
        moved = newton(energy, *_masses(energy, minima))[0]
        x, m = _masses(energy, _distinct(np.concatenate([x, minima, moved])))
        starts = x
    return best[1], best[2], max_iterations


def sparsest(energy: AbstractEnergy, x: np.ndarray, m: np.ndarray, tol: float) -> tuple[np.ndarray, np.ndarray]:
    """Fewer atoms within the tolerance: those at the minima of `U` alone, close ones merged, light ones left out."""
    minima, _ = local_minima(energy, padded(x, m), starts=x)
    fewer = newton(energy, *_masses(energy, minima))[:2]
    if len(fewer[1]) <= len(m) and _gap(energy, *fewer) <= tol:
        x, m = fewer
    while 1 < len(m) <= _MOST:
        for trial in _simpler(energy, x, m):
            polished = newton(energy, *trial)[:2]
            if _gap(energy, *polished) <= tol:
                x, m = polished
                break
        else:
            return x, m
    return x, m


def _simpler(energy: AbstractEnergy, x: np.ndarray, m: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """One atom less: the closest pair merged, the lightest left out, masses moved along the change that `U` feels least
    until one vanishes (Caratheodory's theorem, for as many moments as the tolerance tells apart).
    """
    k = quadratic_form(energy, padded(x, m).x)[0]
    change = np.linalg.svd(np.vstack([np.asarray(k)[: len(m), : len(m)], np.ones(len(m))]))[2][-1]
    trials = []
    for z in (change, -change):
        step = np.min(np.where(z < 0, m / np.where(z < 0, -z, 1), np.inf))
        left = m + step * z
        trials.append((left, np.arange(len(m)) != np.argmin(left)))
    trials.append((m, np.arange(len(m)) != np.argmin(m)))
    found = [(x[keep], left[keep] / left[keep].sum()) for left, keep in trials if np.isfinite(left).all()]
    apart = np.linalg.norm(x[:, None, :] - x[None, :, :], axis=2) + 9 * np.eye(len(m))
    i, j = np.unravel_index(np.argmin(apart), apart.shape)
    if apart[i, j] < _MERGED:
        joined, mass, rest = x.copy(), m.copy(), np.arange(len(m)) != j
        joined[i], mass[i] = m[i] * x[i] + m[j] * x[j], m[i] + m[j]
        joined[i] /= np.linalg.norm(joined[i])
        found.insert(0, (joined[rest], mass[rest]))
    return found


def _gap(energy: AbstractEnergy, x: np.ndarray, m: np.ndarray) -> float:
    """The Frank-Wolfe gap as far as local minima are found."""
    return _level(energy, x, m) - float(local_minima(energy, padded(x, m), starts=x)[1][0])


def _level(energy: AbstractEnergy, x: np.ndarray, m: np.ndarray) -> float:
    mu = padded(x, m)
    return float(np.asarray(mu.w) @ np.asarray(variation_at(energy, mu, mu.x)))


def _masses(energy: AbstractEnergy, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best masses on given points; those that get none are left out."""
    extra = np.broadcast_to(x[:1], (bucket(len(x)) - len(x), x.shape[1]))
    k, c = (np.asarray(v) for v in quadratic_form(energy, jnp.asarray(np.concatenate([x, extra]))))
    m = simplex_minimum(k[: len(x), : len(x)], c[: len(x)])
    return x[m > 0], m[m > 0]


def _distinct(x: np.ndarray) -> np.ndarray:
    kept: list[int] = []
    for i in range(len(x)):
        if not kept or np.linalg.norm(x[kept] - x[i], axis=1).min() > _NEAR:
            kept.append(i)
    return x[kept]


def _start(d: int) -> np.ndarray:
    if d == 2:
        return np.asarray(sphere.equispaced(_GRID[2]))
    if d == 3:
        return np.asarray(sphere.fibonacci(_GRID[3]))
    return np.asarray(sphere.uniform(jax.random.key(1), 512, d))


def _terms(energy: AbstractEnergy) -> tuple[AbstractEnergy, ...]:
    return energy.terms if isinstance(energy, EnergySum) else (energy,)


def _dimension(energy: AbstractEnergy, d: int | None) -> int:
    for term in _terms(energy):
        known = term.a if isinstance(term, Perceptron) else getattr(term, "matrix", None)
        if known is not None:
            d = known.shape[1] if d is None else d
    if d is None:
        raise ValueError("no dimension: the energy has no perceptron and no matrix that tells it; give d=2, 3, ...")
    check(energy, d)
    return d


def _check(terms: tuple[AbstractEnergy, ...], d: int, tol: float) -> None:
    for term in terms:
        if not isinstance(term, Attention | Perceptron):
            raise ValueError(
                f"{type(term).__name__} in an energy to minimise: expected a sum of Attention and Perceptron terms"
            )
        if not all(concrete(leaf) for leaf in _leaves(term)):
            raise ValueError("traced parameters: minimise works on the host; call it outside jit, vmap and grad")
    attention = [term for term in terms if isinstance(term, Attention)]
    if not attention:
        raise ValueError("no Attention term: without repulsion Diracs minimise; expected Attention(beta) + Perceptron")
    if any(leaf.dtype != np.float64 for term in terms for leaf in _leaves(term)):
        raise ValueError('single precision: a certificate needs float64; set jax.config.update("jax_enable_x64", True)')
    for term in attention:
        if not term.self_interaction:
            raise ValueError("self_interaction=False is for particles: expected the energy of measures, leave it out")
        if term.matrix is not None and np.linalg.eigvalsh(np.asarray(term.matrix)).min() <= 0:
            raise ValueError("a matrix B that is not positive definite: E is not convex and no gap certifies a minimum")
    if not 0 < tol < 1:
        raise ValueError(f"tol = {tol}: expected a relative gap between 0 and 1, such as 1e-12")


def _leaves(term: AbstractEnergy) -> list[jax.Array]:
    return jax.tree.leaves(eqx.filter(term, eqx.is_inexact_array))


def _conditioned(terms: tuple[AbstractEnergy, ...]) -> EnergySum:
    """The same up to a constant, attention first, its kernel with the constant `1/beta` where that is the smaller."""
    found: list[AbstractEnergy] = []
    for term in sorted(terms, key=lambda t: isinstance(t, Perceptron)):
        if isinstance(term, Attention):
            kernel = Exponential(term.kernel.beta, term.kernel.shift, centred=float(term.kernel.beta) < 1)
            term = eqx.tree_at(lambda a: a.kernel, term, kernel)
        found.append(term)
    return EnergySum(tuple(found))


def _scale(energy: EnergySum, d: int) -> float:
    """The largest difference that values of `U[mu]` can have: the kernel's range plus that of `v/2` on a grid."""
    x = jnp.asarray(_start(d))
    total = 0.0
    for term in energy.terms:
        if isinstance(term, Attention):
            beta, shift = float(term.kernel.beta), float(term.kernel.shift)
            total += 2 * shift if beta == 0 else -math.expm1(-2 * beta * shift) / beta
        else:
            total += float(np.ptp(np.asarray(term.potential(x, Measure(x, jnp.zeros(len(x)))))))
    return total


def _why_not(terms: tuple[AbstractEnergy, ...], d: int, found: Lowest) -> str:
    if _degenerate(terms) or found.rigorous:
        return _degenerate(terms)
    if d > 3:
        return "d > 3: the lowest value of U was searched from many starts, not proved"
    if found.cells == 0:
        return "an activation whose derivatives are not bounded: the lowest value of U was searched, not proved"
    return "cells were left open: U is nearly flat where it is lowest; a larger budget or tol closes them"


def _degenerate(terms: tuple[AbstractEnergy, ...]) -> str:
    flat = any(float(term.kernel.beta) == 0 for term in terms if isinstance(term, Attention))
    return "beta = 0: E is not strictly convex, its minimiser is not unique" if flat else ""
