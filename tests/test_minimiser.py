"""The global minimiser: closed forms, the uniform measure, flows from above, invariance, certificates and refusals."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ive

import mflandscape as mfl
from mflandscape.stationary import count_atoms, minimise, smooth_rival
from mflandscape.stationary.active_set import simplex_minimum
from mflandscape.theory import eigenvalues

RNG = np.random.default_rng(0)
WEIGHTS = [(RNG.normal(size=(3, 2)), RNG.normal(size=3)) for _ in range(4)]
EQUILATERAL = np.stack([np.cos(2 * np.pi * np.arange(3) / 3), np.sin(2 * np.pi * np.arange(3) / 3)], axis=1)


def model(beta, a, omega, name="relu"):
    return mfl.Attention(beta) + mfl.Perceptron(a, omega, activation=name)


@pytest.mark.parametrize("n", [1, 3, 6])
def test_masses_are_those_of_the_best_support(n):
    """Against the enumeration of all supports; the last case is singular."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        root = rng.normal(size=(n, n if seed else max(1, n // 2)))
        k, c = root @ root.T, rng.normal(size=n)
        m = simplex_minimum(k, c)
        values = []
        for size in range(1, n + 1):
            for inside in map(list, itertools.combinations(range(n), size)):
                bordered = np.ones((size + 1, size + 1))
                bordered[:size, :size], bordered[size, size] = k[np.ix_(inside, inside)], 0
                trial = np.linalg.lstsq(bordered, np.append(-c[inside], 1.0), rcond=None)[0][:size]
                if (trial >= 0).all() and abs(trial.sum() - 1) < 1e-9:
                    values.append(trial @ k[np.ix_(inside, inside)] @ trial / 2 + c[inside] @ trial)
        assert m.sum() == pytest.approx(1) and (m >= 0).all()
        assert m @ k @ m / 2 + c @ m == pytest.approx(min(values), abs=1e-12)
        assert (k @ m + c >= m @ (k @ m + c) - 1e-12).all()


@pytest.mark.parametrize("beta", [1e-3, 1.0, 50.0])
def test_without_a_perceptron_the_uniform_measure(beta):
    for d, mean in ((2, ive(0, beta)), (3, float(eigenvalues(beta, 3, 0)))):
        found = minimise(mfl.Attention(beta), d=d)
        assert found.energy == pytest.approx(mean / (2 * beta), rel=1e-12)
        assert found.rigorous and found.gap < 1e-14 / beta and np.linalg.norm(found.mu.w @ found.mu.x) < 1e-14


def test_a_strong_neuron_holds_one_atom():
    """`U(x) = k(x.y) + v/2` is lowest at the atom itself while `1 - 2 |omega|` is negative."""
    found = minimise(model(4.0, np.array([[0.6, 0.8], [1.0, 0], [0, 1.0]]), np.array([-3.0, 0, 0])))
    assert found.mu.n == 1 and found.rigorous and found.gap < 1e-14 and found.converged
    np.testing.assert_allclose(found.mu.x[0], [0.6, 0.8], atol=1e-9)
    assert found.energy == pytest.approx(1 / 8 - 3 / 2, rel=1e-14)
    assert found.multiplier == pytest.approx(1 / 4 - 3 / 2, rel=1e-14)


def test_two_atoms_of_a_symmetric_well():
    """A neuron of weight `-w` along the first axis: two atoms at angles `+-t` where `sin(2t) e^{beta (cos 2t - 1)}
    = w sin(2t)`, so `cos 2t = 1 + log(w)/beta`.
    """
    beta, w = 25.0, 0.4
    found = minimise(model(beta, np.array([[1.0, 0], [0, 1], [0, 1]]), np.array([-w, 0, 0])))
    angle = np.arccos(1 + np.log(w) / beta) / 2
    assert found.rigorous and found.mu.n == 2
    np.testing.assert_allclose(np.sort(np.arctan2(found.mu.x[:, 1], found.mu.x[:, 0])), [-angle, angle], rtol=1e-10)
    np.testing.assert_allclose(found.mu.w, 0.5, rtol=1e-10)


@pytest.mark.parametrize("name", ["relu", pytest.param("gelu", marks=pytest.mark.slow)])
def test_certificates_and_everything_else_is_higher(name):
    x = mfl.uniform(jax.random.key(0), 4000, 2).x
    for (a, omega), beta in itertools.product(WEIGHTS[:2], (1.0, 50.0)):
        energy = model(beta, a, omega, name)
        found = minimise(energy)
        assert found.rigorous and found.converged and found.gap <= 1e-12 * found.scale and found.iterations < 20
        assert found.energy == pytest.approx(float(energy(found.mu)), rel=1e-14)
        u = energy.potential(x, found.mu)
        assert float(jnp.min(u)) >= found.multiplier - found.gap - 1e-14
        np.testing.assert_allclose(energy.potential(found.mu.x, found.mu), found.multiplier, atol=2e-12 * found.scale)
        other = mfl.empirical(jnp.concatenate([found.mu.x, x[:5]]), jnp.append(0.9 * found.mu.w, jnp.full(5, 0.02)))
        assert float(energy(other)) > found.energy


@pytest.mark.slow
def test_a_long_descent_ends_above():
    energy = model(5.0, *WEIGHTS[0], "gelu")
    fast = mfl.Attention(5.0, interaction=mfl.CircleFourier.for_beta(5.0))
    fast = fast + mfl.Perceptron(*WEIGHTS[0], activation="gelu")
    start = mfl.from_angles(jnp.asarray((np.arange(400) + 0.5) * 2 * np.pi / 400))
    end = mfl.flow(fast, start, stop=mfl.MaxSteps(4000), observe=mfl.Observe(500))
    found = minimise(energy)
    assert -found.gap <= float(energy(end.mu)) - found.energy < 0.02 * found.scale


