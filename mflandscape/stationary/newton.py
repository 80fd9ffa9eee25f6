"""Newton's method for stationary states at fixed masses, in tangent coordinates."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float

from .._numerics import safe_norm, safe_sqrt
from .._types import Count, Points, Scalar
from ..drifts import AbstractDrift
from ..measure import Measure
from .coordinates import displaced, gradient, jacobian
from .kinks import Kinks, find_kinks

_NULL = 1e-12  # singular values below this part of the largest are null: no step is taken along them
_PROGRESS = 1 - 1e-6  # the part of a residual that a step must leave at most
_BESIDE = 1e-2  # angle within which a kink's other side is tried too
_DAMPING = tuple(10.0**k for k in range(-16, 5, 2))  # of the damped steps, times the largest singular value squared


class Newton(eqx.Module):
    """Where Newton's method ended.

    Attributes:
        x: the points.
        residuals: `(N,)`, `|P grad U[mu](x_i)|`; 0 for points that do not take part (massless, not free).
        residual: the largest of them.
        steps: steps taken.
        converged: whether the residual is at most the tolerance.
    """

    x: Points
    residuals: Float[Array, " N"]
    residual: Scalar
    steps: Count
    converged: Bool[Array, ""]


class _State(eqx.Module):
    x: Array
    slope: Array
    steps: Array
    going: Array


def scaled(
    drift: AbstractDrift, mu: Measure, free: Bool[Array, " N"] | None = None
) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """`W^{1/2}` per coordinate and `S = W^{1/2} J W^{-1/2}`, `n = N (d-1)`, massless points and those not free cut out.

    S is the derivative of the gradient in an orthonormal basis of the metric `sum_i w_i |xi_i|^2`; where a point is cut
    out, the root is 0 and the row and column are those of the identity. Cost O(n) velocities.
    """
    weight = mu.w if free is None else jnp.where(free, mu.w, jnp.zeros_like(mu.w))
    root = jnp.repeat(safe_sqrt(weight), mu.d - 1)
    inverse = jnp.where(root > 0, 1 / jnp.where(root > 0, root, jnp.ones_like(root)), jnp.zeros_like(root))
    cut = (root == 0).astype(root.dtype)
    return root, root[:, None] * jacobian(drift, mu) * inverse[None, :] + jnp.diag(cut)


@eqx.filter_jit
def newton(
    drift: AbstractDrift,
    mu: Measure,
    *,
    tol: ArrayLike = 1e-12,
    max_steps: int = 100,
    max_angle: ArrayLike = 0.3,
    free: Bool[Array, " N"] | None = None,
) -> Newton:
    """Solves `P grad U[mu](x_i) = 0` in the points, from those of `mu`, at fixed masses.

    A step is `-S^+ r`, `r = W^{1/2} P grad U`, of least norm in the metric `sum_i w_i |xi_i|^2`; beside it stand damped
    ones `-(S^T S + lambda)^{-1} S^T r` (Levenberg-Marquardt), and near kinks of the perceptron, where the second
    derivative jumps, those of the Hessian with the kink's lower and upper side (the gradient is continuous there, so
    this is a semismooth Newton method). No point moves more than `max_angle` a step. The step that leaves the least
    `|r|` is taken; if none lowers `|r|`, the one with the least residual; if none lowers that either, it ends.

    Any critical point attracts, saddles too. Massless points, and those that `free` holds, stay where they are. Works
    under `jit` and `vmap`; for derivatives see `stationary_state`. Cost O(n^3) a step, `n = N (d-1)`.
    """
    tol, max_angle = (jnp.asarray(value, mu.x.dtype) for value in (tol, max_angle))
    moving = mu.w > 0 if free is None else free & (mu.w > 0)

    def slope(x: Array) -> Array:
        return jnp.where(moving[:, None], gradient(drift, mu.at(x)), jnp.zeros((), mu.x.dtype))

    def going(state: _State) -> Array:
        return state.going & (state.steps < max_steps) & (jnp.max(safe_norm(state.slope)) > tol)

    def advance(state: _State) -> _State:
        steps = _steps(drift, mu.at(state.x), state.slope, max_angle, moving)
        points = jax.vmap(lambda step: displaced(state.x, step))(steps)
        slopes = jax.lax.map(slope, points)
        best, better = _choose(mu.w, state.slope, slopes)
        return _State(
            jnp.where(better, points[best], state.x),
            jnp.where(better, slopes[best], state.slope),
            state.steps + better.astype(jnp.int32),
            better,
        )

    start = _State(mu.x, slope(mu.x), jnp.asarray(0, jnp.int32), jnp.asarray(True))
    end = jax.lax.while_loop(going, advance, start)
    residuals = safe_norm(end.slope)
    residual = jnp.max(residuals)
    return Newton(end.x, residuals, residual, end.steps, residual <= tol)


def _steps(drift: AbstractDrift, mu: Measure, slope: Array, max_angle: Array, moving: Array) -> Array:
    """Candidates, in coordinates: for each way to count the kinks, the undamped step and the damped ones."""
    root, matrix = scaled(drift, mu, moving)
    kinks = find_kinks(drift, mu.x)
    matrices = matrix[None] if kinks.a.shape[0] == 0 else _sides(matrix, kinks, mu, moving)
    left, size, right = jnp.linalg.svd(matrices)
    largest = jnp.maximum(size[:, :1], jnp.finfo(size.dtype).tiny)
    damping = jnp.asarray((0.0, *_DAMPING), size.dtype)[None, :, None] * (largest * largest)[:, :, None]
    kept = (size > _NULL * largest)[:, None, :]
    size = size[:, None, :]
    factor = jnp.where(kept, size / jnp.where(kept, size * size + damping, jnp.ones_like(damping)), 0.0)
    along = jnp.einsum("sji,j->si", left, root * slope.reshape(-1), precision="highest")
    steps = -jnp.einsum("sik,sci->sck", right, factor * along[:, None, :], precision="highest")
    steps = steps / jnp.where(root > 0, root, jnp.ones_like(root))[None, None, :]
    steps = steps.reshape(-1, *slope.shape)
    length = safe_norm(steps)
    return steps * jnp.minimum(1.0, max_angle / jnp.maximum(length, max_angle))[:, :, None]


def _sides(matrix: Array, kinks: Kinks, mu: Measure, moving: Array) -> Float[Array, "3 n n"]:
    """The matrix as it is, and with the lower and the upper side of every kink nearby."""
    n, k = mu.n, mu.d - 1

    def changed(blocks: Array) -> Array:
        i = jnp.arange(n)
        own = jnp.where(moving[:, None, None], blocks, jnp.zeros_like(blocks))
        return matrix.reshape(n, k, n, k).at[i, :, i, :].add(own).reshape(n * k, n * k)

    return jnp.stack([matrix, changed(kinks.lower(mu.x, _BESIDE)), changed(kinks.upper(mu.x, _BESIDE))])


def _choose(w: Array, slope: Array, slopes: Array) -> tuple[Array, Array]:
    """The candidate to take, and whether it is better than staying."""

    def scores(slopes: Array) -> tuple[Array, Array]:
        size = safe_norm(slopes)
        return safe_sqrt(jnp.sum(w[None, :] * size * size, axis=1)), jnp.max(size, axis=1)

    (weighted,), (largest,) = scores(slope[None])
    by_weight, by_size = (jnp.where(jnp.isfinite(s), s, jnp.inf) for s in scores(slopes))
    first, second = jnp.argmin(by_weight), jnp.argmin(by_size)
    lower = by_weight[first] < _PROGRESS * weighted
    return jnp.where(lower, first, second), lower | (by_size[second] < _PROGRESS * largest)
