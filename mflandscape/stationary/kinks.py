"""Where a perceptron's second derivative jumps: points near the kinks of its neurons, the Hessian on either side."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._numerics import inner, safe_norm
from .._types import Points
from ..drifts import AbstractDrift, FreePerceptron, Perceptron
from ..sphere import tangent_basis

_BESIDE = 1e-6  # where the slope of an activation is read off on either side of its kink


class Kinks(eqx.Module):
    """The kinks `a_p . x + b_p = kappa_p` of all neurons, P of them, seen from points `x (N, d)`.

    Attributes:
        neuron: `(P,)`, the neuron, counted through all perceptrons of the drift in order.
        a: `(P, d)`, its input vector.
        offset: `(N, P)`, `a_p . x + b_p - kappa_p`: positive above the kink; its angle is about `offset / |a_p|`.
        below, above: `(P,)`, `omega_p sigma'` on the two sides: the Hessian of `U` jumps by `(above - below) a a^T`
            (0 for free output vectors, which have no Hessian).
    """

    neuron: Float[Array, " P"]
    a: Float[Array, "P d"]
    offset: Float[Array, "N P"]
    below: Float[Array, " P"]
    above: Float[Array, " P"]

    def near(self, reach: ArrayLike) -> Array:
        """Which kinks may lie within the angle `reach` (a number or `(N,)`) of which points: booleans `(N, P)`."""
        reach = jnp.broadcast_to(jnp.asarray(reach, self.offset.dtype), self.offset.shape[:1])
        return jnp.abs(self.offset) <= reach[:, None] * safe_norm(self.a)[None, :]

    def lower(self, x: Points, reach: ArrayLike) -> Float[Array, "N d-1 d-1"]:
        """What to add to Hessians of `U` at `x` so that each kink within reach counts with its lower side."""
        return self._moved(x, reach, jnp.minimum(self.below, self.above))

    def upper(self, x: Points, reach: ArrayLike) -> Float[Array, "N d-1 d-1"]:
        """What to add to Hessians of `U` at `x` so that each kink within reach counts with its upper side."""
        return self._moved(x, reach, jnp.maximum(self.below, self.above))

    def _moved(self, x: Points, reach: ArrayLike, side: Array) -> Array:
        here = jnp.where(self.offset <= 0, self.below[None, :], self.above[None, :])
        change = jnp.where(self.near(reach), side[None, :] - here, jnp.zeros_like(self.offset))
        n, d = x.shape
        seen = inner(tangent_basis(x).reshape(-1, d), self.a).reshape(n, d - 1, self.a.shape[0])
        return jnp.matmul(seen * change[:, None, :], jnp.swapaxes(seen, 1, 2), precision="highest")


def find_kinks(drift: AbstractDrift, x: Points) -> Kinks:
    """The kinks of all perceptrons in a drift, seen from `x`; P = 0 where every activation is smooth."""
    parts = [p for p in jax.tree.leaves(drift, is_leaf=_is_perceptron) if _is_perceptron(p)]
    found: list[tuple[Array, ...]] = []
    first = 0
    for part in parts:
        found += [_of(part, x, kink, first) for kink in part.activation.kinks]
        first += part.a.shape[0]
    if not found:
        none = jnp.zeros(0, x.dtype)
        return Kinks(none, jnp.zeros((0, x.shape[1]), x.dtype), jnp.zeros((x.shape[0], 0), x.dtype), none, none)
    neuron, a, offset, below, above = zip(*found, strict=True)
    return Kinks(
        jnp.concatenate(neuron),
        jnp.concatenate(a),
        jnp.concatenate(offset, axis=1),
        jnp.concatenate(below),
        jnp.concatenate(above),
    )


def _of(part: Perceptron | FreePerceptron, x: Points, kink: float, first: int) -> tuple[Array, ...]:
    dtype = x.dtype
    a = part.a.astype(dtype)
    offset = inner(x, a) + part.bias.astype(dtype)[None, :] - kink
    slope = jax.grad(lambda s: jnp.sum(part.activation(s)))
    sides = slope(jnp.asarray([kink - _BESIDE, kink + _BESIDE], dtype))
    omega = part.omega.astype(dtype) if isinstance(part, Perceptron) else jnp.zeros(a.shape[0], dtype)
    return first + jnp.arange(a.shape[0], dtype=dtype), a, offset, omega * sides[0], omega * sides[1]


def _is_perceptron(part: object) -> bool:
    return isinstance(part, Perceptron | FreePerceptron)
