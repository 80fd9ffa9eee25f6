"""The optimality system of a minimiser among measures: positions, masses and multiplier by Newton's method."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import sphere
from ..drifts import AbstractEnergy
from ..measure import Measure
from .coordinates import displaced

_BUCKETS = (16, 64, 256, 1024)
_MOST = 192  # atoms that Newton's method is given: its matrix has (n d)^2 entries
_ROUNDS = 30
_LONGEST = 0.1  # of a step, radians
_CUTOFF = 1e-14  # singular values of the system below this share of the largest count as zero


def bucket(n: int) -> int:
    """The number of points that `n` are padded to, so that few shapes are compiled."""
    return next((b for b in _BUCKETS if b >= n), n)


def padded(x: np.ndarray, w: np.ndarray) -> Measure:
    """The measure with massless copies of its first point, up to the next bucket."""
    extra = bucket(len(x)) - len(x)
    return Measure(
        jnp.asarray(np.concatenate([x, np.broadcast_to(x[:1], (extra, x.shape[1]))])),
        jnp.asarray(np.concatenate([w, np.zeros(extra)])),
    )


@eqx.filter_jit
def quadratic_form(energy: AbstractEnergy, x: Float[Array, "P d"]) -> tuple[Float[Array, "P P"], Float[Array, " P"]]:
    """`K, c` with `E = m.K m/2 + c.m` for masses `m` on points `x`; `U = K m + c`. Cost O(P^2)."""
    zero = jnp.zeros(x.shape[0], x.dtype)

    def variation(m: Array) -> Array:
        return energy.potential(x, Measure(x, m))

    return jax.jacfwd(variation)(zero), variation(zero)


@eqx.filter_jit
def _system(energy: AbstractEnergy, mu: Measure) -> tuple[Array, Array]:
    """Gradient and Hessian of `E` in positions (tangent coordinates) and masses."""
    n, k = mu.n, mu.d - 1

    def value(z: Array) -> Array:
        return energy(Measure(displaced(mu.x, z[: n * k].reshape(n, k)), mu.w + z[n * k :]))

    zero = jnp.zeros(n * k + n, mu.x.dtype)
    return jax.grad(value)(zero), jax.hessian(value)(zero)


def newton(energy: AbstractEnergy, x: np.ndarray, m: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Newton's method for `P grad U = 0` and `U = lambda` at every atom: positions, masses, and the residual reached.

    Least-norm steps where the system is singular; steps keep masses positive and are taken as long as the residual
    (largest of `|P grad U|`, `|U - lambda|`) falls. More than 192 atoms are returned as they are, with residual inf.
    """
    if len(m) > _MOST:
        return x, m, math.inf
    matrix, rhs, error = _assemble(energy, x, m)
    for _ in range(_ROUNDS):
        step = np.linalg.lstsq(matrix, rhs, rcond=_CUTOFF)[0]
        moved = _shortened(step, x, m)
        for _ in range(4):
            trial = _stepped(x, m, moved)
            ahead = _assemble(energy, *trial)
            if ahead[2] < error:
                break
            moved = moved / 4
        else:
            break
        stalled = ahead[2] > 0.9 * error
        (x, m), (matrix, rhs, error) = trial, ahead
        if error < 1e-17 or (stalled and error < 1e-14):
            break
    return x, m, error


def _assemble(energy: AbstractEnergy, x: np.ndarray, m: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    n, k = len(x), x.shape[1] - 1
    mu = padded(x, m)
    slope, hessian = (np.asarray(v) for v in _system(energy, mu))
    keep = np.concatenate([np.arange(n * k), mu.n * k + np.arange(n)])
    g, size = slope[keep], n * (k + 1)
    level = float(m @ g[n * k :])
    matrix = np.zeros((size + 1, size + 1))
    matrix[:size, :size] = hessian[np.ix_(keep, keep)]
    matrix[n * k : size, size] = matrix[size, n * k : size] = -1
    rhs = -np.append(g, 0.0)
    rhs[n * k : size] += level
    speed = np.linalg.norm(g[: n * k].reshape(n, k), axis=1) / m
    error = max(float(speed.max()), float(np.max(np.abs(g[n * k :] - level))))
    return matrix, rhs, error


def _shortened(step: np.ndarray, x: np.ndarray, m: np.ndarray) -> np.ndarray:
    n, k = len(x), x.shape[1] - 1
    longest = np.linalg.norm(step[: n * k].reshape(n, k), axis=1).max()
    change = step[n * k : -1]
    falling = np.where(change < 0, -0.9 * m / np.where(change < 0, change, 1), np.inf)
    return step * min(1.0, _LONGEST / max(longest, 1e-300), float(falling.min()))


def _stepped(x: np.ndarray, m: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n, k = len(x), x.shape[1] - 1
    mu = padded(x, m)
    u = np.zeros((mu.n, k))
    u[:n] = step[: n * k].reshape(n, k)
    masses = m + step[n * k : -1]
    return np.asarray(_displaced(mu.x, jnp.asarray(u)))[:n], masses / masses.sum()


@jax.jit
def _displaced(x: Array, u: Array) -> Array:
    return sphere.retract(displaced(x, u))
