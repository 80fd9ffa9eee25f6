import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import i0, ive

from mflandscape import Attention, CircleFourier, FreePerceptron, Perceptron, SoftmaxAttention, from_angles, velocity
from mflandscape.meanfield import (
    ENDINGS,
    Density,
    chaos,
    cosine_density,
    density_of_measure,
    density_of_moments,
    dobrushin_constant,
    growth_rate,
    measure_moments,
    solve_pde,
    uniform_density,
    von_mises_density,
)
from mflandscape.meanfield.field import energy, grid_field
from mflandscape.meanfield.fourier import grid_size
from mflandscape.measure import Measure
from mflandscape.theory import growth_rates, k_max
from mflandscape.transport import wasserstein

BETA, MODES = 5.0, 64
GAMMA = growth_rates(BETA, 2, range(MODES + 1))
K = k_max(BETA)
TIMES = (1 - np.cos(np.pi * np.arange(9) / 8)) / 2  # Chebyshev's points: nine values integrate to rounding
WEIGHTS = np.linalg.solve(np.vander(2 * TIMES - 1, 9, increasing=True).T, (1 - np.arange(9) % 2) / np.arange(1, 10))
A = np.asarray([[0.3, 1.0], [-1.2, 0.4], [0.5, -0.8]])
OMEGA = np.asarray([0.7, -0.4, 0.5])


def ascent(start, scale, **options):
    """One compiled program for all tests: attention, 64 modes, nine times."""
    return solve_pde(Attention(BETA), start, scale * TIMES, direction="ascent", **options)


def noisy(modes=MODES, seed=0, size=0.05):
    rng = np.random.default_rng(seed)
    return cosine_density(modes, {k: (size, rng.uniform(0, 6)) for k in range(1, 6)})


def test_densities_and_their_moments():
    rho = von_mises_density(40, 3.0, 1.2)
    theta = 2 * np.pi * np.arange(200) / 200
    exact = np.exp(3 * np.cos(theta - 1.2)) / (2 * np.pi * i0(3))
    np.testing.assert_allclose(rho.values(200), exact, atol=1e-14)
    np.testing.assert_allclose(rho.amplitude(2), ive(2, 3) / ive(0, 3), rtol=1e-13)
    np.testing.assert_allclose(rho.resized(60).resized(40).moments, rho.moments)
    for cells in (7, 64):  # fewer cells than modes, and more
        masses = rho.cell_masses(cells)
        first = quad(lambda t: np.exp(3 * np.cos(t - 1.2)) / (2 * np.pi * i0(3)), 0, 2 * np.pi / cells)[0]
        assert masses[0] == pytest.approx(first, rel=1e-12) and masses.sum() == pytest.approx(1, rel=1e-14)
    wave = cosine_density(8, {3: (0.4, 0.5)})
    np.testing.assert_allclose(wave.values(200), (1 + 0.4 * np.cos(3 * theta + 0.5)) / (2 * np.pi), atol=1e-15)
    np.testing.assert_allclose(
        wave.rotated(0.3).values(200), (1 + 0.4 * np.cos(3 * (theta - 0.3) + 0.5)) / (2 * np.pi), atol=1e-15
    )


def test_particles_and_densities():
    rng = np.random.default_rng(0)
    angles, w = rng.uniform(0, 6, 30), rng.dirichlet(np.ones(30))
    sums = np.exp(1j * np.arange(13)[:, None] * angles) @ w
    pairs = np.asarray(measure_moments(from_angles(angles, w), 12))
    np.testing.assert_allclose(pairs[:, 0] + 1j * pairs[:, 1], sums, atol=1e-14)
    smooth = density_of_measure(from_angles(angles, w), 200, 0.1)
    wrapped = sum(np.exp(-((1.0 - angles + 2 * np.pi * turn) ** 2) / 0.02) @ w for turn in (-1, 0, 1))
    at_one = np.asarray(smooth.rotated(-1.0).values(401))[0]
    assert at_one == pytest.approx(wrapped / np.sqrt(2 * np.pi * 0.01), rel=1e-10)
    rho = von_mises_density(40, 3.0, 1.2)
    np.testing.assert_allclose(measure_moments(rho.lattice(4000), 3), rho.moments[:4], atol=1e-6)
    np.testing.assert_allclose(measure_moments(rho.sample(0, 4000), 3), rho.moments[:4], atol=0.05)


def drifts():
    perceptron = Perceptron(A, OMEGA, activation="gelu")
    attention = Attention(BETA) + Attention(2.0)
    return {
        "heads": attention,
        "softmax": SoftmaxAttention(BETA) + Perceptron(A, OMEGA),
        "energy": attention + perceptron,
        "free": SoftmaxAttention(0.0) + FreePerceptron(A, np.ones((3, 2)), activation="tanh"),
        "matrix": Attention(1.0, matrix=np.diag([1.0, -0.5])) + perceptron,
    }


