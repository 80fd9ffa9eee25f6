"""Double Fourier series on the sphere against SciPy, NumPy's double loop, `Dense` at the poles, and rotations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln, ive, lpmv

from mflandscape import Attention, Dense, Measure, SoftmaxAttention, sphere, velocity
from mflandscape.drifts import prepare
from mflandscape.interactions import SphereFourier, double_fourier
from mflandscape.interactions.double_fourier import legendre_table
from mflandscape.kernels import Exponential, KernelTangent
from mflandscape.special import fourier_modes, scaled_bessel, scaled_bessel_host, series_tails, series_tolerance

DEGREES = {1: 15, 5: 25, 10: 32, 50: 64, 100: 89, 1000: 273, 10000: 859}  # MATH, section 4: 1e-16 of the kernel itself
AXES = np.concatenate([np.eye(3), -np.eye(3)])
T = np.linspace(-1, 1, 41)
both = pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])


@pytest.mark.parametrize("beta", [0.1, 5.0, 50.0, 1e4])
def test_eigenvalues_are_scipys(beta):
    """On the device and on the host: `(pi/2 beta)^{1/2} ive(l + 1/2, beta)`."""
    degree = fourier_modes(beta, np.float64, 3)
    expected = np.sqrt(np.pi / (2 * beta)) * ive(np.arange(degree + 1) + 0.5, beta)
    values, divided = scaled_bessel(jnp.asarray(beta), degree, 3)
    np.testing.assert_allclose(values, expected, rtol=0, atol=3e-14 * expected[0])
    np.testing.assert_allclose(divided[1:], expected[1:] / beta, rtol=0, atol=3e-14 * expected[0] / beta)
    np.testing.assert_allclose(divided[0], (expected[0] - 1) / beta, rtol=1e-12)
    host = scaled_bessel_host(beta, degree + 30, 3)[: degree + 1]
    np.testing.assert_allclose(host, expected, rtol=0, atol=3e-14 * expected[0])


@pytest.mark.parametrize("beta", [0.0, 1e-9, 0.1, 5.0, 50.0])
def test_the_legendre_series_is_the_profile(beta):
    """For orders 0 to 2; computed on the spot, tabulated, and along a change of beta."""
    kernel = Exponential(beta, centred=True)
    along_beta = eqx.tree_at(lambda k: (k.beta, k.shift), kernel, (jnp.ones(()), None))
    for one in (kernel, kernel.tabulate(90, 3), KernelTangent(kernel, along_beta)):
        for order in range(3):
            series = np.polynomial.legendre.legval(T, np.asarray(one.legendre_series(90, order)))
            expected = one.profile(jnp.asarray(T)[None], order)[0]
            np.testing.assert_allclose(series, expected, rtol=0, atol=2e-14 * max(1, beta) ** order)


def test_the_series_holds_the_constant_too():
    difference = Exponential(5.0).legendre_series(30) - Exponential(5.0).centre().legendre_series(30)
    np.testing.assert_allclose(difference, np.eye(31)[0] / 5, atol=1e-16)


def test_the_table_holds_the_legendre_functions():
    """`((l - m)!/(l + m)!)^{1/2} P_l^m(cos theta)` for all m, l <= 35, at angles that are on no grid."""
    table, theta = np.asarray(legendre_table(18, np.dtype(float))), np.linspace(0.01, 3.1, 17)
    for m in range(36):
        waves = (np.cos if m % 2 == 0 else np.sin)(np.arange(36)[:, None] * theta)
        for degree in range(36):
            got = table[m % 2, m // 2, degree % 2, degree // 2] @ waves[degree % 2 :: 2]
            size = np.exp((gammaln(abs(degree - m) + 1) - gammaln(degree + m + 1)) / 2) * (m <= degree)
            np.testing.assert_allclose(got, (-1) ** m * size * lpmv(m, degree, np.cos(theta)), rtol=0, atol=1e-13)


def test_a_sum_is_cut_after_its_degree():
    """An even degree, where the tables hold one more."""
    x, y = sphere.uniform(jax.random.key(0), 7, 3), sphere.uniform(jax.random.key(1), 9, 3)
    q, kernel = jnp.sin(jnp.arange(18.0)).reshape(9, 2), Exponential(3.0)
    got = jax.jit(SphereFourier(4).apply)(kernel, x, y, q)
    series = np.asarray(kernel.legendre_series(4))
    np.testing.assert_allclose(got, np.polynomial.legendre.legval(x @ y.T, series) @ q, rtol=0, atol=1e-14)


def cloud(n, dtype=jnp.float64):
    """Uniform points, the six ends of the axes among them, and points close to one."""
    x = sphere.uniform(jax.random.key(3), n, 3, dtype)
    near = AXES[2] + np.array([[1e-9, -2e-9, 0], [0, 1e-30, 0], [1e-170, 1e-170, 0]])
    return x.at[:9].set(jnp.asarray(np.concatenate([AXES, near]), dtype))


def double_loop(beta, x, targets):
    """Attention's velocity (ascent) of equal weights in NumPy, and with softmax."""
    x = np.asarray(x, float)
    k = np.exp(beta * (x[:targets] @ x.T - 1)) / len(x)
    g = k @ x
    g = g - np.sum(g * x[:targets], axis=1, keepdims=True) * x[:targets]
    return g, g / np.sum(k, axis=1, keepdims=True)


