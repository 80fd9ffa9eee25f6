"""How fast the second derivative of a first variation can change: the constants that certificates rest on."""

import math

import jax.numpy as jnp
import numpy as np

from ..drifts import AbstractPotential, Attention, EnergySum, Perceptron
from ..measure import concrete


def third_derivative_bound(energy: AbstractPotential) -> float:
    """`M` with `|d^3/ds^3 U[mu](gamma(s))| <= M` along every unit-speed geodesic, for every probability measure `mu`.

    Off the kinks of perceptrons, where the second derivative jumps instead. Inf where no bound is known: a drift that
    is no sum of `Attention` and `Perceptron`, an activation whose derivatives are not bounded by name.

    Raises:
        ValueError: traced parameters (a certificate is a number).
    """
    if isinstance(energy, EnergySum):
        return sum(third_derivative_bound(term) for term in energy.terms)
    if isinstance(energy, Attention):
        return _of_attention(energy)
    return _of_perceptron(energy) if isinstance(energy, Perceptron) else math.inf


def _of_attention(term: Attention) -> float:
    """With `t = x . y` along a geodesic, `t'^2 + t^2 <= s^2` and `t'' = -t`, the third derivative of `e^{beta (t - s)}/
    beta` is `e^{beta (t - s)} t' (beta^2 t'^2 - 3 beta t - 1)`; with `r = s - t >= 0`, `t'^2 <= 2 s r`:
    `max e^{-beta r} beta^2 (2 s r)^{3/2}` at `beta r = 3/2`, `max e^{-beta r} 3 beta s (2 s r)^{1/2}` at `1/2`.
    """
    beta, s = _number(term.kernel.beta), _number(term.kernel.shift)
    root = math.sqrt(beta)
    return root * s**1.5 * (3**1.5 * math.exp(-1.5) + 3 * math.exp(-0.5)) + s


def _of_perceptron(term: Perceptron) -> float:
    """With `z = a . x + b`: `sigma'' z'^3 - 3 sigma' z' (a . x) - sigma z'`, and `|z' (a . x)| <= |a|^2 / 2`."""
    a = np.linalg.norm(np.asarray(_concrete(term.a), float), axis=1)
    omega, bias = (np.abs(np.asarray(_concrete(v), float)) for v in (term.omega, term.bias))
    act = term.activation
    steep, at_zero = _number(act.steepness), abs(float(act(jnp.zeros(1))[0]))
    if not math.isfinite(steep):
        return math.inf
    sigma = at_zero + steep * (a + bias)
    return float(np.sum(omega * (act.bend * a**3 + 1.5 * steep * a**2 + sigma * a)))


def _concrete(value):
    if not concrete(value):
        raise ValueError("traced parameters: a certificate is a number; call it outside jit, vmap and grad")
    return value


def _number(value) -> float:
    return float(np.asarray(_concrete(value)))
