"""Run to stationarity: masses and owners through merging, the flow's own end, what the result says."""

import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape._results import name_of
from mflandscape.drifts import Attention, Perceptron
from mflandscape.flows import Forward, MaxSteps, Rosenbrock, Stabilised, Stationary, flow, settle
from mflandscape.flows.settle import choose
from mflandscape.flows.slots import Slots
from mflandscape.gradient import residual
from mflandscape.interactions import CircleFourier
from mflandscape.measure import Measure, empirical, from_angles
from mflandscape.sphere import distance
from mflandscape.stationary import classify

rng = np.random.default_rng(11)


def test_coincident_contracting_particles_become_one():
    """Neighbours through the angle 0 are joined; a pair of which one is not contracting is not; masses add."""
    theta = np.array([1.0, 6.28318530717, 2.0, 2.0 + 5e-7, 1.0 + 5e-7, 1e-12, 4.0, 4.0 + 2e-6])
    w = np.arange(1.0, 9.0) / 36
    slots = Slots.of(from_angles(theta, w), theta)
    contracting = np.array([1, 1, 1, 0, 1, 1, 1, 1], bool)
    joined = slots.merged(theta, contracting, 1e-6)
    assert joined.live == 6 and len(joined.u) == 6 and joined.in_use.all()
    assert joined.owner[0] == joined.owner[4] and joined.owner[1] == joined.owner[5]
    assert len(set(joined.owner[[0, 1, 2, 3, 6, 7]])) == 6
    np.testing.assert_allclose(joined.w, np.bincount(joined.owner, w), rtol=1e-15)
    np.testing.assert_allclose(joined.u[joined.owner[0]], 1.0 + 5e-7 * 5 / 6, atol=1e-15)
    twice = joined.merged(joined.u, np.ones(6, bool), 3e-6)
    assert (twice.live, len(twice.u)) == (4, 6)
    assert not twice.w[4:].any() and (twice.u[4:] == twice.u[0]).all()
    np.testing.assert_allclose(twice.w[:4], np.bincount(twice.owner, w), rtol=1e-15)
    assert twice.merged(twice.u, np.ones(6, bool), 1e-6) is None


def test_coincident_particles_of_the_sphere_become_one():
    x = rng.normal(size=(5, 3))
    x = np.concatenate([x, x[:2] + 1e-7 * rng.normal(size=(2, 3))])
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    joined = Slots.of(empirical(x), x).merged(x, np.ones(7, bool), 1e-6)
    assert joined.live == 5 and joined.owner.tolist() == [0, 1, 2, 3, 4, 0, 1]
    mean = (x[0] + x[5]) / np.linalg.norm(x[0] + x[5])
    np.testing.assert_allclose(joined.u[0], mean, atol=1e-15)


def test_one_cluster():
    """Attention draws what lies within half a circle to one point: `E = 1/(2 beta)`, and nothing is lost on the way."""
    w = rng.uniform(0.5, 1.5, 20)
    mu = from_angles(rng.uniform(-1.2, 1.2, 20) + 0.1, w / w.sum())
    end = settle(Attention(3.0), mu, direction="ascent", tol=1e-11)
    assert name_of(end.result) == "stationary" and end.residual <= 1e-11
    assert end.energy == pytest.approx(1 / 6, rel=1e-12)
    np.testing.assert_array_equal(end.mu.w, mu.w)
    np.testing.assert_array_equal(end.owner, 0)
    np.testing.assert_allclose(end.atoms.w, [1.0], rtol=1e-14)
    assert np.max(distance(end.mu.x, end.atoms.x[end.owner])) < 1e-6
    assert end.splitting.value == pytest.approx(1.0)
    assert end.steps == end.series.step[-1] and end.time == end.series.time[-1]


@pytest.mark.slow
def test_settles_where_the_flow_ends():
    """Unequal masses, ReLU: 110 particles become a few atoms; against `flow` with another method and no merging."""
    w = rng.uniform(0.5, 1.5, 110)
    mu = from_angles(rng.uniform(0, 2 * np.pi, 110), w / w.sum())
    drift = Attention(5.0, interaction=CircleFourier.for_beta(5.0)) + Perceptron(
        np.array([[0.6, 0.8], [-0.9, 0.3]]), np.array([0.9, -0.7])
    )
    end = settle(drift, mu, tol=1e-10)
    assert name_of(end.result) == "stationary"
    assert end.residual == pytest.approx(float(residual(drift, end.mu)[0])) and end.residual <= 1e-10
    assert end.energy == pytest.approx(float(drift(end.mu)), rel=1e-14)
    assert end.atoms.n < 30
    np.testing.assert_allclose(end.atoms.w, np.bincount(end.owner, mu.w), rtol=1e-13)
    assert np.max(distance(end.mu.x, end.atoms.x[end.owner])) < 1e-6
    stop = Stationary(1e-10) | MaxSteps(20_000)
    slow = flow(drift, mu, stop=stop, integrator=Stabilised(1e-4), adjoint=Forward())
    assert name_of(slow.result) == "stationary"
    assert np.max(distance(end.mu.x, slow.mu.x)) < 1e-6
    level = classify(drift, end.atoms, gap=False)
    assert end.splitting.value == pytest.approx(level.splitting.value, abs=1e-12)
    assert end.splitting.lower == pytest.approx(level.splitting.lower, abs=1e-12)
    assert (end.splitting_at.shape, end.kinks) == ((end.atoms.n,), level.kinks)


def test_a_cluster_pressed_on_a_kink_is_tested_on_both_sides():
    """One atom held at a kink's live side by attraction to where the ReLU is dead: stable there, not beyond."""
    drift = Perceptron(np.array([[0.0, 1.0]]), np.array([1.0])) + Attention(1.0)
    mu = from_angles(np.array([1e-9, 1e-9]))
    end = settle(drift, mu, max_steps=1, merge=0.0)
    assert name_of(end.result) == "stationary" and end.kinks == 2
    u = np.exp(0.0)  # attention's part of the Hessian at coincident atoms is -1 on either side
    np.testing.assert_allclose([end.splitting.lower, end.splitting.upper], [-u, 1 - u], atol=1e-6)


def test_which_integrator():
    x = rng.normal(size=(60, 3))
    head = Attention(2.0)
    assert isinstance(choose(head, 2, 10_000, "descent"), Rosenbrock)
    assert isinstance(choose(head, 2, 10_000, "ascent"), Stabilised)
    assert isinstance(choose(head, 3, 60, "descent"), Stabilised)
    assert isinstance(choose(head, 3, 40, "descent"), Rosenbrock)
    assert isinstance(choose(Attention(2.0, matrix=np.eye(2)), 2, 10, "descent"), Stabilised)
    mu = Measure(jnp.asarray(x), jnp.full(60, 1 / 60))
    for wrong in ({"merge": -1.0}, {"merge": 1.0}, {"reach": -1.0}):
        with pytest.raises(ValueError, match="expected 0 <= merge < 0.01"):
            settle(head, mu, **wrong)
