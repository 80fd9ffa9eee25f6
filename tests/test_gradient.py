import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape import (
    Attention,
    Blocked,
    CircleFourier,
    Dense,
    Measure,
    Perceptron,
    empirical,
    first_variation,
    residual,
    sphere,
    velocity,
)
from mflandscape.gradient import dissipation, hessian_vector_product, sign

NEURONS = np.random.default_rng(5).normal(size=(4, 3)), np.array([0.7, -1.1, 0.4, 0.9])
B = np.array([[1.0, 0.3, 0.0], [0.3, -0.5, 0.2], [0.0, 0.2, 0.8]])
# A new energy is tested by being listed: name -> energy for points of dimension d (3 at most)
ENERGIES = {
    "attention": lambda d: Attention(5.0),
    "blocked": lambda d: Attention(5.0, interaction=Blocked(4)),
    "matrix": lambda d: Attention(2.0, matrix=B[:d, :d]),
    "perceptron": lambda d: Perceptron(NEURONS[0][:, :d], NEURONS[1], np.full(4, 0.1), "tanh"),
    "transformer": lambda d: Attention(5.0) + Perceptron(NEURONS[0][:, :d], NEURONS[1], activation="gelu"),
    "circle_fourier": lambda d: Attention(5.0, interaction=CircleFourier.for_beta(5.0)),
}
CASES = [(name, 3) for name in ENERGIES if name != "circle_fourier"] + [("transformer", 2), ("circle_fourier", 2)]
every = pytest.mark.parametrize("name,d", CASES)
directions = pytest.mark.parametrize("direction", ["descent", "ascent"])


def cloud(d, n=12, seed=1):
    w = np.random.default_rng(seed).uniform(0.2, 1, n)
    return empirical(sphere.uniform(jax.random.key(seed), n, d), w / w.sum())


def tangents(mu, seed=2):
    return sphere.tangent(mu.x, jax.random.normal(jax.random.key(seed), mu.x.shape))


def central(f, h):
    return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)


@jax.jit
def verbs(energy, mu, elsewhere, vectors):
    return {
        "ascent": velocity(energy, mu, "ascent"),
        "descent": velocity(energy, mu),
        "elsewhere": velocity(energy, mu, at=elsewhere),
        "gradient": jax.grad(lambda x: energy(mu.at(x)))(mu.x),
        "variation": first_variation(energy, elsewhere, mu),
        "residual": residual(energy, mu),
        "dissipation": {direction: dissipation(energy, mu, direction) for direction in ("ascent", "descent")},
        "hessian": jax.lax.map(lambda xi: hessian_vector_product(energy, mu, xi), vectors),
    }


@functools.cache
def computed(name, d):
    """All verbs at one measure; "elsewhere" are its own points, then others; the vectors are xi, eta and xi + 3x."""
    mu, nu = cloud(d), cloud(d, seed=7)
    xi, eta = tangents(mu), tangents(mu, 3)
    vectors = jnp.stack([xi, eta, xi + 3 * mu.x])
    return mu, nu, vectors, verbs(ENERGIES[name](d), mu, jnp.concatenate([mu.x, nu.x]), vectors)


@jax.jit
def along(energy, mu, h, v):
    """The energy after a geodesic step `h v`."""
    return energy(mu.at(sphere.exp(mu.x, h * v)))


@every
def test_first_variation_is_the_derivative_along_a_change_of_mass(name, d):
    """`d/ds E[mu + s (nu - mu)] = int U[mu] d(nu - mu)`, nu carried by other points."""
    energy, (mu, nu, _, out) = ENERGIES[name](d), computed(name, d)
    x = jnp.concatenate([mu.x, nu.x])
    mixed = jax.jit(lambda s: energy(Measure(x, jnp.concatenate([(1 - s) * mu.w, s * nu.w]))))
    expected = jnp.sum(nu.w * out["variation"][mu.n :]) - jnp.sum(mu.w * out["variation"][: mu.n])
    assert float(central(mixed, 1e-3)) == pytest.approx(float(expected), rel=1e-9)


@every
def test_gradient_of_the_particle_energy_is_weight_times_velocity(name, d):
    mu, _, _, out = computed(name, d)
    np.testing.assert_allclose(sphere.tangent(mu.x, out["gradient"]), mu.w[:, None] * out["ascent"], atol=1e-15)


@every
@directions
def test_energy_dissipates_at_the_rate_of_the_velocity(name, d, direction):
    """`dE/dt = s sum_i w_i |v_i|^2` against the energy's change along small Euler steps."""
    energy, (mu, _, _, out) = ENERGIES[name](d), computed(name, d)
    v, rate = out[direction], float(out["dissipation"][direction])
    assert rate == pytest.approx(sign(direction) * float(jnp.sum(mu.w * jnp.sum(v * v, axis=1))), rel=1e-14)
    assert float(central(lambda h: along(energy, mu, h, v), 1e-3)) == pytest.approx(rate, rel=1e-8)
    assert rate * sign(direction) > 0


@every
def test_velocities_are_tangent_and_opposite(name, d):
    mu, _, _, out = computed(name, d)
    np.testing.assert_allclose(jnp.sum(mu.x * out["ascent"], axis=1), 0, atol=1e-14)
    np.testing.assert_allclose(out["ascent"], -out["descent"], rtol=0, atol=1e-15)


