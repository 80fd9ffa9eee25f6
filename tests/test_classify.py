"""Classes and three levels of stability: closed forms, a kink seen from both sides, clouds, drifts without energy."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import mflandscape as mfl
from mflandscape.interactions import choose_interaction
from mflandscape.measure import empirical, equispaced, from_angles
from mflandscape.stationary import second_order
from mflandscape.stationary.classify import classify, frank_wolfe_gap, strictly_convex

BETA = 2.0


def atom(d):
    return empirical(np.eye(d)[:1])


def well(d, omega, beta=BETA):
    """A ReLU along the first axis: `v/2 = omega/2 max(x_1, 0)^2`."""
    return mfl.Attention(beta) + mfl.Perceptron(np.eye(d)[:1], np.array([omega]))


@pytest.fixture(scope="module")
def pressed():
    """Two atoms, the first 1e-9 on the live side of a kink at the angle 0; weights that make them stationary."""
    t, m, beta = np.array([1e-9, 2.0]), np.array([0.5, 0.5]), 5.0
    axes = np.array(
        [[0, 1], [math.cos(2), math.sin(2)], [math.cos(0.6), math.sin(0.6)], [math.cos(2.3), math.sin(2.3)]]
    )
    x = np.stack([np.cos(t), np.sin(t)], axis=1)
    push = np.maximum(x @ axes.T, 0) * (np.stack([-np.sin(t), np.cos(t)], axis=1) @ axes.T)
    gaps = t[:, None] - t[None, :]
    attention = (-np.sin(gaps) * np.exp(beta * (np.cos(gaps) - 1))) @ m
    fixed = np.array([0.79, -3.0])
    omega = np.append(fixed, np.linalg.solve(push[:, 2:], -attention - push[:, :2] @ fixed))
    return mfl.Attention(beta) + mfl.Perceptron(axes, omega), t, m


# Closed forms


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize(
    "omega, kind, optimal", [(-3.0, "strictly SOPD", True), (-0.5, "strictly SOPD", False), (0.5, "saddle", False)]
)
def test_one_atom_in_a_well(d, omega, kind, optimal):
    """Transport `-omega`, splitting `-1 - omega`, and `U` known along a great circle."""
    found = classify(well(d, omega), atom(d))
    angles = np.linspace(0, math.pi, 200_001)
    u = np.exp(BETA * (np.cos(angles) - 1)) / BETA + omega / 2 * np.maximum(np.cos(angles), 0) ** 2
    assert (found.kind, found.stationary, found.kinks) == (kind, True, 0)
    np.testing.assert_allclose([found.smallest_eigenvalue, found.splitting.value], [-omega, -1 - omega], rtol=1e-14)
    assert found.splitting_stable is (omega < -1) and found.spectrum.null.dimension == 0
    np.testing.assert_allclose(found.gap.value, u[0] - u.min(), rtol=1e-9, atol=1e-11)
    assert found.gap.optimal is optimal and found.gap.stable is optimal
    assert found.gap.rigorous and found.gap.certificate


def test_ascent_has_no_certificate():
    """A Dirac at the maximum of v: every level holds, but a gap of 0 proves no maximum of a convex energy."""
    found = classify(well(2, 0.5), atom(2), direction="ascent")
    np.testing.assert_allclose([found.smallest_eigenvalue, found.splitting.value], [0.5, 1.5], rtol=1e-14)
    assert found.kind == "strictly SOPD" and found.gap.stable and not found.gap.certificate
    assert found.gap.optimal is None
    worse = classify(well(2, -3.0), atom(2), direction="ascent")
    assert worse.kind == "saddle" and worse.gap.optimal is False
    np.testing.assert_allclose(worse.gap.value, math.exp(-BETA) / BETA - (1 / BETA - 1.5), rtol=1e-2)


def test_rotation_makes_degenerate_and_motion_makes_not_stationary():
    triangle = classify(mfl.Attention(BETA), equispaced(3), gap=False)
    assert triangle.kind == triangle.hessian_kind == "degenerate" and triangle.gap is None
    assert triangle.spectrum.null.rotation == 1 and not triangle.one_sided
    moving = classify(mfl.Attention(BETA), from_angles(np.array([0.0, 2.0, 4.0])), gap=False)
    speed = mfl.residual(mfl.Attention(BETA), from_angles(np.array([0.0, 2.0, 4.0])))[0]
    assert moving.kind == "not stationary" and moving.hessian_kind in ("degenerate", "saddle", "strictly SOPD")
    np.testing.assert_allclose(moving.residual, speed, rtol=1e-14)
    assert classify(mfl.Attention(BETA), moving_to(1e-3), gap=False, stationary_tol=1e-2).stationary


def moving_to(angle):
    return from_angles(np.array([angle, 2 * math.pi / 3, 4 * math.pi / 3]))


@pytest.mark.parametrize("d", [2, 3])
def test_splitting_along_the_unstable_direction_lowers_the_energy(d):
    """`E` changes by `eigenvalue s^2 / 2` when the atom's halves go `s` to both sides."""
    energy, s = well(d, -0.5), 1e-3
    found = classify(energy, atom(d), gap=False)
    aside = np.zeros(d)
    aside[-1] = math.sin(s)
    axis = math.cos(s) * np.eye(d)[0]
    change = energy(empirical(np.stack([axis + aside, axis - aside]))) - energy(atom(d))
    np.testing.assert_allclose(change, found.splitting.value * s * s / 2, rtol=1e-5)


