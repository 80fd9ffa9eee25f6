"""Clusters beside their bounds: states whose Hessian is known, hypotheses that fail one at a time, numbers by hand."""

import math

import numpy as np
import pytest

import mflandscape as mfl
from mflandscape.measure import equispaced, from_angles
from mflandscape.stationary.check_bounds import check_bounds

BETA = 5.0
TAU = math.acos((math.sqrt(1 + 4 * BETA**2) - 1) / (2 * BETA))


def k2(t):
    return (BETA * np.sin(t) ** 2 - np.cos(t)) * np.exp(BETA * (np.cos(t) - 1))


def well(omega, beta=BETA):
    return mfl.Attention(beta) + mfl.Perceptron(np.array([[1.0, 0.0]]), np.array([omega]))


def test_dense_equispaced_atoms_meet_every_hypothesis():
    """Forty atoms on the circle, two in each arc of `tau/2`: an SOPD critical point in both conventions."""
    found = check_bounds(mfl.Attention(BETA), equispaced(40), kernel="exponential")
    np.testing.assert_allclose([found.tau, found.threshold], [TAU, TAU / 2], rtol=1e-14)
    t = np.linspace(0, math.pi, 400_001)
    b, c = k2(t).max(), -k2(t[t <= 2 * math.pi / 40]).max()
    assert len(found.clusters) == 20 and sorted(i for c in found.clusters for i in c.points) == list(range(40))
    for cluster in found.clusters:
        assert cluster.atoms == 2 and cluster.unmet == cluster.theorem_unmet == ()
        np.testing.assert_allclose([cluster.mass, cluster.diameter], [1 / 20, math.pi / 20], rtol=1e-12)
        np.testing.assert_allclose([cluster.exact.b, cluster.exact.c], [b, c], rtol=1e-4)
        np.testing.assert_allclose(cluster.exact.value, b / (b + c), rtol=1e-4)
        assert cluster.within_exact and cluster.within_asymptotic and cluster.verdict == "holds"
        np.testing.assert_allclose(abs(cluster.centre / (math.pi / 20) % 1), 0.5, atol=1e-9)
    assert round(found.asymptotic, 4) == 0.5742 and found.heavy_atoms == 0 and found.heavy.intervals == 20


def test_a_pair_too_heavy_is_a_saddle():
    """All the mass in one cluster exceeds the bound, so the Hessian must have a negative eigenvalue, and has."""
    found = check_bounds(mfl.Attention(BETA), from_angles(np.array([-0.05, 0.05])), stationary_tol=1.0)
    (cluster,) = found.clusters
    assert not cluster.within_exact and not cluster.within_asymptotic and cluster.exact.informative
    assert found.classification.kind == "saddle" and "a saddle" in cluster.verdict
    assert cluster.centre == pytest.approx(0, abs=1e-12) or cluster.centre == pytest.approx(2 * math.pi)
    assert (
        check_bounds(mfl.Attention(BETA), from_angles(np.array([-0.05, 0.05])))
        .clusters[0]
        .unmet[0]
        .startswith("not stationary, residual")
    )


@pytest.mark.parametrize("seed", range(6))
def test_the_hessian_implies_the_bound(seed):
    """Positions at random, stationary or not: whenever the Hessian is positive on zero-mean vectors, mass <= bound."""
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(0, 2 * math.pi, 12))
    m = rng.uniform(0.2, 1, 12)
    m[:4], t[:4] = 3.0, 1 + 0.05 * np.arange(4)
    mu = from_angles(t, m / m.sum())
    found = check_bounds(well(2.0 * seed), mu, threshold=0.4)
    bend = 2.0 * seed * np.where(np.cos(t) > 0, np.sin(t) ** 2 - np.cos(t) ** 2, 0)
    weights = np.asarray(mu.w)
    form = weights[:, None] * weights[None, :] * k2(t[:, None] - t[None, :])
    form = np.diag(form.sum(axis=1) + weights * bend) - form
    for cluster in found.clusters:
        inside = list(cluster.points)
        np.testing.assert_allclose(cluster.exact.p, np.maximum(bend[inside], 0).max(), atol=1e-12)
        if len(inside) > 1:
            zero_mean = np.diff(np.eye(12)[inside], axis=0) / weights
            assert np.linalg.eigvalsh(zero_mean @ form @ zero_mean.T)[0] < 0 or cluster.within_exact


@pytest.mark.parametrize("omega, stable", [(-3.0, True), (-0.5, False)])
def test_lone_atom(omega, stable):
    """Splitting stability `-1 - omega >= 0` decides; the perceptron's term is 0 where it is concave."""
    found = check_bounds(well(omega), from_angles(np.array([0.0])), heavy_mass=0.3)
    (cluster,) = found.clusters
    assert cluster.atoms == 1 and cluster.exact.c == 1 and cluster.exact.p == pytest.approx(-omega)
    np.testing.assert_allclose(cluster.exact.value, (cluster.exact.b - omega) / (cluster.exact.b + 1), rtol=1e-14)
    assert cluster.verdict.startswith("says nothing" if stable else "not applicable: the atom gains by splitting")
    assert "a lone atom" in " ".join(cluster.theorem_unmet) and "shifted kernel" in " ".join(cluster.theorem_unmet)
    assert found.heavy_atoms == 1 <= found.heavy.count


def test_convention_decides_about_the_theorem_only():
    mu = from_angles(np.array([-0.01, 0.01]))
    shifted, exponential = (
        check_bounds(well(-3.0), mu, kernel=kernel, stationary_tol=1.0) for kernel in ("shifted", "exponential")
    )
    assert shifted.clusters[0].exact == exponential.clusters[0].exact
    assert any("shifted kernel" in reason for reason in shifted.clusters[0].theorem_unmet)
    assert not any("shifted kernel" in reason for reason in exponential.clusters[0].theorem_unmet)
    wide = check_bounds(well(-3.0), from_angles(np.array([-0.5, 0.5])), threshold=1.5, stationary_tol=1.0).clusters[0]
    assert "wider than tau/2" in wide.theorem_unmet and "wider than the kernel is concave" in wide.unmet


@pytest.mark.parametrize(
    "energy, mu, options, message",
    [
        (mfl.Attention(1.0), mfl.empirical(np.eye(3)), {}, "d = 3: the bounds are theorems about the circle"),
        (mfl.Attention(1.0) + mfl.Attention(2.0), equispaced(2), {}, "expected one Attention without matrix"),
        (mfl.Attention(1.0, matrix=np.eye(2)), equispaced(2), {}, "expected one Attention without matrix"),
        (mfl.Attention(1.0), equispaced(2), {"threshold": 4.0}, "threshold = 4.0"),
        (mfl.Attention(1.0), equispaced(2), {"heavy_mass": 0.0}, "m0 = 0.0"),
    ],
)
def test_refuses_what_it_cannot_take(energy, mu, options, message):
    with pytest.raises(ValueError, match=message):
        check_bounds(energy, mu, **options)
