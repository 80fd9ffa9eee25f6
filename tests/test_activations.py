import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr, spence

from mflandscape.activations import Custom, LeakyReLU, Softplus, activation

DTYPES = [jnp.float32, jnp.float64]
# name -> (activation, sigma written a second time in NumPy)
TABLE = {
    "relu": (activation("relu"), lambda s: np.maximum(s, 0)),
    "gelu": (activation("gelu"), lambda s: s * ndtr(s)),
    "leaky_relu": (LeakyReLU(0.2), lambda s: np.where(s > 0, s, 0.2 * s)),
    "tanh": (activation("tanh"), np.tanh),
    "softplus": (activation("softplus"), lambda s: np.logaddexp(0, s)),
    "custom": (Custom(jax.nn.silu, "silu"), lambda s: s * np.exp(-np.logaddexp(0, -s))),
    "custom_kinked": (Custom(jnp.abs), np.abs),
}
everything = pytest.mark.parametrize("name", TABLE)
both = pytest.mark.parametrize("dtype", DTYPES)
GRID = np.concatenate([np.linspace(-6, 6, 49), [-1e-3, 1e-3, -50.0, 50.0]])


def close(got, expected, dtype, factor=20.0):
    expected = np.asarray(expected, np.float64)
    assert got.dtype == dtype
    tolerance = factor * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(np.asarray(got, np.float64), expected, rtol=tolerance, atol=tolerance)


@everything
@both
def test_sigma_is_what_numpy_says(name, dtype):
    act, sigma = TABLE[name]
    s = jnp.asarray(GRID, dtype)
    close(act(s), sigma(np.asarray(s, np.float64)), dtype)


@everything
@both
def test_primitive_is_the_integral_by_scipy(name, dtype):
    act, sigma = TABLE[name]
    s = jnp.asarray(GRID, dtype)
    integrals = [2 * quad(sigma, 0, float(v), epsabs=1e-14, epsrel=1e-13, limit=200)[0] for v in s]
    close(act.primitive(s), integrals, dtype, 200.0)


@everything
@both
def test_derivative_of_the_primitive_is_twice_sigma(name, dtype):
    act, _ = TABLE[name]
    s = jnp.asarray(GRID, dtype)
    close(jax.vmap(jax.grad(act.primitive))(s), 2 * act(s), dtype, 4.0)


@everything
def test_eighth_order_finite_differences_of_the_primitive(name):
    act, _ = TABLE[name]
    s = jnp.asarray([-7.3, -2.1, -0.6, 0.55, 1.7, 6.1])
    h = 0.05
    weights = {1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280}
    slope = sum(c * (act.primitive(s + k * h) - act.primitive(s - k * h)) for k, c in weights.items()) / h
    np.testing.assert_allclose(slope, 2 * act(s), rtol=1e-9, atol=1e-10)


@everything
@both
def test_primitive_vanishes_at_zero_and_to_leading_order(name, dtype):
    act, sigma = TABLE[name]
    assert act.primitive(jnp.zeros((), dtype)) == 0
    s = 1e-4  # phi ~ 2 sigma(0) s + sigma'(0) s^2: small values keep their relative accuracy
    expected = 2 * quad(sigma, 0, s, epsabs=0, epsrel=1e-13)[0]
    assert float(act.primitive(jnp.asarray(s, dtype))) == pytest.approx(expected, rel=200 * float(jnp.finfo(dtype).eps))


@everything
@both
def test_large_arguments_stay_finite(name, dtype):
    act, _ = TABLE[name]
    s = jnp.asarray([-1e4, -100.0, -50.0, 50.0, 100.0, 1e4], dtype)
    for value in (act(s), act.primitive(s), jax.vmap(jax.grad(act))(s), jax.vmap(jax.grad(act.primitive))(s)):
        assert value.dtype == dtype and jnp.isfinite(value).all()


