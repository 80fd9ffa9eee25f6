"""Derivatives of a run's end: reverse = forward = finite differences, second derivatives, memory, early ends."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape._results import name_of
from mflandscape.drifts import Attention, Perceptron
from mflandscape.flows import RK4, Euler, Forward, MaxSteps, MaxTime, Stationary, Unrolled, flow
from mflandscape.flows.adaptive import Adaptive
from mflandscape.interactions import Blocked, CircleFourier, Dense
from mflandscape.measure import empirical
from mflandscape.sphere import retract

CASES = {
    "circle-euler-fourier": (2, Euler(0.1), CircleFourier(30)),
    "circle-adaptive": (2, Adaptive(rtol=1e-9, atol=1e-10), Dense()),
    "sphere-euler-blocked": (3, Euler(0.1), Blocked(3)),
    "sphere-rk4": (3, RK4(0.1), Dense()),
    "circle-rk4": (2, RK4(0.1), Dense()),
    "sphere-adaptive": (3, Adaptive(rtol=1e-9, atol=1e-10), Dense()),
}
SLOW = ("circle-rk4", "circle-adaptive", "sphere-adaptive", "sphere-euler-blocked")
STOP = MaxTime(0.8) | MaxSteps(40)
# Compiling is nearly all of the time here; the compiler's optimisations would double it.
fast_jit = eqx.filter_jit(compiler_options={"xla_backend_optimization_level": 0})


def parameters(d):
    rng = np.random.default_rng(d)
    shapes = {"a": (2, d), "omega": (2,), "bias": (2,), "start": (5, d)}
    return {"beta": jnp.asarray(2.0)} | {
        name: jnp.asarray(0.5 * rng.normal(size=shape)) for name, shape in shapes.items()
    }


def final(p, d, integrator, interaction=None, adjoint=None, stop=STOP):
    drift = Attention(p["beta"], interaction=interaction) + Perceptron(p["a"], p["omega"], p["bias"], activation="gelu")
    mu = empirical(retract(p["start"]))
    return flow(drift, mu, stop=stop, direction="ascent", integrator=integrator, adjoint=adjoint, throw=False)


def scalar(p, *args):
    """Some smooth function of the final positions."""
    x = final(p, *args).mu.x
    return jnp.sum(jnp.sin(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape) * x * (1 + x))


@fast_jit
def reverse(p, d, integrator, interaction, stop=STOP):
    return jax.value_and_grad(scalar)(p, d, integrator, interaction, Unrolled(), stop)


@fast_jit
def forward(p, v, d, integrator, interaction):
    return jax.jvp(lambda p: scalar(p, d, integrator, interaction, Forward()), (p,), (v,))


@pytest.mark.parametrize("case", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES])
def test_reverse_is_forward_is_finite_differences(case):
    d, *method = CASES[case]
    p, rng = parameters(d), np.random.default_rng(1)
    value, gradient = reverse(p, d, *method)
    zero, eps = jax.tree.map(jnp.zeros_like, p), 1e-5
    for name in p:
        direction = jnp.asarray(rng.normal(size=p[name].shape))
        again, slope = forward(p, zero | {name: direction}, d, *method)
        ends = [forward(p | {name: p[name] + h * direction}, zero, d, *method)[0] for h in (-eps, eps)]
        along = float(jnp.sum(gradient[name] * direction))
        np.testing.assert_allclose(float(again), float(value), rtol=1e-13)
        assert abs(along) > 1e-3, name
        np.testing.assert_allclose(along, float(slope), rtol=1e-8, err_msg=name)
        np.testing.assert_allclose(along, float(ends[1] - ends[0]) / (2 * eps), rtol=1e-6, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("case", ["sphere-euler-blocked", pytest.param("circle-euler-fourier", marks=pytest.mark.slow)])
def test_forward_over_reverse(case):
    """Hessian times a direction that moves every parameter at once, symmetric, against differences of gradients."""
    d, *method = CASES[case]
    p, rng = parameters(d), np.random.default_rng(2)
    u, v = (jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), p) for _ in range(2))

    @fast_jit
    def second(p, v):
        return jax.jvp(jax.grad(lambda p: scalar(p, d, *method, Unrolled())), (p,), (v,))[1]

    def inner(a, b):
        return sum(float(jnp.sum(a[name] * b[name])) for name in a)

    eps = 1e-5
    sides = [reverse(jax.tree.map(lambda x, y, h=h: x + h * y, p, v), d, *method)[1] for h in (-eps, eps)]
    hv = second(p, v)
    for name in p:
        difference = (np.asarray(sides[1][name]) - np.asarray(sides[0][name])) / (2 * eps)
        np.testing.assert_allclose(hv[name], difference, rtol=1e-6, atol=1e-6 * np.abs(difference).max(), err_msg=name)
    np.testing.assert_allclose(inner(u, hv), inner(v, second(p, u)), rtol=1e-9)


def test_forward_refuses_reverse_mode():
    with pytest.raises(Exception, match=r"use Unrolled\(\)"):
        jax.grad(scalar)(parameters(2), 2, Euler(0.1), None, Forward())


def test_memory_of_unrolled_grows_like_the_root_of_the_steps():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(300, 3)))

    def temporary(steps):
        def end(x):
            return jnp.sum(
                flow(Attention(1.0, interaction=Blocked(16)), empirical(retract(x)), stop=MaxSteps(steps)).mu.x[:, 0]
            )

        program = jax.jit(jax.grad(end)).lower(x).compile(compiler_options={"xla_backend_optimization_level": 0})
        return program.memory_analysis().temp_size_in_bytes

    sizes = [temporary(steps) for steps in (64, 256, 1024)]
    state = x.nbytes
    growth = np.diff(sizes) / state  # 16 -> 32 -> 64 checkpoints of one or two arrays each
    assert (growth > 8).all(), sizes
    assert growth[0] < 16 * 4, (sizes, state)
    assert growth[1] < 32 * 4, (sizes, state)


@pytest.mark.slow
def test_an_early_end_has_the_derivative_of_the_steps_taken():
    d, p = 2, parameters(2)
    early = Stationary(0.1) | MaxSteps(100)
    end = final(p, d, Euler(0.1), None, None, early)
    taken = int(end.steps)
    assert name_of(end.result) == "stationary"
    assert 5 < taken < 95
    whole = reverse(p, d, Euler(0.1), None, MaxSteps(taken))
    short = reverse(p, d, Euler(0.1), None, early)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14), short, whole)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(short))


def test_adjoints_agree_on_the_run_itself():
    p = parameters(3)
    sols = [final(p, 3, RK4(0.1), None, adjoint) for adjoint in (Unrolled(), Forward())]
    np.testing.assert_allclose(sols[0].mu.x, sols[1].mu.x, atol=1e-14)
    assert int(sols[0].steps) == int(sols[1].steps) == 8
    assert int(sols[0].evaluations) == int(sols[1].evaluations) == 1 + 8 * 4
