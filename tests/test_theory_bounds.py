"""Window, curvature and mass bounds against mpmath, autodiff and stationary states in closed form."""

import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from mflandscape.theory import (
    concavity_window,
    curvature,
    heavy_atom_bound,
    lone_atom_bound,
    mass_bound,
    mass_bound_asymptotic,
    maximal_curvature,
)

BETAS = [0.0, 1e-6, 1e-3, 0.2, 1 / 3, 0.34, 1.0, 5.0, 50.0, 1e4, 1e6]
betas = pytest.mark.parametrize("beta", BETAS)


@betas
def test_window_to_the_last_digits(beta):
    with mpmath.workdps(60):
        b = mpmath.mpf(beta)
        cosine = (mpmath.sqrt(1 + 4 * b**2) - 1) / (2 * b) if beta else mpmath.mpf(0)
        assert concavity_window(beta) == pytest.approx(float(mpmath.acos(cosine)), rel=4e-16)
    tau = concavity_window(beta)
    assert (curvature([0.0, 0.5 * tau, 0.999 * tau], beta) < 0).all() and curvature(1.001 * tau, beta) > 0


@betas
def test_curvature_is_the_second_derivative_of_the_kernel(beta):
    t = np.linspace(-np.pi, np.pi, 11) / max(1.0, math.sqrt(beta) / 2)
    slope = jax.grad(lambda s: -jnp.sin(s) * jnp.exp(-2 * beta * jnp.sin(s / 2) ** 2))
    np.testing.assert_allclose(curvature(t, beta), jax.vmap(slope)(jnp.asarray(t)), rtol=1e-11, atol=1e-14)
    kernel = lambda s: np.expm1(-2 * beta * np.sin(s / 2) ** 2) / beta if beta else np.cos(s)  # noqa: E731
    h = 1e-3 / (1 + math.sqrt(beta))
    differences = (kernel(t + h) - 2 * kernel(t) + kernel(t - h)) / h**2
    np.testing.assert_allclose(curvature(t, beta), differences, atol=2e-6)


@betas
@pytest.mark.parametrize("share", [1e-3, 0.2, 0.5, 0.9, 1.0])
def test_largest_curvature_of_a_window(beta, share):
    diameter = share * math.pi
    fine = np.concatenate(
        [np.linspace(0, diameter, 20001), np.linspace(0, min(diameter, 3 / math.sqrt(beta + 1)), 20001)]
    )
    found, grid = maximal_curvature(beta, diameter), curvature(fine, beta).max()
    assert found >= grid - 1e-14 and found == pytest.approx(grid, rel=1e-6, abs=1e-12)
    assert maximal_curvature(beta) == pytest.approx(curvature(fine, beta).max(), rel=1e-6) or share < 1


def test_limits_of_the_constants():
    beta = 1e6
    assert maximal_curvature(beta) == pytest.approx(2 * math.exp(-1.5), rel=2e-6)
    assert -curvature(concavity_window(beta) / 2, beta) == pytest.approx(0.75 * math.exp(-0.125), rel=2e-6)
    assert math.sqrt(beta) * concavity_window(beta) == pytest.approx(1, rel=2e-6)
    assert (round(2 * math.exp(-1.5), 5), round(0.75 * math.exp(-0.125), 5)) == (0.44626, 0.66187)
    assert mass_bound_asymptotic() == pytest.approx(0.574192, abs=5e-7)
    assert mass_bound(beta).value == pytest.approx(0.4027, abs=5e-5)
    assert lone_atom_bound(beta).value == pytest.approx(0.3086, abs=5e-5)
    assert concavity_window(0) == pytest.approx(math.pi / 2) and maximal_curvature(0) == 1


@pytest.mark.parametrize("beta", [0.5, 2.0, 20.0])
def test_bounds_name_their_parts(beta):
    bound = mass_bound(beta, perceptron=0.3)
    b, c = maximal_curvature(beta), -float(curvature(concavity_window(beta) / 2, beta))
    assert (bound.b, bound.c, bound.p) == (b, c, 0.3)
    assert bound.value == pytest.approx((b + 0.3) / (b + c)) and bound.informative == (bound.value < 1)
    exponential = mass_bound(beta, perceptron=0.3, kernel="exponential")
    assert exponential.value == mass_bound(beta, perceptron=0.3 * math.exp(-beta)).value < bound.value
    assert lone_atom_bound(beta, 0.3, "exponential").value == pytest.approx(
        (b + 0.3 * math.exp(-beta)) / (b + 1), rel=1e-15
    )
    assert not mass_bound(beta, perceptron=2.0).informative and not lone_atom_bound(beta, 1.0).informative
    assert mass_bound(beta, concavity_window(beta) * 1.01).value == math.inf
    assert mass_bound(beta, 0.0).value == lone_atom_bound(beta).value < mass_bound(beta).value


