"""The lowest value of a first variation: closed forms, sampling, a well that no start sees; the constants behind it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mflandscape as mfl
from mflandscape import sphere
from mflandscape.activations import activation
from mflandscape.stationary import lowest
from mflandscape.stationary.cells import arcs, triangles
from mflandscape.stationary.smoothness import third_derivative_bound

NAMED = ("relu", "leaky_relu", "gelu", "tanh", "softplus")


@pytest.mark.parametrize("name", NAMED)
def test_bounds_of_an_activation_hold_and_are_reached(name):
    act, s = activation(name), jnp.linspace(-12, 12, 24001)[:, None]
    first = jax.vmap(jax.grad(lambda t: act(t)[0]))(s)
    second = jax.vmap(jax.hessian(lambda t: act(t)[0]))(s)
    for measured, bound in ((first, act.steepness), (second, act.bend)):
        largest = float(jnp.max(jnp.abs(measured)))
        assert largest <= bound + 1e-12 and largest >= 0.99 * bound


@eqx.filter_jit
def along_geodesics(energy, mu, n=400):
    """Largest third derivative of `U` along random unit-speed geodesics through random points."""
    x = sphere.uniform(jax.random.key(3), n, mu.d)
    v = sphere.tangent(x, sphere.uniform(jax.random.key(4), n, mu.d))
    v = v / jnp.linalg.norm(v, axis=1)[:, None]

    def at(s):
        return energy.potential(jnp.cos(s) * x + jnp.sin(s) * v, mu)

    return jnp.max(jnp.abs(jax.jacfwd(jax.jacfwd(jax.jacfwd(at)))(jnp.asarray(0.0))))


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("beta", [0.0, 0.3, 40.0])
def test_third_derivative_of_attention(d, beta):
    mu = mfl.empirical(np.eye(d)[:1])
    energy = mfl.Attention(beta)
    assert along_geodesics(energy, mu) <= third_derivative_bound(energy) < 8 * (1 + np.sqrt(beta))
    stretched = mfl.Attention(beta, matrix=np.diag([2.0, -1.0, 0.5][:d]))
    assert along_geodesics(stretched, mu) <= third_derivative_bound(stretched)


@pytest.mark.parametrize("name", NAMED)
def test_third_derivative_of_a_perceptron(name):
    a = np.array([[1.5, 0.3, -1.0], [0.2, 2.0, 0.1]])
    energy = mfl.Perceptron(a, np.array([1.0, -2.0]), np.array([0.3, -0.4]), name)
    largest = along_geodesics(energy, mfl.empirical(np.eye(3)[:1]))
    assert largest <= third_derivative_bound(energy) < 20 * largest


def test_third_derivative_that_is_not_known():
    assert third_derivative_bound(mfl.Perceptron(np.eye(2), np.ones(2), activation=jnp.sin)) == np.inf
    with pytest.raises(ValueError, match="traced"):
        jax.jit(lambda beta: third_derivative_bound(mfl.Attention(beta)))(1.0)


def angles(x, y):
    return np.arccos(np.clip(x @ y.T, -1, 1))


@pytest.mark.parametrize("cells", [arcs(5), triangles(0), triangles(2)])
def test_cells_cover_the_sphere_and_so_do_their_parts(cells):
    d = cells.centre.shape[1]
    x = np.asarray(sphere.uniform(jax.random.key(0), 500, d))
    for each in (cells, cells.divided(), cells.divided().divided()):
        apart = angles(x, each.centre)
        assert (apart <= each.radius + 1e-7).any(axis=1).all()
    parts = cells.divided()
    assert len(parts) == (2 if d == 2 else 4) * len(cells) and parts.radius.max() < 0.75 * cells.radius.max()
    near = angles(parts.centre, parts.centre[:1])[:, 0]
    assert (parts.within(parts.centre[:1], np.array([0.81])) == (near + parts.radius <= 0.81)).all()


def test_closed_forms():
    mu = mfl.empirical(np.array([[0.6, 0.8, 0.0]]))
    found = lowest(mfl.Attention(2.0) + mfl.Perceptron(np.eye(3), np.zeros(3)), mu)
    assert found.rigorous and found.value == pytest.approx(np.exp(-4) / 2, abs=1e-15)
    np.testing.assert_allclose(found.x, [-0.6, -0.8, 0.0], atol=1e-7)
    neurons = mfl.Perceptron(np.array([[-3.0, -4.0, 0.0], *np.eye(3)[:2]]), np.array([-2.0, 0, 0]))
    found = lowest(mfl.Attention(0.0) + neurons, mu)
    assert found.rigorous and found.bound <= found.value == pytest.approx(-2 - 25.0, rel=1e-14)
    assert lowest(mfl.Attention(0.0) + neurons, mu, sign=-1).value == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize(
    "d, name",
    [(2, "gelu"), (3, "relu"), *[pytest.param(*c, marks=pytest.mark.slow) for c in [(2, "relu"), (3, "gelu")]]],
)
def test_no_point_is_below_the_bound(d, name):
    rng = np.random.default_rng(d)
    x = sphere.uniform(jax.random.key(1), 20_000, d)
    for beta in (1.0, 25.0):
        energy = mfl.Attention(beta) + mfl.Perceptron(rng.normal(size=(3, d)), rng.normal(size=3), activation=name)
        mu = mfl.uniform(jax.random.key(2), 7, d)
        values = energy.potential(x, mu)
        for sign in (1, -1):
            found = lowest(energy, mu, sign=sign)
            sampled = float(jnp.min(sign * values))
            assert found.rigorous and found.value - 1e-12 <= found.bound <= found.value <= sampled
            assert sampled - found.value < (1e-3 if d == 2 else 0.03)
            assert float(sign * energy.potential(jnp.asarray(found.x)[None], mu)[0]) == pytest.approx(found.value)
            assert (np.diff(found.values) >= 0).all() and found.values[0] == found.value


@pytest.mark.slow
def test_a_well_between_the_points_of_the_grid_is_found():
    """Its half width is 0.0014; the grid's spacing is 0.006."""
    middle = np.pi / 1024
    mu = mfl.empirical(np.eye(2)[:1])
    a = np.array([[300 * np.cos(middle), 300 * np.sin(middle)]])
    energy = mfl.Perceptron(a, np.array([-1e5]), np.array([-300 + 3e-4]))
    assert float(jnp.max(jnp.abs(energy.potential(sphere.equispaced(1024), mu)))) == 0
    found = lowest(energy, mu, tol=1e-6)
    assert found.rigorous and found.value == pytest.approx(-0.5e5 * 9e-8, rel=1e-6)


def test_what_is_not_proved_says_so():
    mu = mfl.uniform(jax.random.key(0), 5, 3)
    energy = mfl.Attention(4.0) + mfl.Perceptron(np.eye(3), np.array([1.0, -1.0, 2.0]), activation="gelu")
    short = lowest(energy, mu, budget=600)
    assert not short.rigorous and short.bound < short.value and short.cells <= 600
    with pytest.raises(ValueError, match="sign = 2"):
        lowest(energy, mu, sign=2)


@pytest.mark.slow
def test_above_three_dimensions_nothing_is_proved():
    high = lowest(mfl.Perceptron(np.eye(4), np.ones(4)), mfl.uniform(jax.random.key(0), 5, 4))
    assert not high.rigorous and high.cells == 0 and high.value == pytest.approx(0, abs=1e-15)
