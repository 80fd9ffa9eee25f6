import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest

from mflandscape import sphere
from mflandscape.meanfield import cosine_density, uniform_density, von_mises_density
from mflandscape.measure import Measure, empirical, equispaced, from_angles, uniform
from mflandscape.transport import wasserstein

TURN = 2 * np.pi


def atoms(rng, n, equal=False):
    return rng.uniform(0, TURN, n), np.full(n, 1 / n) if equal else rng.dirichlet(np.ones(n))


def circle_cost(a, b):
    gap = np.mod(a[:, None] - b[None], TURN)
    return np.minimum(gap, TURN - gap)


@pytest.mark.parametrize("n, m, equal", [(1, 1, True), (2, 3, False), (7, 5, False), (6, 4, True), (60, 90, False)])
def test_circle_is_the_optimal_plan(n, m, equal):
    rng = np.random.default_rng(10 * n + m)
    for _ in range(4):
        (a, wa), (b, wb) = atoms(rng, n, equal), atoms(rng, m, equal)
        for order in (1, 2):
            plan = ot.emd2(wa, wb, circle_cost(a, b) ** order) ** (1 / order)
            assert wasserstein(from_angles(a, wa), from_angles(b, wb), order) == pytest.approx(plan, rel=1e-12)


def test_circle_is_a_metric_that_rotations_leave_alone():
    rng = np.random.default_rng(0)
    (a, wa), (b, wb), (c, wc) = atoms(rng, 40), atoms(rng, 25), atoms(rng, 30)
    mu, nu, pi = from_angles(a, wa), from_angles(b, wb), from_angles(c, wc)
    for order in (1, 2):
        there = wasserstein(mu, nu, order)
        assert wasserstein(nu, mu, order) == pytest.approx(there, rel=1e-12)
        turned = from_angles(np.mod(a + 5.1, TURN), wa), from_angles(np.mod(b + 5.1, TURN), wb)
        assert wasserstein(*turned, order) == pytest.approx(there, rel=1e-12)
        assert wasserstein(mu, mu, order) < 1e-8
        assert there <= wasserstein(mu, pi, order) + wasserstein(pi, nu, order)
    assert wasserstein(mu, nu, 1) <= wasserstein(mu, nu, 2)


@pytest.mark.parametrize("order", [1, 2])
def test_closed_forms(order):
    opposite = from_angles(np.asarray([0.2])), from_angles(np.asarray([0.2 + np.pi]))
    assert wasserstein(*opposite, order) == pytest.approx(np.pi, rel=1e-14)
    # A lattice in the uniform density: each atom serves an arc of length 2 pi/n around it.
    n, lattice = 10, 2 * np.pi / 10 * (1 / 4 if order == 1 else 1 / np.sqrt(12))
    assert wasserstein(equispaced(n), uniform_density(1), order) == pytest.approx(lattice, rel=1e-9)
    # Two lattices, one turned by less than half a gap, with atoms of zero mass in between.
    theta = TURN / n * np.arange(n)
    w = np.concatenate([np.full(n, 1 / n), np.zeros(3)])
    turned = from_angles(np.concatenate([np.mod(theta + 0.1, TURN), [0.05, 1.0, 3.0]]), w)
    assert wasserstein(from_angles(theta), turned, order) == pytest.approx(0.1, rel=1e-12)


def test_densities_by_their_distribution_functions():
    # F - G = eps sin(k theta + phi)/(2 pi k): its mean size, and to first order in eps that of the map's displacement.
    k, eps = 3, 1e-3
    wave, flat = cosine_density(8, {k: (eps, 0.7)}), uniform_density(8)
    assert wasserstein(wave, flat, 1, cells=4096) == pytest.approx(eps / k * 2 / np.pi, rel=1e-5)
    assert wasserstein(wave, flat, 2, cells=4096) == pytest.approx(eps / k / np.sqrt(2), rel=1e-5)
    # Turning a narrow density by less than its distance to the far side.
    narrow = von_mises_density(256, 400.0, 1.0)
    turned = narrow.rotated(0.8)
    assert wasserstein(narrow, turned) == pytest.approx(0.8, rel=1e-10)
    assert wasserstein(narrow, turned, 2, cells=4096) == pytest.approx(0.8, rel=1e-8)
    # The error of the cells is of second order, and of the stated size.
    variation = float(np.sum(np.abs(np.diff(np.asarray(narrow.values(4096))))))
    exact = wasserstein(narrow, equispaced(7))
    for cells in (512, 1024, 2048):
        error = abs(wasserstein(narrow, equispaced(7), cells=cells) - exact)
        assert error <= (TURN / cells) ** 2 / 12 * variation


def test_samples_approach_their_density():
    rho = von_mises_density(64, 5.0, 1.0)
    distances = [wasserstein(rho.sample(seed, 4000), rho) for seed in range(3)]
    assert 0.2 < np.mean(distances) * np.sqrt(4000) < 1.5
    assert wasserstein(rho.lattice(4000), rho) < 10 * TURN / 4000 / 4


def test_spheres_against_plans():
    x, y = uniform(jax.random.key(0), 40, 3), uniform(jax.random.key(1), 40, 3)
    w = np.random.default_rng(0).dirichlet(np.ones(40))
    cost = np.asarray(jax.vmap(lambda p: sphere.distance(jnp.broadcast_to(p, y.x.shape), y.x))(x.x))
    for order in (1, 2):
        for first in (np.full(40, 1 / 40), w):
            plan = ot.emd2(np.asarray(first), np.full(40, 1 / 40), cost**order) ** (1 / order)
            assert wasserstein(empirical(x.x, first), y, order) == pytest.approx(plan, rel=1e-12)
    turn = jnp.asarray(np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0])
    turned = empirical(sphere.retract(x.x @ turn)), empirical(sphere.retract(y.x @ turn))
    assert wasserstein(*turned) == pytest.approx(wasserstein(x, y), rel=1e-12)
    assert wasserstein(x, empirical(x.x[::-1])) < 1e-14


@pytest.mark.slow
def test_a_million_atoms():
    rng = np.random.default_rng(0)
    a, b = (from_angles(rng.uniform(0, TURN, 1_000_000)) for _ in range(2))
    assert 1e-4 < wasserstein(a, b) <= wasserstein(a, b, 2) < 1e-2


def test_wrong_requests_are_refused(monkeypatch):
    circle, ball = equispaced(4), uniform(jax.random.key(0), 5, 3)
    with pytest.raises(ValueError, match="order = 3"):
        wasserstein(circle, circle, 3)
    with pytest.raises(ValueError, match="same sphere"):
        wasserstein(circle, ball)
    with pytest.raises(ValueError, match="at most 4096"):
        wasserstein(Measure(jnp.ones((5000, 3)), jnp.ones(5000)), ball)
    with pytest.raises(ValueError, match="negative"):
        wasserstein(circle, von_mises_density(4, 100.0))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"mflandscape\[transport\]"):
        wasserstein(ball, uniform(jax.random.key(1), 6, 3))
