import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import i0

from mflandscape import sphere
from mflandscape.measure import Measure, empirical, equispaced, from_angles, uniform
from mflandscape.modes import density_modes

CENTRES = np.asarray([0.5, 2.5, 4.5])


def angles(seed, n):
    rng = np.random.default_rng(seed)
    return jnp.asarray(CENTRES[rng.choice(3, n, p=[0.5, 0.3, 0.2])] + 0.2 * rng.normal(size=n))


def caps(seed, n, d=3):
    rng = np.random.default_rng(seed)
    centres = np.concatenate([np.eye(d)[:2], -np.eye(d)[:1]])
    return sphere.retract(jnp.asarray(centres[rng.choice(3, n, p=[0.5, 0.3, 0.2])] + 0.2 * rng.normal(size=(n, d))))


def by_hand(theta, w, beta):
    """Local maxima of the density on a fine grid that pass the cuts, by flooding from above."""
    grid = np.linspace(0, 2 * np.pi, 2000, endpoint=False)
    density = np.exp(beta * (np.cos(grid[:, None] - np.asarray(theta)) - 1)) @ np.asarray(w)
    count = 0
    for k in np.flatnonzero((density > np.roll(density, 1)) & (density > np.roll(density, -1))):
        low, best = density[k], -np.inf
        for step in (1, -1):
            low, j = density[k], k
            while True:
                j = (j + step) % 2000
                low = min(low, density[j])
                if density[j] > density[k] or j == k:
                    break
            best = max(best, low)
        count += density[k] - best >= 0.5 * density[k] and density[k] >= 0.02 * density.max()
    return count


@pytest.mark.parametrize("beta", [7.0, 25.0, 50.0, 400.0])
def test_circle_against_a_search_by_hand(beta):
    for seed in range(4):
        theta = np.random.default_rng(seed).uniform(0, 2 * np.pi, 12)
        w = np.random.default_rng(seed).dirichlet(np.ones(12))
        found = density_modes(from_angles(jnp.asarray(theta), jnp.asarray(w)), beta)
        assert found.count == by_hand(theta, w, beta)
        assert found.count == 0 or float(found.masses.sum()) == pytest.approx(1)


def test_count_does_not_depend_on_the_number_of_particles():
    for n in (1000, 10000, 100000):
        circle = density_modes(from_angles(angles(n, n)), 50.0)
        assert circle.count == 3
        np.testing.assert_allclose(circle.masses, [0.5, 0.3, 0.2], atol=0.05)
        ends = np.sort(np.asarray(sphere.to_angle(circle.positions)))
        np.testing.assert_allclose(ends, CENTRES, atol=0.1)


@pytest.mark.parametrize("d", [3, 4])
def test_count_on_spheres_does_not_depend_on_the_number_of_particles(d):
    for n in (1000, 10000) if d > 3 else (1000, 10000, 100000):
        found = density_modes(empirical(caps(n, n, d)), 15.0, max_starts=64)
        assert found.count == 3
        np.testing.assert_allclose(found.masses, [0.5, 0.3, 0.2], atol=0.05)
        nearest = np.abs(np.asarray(found.positions)).max(axis=1)
        assert (nearest > 0.97).all()


def test_a_repeated_cloud_is_the_same_density():
    for x, tolerance in ((sphere.from_angle(angles(0, 400)), 1e-12), (caps(0, 400), 0)):
        once = density_modes(empirical(x), 25.0)
        twice = density_modes(empirical(jnp.concatenate([x, x])), 25.0)
        assert once.count == twice.count == 3
        np.testing.assert_allclose(once.positions, twice.positions, atol=tolerance, rtol=0)
        np.testing.assert_allclose(once.masses, twice.masses, atol=1e-12, rtol=0)


@pytest.mark.parametrize("beta", [0.0, 1.0, 25.0])
def test_uniform_densities_have_no_modes(beta):
    assert density_modes(equispaced(500), beta).count == 0
    assert density_modes(uniform(jax.random.key(1), 10000, 2), beta).count == 0
    assert density_modes(uniform(jax.random.key(1), 10000, 3), beta, max_starts=64).count == 0


