"""Growth rates against mpmath, quadrature, SciPy and the velocities of particles; the fastest degree; phases."""

import functools
import math

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.special import eval_gegenbauer, eval_legendre, ive, roots_gegenbauer

from mflandscape import Attention, SoftmaxAttention, empirical, velocity
from mflandscape.measure import from_angles, perturbed_uniform
from mflandscape.theory import (
    cluster_phases,
    eigenvalues,
    exit_time,
    growth_rates,
    k_max,
    log_eigenvalues,
    log_exit_time,
    log_growth_rates,
)

BETAS = [1e-6, 1e-3, 0.5, 5.0, 31.0, 100.0, 1e3, 1630.0, 1e5, 1e6]
DIMS = [2, 3, 8, 65, 66, 333, 1000]
DEGREES = [0, 1, 2, 7, 33, 100, 333, 1000]


@functools.cache
def exact(beta, d, degree):
    """Lambda_l to 40 digits."""
    with mpmath.workdps(40):
        v = mpmath.mpf(d) / 2 - 1
        scale = mpmath.gamma(v + 1) * (2 / mpmath.mpf(beta)) ** v * mpmath.exp(-mpmath.mpf(beta))
        return scale * mpmath.besseli(v + degree, beta)


def assert_exact(value, log, reference):
    """Both to 1e-12 where float64 has the value; the logarithm everywhere."""
    truth = mpmath.log(reference)
    assert math.isfinite(log) and abs(log - truth) <= 1e-13 * max(1, abs(truth))
    if reference > 1e-300:
        assert abs(value / reference - 1) < 1e-12
    else:
        assert 0 <= value <= 2e-300


@pytest.mark.parametrize("beta", BETAS)
def test_eigenvalues_and_rates_have_all_digits(beta):
    for d in DIMS:
        values, logs = eigenvalues(beta, d, DEGREES), log_eigenvalues(beta, d, DEGREES)
        rates = [(growth_rates(beta, d, DEGREES, sa), log_growth_rates(beta, d, DEGREES, sa)) for sa in (False, True)]
        for i, degree in enumerate(DEGREES):
            reference = exact(beta, d, degree)
            assert_exact(values[i], logs[i], reference)
            for (rate, log), divisor in zip(rates if degree else [], (1, exact(beta, d, 0)), strict=False):
                assert_exact(rate[i], log[i], degree * (degree + d - 2) * reference / beta / divisor)


@pytest.mark.parametrize("d", [2, 3, 5])
@pytest.mark.parametrize("beta", [0.3, 5.0, 40.0])
def test_eigenvalues_are_the_funk_hecke_integrals(beta, d):
    degrees = np.arange(20)
    if d == 2:
        angles = (np.arange(80) + 0.5) * np.pi / 80
        nodes, weights, harmonics = np.cos(angles), np.ones(80), np.cos(np.multiply.outer(degrees, angles))
    else:
        nodes, weights = roots_gegenbauer(80, d / 2 - 1)
        harmonics = eval_gegenbauer(degrees[:, None], d / 2 - 1, nodes[None, :])
        harmonics = harmonics / eval_gegenbauer(degrees, d / 2 - 1, 1.0)[:, None]
    integrals = harmonics @ (np.exp(beta * (nodes - 1)) * weights) / weights.sum()
    np.testing.assert_allclose(eigenvalues(beta, d, degrees), integrals, rtol=1e-13, atol=2e-14)


@pytest.mark.parametrize("beta", [0.7, 5.0, 80.0])
def test_rates_in_scipys_range(beta):
    degrees = np.arange(1, 12).reshape(1, -1)
    circle = degrees**2 * ive(degrees, beta) / beta
    np.testing.assert_allclose(growth_rates(beta, 2, degrees), circle, rtol=1e-13)
    np.testing.assert_allclose(growth_rates(beta, 2, degrees, True, "descent"), -circle / ive(0, beta), rtol=1e-13)


def test_rates_at_beta_zero_are_the_limit():
    for d in (2, 3, 50):
        limit = growth_rates(0, d, [0, 1, 2, 3])
        np.testing.assert_allclose(limit, [0, (d - 1) / d, 0, 0], rtol=1e-15)
        np.testing.assert_allclose(growth_rates(1e-9, d, [0, 1, 2, 3]), limit, atol=1e-8)
        np.testing.assert_allclose(eigenvalues(0, d, [0, 1]), [1, 0], rtol=1e-15)
        np.testing.assert_array_equal(log_growth_rates(0, d, [0, 2]), [-np.inf, -np.inf])
        assert math.isfinite(float(log_growth_rates(1e-300, d, 1000)))


