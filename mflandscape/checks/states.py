"""What several checks start from: perceptrons of the published weights, and the states at which flows end."""

import jax.numpy as jnp
import numpy as np

from ..drifts import AbstractDrift, Perceptron
from ..flows import Settled, settle
from ..measure import Measure, equispaced, fibonacci, perturbed_uniform
from ..theory import eigenvalues
from ..weights import PerceptronWeights, numpy_weights

CIRCLE, SPHERE = 777, 111  # the published seeds of the weights
STATIONARY = 1e-9  # speed at which a flow has ended


def published(d: int, units: int | None = None, bias: float | None = None) -> PerceptronWeights:
    """The published weights, ReLU: seed 777 on the circle, 111 on `S^2`; with the same bias for every neuron."""
    weights = numpy_weights(CIRCLE if d == 2 else SPHERE, d, units)
    if bias is None:
        return weights
    return PerceptronWeights("relu", weights.a, omega=weights.omega, bias=np.full(weights.units, bias))


def perceptron(weights: PerceptronWeights, scale: float = 1.0, activation: str | None = None) -> Perceptron:
    """The energy of these weights, `omega` times `scale`.

    Raises:
        ValueError: free output vectors, which have no energy.
    """
    if weights.omega is None:
        raise ValueError("free output vectors: the theorems are about perceptrons with an energy; give omega")
    bias = None if weights.bias is None else jnp.asarray(weights.bias)
    return Perceptron(
        jnp.asarray(weights.a), jnp.asarray(scale * weights.omega), bias, activation or weights.activation
    )


def smooth_state(beta: float, n: int = 96) -> tuple[PerceptronWeights, Measure]:
    """Two GeLU neurons that face each other, and n equal atoms at the quantiles of the density that is stationary with
    them: `sigma(s) - sigma(-s) = s` makes `v = omega (e.x)^2`, and `1 - cos(2 theta)/2` about e keeps `U` constant.
    """
    e = np.array([0.6, 0.8])
    omega = 2 * float(eigenvalues(beta, 2, [2])[0]) / beta
    mu = perturbed_uniform(n, 2, -0.5)
    turn = jnp.asarray([[e[0], e[1]], [-e[1], e[0]]])
    return PerceptronWeights("gelu", np.stack([e, -e]), omega=np.array([omega, omega])), mu.at(mu.x @ turn)


def end_state(drift: AbstractDrift, d: int, n: int) -> Settled:
    """Where the descent of n particles, uniform at first, ends: speed 1e-9; particles that met are one atom."""
    return settle(drift, start(d, n), tol=STATIONARY)


def start(d: int, n: int) -> Measure:
    """Equispaced points of the circle, or Fibonacci's of `S^2`."""
    return equispaced(n) if d == 2 else fibonacci(n)
