import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from mflandscape import sphere
from mflandscape.clusters import (
    arc_clusters,
    arc_count,
    cluster_threshold,
    find_clusters,
    linkage_clusters,
)
from mflandscape.measure import Measure, empirical, from_angles

DATA = Path(__file__).parent / "data"
FIXTURES = json.loads((DATA / "cluster_fixtures.json").read_text())
ARRAYS = np.load(DATA / "cluster_fixtures.npz")
SETS = sorted({(f["d"], f["kind"], f["N"]) for f in FIXTURES})

count_arcs, label_arcs, link = jax.jit(arc_count), jax.jit(arc_clusters), jax.jit(linkage_clusters)


def cloud(seed, n, d, dtype=jnp.float64):
    return sphere.retract(jnp.asarray(np.random.default_rng(seed).normal(size=(n, d)), dtype))


def greedy(theta, threshold):
    """The published rule once more, particle by particle."""
    order = np.argsort(np.mod(theta, 2 * np.pi), kind="stable")
    u = np.mod(theta, 2 * np.pi)[order]
    cut = np.argmax(np.diff(np.append(u, u[0] + 2 * np.pi))) + 1
    order, u = np.roll(order, -cut), np.roll(u, -cut)
    u = np.where(u < u[0], u + 2 * np.pi, u)
    labels, first, current = np.zeros(len(u), int), u[0], 0
    for i, v in zip(order, u, strict=True):
        if v - first > threshold:
            first, current = v, current + 1
        labels[i] = current
    return labels


def components(x, threshold):
    x = np.asarray(x, np.float64)
    near = ((x[:, None] - x[None]) ** 2).sum(-1) <= (2 * np.sin(threshold / 2)) ** 2
    return connected_components(csr_array(near), directed=False)[1]


def same_partition(a, b):
    pairs = np.unique(np.stack([np.asarray(a), np.asarray(b)]), axis=1).shape[1]
    return pairs == len(np.unique(a)) == len(np.unique(b))


@pytest.mark.parametrize("d,kind,n", SETS)
def test_published_fixtures(d, kind, n):
    chosen = [f for f in FIXTURES if (f["d"], f["kind"], f["N"]) == (d, kind, n)]
    assert len(chosen) == 7
    for f in chosen:
        points = jnp.asarray(ARRAYS[f["points"]])
        threshold = cluster_threshold(f["beta"], d, f["cluster_scale"])
        assert float(threshold) == f["threshold"]
        found = find_clusters(from_angles(points) if d == 2 else empirical(points), threshold)
        assert found.count == f["count"]
        np.testing.assert_array_equal(found.masses, ARRAYS[f["masses"]])
        assert found.spread == pytest.approx(f["max_spread"], abs=1e-12, rel=0)
        count, spread = count_arcs(points, threshold) if d == 2 else link(points, threshold)[1:]
        assert count == f["count"]
        assert float(spread) == pytest.approx(f["max_spread"], abs=0 if d == 2 else 1e-12, rel=0)


def test_all_fixtures_are_there():
    assert len(FIXTURES) == 126 and len(SETS) == 18


@pytest.mark.parametrize("threshold", [1e-4, 0.05, 0.5, 3.0])
def test_arcs_against_a_loop_over_particles(threshold):
    for seed in range(8):
        theta = np.random.default_rng(seed).uniform(-20, 20, 97)
        labels, count, spread = label_arcs(jnp.asarray(theta), threshold)
        expected = greedy(theta, threshold)
        np.testing.assert_array_equal(labels, expected)
        assert int(count) == expected.max() + 1
        assert [int(count), float(spread)] == [float(v) for v in count_arcs(jnp.asarray(theta), threshold)]


def test_arcs_at_ties_and_at_the_seam():
    assert count_arcs(jnp.asarray([0.0]), 0.1) == (1, 0.0)
    assert count_arcs(jnp.asarray([0.0, 0.25, 0.5]), 0.5) == (1, 0.5)  # inclusive
    assert count_arcs(jnp.asarray([0.0, 0.25, 0.5]), 0.49)[0] == 2
    labels, count, spread = label_arcs(jnp.asarray([0.05, 3.0, 2 * np.pi - 0.05]), 0.2)
    assert count == 2 and labels[0] == labels[2] != labels[1] and spread == pytest.approx(0.1)
    assert count_arcs(jnp.full(10, 1.5), 0.0) == (1, 0.0)