# Kinks


def test_cluster_pressed_against_a_kink(pressed):
    """Transport-stable on either side, and yet it loses mass across the kink: splitting is stable on one side only."""
    energy, t, m = pressed
    found = classify(energy, from_angles(t, m), gap=False)
    assert found.kind == "strictly SOPD" and found.residual < 1e-15 and found.kinks == 1
    assert found.transport.value > found.transport.lower > 0 and found.transport.upper == found.transport.value
    assert found.splitting.value > 0.2 and found.splitting.lower < -0.4 and not found.splitting_stable
    np.testing.assert_allclose(found.splitting.value - found.splitting.lower, 0.79, rtol=1e-8)
    blind = classify(energy, from_angles(t, m), gap=False, reach=1e-10)
    assert blind.kinks == 0 and blind.splitting_stable and blind.transport.lower == blind.transport.value
    kicked = classify(energy, from_angles(t - np.array([1e-6, 0]), m), gap=False, reach=0.0)
    np.testing.assert_allclose(kicked.splitting.value, found.splitting.lower, rtol=1e-5)
    np.testing.assert_allclose(kicked.smallest_eigenvalue, found.transport.lower, atol=1e-5)
    part = from_angles(np.array([1e-9, -0.02, 2.0]), np.array([0.45, 0.05, 0.5]))
    assert energy(part) < energy(from_angles(t, m)) - 3e-6


@pytest.mark.parametrize("direction", ["descent", "ascent"])
def test_class_that_depends_on_the_side(direction):
    """An atom on the kink of a strong neuron, held by a weaker one: a saddle on one side, strict on the other."""
    flip = 1.0 if direction == "descent" else -1.0
    a = np.array([[0.0, 1.0], [1.0, 0.0]])
    energy = mfl.Perceptron(a, flip * np.array([0.8, 0.3]))
    found = classify(energy, atom(2), direction=direction, gap=False)
    np.testing.assert_allclose([found.transport.lower, found.transport.upper], [-0.3, 0.5], atol=1e-15)
    assert found.one_sided and found.kinks == 1 and not found.splitting_stable


# Clouds