def hessian(theta, m, wells, beta):
    """Of atoms in wells of curvature `v''/2 = wells` whose forces balance, as `H_ij / sqrt(m_i m_j)`."""
    k2 = curvature(theta[:, None] - theta, beta)
    off = -np.sqrt(np.outer(m, m)) * k2
    return off + np.diag((k2 * m).sum(axis=1) + np.asarray(wells))


@pytest.mark.parametrize("beta", [0.2, 1.0, 5.0, 50.0])
def test_two_atoms_obey_the_bound_with_equality_at_the_edge(beta):
    """Two atoms delta apart, alone, held by wells of curvature p: stable from `p = c` on, where the bound is 1."""
    delta = 0.4 * concavity_window(beta)
    c = -float(curvature(delta, beta))
    for p, stable in ((0.999 * c, False), (1.001 * c, True)):
        lowest = np.linalg.eigvalsh(hessian(np.array([0.0, delta]), np.array([0.5, 0.5]), [p, p], beta))[0]
        assert (lowest > 0) == stable
        assert mass_bound(beta, delta, p).informative == (not stable)


@pytest.mark.parametrize("beta", [1.0, 5.0, 25.0])
@pytest.mark.parametrize("k", [1, 2, 3, 5, 9])
def test_equispaced_atoms_obey_the_lone_atom_bound(beta, k):
    """The k-gon in wells of curvature p: its atoms do not split from `p = -sum_j k2(2 pi j/k)/k` on, which is positive
    (the uniform measure alone has the least energy).
    """
    p = -float(curvature(2 * np.pi * np.arange(k) / k, beta).mean())
    series = sum(-((n * k) ** 2) * 2 * float(mpmath.besseli(n * k, beta) * mpmath.exp(-beta)) for n in range(1, 60))
    assert p == pytest.approx(-series / beta, rel=1e-9, abs=1e-14) and p > -1e-15
    assert 1 / k <= lone_atom_bound(beta, max(p, 0)).value + 1e-15
    if k == 1:
        assert lone_atom_bound(beta, p).value == pytest.approx(1) and p == pytest.approx(1)


@pytest.mark.parametrize("beta", [1.0, 8.0, 60.0])
def test_stable_random_states_obey_the_cluster_bound(beta):
    """Atoms at random places in wells just steep and curved enough to hold them: no cluster is above its bound."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        half = concavity_window(beta) / 2
        theta = np.concatenate([rng.uniform(0, half, 3), rng.uniform(0, 2 * np.pi, 4)])
        m = rng.dirichlet(np.ones(7))
        p = max(0.0, -np.linalg.eigvalsh(hessian(theta, m, np.zeros(7), beta))[0])
        diameter = float(np.ptp(theta[:3]))
        assert m[:3].sum() <= mass_bound(beta, diameter, p).value + 1e-12


@pytest.mark.parametrize("beta", [0.1, 5.0, 50.0, 1e4])
def test_heavy_atoms(beta):
    half, bound = concavity_window(beta) / 2, mass_bound(beta).value
    found = heavy_atom_bound(beta, [0.0, 0.5 * half, 2.5 * half], 0.1)
    assert (found.intervals, found.per_interval) == (1 + 1 + 3, math.floor(bound / 0.1))
    assert found.count == found.intervals * found.per_interval and found.bound.value == bound
    assert heavy_atom_bound(beta, [2 * math.pi], 0.9).per_interval == 1
    strong = heavy_atom_bound(beta, [half / 2], 0.1, perceptron=5.0)
    assert strong.per_interval == 10 and not strong.bound.informative
    assert heavy_atom_bound(beta, np.array([half / 2]), bound / 3).per_interval == 3
    assert heavy_atom_bound(beta, [half / 2], 0.1, 5.0 * math.exp(min(beta, 700)), "exponential").per_interval <= 10


def test_heavy_atoms_grow_like_the_square_root():
    counts = [heavy_atom_bound(beta, [2 * math.pi], 0.1).count for beta in (1e4, 4e4)]
    assert counts[1] / counts[0] == pytest.approx(2, rel=0.01)


BAD = {
    "beta": (lambda: concavity_window(-1), "beta = -1.0.*expected"),
    "beta inf": (lambda: curvature(0.1, math.inf), "beta = inf"),
    "diameter": (lambda: mass_bound(1.0, 4.0), "diameter = 4.0.*pi"),
    "perceptron": (lambda: lone_atom_bound(1.0, -0.1), "perceptron = -0.1"),
    "kernel": (lambda: mass_bound(1.0, kernel="gauss"), "kernel 'gauss'.*shifted"),
    "mass": (lambda: heavy_atom_bound(1.0, [1.0], 0.0), "m0 = 0.0"),
    "no arcs": (lambda: heavy_atom_bound(1.0, [], 0.1), "arc_lengths"),
    "arc": (lambda: heavy_atom_bound(1.0, [7.0], 0.1), "arc_lengths"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, words = BAD[case]
    with pytest.raises(ValueError, match=words):
        call()