@pytest.mark.parametrize("name", drifts())
def test_velocity_and_energy_are_those_of_particles_on_the_grid(name):
    drift, rho, size = drifts()[name], noisy(), grid_size(MODES)
    mu = Measure(from_angles(2 * np.pi * np.arange(size) / size).x, rho.values(size) * (2 * np.pi / size))
    v = velocity(drift, mu, "descent")
    found = grid_field(drift, MODES, size, "descent", mu.x.dtype).velocity(rho.moments)
    np.testing.assert_allclose(found, v[:, 1] * mu.x[:, 0] - v[:, 0] * mu.x[:, 1], atol=1e-13)
    if name in ("heads", "energy", "matrix"):
        assert float(energy(drift, rho.moments, size)) == pytest.approx(float(drift(mu)), rel=1e-12)


@pytest.mark.parametrize("normalised", [False, True])
def test_small_perturbations_grow_at_the_linear_rate(normalised):
    gamma = growth_rates(BETA, 2, range(MODES + 1), normalised)
    start = cosine_density(MODES, {K: (1e-9, 0.4), K + 1: (1e-9, 1.0), 1: (1e-9, 2.0)})
    drift = SoftmaxAttention(BETA) if normalised else Attention(BETA)
    times = 5 / gamma[K] * TIMES
    solution = solve_pde(drift, start, times, direction="ascent", atol=1e-20)
    for k in (1, K, K + 1):
        fit = growth_rate(times, solution.densities.amplitude(k))
        assert fit.slope == pytest.approx(gamma[k], rel=1e-6) and fit.points == 9
    assert bool(jnp.isnan(solution.energy).all()) == normalised


def test_mass_energy_and_rotations():
    start = noisy()
    solution = ascent(start, 2 / GAMMA[K], rtol=1e-11)
    assert solution.result == ENDINGS.reached and bool(solution.reached.all())
    assert np.abs(np.asarray(solution.mass) - 1).max() < 1e-13
    assert float(solution.least.min()) > 0 and float(solution.tail.max()) < 1e-6
    gained = np.asarray(solution.energy)
    assert (np.diff(gained) > 0).all()
    total = 2 / GAMMA[K] * WEIGHTS @ np.asarray(solution.dissipation)
    assert gained[-1] - gained[0] == pytest.approx(total, rel=1e-7)
    turned = ascent(start.rotated(0.7), 2 / GAMMA[K], rtol=1e-11)
    np.testing.assert_allclose(turned.end.moments, solution.end.rotated(0.7).moments, atol=1e-9)
    np.testing.assert_allclose(solution.end.moments, solution.densities.at(-1).moments, atol=1e-14)


def test_descent_is_ascent_backwards():
    start = noisy()
    scale = 1.5 / GAMMA[K]
    there = ascent(start, scale, rtol=1e-12)
    back = solve_pde(Attention(BETA), there.end, scale * TIMES, direction="descent", rtol=1e-12)
    np.testing.assert_allclose(back.end.moments, start.moments, atol=1e-9)
    assert (np.diff(np.asarray(back.energy)) < 0).all()


def test_spectral_convergence():
    ends = {m: ascent(noisy(m), 1.5 / GAMMA[K], rtol=1e-12, tail=1.0).end for m in (16, 24, MODES)}
    coarse, fine = (float(jnp.abs(ends[m].moments - ends[MODES].resized(m).moments)[:16].max()) for m in (16, 24))
    assert 1e-7 < coarse < 1e-4
    assert fine < 1e-3 * coarse  # the order is 17 here, and grows: faster than any power


def test_a_forming_atom_ends_the_solution():
    solution = ascent(cosine_density(MODES, {K: (0.01, 0.0)}), 16 / GAMMA[K])
    assert solution.result == ENDINGS.under_resolved and "modes" in ENDINGS[solution.result]
    reached = np.asarray(solution.reached)
    assert 1 < reached.sum() < 9 and (np.diff(reached.astype(int)) <= 0).all()
    assert solution.times[reached.sum() - 1] <= solution.time < solution.times[-1]
    assert np.isnan(np.asarray(solution.energy)[~reached]).all() and np.isfinite(solution.end.moments).all()
    patient = ascent(cosine_density(MODES, {K: (0.01, 0.0)}), 16 / GAMMA[K], tail=1e-3)
    assert patient.time > solution.time