@pytest.mark.slow
def test_cloud_of_a_thousand_in_modes():
    """Equispaced: a circulant Hessian; coincident in three places: the atoms' Hessian and `U''`, many times."""
    n, beta = 1002, 5.0
    energy = mfl.Attention(beta, interaction=choose_interaction(2, n, beta))
    found = classify(energy, equispaced(n), gap=False)
    angles = 2 * math.pi / n * np.arange(n)
    pair = (beta * np.sin(angles) ** 2 - np.cos(angles)) * np.exp(beta * (np.cos(angles) - 1))
    rates = np.sort(np.real(pair.mean() - np.fft.fft(pair) / n))
    np.testing.assert_allclose(found.spectrum.eigenvalues, rates, atol=1e-14)
    assert found.kind == "degenerate" and found.spectrum.null.rotation == 1 and abs(found.splitting.value) < 1e-14
    cloud = classify(energy, from_angles(np.repeat(2 * math.pi / 3 * np.arange(3), n // 3)), gap=False)
    atoms = classify(mfl.Attention(beta), equispaced(3), gap=False)
    expected = np.sort(np.append(np.full(n - 3, atoms.splitting.value), atoms.spectrum.eigenvalues))
    np.testing.assert_allclose(cloud.spectrum.eigenvalues, expected, atol=1e-13)
    assert cloud.kind == "saddle" and not cloud.splitting_stable and cloud.splitting_at.shape == (n,)


@pytest.mark.slow
def test_gap_of_a_cloud():
    """Equispaced: `U` is flat, so the gap is 0 and the state optimal to rounding."""
    energy = mfl.Attention(5.0, interaction=mfl.CircleFourier.for_beta(5.0))
    found = frank_wolfe_gap(energy, equispaced(1002))
    assert found.optimal and found.value < 1e-10


def test_the_same_shapes_compile_once():
    mu = empirical(np.array([[1.0, 0], [-1.0, 0], [0, 1.0], [0, -1.0]]), np.array([0.5, 0.5, 0, 0]))
    first = classify(well(2, -3.0), mu, gap=False)
    assert first.spectrum.massless == 2 and np.isnan(first.splitting_at[2:]).all()
    before = second_order._matrix._cached._cache_size()
    second = classify(well(2, -2.0, beta=3.0), mu, gap=False)
    assert second_order._matrix._cached._cache_size() == before
    assert second.smallest_eigenvalue != first.smallest_eigenvalue


# Without an energy, or without convexity


def test_softmax_attention_has_no_third_level():
    """Antipodal atoms: the flow's linearisation has the eigenvalues 0 and `2 e^{-2 beta} / (1 + e^{-2 beta})`."""
    found = classify(mfl.SoftmaxAttention(BETA), equispaced(2))
    tail = math.exp(-2 * BETA)
    np.testing.assert_allclose(found.spectrum.eigenvalues, [0, 2 * tail / (1 + tail)], atol=1e-16)
    np.testing.assert_allclose(found.splitting.value, (tail - 1) / (1 + tail), rtol=1e-13)
    assert found.gap is None and found.kind == "degenerate" and not found.spectrum.symmetric


def test_free_output_vectors():
    free = mfl.Attention(BETA) + mfl.FreePerceptron(np.eye(2)[:1], np.array([[-3.0, 0.0]]))
    found = classify(free, atom(2))
    np.testing.assert_allclose([found.smallest_eigenvalue, found.splitting.value], [3.0, 2.0], rtol=1e-14)
    assert found.gap is None and found.kind == "strictly SOPD"


def test_what_is_convex():
    stretched = lambda *values: mfl.Attention(1.0, matrix=np.diag(np.array(values)))  # noqa: E731
    assert all(map(strictly_convex, (mfl.Attention(1.0), well(2, 1.0), stretched(1.0, 2.0))))
    assert not any(map(strictly_convex, (mfl.Attention(0.0), stretched(1.0, -0.5), stretched(1.0, 0.0))))
    gap = frank_wolfe_gap(well(2, -5.0, beta=0.0), atom(2))
    assert gap.rigorous and gap.stable and not gap.certificate and gap.optimal is None


def test_gap_at_small_beta_is_free_of_the_constant():
    """`k = t - 1 + O(beta)` up to a constant of 1e6: `U = -1/2` at the atom, -2 opposite to it."""
    gap = frank_wolfe_gap(well(2, -1.0, beta=1e-6), atom(2))
    np.testing.assert_allclose(gap.value, 1.5, atol=1e-5)
    assert gap.rigorous and gap.certificate and gap.scale < 4


@pytest.mark.parametrize("change", [{"reach": -1.0}, {"stationary_tol": -1e-6}, {"tol": 2.0}, {"number": 0}])
def test_refuses_what_it_cannot_take(change):
    with pytest.raises(ValueError, match="expected"):
        classify(mfl.Attention(BETA), equispaced(2), **change)
    with pytest.raises(ValueError, match="not finite"):
        classify(mfl.Attention(BETA), mfl.Measure(jnp.full((2, 2), jnp.inf), jnp.ones(2) / 2))