def test_turned_with_its_weights():
    a, omega = WEIGHTS[1]
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    one, other = minimise(model(25.0, a, omega)), minimise(model(25.0, a @ turn.T, omega))
    assert one.energy == pytest.approx(other.energy, abs=1e-13) and one.mu.n == other.mu.n
    np.testing.assert_allclose(one.mu.x @ turn.T, other.mu.x, atol=1e-7)


def test_on_a_sphere():
    a = np.random.default_rng(1).normal(size=(3, 3))
    found = minimise(model(5.0, a, np.array([-1.0, 0.5, -0.7])))
    assert found.rigorous and found.gap <= 1e-9 * found.scale and found.cells > 0


@pytest.mark.slow
def test_an_activation_without_bounds_proves_nothing():
    custom = minimise(mfl.Attention(2.0) + mfl.Perceptron(*WEIGHTS[0], activation=jnp.sin))
    assert not custom.rigorous and "not bounded" in custom.why_not


@pytest.mark.slow
def test_above_three_dimensions_nothing_is_proved():
    alone = minimise(mfl.Attention(0.5), d=4, tol=1e-6, max_iterations=3)
    assert not alone.rigorous and "d > 3" in alone.why_not
    assert alone.energy >= float(eigenvalues(0.5, 4, 0)) / (2 * 0.5) - 1e-14


def test_counts_at_three_gaps():
    found = count_atoms(model(1.0, *WEIGHTS[0]))
    assert found.resolved and len(set(found.counts)) == 1 and found.uniform_excess > 0
    assert [f.mu.n for f in found.minima] == list(found.counts)


def test_what_is_not_a_certificate_says_so():
    flat = minimise(model(0.0, *WEIGHTS[0]))
    assert not flat.rigorous and "beta = 0" in flat.why_not
    short = minimise(model(1.0, *WEIGHTS[0]), budget=60)
    assert not short.rigorous and "left open" in short.why_not and short.gap > 0


@pytest.mark.parametrize(
    ("energy", "given", "message"),
    [
        (lambda: mfl.Attention(1.0), {}, "no dimension"),
        (lambda: mfl.Perceptron(*WEIGHTS[0]), {}, "no Attention"),
        (lambda: model(1.0, *WEIGHTS[0]), {"d": 3}, "dimension"),
        (lambda: model(1.0, *WEIGHTS[0]), {"tol": 0.0}, "tol = 0.0"),
        (lambda: mfl.Attention(1.0, self_interaction=False), {"d": 2}, "self_interaction"),
        (lambda: mfl.Attention(1.0, matrix=np.diag([1.0, -0.5])), {}, "not positive definite"),
        (lambda: mfl.Attention(jnp.asarray(1.0, jnp.float32)), {"d": 2}, "single precision"),
    ],
)
def test_refusals(energy, given, message):
    with pytest.raises(ValueError, match=message):
        minimise(energy(), **given)


def test_refuses_traced_parameters():
    with pytest.raises(ValueError, match="traced"):
        jax.jit(lambda beta: minimise(mfl.Attention(beta), d=2).energy)(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relu", "gelu"])
@pytest.mark.parametrize("beta", [1.0, 5.0, 25.0, 50.0])
def test_fifty_random_weights_on_the_circle(beta, name):
    rng = np.random.default_rng(0)
    for _ in range(50):
        a, omega = rng.normal(size=(3, 2)), rng.normal(size=3)
        found = minimise(model(beta, a, omega, name))
        assert found.rigorous and found.gap < 1e-10 * found.scale


@pytest.mark.slow
@pytest.mark.parametrize("beta", [1.0, 5.0, 25.0])
def test_twenty_random_weights_on_the_sphere(beta):
    rng = np.random.default_rng(0)
    rigorous = 0
    for member in range(20):
        a, omega = rng.normal(size=(3, 3)), rng.normal(size=3)
        found = minimise(model(beta, a, omega, ("relu", "gelu")[member % 2]))
        assert found.gap < 1e-8 * found.scale
        rigorous += found.rigorous
    assert rigorous >= 15


@pytest.mark.slow
def test_a_smooth_rival_is_above_by_at_most_its_gap():
    """ReLU weakened by `e^{-5}`: a positive density comes within 3e-5; `minimise` finds a measure that is lower."""
    a, omega = WEIGHTS[0]
    energy = model(5.0, a, omega * np.exp(-5.0))
    found, rival = minimise(energy), smooth_rival(energy)
    theta = 2 * np.pi * np.arange(512) / 512
    waves = np.exp(1j * np.arange(1, len(rival.coefficients) + 1)[:, None] * theta)
    density = 1 + 2 * np.real(rival.coefficients @ waves)
    excess = float(energy(mfl.from_angles(jnp.asarray(theta), jnp.asarray(density / 512)))) - found.energy
    assert density.min() == pytest.approx(rival.least, abs=1e-3) and rival.least >= 0
    assert 0 < excess <= rival.gap < 1e-4 * found.scale
    smooth = smooth_rival(model(8.0, a, omega * np.exp(-8.0), "gelu"))
    assert smooth.gap < 1e-15 and smooth.least > 0.1
    assert len(smooth_rival(model(1.0, a, 0 * omega)).coefficients) == 0
    for other in (mfl.Attention(0.0), mfl.Perceptron(a, omega), mfl.Attention(1.0, matrix=np.eye(2))):
        with pytest.raises(ValueError, match="rivals|matrix"):
            smooth_rival(other)
