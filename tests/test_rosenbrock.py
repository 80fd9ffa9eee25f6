"""The integrators for stiff flows: order, the flow's own end, unstable particles followed, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from mflandscape._results import name_of
from mflandscape.drifts import Attention, Perceptron, SoftmaxAttention
from mflandscape.ensemble import run_lanes
from mflandscape.flows import (
    RK4,
    Dynamics,
    Euler,
    Forward,
    MaxSteps,
    MaxTime,
    Observe,
    Problem,
    Rosenbrock,
    Stabilised,
    Stationary,
    flow,
)
from mflandscape.flows.solve import solve
from mflandscape.interactions import CircleFourier
from mflandscape.measure import empirical, from_angles
from mflandscape.sphere import distance

rng = np.random.default_rng(7)
MODES = CircleFourier.for_beta(6.0)
THETA = rng.uniform(0, 2 * np.pi, 120)
NEURONS = rng.normal(size=(2, 2)), np.array([0.8, -0.6])


def circle(beta=4.0):
    return Attention(jnp.asarray(beta), interaction=MODES) + Perceptron(*NEURONS, activation="gelu")


def sphere():
    x = rng.normal(size=(9, 3))
    mu = empirical(x / np.linalg.norm(x, axis=1, keepdims=True))
    drift = SoftmaxAttention(jnp.asarray(3.0)) + Perceptron(rng.normal(size=(3, 3)), rng.normal(size=3), None, "tanh")
    return drift, mu


@pytest.mark.parametrize(("name", "order"), [("modes", 3), ("matrix", 3), ("stages", 2)])
def test_order_of_a_step(name, order):
    """One step of length h against the classical method at h/16: the error falls by `2^(order + 1)` with h."""
    drift, mu = (circle(), from_angles(THETA)) if name != "matrix" else sphere()
    dynamics = Dynamics(drift, mu.w, "ascent", mu.d)
    u = dynamics.chart.coordinates(mu.x)
    integrator = Stabilised(1e9) if name == "stages" else Rosenbrock(1e9)
    fine = RK4(1.0)

    @jax.jit
    def error(h):
        du = dynamics.velocity(u)
        memory = integrator.init(dynamics, u, du)
        step = integrator.step(dynamics, u, du, jnp.asarray(jnp.inf), None, _at(memory, h))

        def on(u, _):
            return dynamics.chart.wrap(fine.move(dynamics, u, dynamics.velocity(u), h / 16)), None

        exact = dynamics.chart.points(jax.lax.scan(on, u, None, length=16)[0])
        return jnp.linalg.norm(distance(dynamics.chart.points(step.u), exact)), step.h

    steps = jnp.asarray([0.0125, 0.00625])
    errors, taken = jax.lax.map(error, steps)
    np.testing.assert_array_equal(taken, steps)
    assert abs(np.log2(errors[0] / errors[1]) - (order + 1)) < 0.25, errors


def _at(memory, h):
    return h if not hasattr(memory, "h") else type(memory)(h, memory.rate, memory.vector, memory.age)


def problem(beta, integrator):
    """Ascent to speed 1e-8."""
    stop, observe = Stationary(1e-8) | MaxSteps(40_000), Observe(5, energy=True)
    mu = from_angles(THETA)
    return Problem(circle(beta), mu, stop=stop, direction="ascent", integrator=integrator, observe=observe)


def test_ends_where_euler_does():
    """And the energy never falls on the way."""
    end, slow = (solve(problem(3.0, how), Forward()) for how in (Rosenbrock(first=0.05), Euler(0.1)))
    assert name_of(end.result) == name_of(slow.result) == "stationary"
    assert int(end.steps) < int(slow.steps) / 10
    assert np.max(distance(end.mu.x, slow.mu.x)) < 1e-5
    assert (np.diff(np.asarray(end.series.energy)[: int(end.looked)]) > -1e-12).all()


@pytest.mark.slow
@pytest.mark.parametrize("how", [Rosenbrock(first=0.05), Stabilised()], ids=["rosenbrock", "stabilised"])
def test_lanes_end_where_single_runs_do(how):
    betas = 3.0, 6.0
    build = lambda member: problem(betas[member], how)  # noqa: E731
    for chunk in run_lanes(build, [0, 1], lanes=2, devices=jax.devices()[:1]):
        for done in chunk.finished:
            alone = solve(problem(betas[done.member], how), Forward())
            assert name_of(done.solution.result) == "stationary" and int(done.solution.steps) == int(alone.steps)
            assert np.max(distance(jnp.asarray(done.solution.mu.x), alone.mu.x)) < 1e-9


def test_an_unstable_particle_is_followed():
    """Two masses beside the top of a hill: an L-stable step much longer than `1/rate` would leave them there; steps
    are refused until they are short enough, and the run agrees with SciPy's."""
    theta = np.concatenate([[1.5 * np.pi + 1e-6, 1.5 * np.pi - 1e-6], np.linspace(0.1, 3.0, 118)])
    drift = Attention(jnp.asarray(1.0), interaction=MODES) + Perceptron(np.array([[0.0, -1.0]]), np.array([6.0]))

    def field(t, u):
        gap = u[:, None] - u[None, :]
        attention = -(np.exp(np.cos(gap) - 1) * np.sin(gap)).mean(axis=1)
        return -(attention - 6 * np.maximum(-np.sin(u), 0) * np.cos(u))

    stop = MaxTime(6.0) | MaxSteps(5000)
    end = flow(drift, from_angles(theta), stop=stop, integrator=Rosenbrock(first=50.0), adjoint=Forward())
    exact = from_angles(solve_ivp(field, (0, 6.0), theta, method="DOP853", rtol=1e-9, atol=1e-12).y[:, -1])
    assert float(distance(from_angles(theta).x, exact.x)[0]) > 0.5
    assert np.max(distance(end.mu.x, exact.x)) < 0.05
    times = np.asarray(end.series.time)[: int(end.looked)]
    assert (np.diff(times) == 0).any()


def test_refusals():
    mu, stop = from_angles(THETA), MaxSteps(2)
    x = rng.normal(size=(300, 3))
    above = empirical(x / np.linalg.norm(x, axis=1, keepdims=True))
    for drift, start, sentence in (
        (Attention(1.0), mu, "number of the circle's modes is not known"),
        (Attention(1.0), above, "300 particles of dimension 3: expected at most 256"),
        (Attention(1.0, matrix=np.eye(2)), mu, "Attention: expected a sum of attention heads without a matrix"),
    ):
        with pytest.raises(ValueError, match=sentence):
            flow(drift, start, stop=stop, integrator=Rosenbrock())
    for kind in (Rosenbrock, Stabilised):
        with pytest.raises(ValueError, match="tol = -1.0: expected a finite number > 0"):
            kind(-1.0)
