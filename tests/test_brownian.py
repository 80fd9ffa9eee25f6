"""Brownian motion on the sphere: decay of its harmonics, the Gibbs measure, keys. Fixed keys, four standard errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ive

from mflandscape.drifts import Perceptron
from mflandscape.flows import RK4, Brownian, Euler, Forward, MaxSteps, MaxTime, Observe, Unrolled, flow
from mflandscape.flows.adaptive import Adaptive
from mflandscape.measure import empirical

KEY = jax.random.key(17)
N = 4000


def constant(s):
    return jnp.ones_like(s)


def slope(d, omega):
    """The potential `U(x) = omega x_1`: an activation that is 1 everywhere."""
    return Perceptron(jnp.eye(1, d), jnp.array([float(omega)]), activation=constant)


def run(d, *, omega=0.0, temperature=1.0, time=0.25, dt=0.0025, key=KEY, n=N):
    """All particles start at the first axis."""
    mu = empirical(jnp.tile(jnp.eye(1, d), (n, 1)))
    stop, integrator = MaxTime(time) | MaxSteps(1000), Brownian(Euler(dt), temperature)
    return flow(slope(d, omega), mu, stop=stop, integrator=integrator, observe=Observe(every=50), key=key)


def check_mean(sample, expected, bias=0.0):
    assert abs(sample.mean() - expected) <= 4 * sample.std() / np.sqrt(len(sample)) + bias


@pytest.mark.parametrize("d", [2, 3, 5])
def test_harmonics_decay_at_their_rates(d):
    """`E[x_t] = e^{-(d-1) T t} x_0` and `E[x_1^2] - 1/d = (1 - 1/d) e^{-2 d T t}`, the rest isotropic."""
    for temperature, time in ((1.0, 0.25), (0.5, 0.25)):
        x = np.asarray(run(d, temperature=temperature, time=time).mu.x)
        np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, atol=1e-14)
        bias = 0.0 if d == 2 else 0.01  # of order dt: normalised Gaussian steps
        check_mean(x[:, 0], np.exp(-(d - 1) * temperature * time), bias)
        second = 1 / d + (1 - 1 / d) * np.exp(-2 * d * temperature * time)
        check_mean(x[:, 0] ** 2, second, bias)
        for k in range(1, d):
            check_mean(x[:, k], 0)
            check_mean(x[:, k] ** 2, (1 - second) / (d - 1), bias)
            check_mean(x[:, k] * x[:, 0], 0)


@pytest.mark.parametrize("d", [2, 3])
def test_gibbs_measure(d):
    """Descent in `U = omega x_1` ends in the density `e^{-kappa x_1}`, `kappa = omega/T` (von Mises, Fisher)."""
    kappa = 1.5
    x = np.asarray(run(d, omega=0.75, temperature=0.5, time=8.0, dt=0.01).mu.x)[:, 0]
    first = ive(1, kappa) / ive(0, kappa) if d == 2 else 1 / np.tanh(kappa) - 1 / kappa
    second = 1 - (d - 1) * first / kappa
    check_mean(x, -first, bias=0.005)
    check_mean(x * x, second, bias=0.005)


def test_a_step_is_the_formula():
    """On the circle: a drift step, then `sqrt(2 T h) normal(fold_in(key, step))`; the last step is shorter."""
    theta = 0.0
    for step, h in enumerate([0.1, 0.1, 0.05]):
        noise = np.asarray(jax.random.normal(jax.random.fold_in(KEY, step), (5,), jnp.float64))
        theta = theta + h * 0.7 * np.sin(theta) + np.sqrt(2 * 0.3 * h) * noise
    sol = run(2, omega=0.7, temperature=0.3, time=0.25, dt=0.1, n=5)
    np.testing.assert_allclose(sol.mu.x, np.stack([np.cos(theta), np.sin(theta)], axis=1), atol=1e-14)


def test_keys():
    x = [np.asarray(run(3, n=50, key=key).mu.x) for key in (KEY, jax.random.key(17), jax.random.key(18))]
    np.testing.assert_array_equal(x[0], x[1])
    assert np.abs(x[0] - x[2]).max() > 0.1
    assert np.abs(np.corrcoef(x[0][:, 1], x[2][:, 1])[0, 1]) < 0.6


@pytest.mark.parametrize(("d", "inner"), [(2, Euler(0.1)), (3, RK4(0.1))])
def test_temperature_zero_is_no_noise(d, inner):
    x = np.random.default_rng(0).normal(size=(6, d))
    mu = empirical(x / np.linalg.norm(x, axis=1, keepdims=True))
    sols = [
        flow(slope(d, 1.0), mu, stop=MaxSteps(10), integrator=integrator, key=KEY)
        for integrator in (Brownian(inner, 0.0), inner)
    ]
    np.testing.assert_allclose(sols[0].mu.x, sols[1].mu.x, atol=1e-15)
    assert int(sols[0].evaluations) == int(sols[1].evaluations)


def test_refusals():
    with pytest.raises(ValueError, match="without a key"):
        run(2, key=None)
    with pytest.raises(
        (ValueError, TypeError), match="fixed-step method|AbstractFixedStep"
    ):  # or the annotation's checker
        Brownian(Adaptive(), 0.1)
    with pytest.raises(ValueError, match="temperature = -1.0"):
        Brownian(Euler(0.1), -1.0)


def test_derivatives_go_through_the_noise():
    """Of the mean height in the slope's strength, one path of noise: reverse, forward and finite differences."""

    def height(omega, adjoint):
        mu = empirical(jnp.tile(jnp.eye(1, 3), (5, 1)))
        drift = Perceptron(jnp.eye(1, 3), omega[None], activation=constant)
        kind = dict(integrator=Brownian(Euler(0.05), 0.3), observe=Observe(every=4), adjoint=adjoint, key=KEY)
        return flow(drift, mu, stop=MaxSteps(12), throw=False, **kind).mu.x[:, 0].mean()

    omega, h = jnp.asarray(0.7), 1e-5
    reverse = jax.grad(lambda v: height(v, Unrolled()))(omega)
    forward = jax.jvp(lambda v: height(v, Forward()), (omega,), (jnp.ones(()),))[1]
    difference = (height(omega + h, Forward()) - height(omega - h, Forward())) / (2 * h)
    assert abs(difference) > 0.1
    np.testing.assert_allclose([reverse, forward], difference, rtol=1e-8)