@pytest.mark.parametrize("d,threshold", [(2, 0.02), (3, 0.15), (3, 0.3), (5, 0.6), (20, 1.2)])
def test_linkage_against_scipy(d, threshold):
    for seed in range(4):
        x = cloud(seed, 256, d)
        labels, count, spread = link(x, threshold)
        expected = components(x, threshold)
        assert same_partition(labels, expected) and int(count) == expected.max() + 1
        cosine = np.clip(np.asarray(x @ x.T), -1, 1)
        farthest = np.where(expected[:, None] == expected[None], np.arccos(cosine), 0).max()
        assert float(spread) == pytest.approx(farthest, abs=1e-7)


def test_linkage_follows_a_long_chain_in_any_order():
    order = np.random.default_rng(0).permutation(1500)
    x = sphere.from_angle(jnp.asarray(order * 1e-3))
    assert link(x, 1.01e-3)[1] == 1
    assert link(x, 0.99e-3)[1] == 1500


def test_linkage_in_blocks_is_linkage_at_once():
    x = cloud(3, 2500, 3)
    labels, count, spread = link(x, 0.05)  # above 2048: by blocks
    expected = components(x, 0.05)
    assert same_partition(labels, expected) and int(count) == expected.max() + 1
    memory = jax.jit(linkage_clusters).lower(jnp.zeros((20000, 3)), 0.1).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 20000 * 64 * 8 * 4


def test_spread_is_accurate_for_tight_and_for_antipodal_clusters():
    for angle in (1e-9, 1e-3, 1.0, 2.0, 3.1415, np.pi):
        x = jnp.stack([jnp.asarray([1.0, 0, 0]), jnp.asarray([np.cos(angle), np.sin(angle), 0])])
        assert float(link(x, np.pi)[2]) == pytest.approx(angle, rel=1e-14, abs=1e-15)


def test_vmap_is_a_loop():
    theta = jnp.asarray(np.random.default_rng(1).uniform(0, 7, (5, 60)))
    thresholds = jnp.asarray([0.01, 0.1, 0.3, 1.0, 3.0])
    for batched, single, points in (
        (jax.jit(jax.vmap(arc_clusters)), label_arcs, theta),
        (jax.jit(jax.vmap(arc_count)), count_arcs, theta),
        (jax.jit(jax.vmap(linkage_clusters)), link, sphere.from_angle(theta)),
    ):
        for i, row in enumerate(zip(*batched(points, thresholds), strict=True)):
            for got, expected in zip(row, single(points[i], thresholds[i]), strict=True):
                np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_ends_and_says_so(bad):
    theta = jnp.linspace(0, 6, 50).at[7].set(bad)
    labels, count, spread = label_arcs(theta, 0.1)
    assert count == -1 and (labels == -1).all() and jnp.isnan(spread)
    count, spread = count_arcs(theta, 0.1)
    assert count == -1 and jnp.isnan(spread)
    labels, count, spread = link(cloud(0, 50, 3).at[7, 0].set(bad), 0.1)
    assert count == -1 and (labels == -1).all() and jnp.isnan(spread)
    lanes = jax.jit(jax.vmap(arc_count, (0, None)))(jnp.stack([theta, jnp.linspace(0, 6, 50)]), jnp.asarray(0.1))[0]
    assert lanes[0] == -1 and lanes[1] == count_arcs(jnp.linspace(0, 6, 50), 0.1)[0]  # the neighbour is not spoilt
    with pytest.raises(ValueError, match="not finite"):
        find_clusters(Measure(jnp.full((3, 2), bad), jnp.full(3, 1 / 3)), 0.1)


