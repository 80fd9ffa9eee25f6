"""The neurons of several perceptrons together, as the search for the maximisers of their potential sees them."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..activations import LeakyReLU, ReLU
from ..drifts import AbstractPotential, Perceptron
from ..drifts.base import EnergySum

_SEEN = 1e-6  # a part of a unit vector shorter than this is none


class Neurons:
    """The neurons of all perceptrons, in float64 on the host, without those that are constant on the sphere.

    Attributes:
        parts: what is left of each perceptron.
        constant: the sum of the constant neurons.
        a, bias: input vectors `(J, d)` and biases `(J,)`; `dead` tells whose activation vanishes below 0.
        positive, negative: `v(x) = sum_j p_j max(a_j.x, 0)^2 + q_j max(-a_j.x, 0)^2` where `homogeneous`.
        scale: a bound of `|v|` for the activations whose `phi` grows towards both sides, and their unit for the others.
        upper: an upper bound of `v`, inf where none is at hand.

    Raises:
        ValueError: values that overflow.
    """

    def __init__(self, perceptrons: list[Perceptron]):
        self.parts: list[Perceptron] = []
        self.constant = self.scale = self.upper = 0.0
        self.homogeneous = True
        rows, sides, dead = [np.zeros((0, 0))], [np.zeros((0, 2))], []
        for part in perceptrons:
            a, omega, bias = (np.asarray(v, float) for v in (part.a, part.omega, part.bias))
            length = np.linalg.norm(a, axis=1)
            unreached = (bias + length <= 0) & part.activation.dead
            live = (length > 0) & (omega != 0) & ~unreached
            self.constant += float(np.sum((omega * _primitive(part, bias))[~live & ~unreached]))
            a, omega, bias, length = a[live], omega[live], bias[live], length[live]
            ends = np.stack([_primitive(part, bias + side * length) for side in (-1, 1)])
            self.scale += float(np.sum(np.abs(omega) * np.max(np.abs(ends), axis=0, initial=0)))
            self.homogeneous &= isinstance(part.activation, ReLU | LeakyReLU) and not bias.any()
            slope = float(part.activation.slope) if isinstance(part.activation, LeakyReLU) else 0.0
            sides.append(np.stack([omega, slope * omega], axis=1))
            rows.append(a)
            dead += [(part.activation.dead, b) for b in bias]
            positive = np.maximum(omega, 0) * np.max(ends, axis=0, initial=0)
            self.upper += float(np.sum(positive)) if part.activation.dead or not live.any() else math.inf
            if live.any():
                self.parts.append(_perceptron(a, omega, bias, part.activation))
        if not math.isfinite(self.scale + self.constant):
            raise ValueError("the perceptron's values are not finite: expected weights whose squares do not overflow")
        self.a = np.concatenate([row for row in rows if row.size] or [np.zeros((0, 1))])
        self.positive, self.negative = np.concatenate(sides).T
        self.dead = np.array([kind for kind, _ in dead], bool)
        self.bias = np.array([b for _, b in dead], float)

    def on(self, basis: Float[np.ndarray, "d m"]) -> AbstractPotential:
        """The perceptrons divided by `scale`, their input vectors in the coordinates of `basis (d, m)`."""
        parts = [
            _perceptron(np.asarray(p.a) @ basis, np.asarray(p.omega) / self.scale, np.asarray(p.bias), p.activation)
            for p in self.parts
        ]
        return EnergySum(tuple(parts))

    def free(self, x: Float[np.ndarray, " d"]) -> tuple[int, np.ndarray]:
        """Dimension of the set through `x` on which every active neuron keeps its argument, and what describes it."""
        active = ~self.dead | (self.a @ x + self.bias > -1e-8 * np.linalg.norm(self.a, axis=1))
        basis = row_space(self.a[active], len(x))
        seen = basis.T @ x
        hidden = math.sqrt(max(1 - float(seen @ seen), 0.0))
        return (len(x) - basis.shape[1] - 1 if hidden > _SEEN else 0), np.concatenate([active, basis @ seen])


def row_space(a: Float[np.ndarray, "J m"], d: int) -> Float[np.ndarray, "d r"]:
    """Orthonormal basis `(d, r)` of the span of the rows."""
    if not len(a):
        return np.zeros((d, 0))
    _, size, rows = np.linalg.svd(a / np.linalg.norm(a, axis=1, keepdims=True), full_matrices=False)
    return rows[size > 1e-13].T


def _perceptron(a: np.ndarray, omega: np.ndarray, bias: np.ndarray, activation: Any) -> Perceptron:
    dtype = jnp.result_type(float)
    return Perceptron(jnp.asarray(a, dtype), jnp.asarray(omega, dtype), jnp.asarray(bias, dtype), activation)


def _primitive(part: Perceptron, s: np.ndarray) -> np.ndarray:
    return np.asarray(part.activation.primitive(jnp.asarray(s, jnp.result_type(float))), float)