@both
def test_a_velocity_is_the_double_loop(dtype):
    """Several betas as lanes of one program, some thousands of points in blocks and a rest."""
    betas, n = [0.0, 0.1, 10.0, 50.0], 2503
    x, evaluator = cloud(n, dtype), SphereFourier(SphereFourier.for_beta(50.0, dtype).degree, 512)

    def fields(beta):
        pair = Attention(beta, interaction=evaluator), SoftmaxAttention(beta, interaction=evaluator)
        mu = Measure(x, jnp.full(n, 1 / n, dtype))
        return [velocity(prepare(drift), mu, "ascent") for drift in pair]

    got = jax.jit(jax.vmap(fields))(jnp.asarray(betas))
    for i, beta in enumerate(betas):
        plain, softmax = double_loop(beta, x, 400)
        assert got[0].dtype == dtype
        tolerance = 1e-15 if dtype == jnp.float64 else 1e-7  # of the total mass; Dense errs by 2e-8
        np.testing.assert_allclose(got[0][i, :400], plain, rtol=0, atol=tolerance)
        normaliser = np.exp(beta * (np.asarray(x[:400]) @ np.asarray(x).T - 1)).mean(axis=1).min()
        np.testing.assert_allclose(got[1][i, :400], softmax, rtol=0, atol=2 * tolerance / normaliser)


def test_a_large_beta_is_exact_too():
    beta, n = 1000.0, 300
    x, energy = cloud(n), Attention(beta, interaction=SphereFourier.for_beta(beta))
    got = jax.jit(lambda x: velocity(energy, Measure(x, jnp.full(n, 1 / n)), "ascent"))(x)
    np.testing.assert_allclose(got, double_loop(beta, x, n)[0], rtol=0, atol=1e-15)


@pytest.mark.parametrize("turn", ["rotated", "not_rotated"])
def test_derivatives_of_a_velocity_agree_with_dense_at_the_poles(turn, monkeypatch):
    """All particles move. Without the rotation some lie exactly on the frame's poles; at pole and off, block and
    rest.
    """
    if turn == "not_rotated":
        monkeypatch.setattr(double_fourier, "_TURN", np.eye(3))
    x, n = cloud(41), 41
    dx = sphere.tangent(x, jax.random.normal(jax.random.key(4), x.shape))

    def derivatives(interaction):
        energy = Attention(20.0, interaction=interaction)
        f = lambda z: velocity(energy, Measure(z, jnp.full(n, 1 / n)))  # noqa: E731
        value, change = jax.jvp(f, (x,), (dx,))
        return value, sphere.tangent(x, change), sphere.tangent(x, jax.vjp(f, x)[1](dx)[0])

    got, expected = (jax.jit(lambda i=i: derivatives(i))() for i in (SphereFourier(48, 16), Dense()))
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)


