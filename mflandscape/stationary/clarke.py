"""Atoms at a jump of the gradient: stationary in the sense of the Clarke subdifferential, or not at all."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._numerics import dot
from ..drifts import AbstractDrift, FreePerceptron, Perceptron
from ..measure import Measure
from .coordinates import displaced, gradient

_REACH = 0.05  # radians searched for a jump on either side of an atom
_GRID = 400
_HALVINGS = 60
_BESIDE = 1e-9  # where the one-sided gradients are read off
_HULL = 1e-6  # how far 0 may lie from their hull, in parts of the jump


def may_jump(drift: AbstractDrift) -> bool:
    """Whether the drift has an activation that is not known to be continuous: one without a bound on its slope."""
    parts = jax.tree.leaves(drift, is_leaf=lambda part: isinstance(part, Perceptron | FreePerceptron))
    found = [part.activation for part in parts if isinstance(part, Perceptron | FreePerceptron)]
    return any(not np.isfinite(float(activation.steepness)) for activation in found)


def settle_at_jumps(drift: AbstractDrift, atoms: Measure, unsettled: np.ndarray) -> tuple[Measure, np.ndarray]:
    """Brings atoms that are not stationary to a jump of their gradient beside them, if 0 lies between its two sides.

    The gradient of a continuous activation is continuous, and there 0 in its Clarke subdifferential is the gradient
    being 0: nothing is done. Where `sigma` itself jumps, the geodesic through the atom along its gradient is searched
    within 0.05 radians for a change of sign, which is halved to rounding; the atom is taken there if the one-sided
    gradients, 1e-9 on either side, differ and their segment passes through 0. Above the circle a jump must be crossed
    head on. Returns the atoms and which of them were taken. Cost 500 velocities an atom.
    """
    x, found = atoms.x, np.zeros(atoms.n, bool)
    for i in np.flatnonzero(unsettled):
        point, below, above = _crossing(drift, atoms.at(x), jnp.asarray(i))
        jump = np.asarray(above - below)
        size = float(jump @ jump)
        if not np.isfinite(size) or size == 0:
            continue
        t = float(np.clip(-np.asarray(below) @ jump / size, 0, 1))
        missed = np.linalg.norm(np.asarray(below) + t * jump)
        steep = size > (1e4 * _BESIDE) ** 2  # not merely a steep gradient: it differs by more than a slope of 1e4 would
        if steep and missed <= _HULL * np.sqrt(size):
            x, found[i] = x.at[i].set(point), True
    return atoms.at(x), found


@eqx.filter_jit
def _crossing(
    drift: AbstractDrift, mu: Measure, i: Array
) -> tuple[Float[Array, " d"], Float[Array, " k"], Float[Array, " k"]]:
    """The nearest point along the gradient where it turns round, and the gradients on its two sides; nan if none."""
    slope = gradient(drift, mu)[i]
    along = slope / jnp.sqrt(jnp.maximum(jnp.sum(slope * slope), jnp.finfo(slope.dtype).tiny))

    def moved(s: Array) -> Array:
        step = jnp.zeros((mu.n, mu.d - 1), slope.dtype).at[i].set(s * along)
        return displaced(mu.x, step)

    def there(s: Array) -> Array:
        return gradient(drift, mu.at(moved(s)))[i]

    def value(s: Array) -> Array:
        return dot(there(s), along)

    grid = jnp.linspace(-_REACH, _REACH, _GRID + 1, dtype=slope.dtype)
    signs = jax.lax.map(value, grid, batch_size=50) > 0
    turns = signs[1:] != signs[:-1]
    nearest = jnp.argmin(jnp.where(turns, jnp.abs(grid[1:] + grid[:-1]), jnp.inf))

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        left = (value(middle) > 0) == signs[nearest]
        return jnp.where(left, middle, low), jnp.where(left, high, middle)

    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (grid[nearest], grid[nearest + 1]))
    at = jnp.where(jnp.any(turns), (low + high) / 2, jnp.nan)
    return moved(at)[i], there(at - _BESIDE), there(at + _BESIDE)