@every
def test_the_field_at_the_particles_is_their_velocity(name, d):
    mu, _, _, out = computed(name, d)
    np.testing.assert_allclose(out["elsewhere"][: mu.n], out["descent"], atol=1e-14)


@every
def test_residual_is_the_largest_and_the_mean_square_speed(name, d):
    mu, _, _, out = computed(name, d)
    speed = np.linalg.norm(out["descent"], axis=1)
    assert float(out["residual"][0]) == pytest.approx(speed.max(), rel=1e-14)
    assert float(out["residual"][1]) == pytest.approx(np.sqrt(np.asarray(mu.w) @ speed**2), rel=1e-14)


@every
def test_hessian_is_the_second_derivative_along_geodesics(name, d):
    """`d^2/dh^2 E(exp(x, h xi)) = H[xi, xi]`, by fourth-order finite differences."""
    energy, (mu, _, (xi, *_), out) = ENERGIES[name](d), computed(name, d)
    e = [float(along(energy, mu, k * 2e-3, xi)) for k in range(-2, 3)]
    difference = (-e[0] + 16 * e[1] - 30 * e[2] + 16 * e[3] - e[4]) / (12 * 4e-6)
    assert float(pair(mu, xi, out["hessian"][0])) == pytest.approx(difference, rel=1e-5)


@every
def test_hessian_is_symmetric_tangent_and_blind_to_radial_vectors(name, d):
    mu, _, (xi, eta, _), out = computed(name, d)
    of_xi, of_eta, of_radial = out["hessian"]
    assert float(pair(mu, eta, of_xi)) == pytest.approx(float(pair(mu, xi, of_eta)), rel=1e-11, abs=1e-14)
    np.testing.assert_allclose(jnp.sum(of_xi * mu.x, axis=1), 0, atol=1e-14)
    np.testing.assert_allclose(of_radial, of_xi, atol=1e-13)


def pair(mu, xi, eta):
    """The metric `sum_i w_i <xi_i, eta_i>`."""
    return jnp.sum(mu.w * jnp.sum(xi * eta, axis=1))


@pytest.mark.parametrize("d", [2, 3])
def test_residual_vanishes_with_finite_derivatives_at_a_critical_point(d):
    """A Dirac mass is critical for attention."""
    mu = empirical(jnp.eye(d)[:1])
    assert [float(r) for r in residual(Attention(5.0), mu)] == [0.0, 0.0]
    assert bool(jnp.isfinite(jax.grad(lambda x: sum(residual(Attention(5.0), mu.at(x))))(mu.x)).all())


@pytest.mark.parametrize(
    "interaction", [Dense(), Blocked(5), CircleFourier.for_beta(50.0)], ids=["dense", "blocked", "fourier"]
)
def test_hessian_on_the_circle_is_the_closed_form(interaction):
    """`1/2 sum m_i m_j k2(t_i - t_j)(xi_i - xi_j)^2 + 1/2 sum m_i v'' xi_i^2`, v = omega (a.x)_+^2 here. [MATH,
    section 6]
    """
    rng = np.random.default_rng(0)
    t, xi, a, omega = rng.uniform(0, 2 * np.pi, 13), rng.normal(size=13), np.array([[0.6, -1.3]]), 0.8
    m, gap = np.arange(1, 14) / 91, t[:, None] - t[None, :]
    s, ds = a[0, 0] * np.cos(t) + a[0, 1] * np.sin(t), -a[0, 0] * np.sin(t) + a[0, 1] * np.cos(t)
    perceptron = 0.5 * np.sum(m * omega * np.where(s > 0, 2 * ds**2 - 2 * s**2, 0) * xi**2)
    mu = empirical(sphere.from_angle(jnp.asarray(t)), m)
    vectors = jnp.asarray(np.stack([-np.sin(t), np.cos(t)], 1) * xi[:, None])

    @jax.jit
    def form(beta):
        energy = Attention(beta, interaction=interaction) + Perceptron(a, np.array([omega]))
        return pair(mu, vectors, hessian_vector_product(energy, mu, vectors))

    for beta in (0.1, 5.0, 50.0):
        k2 = (beta * np.sin(gap) ** 2 - np.cos(gap)) * np.exp(beta * (np.cos(gap) - 1))
        attention = 0.5 * np.sum(m[:, None] * m * k2 * (xi[:, None] - xi) ** 2)
        assert float(form(jnp.asarray(beta))) == pytest.approx(attention + perceptron, abs=1e-14)


def test_the_hessian_of_a_rotation_turns_the_gradient():
    """Attention does not see rotations: as all points turn with `omega x`, the gradient turns with them."""
    mu, spin = cloud(3), jnp.asarray([[0.3, -1.0, 0.5]])
    turning = lambda v: jnp.cross(jnp.broadcast_to(spin, v.shape), v)  # noqa: E731
    expected = sphere.tangent(mu.x, turning(velocity(Attention(5.0), mu, "ascent")))
    np.testing.assert_allclose(hessian_vector_product(Attention(5.0), mu, turning(mu.x)), expected, atol=1e-14)


def test_descent_lowers_and_ascent_raises():
    energy, mu = Attention(5.0), cloud(3)
    step = lambda direction: energy(mu.at(sphere.exp(mu.x, 0.1 * velocity(energy, mu, direction))))  # noqa: E731
    assert float(step("descent")) < float(energy(mu)) < float(step("ascent"))


def test_unknown_directions_are_refused():
    with pytest.raises(ValueError, match="direction 'up': expected 'ascent' or 'descent'"):
        sign("up")