@pytest.mark.parametrize("d,rule", [(2, "arcs"), (2, "linkage"), (4, "linkage")])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_permutation_rotation_and_repetition(d, rule, dtype):
    rng = np.random.default_rng(5)
    centres = np.eye(d) * np.asarray([1.0, -1.0] + [1.0] * (d - 2))
    x = sphere.retract(jnp.asarray(centres[rng.integers(0, d, 200)] + 0.01 * rng.normal(size=(200, d)), dtype))
    base = find_clusters(empirical(x), 0.2, rule)
    assert base.count == d and base.masses.dtype == dtype
    shuffle = rng.permutation(200)
    moved = find_clusters(empirical(x[shuffle]), 0.2, rule)
    assert same_partition(base.labels[shuffle], moved.labels)
    turned = sphere.retract(x @ jnp.asarray(np.linalg.qr(rng.normal(size=(d, d)))[0], dtype))
    turned = find_clusters(empirical(turned), 0.2, rule)
    assert same_partition(base.labels, turned.labels)
    twice = find_clusters(empirical(jnp.concatenate([x, x])), 0.2, rule)
    for other in (moved, turned, twice):
        np.testing.assert_allclose(other.masses, base.masses, rtol=1e-6)
        np.testing.assert_allclose(
            other.diameters.max(), base.diameters.max(), rtol=1e-3 if dtype == jnp.float32 else 1e-10
        )


def test_weights_masses_centres_and_labels():
    theta = np.asarray([0.0, 0.02, 2.0, 4.0, 4.01])
    w = jnp.asarray([0.1, 0.1, 0.45, 0.35, 0.0])
    found = find_clusters(from_angles(jnp.asarray(theta), w), 0.1)
    np.testing.assert_allclose(found.masses, [0.45, 0.35, 0.2], rtol=1e-14)
    np.testing.assert_array_equal(found.labels, [2, 2, 0, 1, 1])
    np.testing.assert_allclose(found.diameters, [0, 0.01, 0.02], atol=1e-14)
    np.testing.assert_allclose(sphere.to_angle(found.centres), [2.0, 4.0, 0.01], atol=1e-14)
    heavy = find_clusters(from_angles(jnp.asarray(theta), w), 0.1, mass_threshold=0.3)
    np.testing.assert_array_equal(heavy.labels, [-1, -1, 0, 1, 1])
    assert heavy.count == 2 and heavy.spread == pytest.approx(0.01)
    assert find_clusters(from_angles(jnp.asarray(theta), w), 0.1, mass_threshold=0.9).spread == 0


def test_centre_of_an_antipodal_pair_is_a_member():
    x = jnp.asarray([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]])
    found = find_clusters(empirical(x), np.pi)
    assert found.count == 1 and found.diameters[0] == pytest.approx(np.pi)
    np.testing.assert_array_equal(found.centres, x[:1])


def test_two_rules_differ_on_a_long_arc():
    line = from_angles(jnp.linspace(0, 0.15, 301))
    assert find_clusters(line, 0.1).count == 2
    assert find_clusters(line, 0.1, "linkage").count == 1


def test_a_million_angles_and_a_collapsed_sphere():
    assert find_clusters(from_angles(jnp.linspace(0, 5, 10**6)), 1.0).count in (5, 6)
    noise = np.random.default_rng(0).normal(size=(6000, 3))
    found = find_clusters(empirical(sphere.retract(jnp.asarray(np.eye(3)[2] + 1e-7 * noise))), 0.07)
    assert found.count == 1 and found.spread < 1e-6


def test_threshold():
    assert cluster_threshold(0, 3) == pytest.approx(np.pi / 6)
    assert cluster_threshold(25.0, 2) == pytest.approx(0.1)
    assert cluster_threshold(25.0, 2, 2.0) == pytest.approx(0.4)
    betas = jnp.asarray([0.0, 1e-3, 4.0])
    np.testing.assert_allclose(jax.jit(cluster_threshold, static_argnums=1)(betas, 2), [np.pi / 4, np.pi / 4, 0.25])
    assert cluster_threshold(jnp.float32(4.0), 2).dtype == jnp.float32
    assert jnp.isfinite(jax.vmap(jax.grad(lambda b: cluster_threshold(b, 2)))(betas)).all()
    assert jnp.isnan(jax.jit(cluster_threshold, static_argnums=1)(jnp.asarray(-1.0), 2))
    for arguments in ((-1.0, 2), (np.inf, 2), (1.0, 1), (1.0, 2, 0.0)):
        with pytest.raises(ValueError, match="expected"):
            cluster_threshold(*arguments)


def test_wrong_requests_are_refused():
    with pytest.raises(ValueError, match="linkage"):
        find_clusters(empirical(cloud(0, 5, 3)), 0.1, "arcs")
    for threshold in (-0.1, 4.0, np.nan):
        with pytest.raises(ValueError, match=r"\[0, pi\]"):
            find_clusters(empirical(cloud(0, 5, 3)), threshold)
