"""Derivatives of stationary states: implicit = unrolled = finite differences; null spaces; what is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape.activations import activation
from mflandscape.drifts import Attention, Perceptron
from mflandscape.flows import Euler, Forward, Implicit, MaxSteps, Observe, SaveEvery, Stationary, flow
from mflandscape.measure import Measure, from_angles
from mflandscape.sphere import equispaced, retract
from mflandscape.stationary.implicit import implicit_derivative, stationary_state
from mflandscape.stationary.newton import newton, scaled

ACTIVATIONS = ("relu", "gelu", "softplus")
N, UNITS, DRAWN, STEPS = 6, 2, 24, 600
# Compiling is nearly all of the time here; the compiler's optimisations would double it.
fast_jit = eqx.filter_jit(compiler_options={"xla_backend_optimization_level": 0})


def problems(d, seed=0):
    """Random problems, a third of them with each activation (the others have weight 0: one program for all)."""
    rng = np.random.default_rng([d, seed])
    own = np.arange(DRAWN)[:, None] % 3 == np.arange(3)[None, :]
    omega = 2 * rng.normal(size=(DRAWN, 3, UNITS)) * own[:, :, None]
    w = rng.uniform(0.5, 1.5, (DRAWN, N))
    drawn = {
        "beta": rng.uniform(0.5, 4, DRAWN),
        "a": retract_rows(rng.normal(size=(DRAWN, 3, UNITS, d))),
        "omega": omega,
        "bias": 0.2 * rng.normal(size=(DRAWN, 3, UNITS)),
        "w": w / w.sum(axis=1, keepdims=True),
    }
    return jax.tree.map(jnp.asarray, drawn), jnp.asarray(retract_rows(rng.normal(size=(DRAWN, N, d))))


def retract_rows(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def build(p):
    drift = Attention(p["beta"])
    for k, name in enumerate(ACTIVATIONS):
        drift = drift + Perceptron(p["a"][k], p["omega"][k], p["bias"][k], activation=activation(name))
    return drift


def observable(drift, mu):
    c = jnp.asarray([1.0, -0.5, 0.3][: mu.d])
    return jnp.sum(mu.w * jnp.sum(mu.x * c[None, :], axis=1) ** 3) + drift(mu) / 3


def run(p, x, direction, adjoint=None, steps=STEPS):
    stop = MaxSteps(steps) if adjoint is None else Stationary(1e-10) | MaxSteps(steps)
    return flow(
        build(p),
        Measure(x, p["w"]),
        stop=stop,
        direction=direction,
        integrator=Euler(0.25),
        observe=Observe(every=25),
        adjoint=adjoint,
    )


def of_state(p, x):
    drift = build(p)
    return observable(drift, stationary_state(drift, Measure(x, p["w"]), throw=False))


def of_unrolled(p, x, direction):
    return observable(build(p), run(p, x, direction).mu)


@fast_jit
def ends(p, x, direction):
    """Where runs end, refined, with their largest growth rates."""

    def one(p, x):
        mu = run(p, x, direction, Implicit(), 4 * STEPS).mu
        drift = build(p)
        found = newton(drift, mu, max_steps=20)
        sign = 1 if direction == "ascent" else -1
        return found.x, found.residual, sign * jnp.linalg.eigvalsh(scaled(drift, mu.at(found.x))[1])

    return jax.vmap(one)(p, x)


@pytest.mark.parametrize(
    "d, direction, least",
    [
        pytest.param(3, "ascent", 13, marks=pytest.mark.slow),
        (2, "descent", 9),
        pytest.param(2, "ascent", 13, marks=pytest.mark.slow),
        pytest.param(3, "descent", 3, marks=pytest.mark.slow),
    ],
)
def test_implicit_is_unrolled_is_finite_differences(d, direction, least):
    p, x = problems(d)
    x, residual, rates = ends(p, x, direction)
    margins = offsets(p, x)
    rates = np.asarray(rates)
    strict = (rates.max(axis=1) < -0.15) & (rates.min(axis=1) > -6) & (np.asarray(residual) < 1e-12) & (margins > 1e-3)
    kept = np.flatnonzero(strict)
    assert len(kept) >= least
    p, x = jax.tree.map(lambda v: v[kept], p), x[kept]
    rng = np.random.default_rng(1)
    v = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), p)
    v["w"] = v["w"] - jnp.mean(v["w"], axis=1, keepdims=True)
    v["omega"] = jnp.where(p["omega"] == 0, 0.0, v["omega"])
    implicit = fast_jit(jax.vmap(jax.grad(of_state)))(p, x)
    near = retract_all(x + 1e-3 * jnp.asarray(rng.normal(size=x.shape)))
    unrolled = fast_jit(jax.vmap(jax.grad(of_unrolled), in_axes=(0, 0, None)))(p, near, direction)
    for name in p:
        scale = np.abs(np.asarray(unrolled[name])).reshape(len(kept), -1).max(axis=1)
        gap = np.abs(np.asarray(implicit[name] - unrolled[name])).reshape(len(kept), -1).max(axis=1)
        assert (gap <= 1e-6 * scale + 1e-12).all(), (name, gap / scale)
    along = sum(np.asarray(implicit[k] * v[k]).reshape(len(kept), -1).sum(axis=1) for k in p)
    values = fast_jit(jax.vmap(of_state))
    eps = 1e-5
    up, down = (values(jax.tree.map(lambda a, b, h=h: a + h * b, p, v), x) for h in (eps, -eps))
    np.testing.assert_allclose(along, (up - down) / (2 * eps), rtol=1e-6, atol=1e-8)


def retract_all(x):
    return jax.vmap(retract)(x)


def offsets(p, x):
    """How far the atoms are from the kinks of the ReLU neurons (infinitely, for the other activations)."""
    s = np.einsum("bnd,bjd->bnj", x, np.asarray(p["a"][:, 0])) + np.asarray(p["bias"][:, 0])[:, None, :]
    return np.where(np.asarray(p["omega"][:, 0] == 0)[:, None, :], np.inf, np.abs(s)).min(axis=(1, 2))


def triangle():
    """Three atoms on the circle held by a GeLU perceptron, in descent."""
    rng = np.random.default_rng(5)
    a = jnp.asarray(retract_rows(rng.normal(size=(3, 2))))
    mu = from_angles(jnp.asarray([0.5, 2.4, 4.4]), jnp.asarray([0.3, 0.3, 0.4]))
    return (lambda beta: Attention(beta) + Perceptron(a, jnp.asarray([1.0, 0.7, -0.5]), activation="gelu")), mu


def test_forward_reverse_and_second_derivatives_over_a_grid_of_betas():
    drift, mu = triangle()
    more = Measure(jnp.concatenate([mu.x, mu.x[:1]]), jnp.append(mu.w, 0.0))  # a massless point has no part in it

    def angles(beta):
        x = stationary_state(drift(beta), more).x
        return jnp.arctan2(x[:, 1], x[:, 0])

    h = 1e-4
    betas = jnp.asarray([2.0 - h, 2.0, 2.0 + h, 3.0])
    values, forward = fast_jit(jax.vmap(lambda b: (angles(b), jax.jacfwd(angles)(b))))(betas)
    np.testing.assert_allclose(forward[1], (values[2] - values[0]) / (2 * h), rtol=1e-6, atol=1e-8)
    assert np.abs(forward[:, :3]).min() > 1e-4 and (np.asarray(forward)[:, 3] == 0).all()
    np.testing.assert_allclose(values[:, 3], 0.5, atol=1e-15)
    reverse, second = fast_jit(lambda b: (jax.jacrev(angles)(b), jax.jacfwd(jax.jacrev(angles))(b)))(betas[1])
    np.testing.assert_allclose(reverse, forward[1], rtol=1e-10)
    np.testing.assert_allclose(second, (forward[2] - forward[0]) / (2 * h), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("d", [2, 3])
def test_a_free_rotation_leaves_the_answer_of_least_norm(d):
    """Attention alone: a pentagon and a tetrahedron of unequal masses; 1 and 3 rotations."""
    corners = jnp.asarray(np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) / np.sqrt(3))
    x = equispaced(5) if d == 2 else corners
    w = 1 + 0.1 * jnp.sin(jnp.arange(x.shape[0], dtype=x.dtype))
    w, drift = w / jnp.sum(w), Attention(3.0)
    dw = jnp.zeros_like(w).at[0].set(1.0).at[1].set(-1.0)

    @fast_jit
    def answer(w):
        mu = stationary_state(drift, Measure(x, w))
        gaps = jnp.sum(mu.x[:, None, :] * mu.x[None, :, :], axis=2)
        _, dx = jax.jvp(lambda w: stationary_state(drift, Measure(x, w)).x, (w,), (dw,))
        dgaps = jnp.sum(dx[:, None, :] * mu.x[None, :, :], axis=2)
        return mu.x, gaps, dgaps + dgaps.T, dx, implicit_derivative(drift, mu, None, dw)

    points, _, dgaps, dx, told = answer(w)
    h = 1e-5
    np.testing.assert_allclose(dgaps, (answer(w + h * dw)[1] - answer(w - h * dw)[1]) / (2 * h), rtol=1e-6, atol=1e-8)
    assert int(told.null_dimension) == d * (d - 1) // 2 and float(told.outside) < 1e-9
    np.testing.assert_allclose(told.dx, dx, atol=1e-10)
    assert np.abs(dx).max() > 1e-2 and np.abs(np.sum(np.asarray(dx) * np.asarray(points), axis=1)).max() < 1e-12
    spin = np.einsum("n,ni,nj->ij", w, points, dx)
    np.testing.assert_allclose(spin, spin.T, atol=1e-9)  # orthogonal to every rotation: sum_i w_i (x_i ^ dx_i) = 0


@pytest.mark.parametrize("d", [2, 3])
def test_a_dead_zone_leaves_an_atom_where_it_is(d):
    """One atom on the peak of a ReLU neuron, one in its dead zone, out of reach of the other: beta = 50."""
    embed = lambda angle: jnp.zeros(d).at[0].set(jnp.cos(angle)).at[1].set(jnp.sin(angle))  # noqa: E731
    mu = Measure(jnp.stack([embed(0.3), embed(2.8)]), jnp.asarray([0.6, 0.4]))

    def drift(angle, omega):
        return Attention(50.0) + Perceptron(embed(angle)[None], omega[None])

    @fast_jit
    def answer(angle, omega):
        x, dx = jax.jvp(lambda a: stationary_state(drift(a, omega), mu).x, (angle,), (jnp.ones(()),))
        turn = jax.jvp(lambda a: drift(a, omega), (angle,), (jnp.ones(()),))[1]
        return x, dx, implicit_derivative(drift(angle, omega), mu.at(x), turn)

    x, dx, told = answer(jnp.asarray(0.3), jnp.asarray(1.5))
    np.testing.assert_allclose(x, mu.x, atol=1e-12)
    side = jnp.zeros(d).at[0].set(-jnp.sin(0.3)).at[1].set(jnp.cos(0.3))
    np.testing.assert_allclose(dx, jnp.stack([side, jnp.zeros(d)]), atol=1e-9)
    np.testing.assert_allclose(told.dx, dx, atol=1e-12)
    assert int(told.null_dimension) == d - 1 and float(told.outside) < 1e-12


def test_an_atom_on_a_kink_is_refused():
    mu = from_angles(jnp.asarray([np.pi / 2]))
    a = jnp.asarray([[1.0, 0.0], [0.0, 1.0]])

    def state(omega, throw):
        return stationary_state(Attention(1.0) + Perceptron(a, omega), mu, throw=throw).x[0, 0]

    omega = jnp.asarray([1.0, -0.5])
    slope = fast_jit(jax.grad(state))
    with pytest.raises(Exception, match="kink of a neuron"):
        jax.block_until_ready(slope(omega, True))
    assert np.isfinite(slope(omega, False)).all()
    assert np.isfinite(float(state(omega, True)))


def test_a_crossing_eigenvalue_is_refused_unless_symmetry_forbids_it():
    """`U''(0) = omega_2 - omega_1 sigma(1)` made 0 at an atom at angle 0, the potential being even."""
    a = jnp.asarray([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    top = activation("gelu")(jnp.asarray(1.0))
    mu = from_angles(jnp.asarray([0.0]))

    def state(a, omega, throw=True):
        drift = Attention(1.0) + Perceptron(a, jnp.stack([omega, omega * top, omega * top]), activation="gelu")
        return jnp.arctan2(*stationary_state(drift, mu, throw=throw).x[0, ::-1])

    with pytest.raises(Exception, match="eigenvalue of its Hessian crosses zero"):
        jax.block_until_ready(fast_jit(jax.grad(state))(a, jnp.asarray(1.0)))
    assert abs(float(fast_jit(jax.grad(state, 1))(a, jnp.asarray(1.0)))) < 1e-9
    tilt = Perceptron(jnp.zeros_like(a).at[0, 1].set(1.0), jnp.zeros(3), activation="gelu")
    drift = Attention(1.0) + Perceptron(a, jnp.stack([1.0, top, top]), activation="gelu")
    told = implicit_derivative(drift, mu, jax.tree.map(jnp.zeros_like, Attention(1.0)) + tilt)
    assert int(told.null_dimension) == 1 and float(told.outside) == pytest.approx(1)


def test_a_flow_with_the_implicit_adjoint_ends_with_the_derivative_of_its_end():
    drift, mu = triangle()

    def end(beta, w, tol):
        where = Measure(mu.x, w)
        return flow(drift(beta), where, stop=Stationary(tol) | MaxSteps(3000), save=SaveEvery(1000), adjoint=Implicit())

    @fast_jit
    def derivatives(beta, w, tol):
        sol = end(beta, w, tol)
        through = jax.jacrev(lambda b, w: (lambda s: (s.u, s.energy, s.residual, s.x[0]))(end(b, w, tol)), (0, 1))
        state = jax.jacfwd(lambda b, w: observe(drift(b), stationary_state(drift(b), Measure(sol.mu.x, w))), (0, 1))
        return through(beta, w), state(beta, w)

    def observe(drift, mu):
        return jnp.arctan2(mu.x[:, 1], mu.x[:, 0]), drift(mu)

    (u, energy, *frozen), expected = derivatives(jnp.asarray(2.0), mu.w, jnp.asarray(1e-12))
    for found, wanted in zip(jax.tree.leaves((u, energy)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-10)
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(frozen))
    plain = flow(drift(jnp.asarray(2.0)), mu, stop=Stationary(1e-12) | MaxSteps(3000), adjoint=Forward())
    again = end(jnp.asarray(2.0), mu.w, jnp.asarray(1e-12))
    np.testing.assert_array_equal(again.u, plain.u)
    with pytest.raises(Exception, match="not stationary"):
        jax.block_until_ready(derivatives(jnp.asarray(2.0), mu.w, jnp.asarray(1e-3)))


def test_a_state_that_does_not_converge_is_refused_and_bad_input_named():
    drift, mu = triangle()
    with pytest.raises(Exception, match="not stationary"):
        jax.block_until_ready(stationary_state(drift(2.0), mu, max_steps=1).x)
    assert np.isfinite(stationary_state(drift(2.0), mu, max_steps=1, throw=False).x).all()
    with pytest.raises(ValueError, match="dimension"):
        stationary_state(Perceptron(np.eye(3), np.ones(3)), mu)
    with pytest.raises(ValueError, match="tol = 0.0: expected a finite number > 0"):
        Implicit(0.0)