def drift(beta, normalised):
    return SoftmaxAttention(beta) if normalised else Attention(beta)


@pytest.mark.parametrize("normalised, direction", [(False, "ascent"), (True, "ascent"), (False, "descent")])
def test_particles_on_the_circle_grow_at_these_rates(normalised, direction):
    for beta, degree in ((5.0, 3), (0.0, 1), (40.0, 9)):
        mu = perturbed_uniform(256, degree, 1e-5)
        x, v = np.asarray(mu.x), np.asarray(velocity(drift(beta, normalised), mu, direction))
        theta, speed = np.arctan2(x[:, 1], x[:, 0]), x[:, 0] * v[:, 1] - x[:, 1] * v[:, 0]
        mode = np.exp(1j * degree * theta)
        measured = np.mean(1j * degree * speed * mode) / np.mean(mode)
        assert measured == pytest.approx(float(growth_rates(beta, 2, degree, normalised, direction)), rel=1e-8)


@pytest.mark.parametrize("normalised", [False, True])
def test_weights_on_the_sphere_grow_at_these_rates(normalised):
    """Gauss points in z times equispaced ones around; central difference in the amplitude of the mode `P_l(z)`."""
    beta, degree, eps = 4.0, 2, 1e-4
    z, weights = np.polynomial.legendre.leggauss(16)
    turn = np.arange(24) * np.pi / 12
    radius = np.sqrt(1 - z**2)[:, None]
    x = np.stack([radius * np.cos(turn), radius * np.sin(turn), z[:, None] + 0 * turn], axis=-1).reshape(-1, 3)
    w, mode = np.repeat(weights / 48, 24), eval_legendre(degree, x[:, 2])
    slope = 3 * x[:, 2]  # P_2'(z)

    def growth(amplitude):
        tilted = w * (1 + amplitude * mode)
        v = velocity(drift(beta, normalised), empirical(x, tilted / tilted.sum()), "ascent")
        return np.sum(tilted * slope * np.asarray(v)[:, 2])

    measured = (growth(eps) - growth(-eps)) / (2 * eps) / np.sum(w * mode**2)
    assert measured == pytest.approx(float(growth_rates(beta, 3, degree, normalised)), rel=1e-7)


def test_fastest_degree_on_the_circle():
    table = {0: 1, 1e-6: 1, 1: 1, 2: 2, 3: 2, 5: 3, 7: 4, 10: 4, 25: 7, 50: 10, 100: 14}
    assert {beta: k_max(beta) for beta in table} == table
    assert [k_max(beta, 8) for beta in (5, 10, 25, 50, 100)] == [1, 2, 5, 7, 11]
    assert [k_max(beta) for beta in (1e4, 1e6)] == [141, 1414]


@pytest.mark.parametrize("d", [2, 3, 40, 1000])
@pytest.mark.parametrize("beta", [1e-6, 0.9, 17.0, 300.0, 1e4, 1e6])
def test_fastest_degree_is_the_only_peak(beta, d):
    k = k_max(beta, d)
    for normalised in (False, True):
        logs = log_growth_rates(beta, d, np.arange(1, 3 * k + 50), normalised)
        assert int(np.argmax(logs)) + 1 == k
        assert (np.diff(logs[:k]) > 0).all() and (np.diff(logs[k - 1 :]) < 0).all()


def test_of_two_equal_rates_the_smaller_degree():
    """The beta at which `gamma_1 = gamma_2` on the circle, `4 I_2 = I_1`, and its neighbours."""
    tie = float(mpmath.findroot(lambda b: 4 * mpmath.besseli(2, b) - mpmath.besseli(1, b), 1.2))
    assert [k_max(tie * (1 + shift)) for shift in (-1e-12, 1e-12)] == [1, 2] and k_max(tie) in (1, 2)


@pytest.mark.parametrize("normalised", [False, True])
def test_exit_times(normalised):
    beta, n = 5.0, 1000
    rate = 9 * ive(3, beta) / beta / (ive(0, beta) if normalised else 1)
    assert exit_time(beta, 2, n, normalised) == pytest.approx(math.log(n) / (2 * rate), rel=1e-13)
    amplitude = n**-0.5 * math.exp(exit_time(beta, 2, n, normalised) * float(growth_rates(beta, 2, 3, normalised)))
    assert amplitude == pytest.approx(1)
    assert exit_time(0, 3, n, normalised) == pytest.approx(math.log(n) / (4 / 3))