def test_velocities_turn_with_the_points():
    x, energy = cloud(100), Attention(10.0, interaction=SphereFourier.for_beta(10.0))
    turn = jnp.linalg.qr(jax.random.normal(jax.random.key(5), (3, 3)))[0]
    f = jax.jit(lambda x: velocity(energy, Measure(x, jnp.full(100, 0.01))))
    np.testing.assert_allclose(f(x @ turn), f(x) @ turn, rtol=0, atol=1e-15)


def test_lanes_of_a_sweep_share_the_legendre_functions():
    """`out_axes=None` is refused for what differs from lane to lane."""
    table = lambda beta: SphereFourier(9).prepare(Exponential(beta)).table  # noqa: E731
    shapes = jax.eval_shape(jax.vmap(table, out_axes=(0, 0, None)), jnp.ones(7))
    assert [s.shape for s in shapes] == [(7, 10), (7, 10), (2, 5, 2, 5, 5)]


@pytest.mark.parametrize("beta", DEGREES)
def test_the_degree_is_that_of_the_mathematics(beta):
    """The table counts the kernel's terms, l = 0 among them; velocities weigh degree l by l."""
    terms = SphereFourier.for_beta(float(beta)).degree + 1
    assert DEGREES[beta] <= terms <= 1.1 * DEGREES[beta] + 3


@pytest.mark.parametrize("beta", [0.1, 5.0, 50.0, 1000.0])
@both
def test_the_degree_is_the_least_that_makes_the_tail_rounding(beta, dtype):
    """With fewer the tail says so."""
    degree, tolerance = SphereFourier.for_beta(np.array([0.0, beta]), dtype).degree, series_tolerance(dtype)
    tails = series_tails(beta, int(12 * np.sqrt(beta) + 40), 3)
    assert tails[degree] < tolerance <= tails[degree - 1]
    kernel = Exponential(jnp.asarray(beta, dtype))
    assert 0 < float(SphereFourier(degree).series_tail(kernel)) <= 1
    assert float(SphereFourier(degree - 2).series_tail(kernel)) > 1
    np.testing.assert_allclose(
        SphereFourier(degree - 2).series_tail(kernel),
        tails[degree - 2] / tolerance,
        rtol=1e-10 if dtype != jnp.float32 else 1e-3,
    )


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, jax.grad])
def test_a_traced_beta_cannot_choose_the_degree(transform):
    argument = jnp.ones(3) if transform is jax.vmap else jnp.asarray(5.0)
    with pytest.raises(ValueError, match=r"traced beta.*outside jit.*SphereFourier.for_beta\(max\(betas\)\)"):
        transform(lambda b: b * SphereFourier.for_beta(b).degree)(argument)


BAD = {
    "dimension": (lambda: SphereFourier(9).check(2, False), "dimension 2.*d = 3; use Dense or Blocked"),
    "matrix": (lambda: SphereFourier(9).check(3, True), "matrix B.*use Dense or Blocked"),
    "in a drift": (lambda: Attention(1.0, interaction=SphereFourier(9), matrix=np.eye(3)), "matrix B"),
    "no degree": (lambda: SphereFourier(0), "degree = 0"),
    "no block": (lambda: SphereFourier(9, 0), "block = 0"),
    "negative beta": (lambda: SphereFourier.for_beta(-1.0), "beta = -1.*finite inverse temperatures"),
    "infinite beta": (lambda: SphereFourier.for_beta(np.array([1.0, np.inf])), "finite inverse temperatures"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_it_cannot_take_is_refused(case):
    build, words = BAD[case]
    with pytest.raises(ValueError, match=words):
        build()
