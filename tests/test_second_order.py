"""The Wasserstein Hessian's spectrum: closed forms, autodiff, finite differences, Lanczos beside dense, null spaces."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mflandscape as mfl
from mflandscape.interactions import choose_interaction
from mflandscape.measure import empirical, equispaced, from_angles
from mflandscape.stationary.coordinates import components, displaced, jet, wasserstein_hessian
from mflandscape.stationary.null_space import dead_atoms
from mflandscape.stationary.second_order import hessian, hessian_spectrum

BETA = 3.0


def k2(t, beta):
    return (beta * np.sin(t) ** 2 - np.cos(t)) * np.exp(beta * (np.cos(t) - 1))


def perceptron(d, *, turn=None):
    rng = np.random.default_rng(d)
    a = rng.standard_normal((3, d))
    return mfl.Perceptron(a if turn is None else a @ turn.T, rng.standard_normal(3), np.array([0.1, -0.3, 0.2]), "tanh")


def points(n, d, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    w = rng.uniform(0.5, 1.5, n)
    return empirical(x / np.linalg.norm(x, axis=1, keepdims=True), w / w.sum())


def simplex(d):
    """The d + 1 corners of the regular simplex."""
    x = np.linalg.svd(np.eye(d + 1) - 1 / (d + 1))[2][:d].T
    return empirical(x / np.linalg.norm(x, axis=1, keepdims=True))


def embedded(mu, d):
    return empirical(np.pad(np.asarray(mu.x), ((0, 0), (0, d - mu.d))), mu.w)


# Closed forms


@pytest.mark.parametrize("k, direction", [(2, "descent"), (5, "descent"), (5, "ascent")])
def test_equispaced_atoms_have_a_circulant_hessian(k, direction):
    found = hessian_spectrum(mfl.Attention(BETA), equispaced(k), direction=direction)
    angles = 2 * math.pi / k * np.arange(k)
    rates = [(k2(angles, BETA) * (1 - np.cos(q * angles))).sum() / k for q in range(k)]
    expected = np.sort(rates if direction == "descent" else np.negative(rates))
    np.testing.assert_allclose(found.eigenvalues, expected, atol=2e-16)
    assert (found.null.dimension, found.null.rotation, found.null.other) == (1, 1, 0)
    assert found.method == "dense" and found.symmetric and found.asymmetry < 1e-15 and found.residual < 1e-16


@pytest.mark.parametrize("d", [2, 3])
def test_antipodal_atoms_of_unequal_mass(d):
    mu = embedded(from_angles(np.array([0.3, 0.3 + math.pi]), np.array([0.2, 0.8])), d)
    found = hessian_spectrum(mfl.Attention(BETA), mu)
    np.testing.assert_allclose(found.eigenvalues, np.repeat([0, math.exp(-2 * BETA)], d - 1), atol=2e-16)
    assert found.null.rotation == found.null.dimension == d - 1


def test_pair_formula_on_the_circle():
    """MATH, section 6: the form with `k2` between all pairs and `v''` at each atom."""
    mu, energy = points(5, 2), mfl.Attention(BETA) + perceptron(2)
    t, m = np.asarray(mfl.sphere.to_angle(mu.x)), np.asarray(mu.w)
    pairs = k2(t[:, None] - t[None, :], BETA) * m[:, None] * m[None, :]
    v = lambda s: 2 * perceptron(2).potential(mfl.sphere.from_angle(s[None]), mu)[0]  # noqa: E731
    bend = jax.jit(jax.vmap(jax.hessian(v)))(t)
    form = np.diag(pairs.sum(axis=1) + m * np.asarray(bend) / 2) - pairs
    expected = np.linalg.eigvalsh(form / np.sqrt(m[:, None] * m[None, :]))
    np.testing.assert_allclose(hessian_spectrum(energy, mu).eigenvalues, expected, atol=1e-15)


# Second methods


@pytest.mark.parametrize("d", [2, 3, 5])
def test_agrees_with_autodiff_and_differences_of_the_energy(d):
    """In normal coordinates, and along geodesics through the two lowest eigenvectors; a massless point."""
    mu, energy = points(5, d), mfl.Attention(BETA) + perceptron(d)
    n = mu.n * (d - 1)
    value = jax.jit(lambda u: energy(mu.at(displaced(mu.x, u.reshape(mu.n, d - 1)))))
    root = np.repeat(np.sqrt(np.asarray(mu.w)), d - 1)
    matrix = np.asarray(jax.jit(jax.hessian(value))(jnp.zeros(n))) / root[:, None] / root[None, :]
    heavy = empirical(jnp.concatenate([mu.x, mu.x[:1]]), jnp.append(mu.w, 0.0))
    found = hessian_spectrum(energy, heavy)
    np.testing.assert_allclose(found.eigenvalues, np.linalg.eigvalsh(matrix), atol=2e-15)
    assert found.massless == 1 and found.eigenvectors.shape == (min(6, n), 6, d)
    assert not np.asarray(found.eigenvectors)[:, -1].any()
    for eigenvalue, xi in zip(found.eigenvalues[:2], found.eigenvectors[:2], strict=True):
        np.testing.assert_allclose((heavy.w[:, None] * xi * xi).sum(), 1, atol=1e-14)
        step = 1e-3 * np.asarray(components(mu.x, xi[:-1])).reshape(-1)
        along = [float(value(s * step)) for s in (-1, 0, 1)]
        np.testing.assert_allclose((along[0] - 2 * along[1] + along[2]) / 1e-6, eigenvalue, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("direction", ["descent", "ascent"])
def test_sum_over_pairs_is_the_covariant_jacobian(direction):
    mu, energy = points(5, 3), mfl.Attention(BETA, self_interaction=False) + mfl.Attention(1.0) + perceptron(3)
    general = np.asarray(wasserstein_hessian(energy, mu))
    found = hessian(energy, mu, direction).matrix
    np.testing.assert_allclose(found, general if direction == "descent" else -general, atol=1e-15)


@pytest.mark.parametrize(
    "attention, mu, number", [(mfl.Attention(BETA), points(40, 3), 6), (mfl.SoftmaxAttention(BETA), points(6, 2), 2)]
)
def test_lanczos_beside_dense(attention, mu, number):
    drift = attention + perceptron(mu.d)
    dense, few = hessian_spectrum(drift, mu), hessian_spectrum(drift, mu, number=number)
    assert (few.method, few.converged, few.null.complete) == ("lanczos", True, False)
    np.testing.assert_allclose(few.eigenvalues, dense.eigenvalues[:number], atol=1e-12)
    np.testing.assert_allclose(few.scale, dense.scale, rtol=1e-3)
    overlaps = np.einsum("vnd,vnd,n->v", few.eigenvectors, dense.eigenvectors[:number], mu.w)
    np.testing.assert_allclose(np.abs(overlaps), 1, atol=1e-6)
    assert math.isnan(few.smallest_real_part) is not few.symmetric and math.isnan(few.asymmetry)


def test_lanczos_on_the_circle_in_modes():
    """Two thousand and one unknowns: by products, without being asked."""
    n = 2001
    mu = equispaced(n)
    found = hessian_spectrum(mfl.Attention(BETA, interaction=choose_interaction(2, n, BETA)), mu, direction="ascent")
    angles = 2 * math.pi / n * np.arange(n)
    rates = np.sort([-(k2(angles, BETA) * (1 - np.cos(q * angles))).sum() / n for q in range(40)] * 2)
    assert found.method == "lanczos" and found.converged
    np.testing.assert_allclose(found.eigenvalues[:8], rates[:8], atol=1e-9)


def test_softmax_is_not_symmetric():
    """Against central differences of the angular velocities; in the metric the symmetric part bounds the real parts."""
    mu, drift = points(6, 2), mfl.SoftmaxAttention(BETA) + perceptron(2)
    t, m = mfl.sphere.to_angle(mu.x), np.asarray(mu.w)

    @jax.jit
    def speed(t):
        x = mfl.sphere.from_angle(t)
        return mfl.sphere.AngleChart().components(x, mfl.velocity(drift, mu.at(x), "ascent"))

    steps = 1e-5 * np.eye(6)
    jacobian = np.stack([(speed(t + e) - speed(t - e)) / 2e-5 for e in steps], axis=1)
    scaled = -jacobian * np.sqrt(m[:, None] / m[None, :])
    found = hessian_spectrum(drift, mu, direction="ascent")
    np.testing.assert_allclose(found.eigenvalues, np.linalg.eigvalsh((scaled + scaled.T) / 2), atol=1e-8)
    np.testing.assert_allclose(found.smallest_real_part, np.linalg.eigvals(scaled).real.min(), atol=1e-8)
    assert not found.symmetric and found.asymmetry > 1e-2 and found.eigenvalues[0] < found.smallest_real_part


# Structure


@pytest.mark.parametrize(
    "mu, dimension",
    [
        (embedded(equispaced(3), 4), 5),
        (embedded(equispaced(2), 3), 2),
        (simplex(5), 10),
    ],
)
def test_rotations_less_the_stabiliser(mu, dimension):
    found = hessian_spectrum(mfl.Attention(1.0), mu)
    assert found.residual < 1e-15
    assert found.null.rotation == dimension and found.null.other == found.null.dimension - dimension


def test_dead_zone():
    """A live atom at the bottom of a dead-sided valley, two frozen ones: they may move, or turn around the live one."""
    x = np.array([[0.0, 0, 1], [0.6, 0, -0.8], [0, -0.8, -0.6]])
    energy = mfl.Perceptron(np.array([[0.0, 0, 1], [0, 0, 2]]), np.array([-1.0, -0.5]))
    found = hessian_spectrum(energy, empirical(x))
    np.testing.assert_allclose(found.eigenvalues, [0, 0, 0, 0, 3, 3], atol=1e-15)
    null = found.null
    assert (null.dimension, null.rotation, null.dead_zone, null.other) == (4, 1, 4, 0)
    assert dead_atoms(energy, jnp.asarray(x)).tolist() == [False, True, True]
    assert not dead_atoms(energy + perceptron(3), jnp.asarray(x)).any()
    assert not dead_atoms(mfl.Attention(1.0), jnp.asarray(x)).any()
    few = hessian_spectrum(energy, empirical(x), number=3)
    assert few.null.dimension <= 4 and few.null.rotation == 1 and not few.null.complete


@pytest.mark.parametrize("d", [3, 5])
def test_turning_atoms_and_weights_together_changes_nothing(d):
    turn = np.linalg.qr(np.random.default_rng(9).standard_normal((d, d)))[0]
    mu = points(5, d)
    one = hessian_spectrum(mfl.Attention(BETA) + perceptron(d), mu)
    other = hessian_spectrum(mfl.Attention(BETA) + perceptron(d, turn=turn), mu.at(mu.x @ turn.T))
    np.testing.assert_allclose(one.eigenvalues, other.eigenvalues, atol=2e-15)


def test_coincident_halves_have_the_atoms_eigenvalues_and_those_of_splitting():
    mu, energy = points(5, 3), mfl.Attention(BETA) + perceptron(3)
    halves = empirical(jnp.concatenate([mu.x, mu.x]), jnp.concatenate([mu.w, mu.w]) / 2)
    splitting = np.linalg.eigvalsh(jax.jit(jet)(energy, mu.x, mu)[2]).reshape(-1)
    expected = np.sort(np.concatenate([hessian_spectrum(energy, mu).eigenvalues, splitting]))
    np.testing.assert_allclose(hessian_spectrum(energy, halves).eigenvalues, expected, atol=1e-14)


def test_single_precision_follows_the_points():
    mu = equispaced(3, jnp.float32)
    found = hessian_spectrum(mfl.Attention(jnp.float32(BETA)), mu)
    assert found.eigenvalues.dtype == found.eigenvectors.dtype == jnp.float32
    assert found.null.rotation == found.null.dimension == 1 and found.cutoff > 1e-6 * found.scale


@pytest.mark.parametrize(
    "change, message",
    [
        ({"number": 0}, "number = 0: expected at least one"),
        ({"tol": -1.0}, "tol = -1.0: expected a share"),
        ({"mu": mfl.Measure(jnp.full((2, 2), jnp.nan), jnp.ones(2) / 2)}, "points that are not finite"),
        ({"mu": points(3, 3), "drift": mfl.Attention(1.0) + perceptron(2)}, "weights of dimension 2"),
    ],
)
def test_refuses_what_it_cannot_take(change, message):
    given = {"drift": mfl.Attention(1.0), "mu": equispaced(2)} | change
    with pytest.raises(ValueError, match=message):
        hessian_spectrum(given.pop("drift"), given.pop("mu"), **given)