@pytest.mark.parametrize("d", [2, 3, 6])
@pytest.mark.parametrize("beta", [0.0, 0.1, 25.0, 1e4])
def test_atoms(d, beta):
    x = jnp.asarray(np.concatenate([np.eye(d)[:1], np.eye(d)[:1]]))
    one = density_modes(empirical(x), beta)
    assert one.count == 1 and one.masses[0] == pytest.approx(1)
    np.testing.assert_allclose(one.positions, x[:1], atol=1e-12)
    pair = density_modes(empirical(jnp.concatenate([x, -x[:1]])), beta)
    assert pair.count == 2
    np.testing.assert_allclose(pair.masses, [2 / 3, 1 / 3], rtol=1e-12)
    np.testing.assert_allclose(pair.heights, [1, 0.5], rtol=0.1)


@pytest.mark.parametrize("d", [2, 3])
def test_two_equal_atoms_part_at_the_stated_distance(d):
    beta, expected = 400.0, 3.4 / 20
    for factor, count in ((0.95, 1), (1.05, 2)):
        x = np.zeros((2, d))
        x[:, 0], x[:, 1] = 1, np.asarray([0, 1]) * np.tan(factor * expected)
        assert density_modes(empirical(sphere.retract(jnp.asarray(x))), beta).count == count


def test_stragglers_are_no_modes():
    x = caps(2, 2000)
    alone = jnp.asarray([[0.0, 0.0, 1.0]])
    assert (
        density_modes(empirical(jnp.concatenate([x, alone])), 400.0).count == density_modes(empirical(x), 400.0).count
    )
    theta = jnp.append(0.01 * angles(0, 2000), 3.0)
    assert density_modes(from_angles(theta), 25.0).count == 1
    assert density_modes(from_angles(theta), 25.0, least_height=1e-6).count == 2


def test_a_ring_on_the_sphere_is_one_mode_although_its_noise_has_many():
    theta = np.random.default_rng(0).uniform(0, 2 * np.pi, 3000)
    ring = jnp.asarray(np.stack([np.cos(theta), np.sin(theta), np.zeros_like(theta)], axis=1))
    assert density_modes(empirical(ring), 25.0).count == 1


def test_rotation_and_permutation():
    rng = np.random.default_rng(4)
    x = caps(0, 300)
    turn = jnp.asarray(np.linalg.qr(rng.normal(size=(3, 3)))[0])
    base = density_modes(empirical(x), 15.0, max_starts=300)
    turned = density_modes(empirical(sphere.retract(x @ turn)[rng.permutation(300)]), 15.0, max_starts=300)
    np.testing.assert_allclose(turned.masses, base.masses, atol=1e-12)
    np.testing.assert_allclose(turned.positions, base.positions @ turn, atol=1e-3)


def test_mode_of_a_von_mises_density_and_dtype():
    grid = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    w = np.exp(8 * np.cos(grid - 1.234)) / (400 * i0(8))
    for dtype, tolerance in ((jnp.float32, 1e-5), (jnp.float64, 1e-12)):
        measure = from_angles(jnp.asarray(grid, dtype), jnp.asarray(w / w.sum(), dtype))
        found = density_modes(measure, 25.0)
        assert found.count == 1 and found.positions.dtype == found.masses.dtype == found.bandwidth.dtype == dtype
        assert float(sphere.to_angle(found.positions)[0]) == pytest.approx(1.234, abs=tolerance)
        assert float(found.bandwidth) == pytest.approx(0.2)


def test_wrong_requests_are_refused():
    measure = equispaced(10)
    for options in ({"prominence": 0.0}, {"prominence": 1.0}, {"least_height": 0.0}, {"max_starts": 0}, {"scale": 0.0}):
        with pytest.raises(ValueError, match="expected"):
            density_modes(measure, 1.0, **options)
    with pytest.raises(ValueError, match="beta"):
        density_modes(measure, -1.0)
    with pytest.raises(ValueError, match="not finite"):
        density_modes(Measure(jnp.full((3, 2), jnp.nan), jnp.full(3, 1 / 3)), 1.0)
