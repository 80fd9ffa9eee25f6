"""The perceptron of a dataset as something to draw: potential, hyperplanes, active regions and dead zones."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from xarray import Dataset

from ..activations import AbstractActivation, activation
from .members import Member, option, pick

TWO_PI = 2.0 * np.pi


@dataclass(frozen=True)
class Landscape:
    """Neurons `a_j, b_j` with strengths `scale * omega_j` (None for a free perceptron, which has no potential)."""

    a: Float[np.ndarray, "J d"]
    bias: Float[np.ndarray, " J"]
    strength: Float[np.ndarray, " J"] | None
    activation: AbstractActivation

    def levels(self, x: Float[np.ndarray, "M d"]) -> Float[np.ndarray, "M J"]:
        """`a_j . x_i + b_j`: positive on the active side of neuron j."""
        return x @ self.a.T + self.bias

    def active(self, x: Float[np.ndarray, "M d"]) -> Int[np.ndarray, " M"]:
        """The number of active neurons at each point."""
        return np.sum(self.levels(x) > 0.0, axis=1)

    def value(self, x: Float[np.ndarray, "M d"]) -> Float[np.ndarray, " M"]:
        """The potential `v(x) = sum_j omega_j phi(a_j . x + b_j)`, `phi' = 2 sigma`. Cost O(M J d)."""
        if self.strength is None:
            raise ValueError("a free perceptron has no potential; expected the gradient form; draw its regions only")
        return np.asarray(self.activation.primitive(jnp.asarray(self.levels(x)))) @ self.strength

    def regions(self) -> list[tuple[float, float, int]]:
        """The arcs between hyperplane angles as (start, end, active neurons), covering [0, 2 pi] in order."""
        cuts = np.unique(np.concatenate([[0.0, TWO_PI], self.hyperplane_angles()]))
        count = self.active(on_circle((cuts[1:] + cuts[:-1]) / 2.0))
        return [(float(lo), float(hi), int(n)) for lo, hi, n in zip(cuts[:-1], cuts[1:], count, strict=True)]

    def hyperplane_angles(self) -> Float[np.ndarray, " H"]:
        """The angles in [0, 2 pi) with `a_j . x + b_j = 0` for some j, in increasing order."""
        length = np.hypot(self.a[:, 0], self.a[:, 1])
        cuts = (length > 0.0) & (np.abs(self.bias) <= length)
        across = np.arccos(np.clip(-self.bias[cuts] / length[cuts], -1.0, 1.0))
        towards = np.arctan2(self.a[cuts, 1], self.a[cuts, 0])
        return np.sort(np.concatenate([towards - across, towards + across]) % TWO_PI)

    def hyperplane_curve(self, neuron: int, count: int = 721) -> Float[np.ndarray, "count 3"] | None:
        """Points of S^2 with `a_j . x + b_j = 0`, turning about a_j; None where the plane misses the sphere."""
        length = np.linalg.norm(self.a[neuron])
        if length == 0.0 or abs(self.bias[neuron]) >= length:
            return None
        axis, height = self.a[neuron] / length, -self.bias[neuron] / length
        side = np.cross(axis, np.eye(3)[np.argmin(np.abs(axis))])
        side /= np.linalg.norm(side)
        turn = np.linspace(0.0, TWO_PI, count)[:, None]
        around = np.cos(turn) * side + np.sin(turn) * np.cross(axis, side)
        return height * axis + np.sqrt(1.0 - height**2) * around


def on_circle(angle: Float[np.ndarray, " M"]) -> Float[np.ndarray, "M 2"]:
    """The points of the circle at the given angles."""
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def landscape(ds: Dataset, member: Member) -> Landscape | None:
    """The perceptron of one member, or None where the run has none."""
    if "a" not in ds or ds.sizes["neuron"] == 0 or option(ds, "weights", "numpy") == "none":
        return None
    a = pick(ds, "a", member)
    bias = pick(ds, "bias", member) if "bias" in ds else np.zeros(len(a))
    scale = float(ds["scale"].values[member.scale])
    strength = scale * pick(ds, "omega", member) if "omega" in ds else None
    return Landscape(a, bias, strength, activation(str(option(ds, "activation", None) or "relu")))
