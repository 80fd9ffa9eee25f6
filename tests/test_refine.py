"""From clouds to atoms to critical points: masses, residuals, kinks, jumps, what does not settle, what is refused.

data/gelu_circle_ends.npz holds the end states of the published code's descent with a GeLU perceptron on the circle.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape.clusters import find_clusters
from mflandscape.drifts import Attention, FreePerceptron, Perceptron, SoftmaxAttention
from mflandscape.flows import Euler, MaxSteps, Stationary, flow
from mflandscape.gradient import residual, velocity
from mflandscape.interactions import CircleFourier
from mflandscape.measure import Measure, empirical, from_angles, uniform
from mflandscape.sphere import distance
from mflandscape.stationary.merge import merge
from mflandscape.stationary.newton import newton
from mflandscape.stationary.refine import refine

ENDS = np.load(Path(__file__).parent / "data" / "gelu_circle_ends.npz")
CLUSTERS = dict(zip(ENDS["beta"].tolist(), [2, 2, 3, 3, 3, 4, *[3] * 7], strict=True))
QUICK = (1.0, 50.0)
FLAT = 3.0  # where particles in a flat well have not met yet: the flow needs 150 000 more steps to the same 4 atoms


def published(beta, interaction=None):
    cloud = from_angles(ENDS["angle"][ENDS["beta"].tolist().index(beta)])
    attention = Attention(beta, interaction=interaction)
    return attention + Perceptron(ENDS["a"], ENDS["omega"], activation="gelu"), cloud


def neurons(a, omega, activation="relu"):
    return Perceptron(np.array(a), np.array(omega), activation=activation)


def on_circle(theta, w=None):
    return from_angles(np.array(theta), None if w is None else np.asarray(w))


def angles(mu):
    return np.arctan2(np.asarray(mu.x)[:, 1], np.asarray(mu.x)[:, 0])


def cloud(*centres, spread=1e-4, n=10, seed=0):
    rng = np.random.default_rng(seed)
    return from_angles(np.concatenate([c + spread * rng.uniform(-1, 1, n) for c in centres]))


@pytest.mark.parametrize(
    "beta", [pytest.param(b, marks=[pytest.mark.slow] * (b not in QUICK)) for b in ENDS["beta"].tolist()]
)
def test_published_ends_are_refined_to_rounding(beta):
    drift, mu = published(beta)
    found = refine(drift, mu)
    assert found.converged and found.residual <= 1e-12 and found.other_basin == (beta == FLAT)
    assert found.mu.n == CLUSTERS[beta] and found.unresolved_mass == 0 and found.massless == 0
    fourier, _ = published(beta, CircleFourier.for_beta(beta))
    assert float(residual(fourier, found.mu)[0]) < 2e-12  # another evaluator
    assert found.energy <= found.energy_before and found.growth < 0
    assert 1e-5 < found.residual_before < 1e-4
    np.testing.assert_allclose(np.bincount(found.owner) / 500, found.mu.w, rtol=1e-14)
    np.testing.assert_allclose(jnp.sum(found.mu.w), 1, rtol=1e-14)
    np.testing.assert_array_equal(np.bincount(found.owner), found.merged)
    assert np.max(found.moved) < (0.02 if beta == FLAT else 1e-4)


@pytest.mark.slow
def test_the_flow_ends_where_refine_says():
    drift, mu = published(50.0, CircleFourier.for_beta(50.0))
    found = refine(drift, mu)
    end = flow(drift, mu, stop=Stationary(1e-13) | MaxSteps(3000), integrator=Euler(0.1)).mu
    assert float(jnp.max(distance(end.x, found.mu.x[found.owner]))) < 1e-9


def test_merging_keeps_masses_and_follows_single_linkage():
    rng = np.random.default_rng(1)
    w = rng.uniform(size=60)
    w[[3, 17]] = 0
    mu = empirical(uniform(jax.random.key(0), 60, 3).x, w / w.sum())
    merged = merge(mu, 0.3)
    heavy = np.flatnonzero(w > 0)
    expected = find_clusters(Measure(mu.x[heavy], mu.w[heavy]), 0.3, rule="linkage")
    np.testing.assert_array_equal(np.asarray(merged.owner)[heavy], expected.labels)
    np.testing.assert_allclose(merged.mu.w, expected.masses, rtol=1e-14)
    np.testing.assert_allclose(merged.mu.x, expected.centres, atol=1e-14)
    assert merged.massless == 2 and np.asarray(merged.owner)[3] == -1
    far = np.asarray(distance(mu.x[heavy], merged.mu.x[np.asarray(merged.owner)[heavy]])).max()
    assert float(jnp.max(merged.spread)) == pytest.approx(far, rel=1e-12)
    again = merge(merged.mu, 1e-12)
    np.testing.assert_array_equal(again.mu.x, merged.mu.x)
    np.testing.assert_array_equal(again.mu.w, merged.mu.w)
    pair = merge(on_circle([0.0, np.pi]), np.pi)  # no mean direction: the first of them
    np.testing.assert_array_equal(pair.mu.x, [[1.0, 0.0]])


@pytest.mark.slow
def test_newton_converges_quadratically_beside_a_maximum_of_one_neuron():
    drift = Attention(2.0) + neurons([[3.0, 4.0]], [1.0])
    start = on_circle(np.arctan2(4, 3) + np.array([0.1, -0.05, 0.02]))
    residuals = [float(newton(drift, start, max_steps=k).residual) for k in range(1, 5)]
    assert residuals[-1] < 1e-14 and residuals[1] < residuals[0] ** 1.8
    np.testing.assert_allclose(newton(drift, start).x, [[0.6, 0.8]] * 3, atol=1e-14)


@pytest.mark.slow
def test_two_atoms_close_together_are_not_merged_into_one():
    """Repulsion against a well: `m sin t e^{beta (cos t - 1)}` holds two atoms about 0.05 apart, in closed form."""
    gap, beta = 0.05, 50.0
    force = np.exp(beta * (np.cos(gap) - 1)) * np.sin(gap) / 2
    slope = lambda t: -np.asarray(neurons([[1.0, 0.0]], [1.0], activation="gelu").field(  # noqa: E731
        on_circle([t]).x, on_circle([t])))[0] @ [-np.sin(t), np.cos(t)]  # fmt: skip
    drift = Attention(beta) + neurons([[1.0, 0.0]], [-force / slope(gap / 2)], activation="gelu")
    found = refine(drift, cloud(gap / 2, -gap / 2))
    assert found.converged and found.mu.n == 2 and not found.other_basin and found.merge_tolerance <= 0.01
    np.testing.assert_allclose(np.sort(angles(found.mu)), [-gap / 2, gap / 2], atol=1e-12)
    merged = refine(drift, cloud(gap / 2, -gap / 2), merge_tolerance=0.1)
    assert merged.mu.n == 1 and merged.other_basin and merged.energy > merged.energy_before


@pytest.mark.slow
def test_atoms_that_collide_on_the_way_merge():
    drift = Attention(2.0) + neurons([[1.0, 0.0]], [1.0], activation="gelu")
    found = refine(drift, cloud(0.0, spread=1e-2, n=7), merge_tolerance=1e-5, direction="ascent")
    assert found.converged and found.mu.n == 1 and int(found.merged[0]) == 7 and found.growth < 0
    assert abs(angles(found.mu)[0]) < 1e-12 and not found.other_basin


@pytest.mark.parametrize("start, live", [(1e-4, True), (-1e-4, False)])
def test_an_atom_pressed_against_a_kink_settles_beside_it(start, live):
    """Zeros lie 4.3e-9 on the live side of neuron 0's kink, stable, and 1e-8 on the dead side, where the second
    derivative has the other sign: from there the flow runs away.
    """
    tilt = 1e-8
    drift = Attention(1.0) + neurons([[0.0, 1.0], [np.cos(tilt), -np.sin(tilt)]], [1.0, 0.3])
    found = refine(drift, on_circle([start]))
    assert found.converged and found.residual <= 1e-12 and found.other_basin != live
    np.testing.assert_array_equal(found.kinks, [[0, 0]])
    assert angles(found.mu)[0] == pytest.approx(0.3 * tilt / 0.7 if live else -tilt, abs=2e-12)
    assert found.growth == pytest.approx(-0.7 if live else 0.3, rel=1e-6)


def step(s):
    return jnp.where(s > 0, jnp.ones_like(s), jnp.full_like(s, -0.5))


def test_an_atom_between_the_sides_of_a_jump_is_stationary_in_the_sense_of_clarke():
    drift = Attention(1.0) + neurons([[0.0, 1.0]], [1.0], activation=step)
    found = refine(drift, cloud(0.01, spread=1e-5))
    assert found.converged and found.clarke.tolist() == [True] and abs(angles(found.mu)[0]) < 1e-12
    assert found.residual > 0.1 and found.unresolved_mass == 0 and found.moved[0] == pytest.approx(0.01, abs=1e-4)


def test_what_does_not_settle_is_said_with_its_true_residual():
    drift, mu = Attention(1.0) + neurons([[0.0, 1.0]], [1.0]), on_circle([0.2, 0.2, 1.2], [0.25, 0.25, 0.5])
    found = refine(drift, mu, max_steps=1)
    assert not found.converged and found.unsettled.any()
    truth = float(residual(drift, found.mu)[0])
    assert found.residual == pytest.approx(truth, rel=1e-12) and truth > 1e-12
    assert found.unresolved_mass == pytest.approx(float(jnp.sum(jnp.where(found.unsettled, found.mu.w, 0.0))))


@pytest.mark.slow
def test_others_settle_beside_an_atom_that_is_held():
    drift, mu = published(10.0)
    atoms = refine(drift, mu).mu
    pushed = on_circle(angles(atoms) + np.array([0.3, 1e-3, 1e-3]), atoms.w)
    found = newton(drift, pushed, free=jnp.asarray([False, True, True]))
    np.testing.assert_array_equal(found.x[0], pushed.x[0])
    assert bool(found.converged)
    speeds = np.linalg.norm(velocity(drift, pushed.at(found.x)), axis=1)
    assert speeds[0] > 1e-3 and speeds[1:].max() < 1e-12 and found.residuals[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["energy", "softmax-free"])
def test_on_the_sphere_and_without_an_energy(kind):
    rng = np.random.default_rng(3)
    a, w = rng.normal(size=(2, 3, 3))
    if kind == "energy":
        drift, direction = Attention(4.0) + neurons(a, [1.0, 0.5, -1.0], activation="gelu"), "descent"
    else:
        drift, direction = SoftmaxAttention(4.0) + FreePerceptron(a, a + 0.3 * w, activation="gelu"), "ascent"
    end = flow(drift, uniform(jax.random.key(1), 12, 3), stop=Stationary(1e-5) | MaxSteps(20_000), direction=direction)
    found = refine(drift, end.mu, direction=direction)
    assert found.converged and found.residual <= 1e-12 and float(residual(drift, found.mu)[0]) < 2e-12
    assert np.isfinite(found.energy) == (kind == "energy")
    assert float(jnp.max(distance(end.mu.x, found.mu.x[found.owner]))) < 1e-2


def test_bad_input_is_refused():
    drift, mu = Attention(1.0), on_circle([0.0, 1.0])
    for keywords, message in (
        ({"tol": 0.0}, "tol = 0.0, max_steps = 100: expected tol > 0"),
        ({"max_steps": 0}, "at least one step"),
        ({"merge_tolerance": 4.0}, "tolerance = 4.0: expected an angle"),
    ):
        with pytest.raises(ValueError, match=message):
            refine(drift, mu, **keywords)
    with pytest.raises(ValueError, match="points of dimension 2"):
        refine(drift + Perceptron(np.eye(3), np.ones(3)), mu)
    with pytest.raises(ValueError, match="not finite"):
        merge(Measure(mu.x * jnp.nan, mu.w), 0.1)
    with pytest.raises(ValueError, match="no particle has mass"):
        merge(Measure(mu.x, jnp.zeros(2)), 0.1)