def test_exit_times_beyond_float64():
    assert exit_time(1e6, 1000, 100) == math.inf
    with mpmath.workdps(30):
        k = k_max(1e6, 1000)
        rate = k * (k + 998) * exact(1e6, 1000, k) / 1e6
        truth = mpmath.log(mpmath.log(100) / (2 * rate))
    assert log_exit_time(1e6, 1000, 100) == pytest.approx(float(truth), rel=1e-13)


@pytest.mark.parametrize("k", [1, 2, 3, 7])
def test_phases_are_the_summits_of_the_mode(k):
    rng = np.random.default_rng(k)
    theta, w = rng.uniform(-9, 9, 50), rng.dirichlet(np.ones(50))
    grid = np.linspace(0, 2 * np.pi, 20001)[:-1]
    for start, weights in ((theta, np.full(50, 0.02)), (from_angles(jnp.asarray(theta), jnp.asarray(w)), w)):
        phases = cluster_phases(start, k)
        height = lambda at, w=weights: np.cos(k * (at[:, None] - theta)) @ w  # noqa: E731
        assert phases.shape == (k,) and (np.diff(phases) > 0).all() and 0 <= phases[0] and phases[-1] < 2 * np.pi
        assert (height(phases) >= height(grid).max() - 1e-14).all()
    turned = np.sort(np.mod(cluster_phases(theta, k) + 0.3, 2 * np.pi))
    np.testing.assert_allclose(cluster_phases(theta + 0.3, k), turned, atol=1e-12)


def test_phases_of_a_density_with_a_known_phase():
    """The quantiles of `1 + cos(4 (theta - a))/2` have summits at `a + j pi/2`."""
    mu = perturbed_uniform(300, 4, 0.5)
    theta = np.arctan2(np.asarray(mu.x)[:, 1], np.asarray(mu.x)[:, 0])
    for shift in (0.0, 0.2):
        np.testing.assert_allclose(cluster_phases(theta + shift, 4), shift + np.arange(4) * np.pi / 2, atol=1e-13)
    single = from_angles(jnp.asarray(theta + 0.2, jnp.float32))
    np.testing.assert_allclose(cluster_phases(single, 4), 0.2 + np.arange(4) * np.pi / 2, atol=1e-6)
    assert cluster_phases(np.array([-1e-17]), 1)[0] == 0.0


BAD = {
    "beta negative": (lambda: eigenvalues(-1.0, 2, 3), "beta = -1.0.*expected"),
    "beta nan": (lambda: k_max(math.nan), "beta = nan.*expected"),
    "beta too large": (lambda: growth_rates(1e9, 2, 3), "<= 1e\\+08"),
    "many betas": (lambda: k_max(np.array([1.0, 2.0])), "one real number"),
    "circle of dimension 1": (lambda: eigenvalues(1.0, 1, 3), "d = 1.*d >= 2"),
    "degree -1": (lambda: growth_rates(1.0, 2, [0, -1]), "degrees from -1"),
    "degree 1/2": (lambda: growth_rates(1.0, 2, 0.5), "whole numbers"),
    "degree 1e7": (lambda: growth_rates(1.0, 2, 10**7), "<= 1000000"),
    "no degrees": (lambda: log_eigenvalues(1.0, 2, []), "whole numbers"),
    "direction": (lambda: growth_rates(1.0, 2, 1, direction="up"), "ascent"),
    "one particle": (lambda: exit_time(1.0, 2, 1), "n = 1.0.*n >= 2"),
    "phases on the sphere": (lambda: cluster_phases(empirical(np.eye(3)), 2), "expected d = 2"),
    "no clusters": (lambda: cluster_phases(np.zeros(3), 0), "k = 0"),
    "no mode": (lambda: cluster_phases(np.arange(8) * np.pi / 4, 3), "no mode 3"),
    "no mode, float32": (lambda: cluster_phases(from_angles(jnp.arange(4.0, dtype="f4") * np.pi / 2), 3), "no mode"),
    "no points": (lambda: cluster_phases(np.zeros(0), 3), "finite angles"),
    "angle nan": (lambda: cluster_phases(np.array([0.0, math.nan]), 3), "finite angles"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, words = BAD[case]
    with pytest.raises(ValueError, match=words):
        call()