def test_dobrushin_bounds_the_velocity():
    drift = Attention(BETA) + Perceptron(A, OMEGA, activation="gelu")
    rng = np.random.default_rng(0)
    grid = from_angles(np.linspace(0, 6.28, 400)).x

    def slope(mu):
        v = velocity(drift, mu, at=grid)
        return np.asarray(v[:, 1] * grid[:, 0] - v[:, 0] * grid[:, 1])

    a, b = (from_angles(rng.uniform(0, 6, 50)) for _ in range(2))
    for beta in (0.0, 1.0, 25.0):
        assert dobrushin_constant(Attention(beta)) == pytest.approx(2.0)
    local = dobrushin_constant(drift) - 1
    assert np.abs(np.diff(slope(a))).max() / (6.28 / 399) <= local
    assert np.abs(slope(a) - slope(b)).max() <= wasserstein(a, b)
    with pytest.raises(ValueError, match="SoftmaxAttention"):
        dobrushin_constant(SoftmaxAttention(1.0))


def test_wrong_requests_are_refused():
    flat = uniform_density(8)
    for times in ([1.0, 0.5], [-1.0], [np.inf], []):
        with pytest.raises(ValueError, match="increasing"):
            solve_pde(Attention(1.0), flat, times)
    with pytest.raises(ValueError, match="one density"):
        solve_pde(Attention(1.0), Density(jnp.ones((2, 9, 2))), [1.0])
    with pytest.raises(ValueError, match="tolerances"):
        solve_pde(Attention(1.0), flat, [1.0], rtol=0.0)
    with pytest.raises(ValueError, match="dimension"):
        solve_pde(Perceptron(np.ones((1, 3)), np.ones(1)), flat, [1.0])
    for build in (
        lambda: cosine_density(8, {9: (0.1, 0.0)}),
        lambda: cosine_density(8, {1: (0.7, 0.0), 2: (0.7, 0.0)}),
        lambda: von_mises_density(8, -1.0),
        lambda: density_of_moments(np.ones((1, 2))),
        lambda: density_of_moments(np.full((4, 2), 0.5)),
        lambda: density_of_measure(Measure(jnp.eye(3), jnp.full(3, 1 / 3)), 8),
        lambda: uniform_density(0),
        lambda: flat.values(10),
        lambda: growth_rate([0.0, 1.0], [1e-3, 1e-2]),
        lambda: chaos(Attention(1.0), flat, [1.0], [10], [0, 1]),
    ):
        with pytest.raises(ValueError, match="expected"):
            build()


@pytest.mark.slow
@pytest.mark.parametrize("activation, direction", [("gelu", "descent"), ("gelu", "ascent"), ("relu", "descent")])
def test_convergence_with_a_perceptron(activation, direction):
    drift = Attention(BETA) + Perceptron(A, OMEGA, activation=activation)
    ends = {}
    for modes in (16, 32, 64, 512):
        ends[modes] = solve_pde(drift, noisy(modes), [1.0], direction=direction, tail=1.0, rtol=1e-11).end
    errors = [float(jnp.abs(ends[m].resized(8).moments - ends[512].resized(8).moments).max()) for m in (16, 32, 64)]
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    if activation == "gelu":
        assert orders[1] > 8 or errors[2] < 1e-10
    else:
        assert 1.0 < orders.mean() < 5 and errors[2] > 1e-9


@pytest.mark.slow
def test_step_limit_and_particles_beside_the_density():
    with pytest.raises(RuntimeError, match="step limit"):
        solve_pde(Attention(BETA), noisy(), [50.0], max_steps=2)
    few = solve_pde(Attention(BETA), noisy(), [50.0], max_steps=2, throw=False)
    assert few.result == ENDINGS.max_steps and not bool(few.reached.any())
    drift = Attention(BETA, interaction=CircleFourier.for_beta(BETA))
    rho, times = noisy(256), [1.0, 3.0]
    found = chaos(drift, rho, times, (1000, 4000, 16000), range(8))
    for order in (1, 2):
        for i in range(2):
            fit = found.slope(order, i)
            assert -0.6 < fit.slope < -0.4 and fit.error < 0.1
    start = np.mean([wasserstein(rho.sample(seed, 16000), rho) for seed in range(8)])
    assert (found.w1[2].mean(axis=0) <= start * np.exp(dobrushin_constant(drift) * np.asarray(times))).all()


@pytest.mark.slow
@pytest.mark.parametrize("beta", [5.0, 25.0, 50.0, 100.0])
def test_modes_around_the_fastest_grow_at_their_rates(beta):
    k = k_max(beta)
    around = range(max(1, k - 2), k + 3)
    gamma = growth_rates(beta, 2, range(k + 3))
    times = 4 / gamma[k] * TIMES
    start = cosine_density(128, {q: (1e-4, float(q)) for q in around})
    solution = solve_pde(Attention(beta), start, times, direction="ascent")
    for q in around:
        assert growth_rate(times, solution.densities.amplitude(q)).slope == pytest.approx(gamma[q], rel=1e-2)
