"""Derivatives of stationary states with respect to what defines them: weights, biases, beta, masses."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PyTree

from .._numerics import matmul, safe_norm
from .._types import Count, Points, Scalar
from ..drifts import AbstractDrift, check
from ..measure import Measure
from .coordinates import ambient, gradient
from .kinks import find_kinks
from .newton import newton, scaled

_NULL = 1e-9  # singular values up to this part of the largest are null
_OUT_OF_RANGE = 1e-6  # part of a right-hand side outside the range from which there is no derivative
_ON_KINK = 1e-9  # radians

_NOT_STATIONARY = (
    "no derivative of a state that is not stationary: its largest |P grad U(x_i)| is above the tolerance; expected a "
    "converged state; take more steps (and compare tol with what the dtype can reach)"
)
_KINKED = (
    "no derivative of a stationary state with an atom on the kink of a neuron (within 1e-9 radians): the second "
    "derivative of its potential jumps there; move the weights or the masses a little, or take a smooth activation"
)
_CROSSING = (
    "no derivative of this stationary state: an eigenvalue of its Hessian crosses zero in a direction that is no "
    "symmetry of what is differentiated (a fold or a bifurcation); move the parameters away from there"
)


class Sensitivity(eqx.Module):
    """How a stationary state answers to a change of its parameters.

    Attributes:
        dx: tangent vectors `(N, d)`, of least norm `sum_i w_i |dx_i|^2` among the answers.
        null_dimension: dimension of the null space of the Wasserstein Hessian (rotations, dead zones).
        outside: norm of the right-hand side's component outside the range, over its norm; above rounding there is no
            derivative in the ordinary sense and `dx` answers the rest.
    """

    dx: Points
    null_dimension: Count
    outside: Scalar


def stationary_state(
    drift: AbstractDrift, mu: Measure, *, tol: ArrayLike = 1e-12, max_steps: int = 100, throw: bool = True
) -> Measure:
    """The critical point that Newton's method finds from `mu`, differentiable in the drift and in the masses.

    `P grad U[mu](x_i) = 0` defines the points as functions of every number in the drift (weights, biases, beta) and of
    the masses; their derivative is implicit, `dx = -W^{-1/2} S^+ W^{1/2} dF`, tangent, of least norm
    `sum_i w_i |dx_i|^2` where a symmetry or a dead zone leaves the state free, and 0 with respect to the points of
    `mu`, which only say where to begin. `jax.grad`, `jax.jvp`, `jax.jacobian`, `vmap`, `jit` and their nestings work.
    Massless points stay where they are, with derivative 0. Cost of a derivative O(n^3), `n = N (d-1)`.

    Raises:
        ValueError: a drift made for another dimension.
        RuntimeError: with `throw`, a state that is not stationary to `tol`; and where it is differentiated, an atom
            within 1e-9 radians of a kink, or a null direction along which what is differentiated has a component (an
            eigenvalue crosses zero). Without `throw` the best state is returned, and least-norm answers.
    """
    check(drift, mu.d)
    frozen = jax.lax.stop_gradient(eqx.filter(drift, eqx.is_inexact_array))
    still = eqx.combine(frozen, drift)
    found = newton(still, jax.lax.stop_gradient(mu), tol=tol, max_steps=max_steps)
    x = found.x
    if throw:
        x = eqx.error_if(x, ~found.converged, _NOT_STATIONARY)
    tol = jnp.asarray(tol, x.dtype)
    return mu.at(implicit_points(drift, mu.at(x), tol=jnp.maximum(tol, found.residual), throw=throw))


def implicit_points(drift: AbstractDrift, mu: Measure, *, tol: ArrayLike, throw: bool = True) -> Points:
    """The points of a stationary `mu`, with the derivatives of `stationary_state`; refused if its residual > `tol`."""
    x, tol = (jax.lax.stop_gradient(v) for v in (mu.x, jnp.asarray(tol, mu.x.dtype)))
    return _points(drift, mu.w, x, tol, throw)


@eqx.filter_custom_jvp
def _points(drift: AbstractDrift, w: Array, x: Array, tol: Array, throw: bool) -> Points:
    return x


@_points.def_jvp
def _points_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    drift, w, x, tol, throw = primals
    x = _points(drift, w, x, tol, throw)
    mu = Measure(x, w)
    root, matrix = scaled(drift, mu)
    inverse = _inverse(matrix)
    if throw:
        inverse = _refuse(inverse, drift, mu, tol, root, matrix, tangents[:2])
    change = root * _change(drift, mu, tangents[0], tangents[1])
    step = -matmul(inverse, change) / jnp.where(root > 0, root, jnp.ones_like(root))
    return x, ambient(x, step.reshape(mu.n, mu.d - 1))


def implicit_derivative(
    drift: AbstractDrift, mu: Measure, ddrift: PyTree, dw: Float[Array, " N"] | None = None
) -> Sensitivity:
    """The answer of a stationary `mu` to the change `ddrift` of its drift and `dw` of its masses.

    `ddrift` is a drift of the same structure, its arrays the directions (what `jax.jvp` of its construction gives);
    None stands for 0. `mu` is taken to be stationary. Cost as a derivative of
    `stationary_state`.

    Raises:
        ValueError: a drift made for another dimension.
    """
    check(drift, mu.d)
    root, matrix = scaled(drift, mu)
    change = root * _change(drift, mu, eqx.filter(ddrift, eqx.is_inexact_array), dw)
    left, size, _ = jnp.linalg.svd(matrix)
    null = _null(size)
    outside = jnp.where(null, matmul(left.T, change), 0.0)
    norm = safe_norm(change)
    step = -matmul(_inverse(matrix), change) / jnp.where(root > 0, root, jnp.ones_like(root))
    return Sensitivity(
        dx=ambient(mu.x, step.reshape(mu.n, mu.d - 1)),
        null_dimension=jnp.sum(null, dtype=jnp.int32),
        outside=safe_norm(outside) / jnp.where(norm > 0, norm, jnp.ones_like(norm)),
    )


def _null(size: Array) -> Array:
    return size <= jnp.maximum(_NULL * size[0], jnp.finfo(size.dtype).tiny)


def _inverse(matrix: Array) -> Array:
    return jnp.linalg.pinv(matrix, rtol=_NULL)


def _slope(drift: AbstractDrift, x: Array, w: Array) -> Array:
    """`P grad U[mu](x_i)` in coordinates, as one vector."""
    return gradient(drift, Measure(x, w)).reshape(-1)


def _change(drift: AbstractDrift, mu: Measure, ddrift: PyTree, dw: Array | None) -> Array:
    """How the gradient at fixed points changes with the drift and the masses."""
    moved, fixed = eqx.partition(drift, eqx.is_inexact_array)
    if ddrift is None:
        ddrift = jax.tree.map(lambda _: None, moved)
    tangents = jax.tree.map(lambda v, t: jnp.zeros_like(v) if t is None else t, moved, ddrift)
    dw = jnp.zeros_like(mu.w) if dw is None else dw
    return jax.jvp(lambda part, w: _slope(eqx.combine(part, fixed), mu.x, w), (moved, mu.w), (tangents, dw))[1]


def _refuse(
    inverse: Array, drift: AbstractDrift, mu: Measure, tol: Array, root: Array, matrix: Array, tangents: tuple
) -> Array:
    """The inverse, with errors where the state has no derivative along what is differentiated."""
    numbers, rest = eqx.partition((drift, mu, tol, root, matrix), eqx.is_inexact_array)
    drift, mu, tol, root, matrix = eqx.combine(jax.lax.stop_gradient(numbers), rest)
    kinks = find_kinks(drift, mu.x)
    kinked = kinks.near(_ON_KINK) & (kinks.above != kinks.below)[None, :] & (mu.w > 0)[:, None]
    residual = jnp.max(jnp.where(mu.w > 0, safe_norm(gradient(drift, mu)), jnp.zeros_like(mu.w)))
    inverse = eqx.error_if(inverse, residual > tol + 100 * jnp.finfo(tol.dtype).eps, _NOT_STATIONARY)
    inverse = eqx.error_if(inverse, jnp.any(kinked), _KINKED)
    return eqx.error_if(inverse, _crosses(drift, mu, root, matrix, tangents), _CROSSING)


def _crosses(drift: AbstractDrift, mu: Measure, root: Array, matrix: Array, tangents: tuple) -> Array:
    """Whether something differentiated moves the gradient along a null direction, seen from the numbers alone.

    A vector of the left null space is pulled back to the parameters: a symmetry gives 0.
    """
    left, size, _ = jnp.linalg.svd(matrix)
    probe = jax.random.normal(jax.random.key(0), root.shape, root.dtype)
    null = matmul(left, jnp.where(_null(size), matmul(left.T, probe), jnp.zeros_like(probe)))
    moved, fixed = eqx.partition((drift, mu.w), jax.tree.map(lambda t: t is not None, tangents, is_leaf=_is_none))

    def slope(part: PyTree) -> Array:
        drift, w = eqx.combine(part, fixed)
        return root * _slope(drift, mu.x, w)

    pull = jax.vjp(slope, moved)[1]
    outside, all_of = (jax.tree.leaves(pull(v)[0]) for v in (null, probe))
    return jnp.any(
        jnp.stack(
            [
                safe_norm(a.reshape(-1)) > _OUT_OF_RANGE * jnp.maximum(safe_norm(b.reshape(-1)), 1e-9)
                for a, b in zip(outside, all_of, strict=True)
            ]
        )
    )


def _is_none(value: object) -> bool:
    return value is None