@everything
@both
def test_second_derivative_forward_over_reverse(name, dtype):
    act, _ = TABLE[name]
    for s in (-50.0, -1.3, 0.0, 0.7, 50.0):
        s = jnp.asarray(s, dtype)
        curvature = jax.jvp(jax.grad(act.primitive), (s,), (jnp.ones_like(s),))[1]
        assert jnp.isfinite(curvature) and curvature.dtype == dtype
        assert curvature == pytest.approx(2 * float(jax.grad(act)(s)), rel=1e-5, abs=1e-6)
        assert jax.grad(jax.grad(act.primitive))(s) == pytest.approx(float(curvature), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", ["gelu", "tanh", "softplus", "custom"])
def test_second_derivative_by_finite_differences(name):
    act, _ = TABLE[name]
    for s in (-2.0, -0.3, 0.0, 1.1):
        numeric = 2 * (act(jnp.asarray(s + 1e-5)) - act(jnp.asarray(s - 1e-5))) / 2e-5  # phi'' = 2 sigma'
        assert jax.grad(jax.grad(act.primitive))(s) == pytest.approx(float(numeric), abs=1e-8)


@everything
def test_eager_jit_and_vmap_agree(name):
    act, _ = TABLE[name]
    s = jnp.asarray(GRID).reshape(-1, 1)
    expected = act.primitive(s)
    np.testing.assert_allclose(eqx.filter_jit(lambda a, t: a.primitive(t))(act, s), expected, rtol=1e-13)
    np.testing.assert_allclose(jax.vmap(act.primitive)(s), expected, rtol=1e-13)


def test_softplus_primitive_is_the_dilogarithm():
    s = jnp.linspace(-3, 50, 200)
    expected = 2 * (-(np.pi**2) / 12 - spence(1 + np.exp(np.asarray(s))))
    np.testing.assert_allclose(Softplus().primitive(s), expected, rtol=1e-13, atol=1e-14)


def test_gelu_primitive_is_not_the_published_one():
    s = jnp.linspace(-5, 5, 101)
    published = s * s * ndtr(np.asarray(s)) + s * np.exp(-(np.asarray(s) ** 2) / 2) / np.sqrt(2 * np.pi)
    expected = published - ndtr(np.asarray(s)) + 0.5  # (s^2 - 1) Phi + s n + 1/2
    np.testing.assert_allclose(activation("gelu").primitive(s), expected, atol=1e-14)


def test_slope_of_leaky_relu_is_a_leaf():
    s = jnp.asarray([-2.0, 3.0])
    gradient = eqx.filter_grad(lambda act: act.primitive(s).sum())(LeakyReLU(0.1))
    assert gradient.slope == pytest.approx(4.0)
    batch = jax.vmap(lambda slope: LeakyReLU(slope)(s))(jnp.asarray([0.0, 1.0]))
    np.testing.assert_allclose(batch, [[0.0, 3.0], [-2.0, 3.0]])


def test_nan_is_not_hidden():
    for act, _ in TABLE.values():
        assert jnp.isnan(act(jnp.asarray(jnp.nan))) and jnp.isnan(act.primitive(jnp.asarray(jnp.nan)))


def test_kinks_and_dead_sides():
    assert [n for n, (act, _) in TABLE.items() if act.kinks == (0.0,)] == ["relu", "leaky_relu"]
    assert [n for n, (act, _) in TABLE.items() if act.dead] == ["relu"]
    assert activation("relu")(jnp.asarray(-3.0)) == 0


def test_names_callables_and_instances():
    for name in ("relu", "gelu", "leaky_relu", "tanh", "softplus"):
        assert activation(name).name == name
    assert activation("Leaky-ReLU").name == "leaky_relu"
    act = activation(jnp.sin)
    assert isinstance(act, Custom) and act.name == "sin" and activation(act) is act
    assert act.primitive(jnp.asarray(1.2)) == pytest.approx(2 * (1 - np.cos(1.2)), rel=1e-14)


def test_wrong_activations_are_refused():
    with pytest.raises(ValueError, match="relu, gelu, leaky_relu, tanh, softplus.*did you mean 'gelu'"):
        activation("glu")
    with pytest.raises(ValueError, match="same shape"):
        activation(lambda s: s.sum())
    with pytest.raises(ValueError, match="jax.numpy"):
        activation(np.tanh)
    with pytest.raises(ValueError, match="scalar"):
        LeakyReLU(jnp.ones(3))
