"""Global maximisers: regions of arrangements against known counts, maxima against closed forms, brute force, other
methods and flows.
"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mflandscape as mfl
from mflandscape import Attention, FreePerceptron, Perceptron, SoftmaxAttention
from mflandscape.stationary.arrangement import largest_piecewise_quadratic, region_bound, sign_regions
from mflandscape.stationary.maximisers import maximise
from mflandscape.weights import numpy_weights


def v(a, omega, x, bias=0.0):
    return np.maximum(x @ a.T + bias, 0) ** 2 @ omega


def drawn(seed, j, d):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(j, d)), rng.normal(size=j)


def rotation(d, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def sphere_points(n, d, seed=0):
    return unit(np.random.default_rng(seed).normal(size=(n, d)))


def differences(d):
    return np.array([np.eye(d)[i] - np.eye(d)[j] for i, j in itertools.combinations(range(d), 2)])


ARRANGEMENTS = {
    "coordinate": (np.eye(4), 16),
    "braid": (differences(4), 24),
    "braid, essential": (differences(4) @ np.linalg.svd(np.ones((1, 4)))[2][1:].T, 24),
    "B3": (np.concatenate([np.eye(3), differences(3), np.abs(differences(3))]), 48),
    "pencil": (np.array([[math.cos(t), math.sin(t), 0] for t in np.arange(7) * math.pi / 7]), 14),
    "general, d = 2": (drawn(0, 9, 2)[0], 18),
    "general, d = 3": (drawn(0, 11, 3)[0], region_bound(11, 3)),
    "general, d = 5": (drawn(0, 8, 5)[0], region_bound(8, 5)),
    "more dimensions than planes": (drawn(0, 3, 6)[0], 8),
    "none": (np.zeros((0, 3)), 1),
}


@pytest.mark.parametrize("name", ARRANGEMENTS)
def test_number_of_regions(name):
    rows, count = ARRANGEMENTS[name]
    signs, points = sign_regions(unit(rows) @ rotation(rows.shape[1]) if len(rows) else rows)
    assert len(signs) == len({tuple(s) for s in signs}) == count
    if len(rows):
        heights = points @ (unit(rows) @ rotation(rows.shape[1])).T
        assert (np.sign(heights) == signs).all() and np.abs(heights).min() > 1e-6
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, atol=1e-14)


def brute_force(a, omega):
    """All faces, all sign patterns: the largest value at an eigenvector of a form restricted to a flat."""
    j, d = a.shape
    best = -math.inf
    for k in range(d):
        for flat in itertools.combinations(range(j), k):
            basis = np.linalg.svd(a[list(flat)])[2][np.linalg.matrix_rank(a[list(flat)]) if k else 0 :].T
            rows = np.delete(a, flat, axis=0) @ basis
            active = np.array(list(itertools.product([0, 1], repeat=j - k)))
            forms = np.einsum("pj,j,ja,jb->pab", active, np.delete(omega, flat), rows, rows)
            vectors = np.linalg.eigh(forms)[1].swapaxes(1, 2).reshape(-1, basis.shape[1]) @ basis.T
            best = max(best, v(a, omega, vectors).max(), v(a, omega, -vectors).max())
    return best


@pytest.mark.parametrize(("j", "d"), [(1, 2), (4, 2), (8, 2), (3, 3), (8, 3), (2, 4), (5, 4), (8, 4)])
@pytest.mark.parametrize("kind", ["mixed", "negative", "degenerate"])
def test_enumeration_against_all_sign_patterns(j, d, kind):
    for seed in range(3):
        a, omega = drawn(seed, j, d)
        if kind == "negative":
            omega = -np.abs(omega)
        if kind == "degenerate":
            a, omega = np.sign(np.round(a)) + np.eye(j, d), np.round(2 * omega) / 2
        found = maximise(Perceptron(a, omega))
        scale = np.sum(np.abs(omega) * np.sum(a * a, axis=1))
        assert found.method == "arrangement" and found.rigorous and 0 <= found.gap < 1e-13 * max(scale, 1)
        assert abs(found.value - brute_force(a, omega)) < 1e-12 * max(scale, 1)
        np.testing.assert_allclose(v(a, omega, np.asarray(found.points)), found.value, atol=1e-10 * max(scale, 1))


@pytest.mark.parametrize(("j", "d"), [(12, 5), (6, 6), (30, 3)])
def test_nothing_that_climbs_gets_higher(j, d):
    a, omega = drawn(1, j, d)
    found = maximise(Perceptron(a, omega))
    x, lift = sphere_points(2000, d), np.linalg.norm(a.T * np.maximum(-omega, 0) @ a, 2)
    for _ in range(1000):  # v + lift |x|^2 is convex: each step climbs
        s = np.maximum(x @ a.T, 0)
        x = unit((s * omega) @ a + lift * x)
    values = v(a, omega, x)
    assert found.value - 1e-6 < values.max() <= found.value + 1e-12
    assert np.linalg.norm(x[values.argmax()] - np.asarray(found.points), axis=1).min() < 1e-2


@pytest.mark.parametrize("d", [2, 3, 5])
@pytest.mark.parametrize("sign", [1, -1])
def test_closed_form_collinear(d, sign):
    """Proposition 3.7 (i), rotated: `+-e` with the larger one-sided sum, or all x orthogonal to e."""
    e = rotation(d)[0]
    tau, length, omega = np.array([1, 1, -1, -1]), np.array([1.0, 2.0, 0.5, 3.0]), np.array([0.7, 0.2, -0.4, 0.3])
    omega = omega if sign > 0 else -np.abs(omega)
    found = maximise(Perceptron(length[:, None] * tau[:, None] * e, omega))
    sums = [np.sum((omega * length**2)[tau == side]) for side in (1, -1)]
    assert abs(found.value - max(*sums, 0)) < 1e-12
    if sign > 0:
        np.testing.assert_allclose(found.points, [e if sums[0] > sums[1] else -e], atol=1e-12)
        assert not found.continuum
    else:
        np.testing.assert_allclose(np.asarray(found.points) @ e, 0, atol=1e-12)
        assert found.dimensions.max() == d - 2 and len(found.points) == (2 if d == 2 else 1)


@pytest.mark.parametrize("d", [2, 3, 5])
@pytest.mark.parametrize("kind", ["one", "tie", "none"])
def test_closed_form_orthogonal(d, kind):
    """Proposition 3.7 (ii), rotated: `sign(alpha_j) e_j` of the largest `omega_j alpha_j^2`; ties; all negative."""
    q = rotation(d)
    alpha = np.linspace(-1.5, 2, d)
    c = {"one": np.linspace(-1, 2, d), "tie": np.r_[2.0, 2.0, -np.ones(d - 2)], "none": -np.linspace(1, 2, d)}[kind]
    found = maximise(Perceptron(alpha[:, None] * q, c / alpha**2))
    assert abs(found.value - max(c.max(), 0)) < 1e-12
    x = np.asarray(found.points)
    if kind == "one":
        np.testing.assert_allclose(x, np.sign(alpha[-1:, None]) * q[-1:], atol=1e-12)
    elif kind == "tie":  # an arc between the two
        assert len(x) == 1 and found.dimensions.tolist() == [1]
        assert abs(np.sum((x @ q[:2].T) ** 2) - 1) < 1e-12
    else:
        assert (alpha * (x @ q.T) <= 1e-12).all() and found.dimensions.tolist() == [d - 1]


@pytest.mark.parametrize(("j", "d"), [(2, 2), (6, 3), (7, 5)])
def test_closed_form_nonnegative(j, d):
    """Proposition 3.7 (iii): the top right singular vector of the rows `sqrt(omega_j) a_j`, taken nonnegative."""
    a, omega = np.abs(drawn(2, j, d)[0]), np.abs(drawn(2, j, d)[1])
    found = maximise(Perceptron(a, omega))
    _, size, rows = np.linalg.svd(np.sqrt(omega)[:, None] * a)
    assert abs(found.value - size[0] ** 2) < 1e-12 * size[0] ** 2
    np.testing.assert_allclose(found.points, [np.abs(rows[0])], atol=1e-12)


CONTINUA = {
    "dead cone": (-np.eye(3) - 0.1, np.ones(3) * -1.0, "relu", [2]),
    "all of the sphere": (np.concatenate([np.eye(3), -np.eye(3)]), np.ones(6), "relu", [2]),
    "a circle": (np.concatenate([np.eye(3)[:2], -np.eye(3)[:2]]), np.ones(4), "relu", [1]),
    "two poles": (np.concatenate([np.eye(3)[:2], -np.eye(3)[:2]]), -np.ones(4), "relu", [0, 0]),
    "four corners": (np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]]), np.array([1.0, 1, 1, 1]), "relu", [1]),
    "three arms": (unit(np.array([[1.0, 0], [-0.5, 0.75**0.5], [-0.5, -(0.75**0.5)]])), np.ones(3), "relu", [0] * 3),
    "an octant": (np.eye(3), np.ones(3), "relu", [2]),
    "an octant, leaky": (np.eye(3), np.ones(3), "leaky_relu", [2]),
    "no weights": (np.zeros((2, 4)), np.ones(2), "relu", [3]),
    "half of a ball": (np.eye(1, 4), -np.ones(1), "relu", [3]),
}


@pytest.mark.parametrize("name", CONTINUA)
def test_dimensions_of_continua(name):
    a, omega, activation, dimensions = CONTINUA[name]
    q = rotation(a.shape[1])
    found = maximise(Attention(2.0) + Perceptron(a @ q, omega, activation=activation))
    assert sorted(found.dimensions.tolist()) == dimensions
    assert found.continuum == (max(dimensions) > 0) and found.gap < 1e-13
    slope = 0.01 if activation == "leaky_relu" else 0
    s = sphere_points(4000, a.shape[1]) @ (a @ q).T
    assert ((np.maximum(s, 0) ** 2 + slope * np.minimum(s, 0) ** 2) @ omega).max() <= found.value + 1e-14


def test_rotated_scaled_and_divided_weights_have_the_same_maximisers():
    a, omega = drawn(3, 7, 4)
    q = rotation(4)
    one = maximise(Perceptron(a, omega))
    rotated = maximise(Perceptron(a @ q, omega))
    scaled = maximise(Perceptron(1e6 * a, 1e-30 * omega))
    divided = maximise(Perceptron(a[:3], omega[:3]) + Attention(3.0) + Perceptron(a[3:], omega[3:]))
    assert abs(rotated.value - one.value) < 1e-12 and abs(scaled.value * 1e18 - one.value) < 1e-12
    np.testing.assert_allclose(np.asarray(rotated.points), np.asarray(one.points) @ q, atol=1e-12)
    np.testing.assert_allclose(scaled.points, one.points, atol=1e-12)
    np.testing.assert_allclose(divided.points, one.points, atol=1e-12)
    assert abs(divided.energy - (1 / 3 + one.value) / 2) < 1e-12


def test_budget_of_regions_is_said():
    a, omega = drawn(1, 9, 4)
    limited = largest_piecewise_quadratic(a, -np.abs(omega), np.zeros(9), max_regions=region_bound(9, 4))
    full = largest_piecewise_quadratic(a, -np.abs(omega), np.zeros(9))
    assert limited.exhausted and not full.exhausted
    assert limited.value <= full.value + 1e-14 <= limited.bound + 2e-14


@pytest.mark.parametrize("d", [2, 3])
def test_search_agrees_with_the_arrangement(d):
    a, omega = drawn(4, 3, d)
    exact, searched = maximise(Perceptron(a, omega)), maximise(Perceptron(a, omega), max_regions=1)
    assert searched.method == "branch and bound" and searched.rigorous and searched.gap < 1e-9
    assert abs(exact.value - searched.value) < 1e-12
    np.testing.assert_allclose(searched.points, exact.points, atol=1e-7)


def gelu(s):
    normal, density = jax.scipy.stats.norm.cdf(s), np.exp(-s * s / 2) / math.sqrt(2 * math.pi)
    return (s * s - 1) * np.asarray(normal) + s * density + 0.5


@pytest.mark.parametrize("lifted", [2, 6])
def test_search_for_gelu_against_a_fine_grid(lifted):
    """On the circle, and for input vectors that span a line of `R^6`: `v` as a function of an angle."""
    rng = np.random.default_rng(5)
    a, omega, bias = rng.normal(size=(3, 2)), np.array([1.0, -2.0, -1.5]), np.array([0.3, -0.5, 0.8])
    if lifted > 2:
        a = a * np.array([1.0, 0.0])
    found = maximise(Perceptron(a @ np.eye(2, lifted) @ rotation(lifted), omega, bias, "gelu"))
    angles = np.linspace(0, 2 * math.pi, 400_001)
    values = gelu(np.stack([np.cos(angles), np.sin(angles)], axis=1) @ a.T + bias) @ omega
    assert found.method == "branch and bound" and found.rigorous and found.gap < 1e-9
    assert abs(found.value - values.max()) < 1e-9
    seen = np.asarray(found.points) @ (np.eye(2, lifted) @ rotation(lifted)).T
    best = np.array([np.cos(angles[values.argmax()]), np.sin(angles[values.argmax()])])
    inside = lifted > 2 and abs(best[0]) < 0.999
    np.testing.assert_allclose(seen[0, : 1 if lifted > 2 else 2], best[: 1 if lifted > 2 else 2], atol=1e-4)
    assert found.dimensions.tolist() == [4 if inside else 0]


@pytest.mark.slow
def test_above_three_dimensions_a_search_claims_nothing():
    a, omega = drawn(6, 5, 4)
    exact, searched = maximise(Perceptron(a, omega)), maximise(Perceptron(a, omega), max_regions=1)
    assert searched.method == "multi-start" and not searched.rigorous and searched.gap == math.inf
    assert abs(exact.value - searched.value) < 1e-10


def test_dead_zone_of_biased_neurons_is_a_continuum():
    a, _ = drawn(7, 4, 2)
    found = maximise(Perceptron(a, -np.ones(4), np.array([-0.3, -0.3, -0.3, -99.0])))
    assert found.value == 0 and found.rigorous and found.gap == 0 and found.dimensions.tolist() == [1]
    assert (np.asarray(found.points) @ a.T - 0.3 <= 0)[:, :3].all()


def test_matrices():
    """Alone, a matrix makes its principal eigenvectors best; a multiple of the identity changes nothing."""
    q = rotation(3)
    b = q.T @ np.diag([2.0, 2.0, 1.0]) @ q
    found = maximise(Attention(5.0, matrix=(b + b.T) / 2))
    assert found.dimensions.tolist() == [1] and abs(found.energy - 0.1) < 1e-12
    np.testing.assert_allclose(np.asarray(found.points) @ q[2], 0, atol=1e-12)
    a, omega = drawn(4, 3, 3)
    plain, scaled = (maximise(Attention(5.0, matrix=m) + Perceptron(a, omega)) for m in (None, 3 * np.eye(3)))
    assert (plain.value, plain.energy) == (scaled.value, scaled.energy)


def test_matrix_with_a_perceptron():
    """The sum is searched as a whole, against a fine grid, and nothing is certified."""
    a, omega = drawn(4, 3, 2)
    energy = Attention(5.0, matrix=np.diag([2.0, 0.5])) + Perceptron(a, omega)
    found = maximise(energy)
    angles = np.linspace(0, 2 * math.pi, 200_001)
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    values = v(a, omega, x) + np.exp(5 * (x**2 @ [2.0, 0.5] - 2)) / 5
    assert found.method == "multi-start" and not found.rigorous and found.gap == math.inf
    assert abs(found.value - values.max()) < 1e-8
    np.testing.assert_allclose(found.points, [x[values.argmax()]], atol=1e-4)
    assert abs(float(energy(mfl.empirical(found.points))) - found.energy) < 1e-12


def test_ascent_does_not_exceed_the_maximum_and_reaches_it():
    weights = numpy_weights(777, 2)
    energy = Attention(1.0) + Perceptron(weights.a, weights.omega)
    found = maximise(energy)
    dirac = mfl.empirical(found.points)
    assert abs(float(energy(dirac)) - found.energy) < 1e-14
    assert float(mfl.residual(energy, dirac)[0]) < 1e-14
    angle = float(mfl.sphere.to_angle(found.points)[0])
    everywhere, around = np.linspace(0, 2 * math.pi, 21)[1:], angle + np.linspace(-0.4, 0.5, 20)
    ends = [
        mfl.flow(energy, mfl.from_angles(theta), direction="ascent", stop=mfl.Stationary(1e-7) | mfl.MaxSteps(2000))
        for theta in (everywhere, around)
    ]
    energies = [float(energy(end.mu)) for end in ends]
    assert max(energies) <= found.energy + 1e-14 and energies[1] > found.energy - 1e-9


def test_single_precision_weights_give_single_precision_points():
    a, omega = drawn(0, 3, 3)
    found = maximise(Perceptron(jnp.asarray(a, jnp.float32), jnp.asarray(omega, jnp.float32)))
    assert found.points.dtype == jnp.float32 and abs(found.value - maximise(Perceptron(a, omega)).value) < 1e-5


def test_bad_input():
    a, omega = drawn(0, 3, 3)
    with pytest.raises(ValueError, match="SoftmaxAttention in the energy: expected a sum"):
        maximise(SoftmaxAttention(1.0) + Perceptron(a, omega))
    with pytest.raises(ValueError, match="sum of Attention and Perceptron"):
        maximise(FreePerceptron(a, a))
    with pytest.raises(ValueError, match="give d"):
        maximise(Attention(1.0))
    with pytest.raises(ValueError, match="dimension 3 for points of dimension 2"):
        maximise(Perceptron(a, omega), d=2)
    with pytest.raises(ValueError, match="dimension 2 for points of dimension 3"):
        maximise(Perceptron(a, omega) + Perceptron(a[:, :2], omega))
    with pytest.raises(ValueError, match="expected d >= 2"):
        maximise(Attention(1.0), d=1)
    with pytest.raises(ValueError, match="positive semidefinite"):
        maximise(Attention(1.0, matrix=np.diag([1.0, -1.0])))
    with pytest.raises(ValueError, match="tol = 0"):
        maximise(Perceptron(a, omega), tol=0.0)
    with pytest.raises(ValueError, match="overflow"):
        maximise(Perceptron(1e200 * a, omega))
    with pytest.raises(ValueError, match="outside jit"):
        jax.jit(lambda w: maximise(Perceptron(a, w)).value)(jnp.asarray(omega))
