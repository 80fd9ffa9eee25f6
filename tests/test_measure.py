import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape import measure

DTYPES = [jnp.float32, jnp.float64]
SQUARE = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
both = pytest.mark.parametrize("dtype", DTYPES)

# name -> (what is built, words of the message)
BAD = {
    "no points": (lambda: measure.empirical(np.zeros((0, 2))), r"shape \(0, 2\).*N >= 1"),
    "dimension one": (lambda: measure.empirical(np.ones((3, 1))), r"shape \(3, 1\).*d >= 2"),
    "vector": (lambda: measure.empirical(np.ones(3)), r"shape \(3,\).*\(N, d\)"),
    "nan point": (lambda: measure.empirical(np.array([[1.0, 0.0], [np.nan, 1.0]])), "point 1 is not finite"),
    "infinite point": (lambda: measure.empirical(np.array([[np.inf, 0.0], [0.0, 1.0]])), "point 0 is not finite"),
    "off the sphere": (
        lambda: measure.empirical(np.array([[1.0, 0.0], [0.0, 1.1]])),
        r"point 1 has length 1\.1.*retract",
    ),
    "wrong shape": (lambda: measure.empirical(SQUARE, np.ones(3) / 3), r"shape \(3,\) for 4 points.*\(4,\)"),
    "negative": (
        lambda: measure.empirical(SQUARE, np.array([0.5, 0.5, 0.5, -0.5])),
        "weights between -0.5 and 0.5.*>= 0",
    ),
    "nan weight": (lambda: measure.empirical(SQUARE, np.array([0.5, 0.5, np.nan, 0.0])), "finite weights"),
    "infinite weight": (lambda: measure.empirical(SQUARE, np.array([0.5, 0.5, np.inf, 0.0])), "finite weights"),
    "sum": (lambda: measure.empirical(SQUARE, np.array([0.5, 0.5, 0.5, 0.5])), "weights of sum 2.*divide"),
    "n": (lambda: measure.uniform(jax.random.key(0), 0, 3), "n = 0.*at least one particle"),
    "d": (lambda: measure.uniform(jax.random.key(0), 3, 1), "d = 1.*d >= 2"),
    "equispaced": (lambda: measure.equispaced(0), "n = 0"),
    "fibonacci": (lambda: measure.fibonacci(-1), "n = -1"),
    "angles": (lambda: measure.from_angles(np.zeros((2, 2))), r"angles of shape \(2, 2\)"),
    "nan angle": (lambda: measure.from_angles(np.array([0.0, np.nan])), "point 1 is not finite"),
    "mode": (lambda: measure.perturbed_uniform(10, 0, 0.1), "mode 0"),
    "amplitude": (lambda: measure.perturbed_uniform(10, 1, 1.0), r"amplitude 1\.0"),
    "nan amplitude": (lambda: measure.perturbed_uniform(10, 1, np.nan), "amplitude nan"),
    "perturbed n": (lambda: measure.perturbed_uniform(0, 1, 0.1), "n = 0"),
}

MAKERS = {
    "uniform": lambda dtype: measure.uniform(jax.random.key(0), 7, 4, dtype),
    "equispaced": lambda dtype: measure.equispaced(7, dtype),
    "fibonacci": lambda dtype: measure.fibonacci(7, dtype),
    "perturbed_uniform": lambda dtype: measure.perturbed_uniform(7, 2, 0.3, dtype),
    "from_angles": lambda dtype: measure.from_angles(jnp.arange(7, dtype=dtype)),
    "empirical": lambda dtype: measure.empirical(jnp.asarray(SQUARE, dtype)),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_what_was_got_and_expected(case):
    build, words = BAD[case]
    with pytest.raises(ValueError, match=words):
        build()


@pytest.mark.parametrize("name", MAKERS)
@both
def test_every_maker_gives_equal_weights_on_the_sphere_in_the_dtype_asked_for(name, dtype):
    mu = MAKERS[name](dtype)
    assert mu.x.dtype == mu.w.dtype == dtype
    assert (mu.n, mu.d) == mu.x.shape
    np.testing.assert_allclose(mu.w, 1 / mu.n, rtol=1e-6)
    np.testing.assert_allclose(jnp.linalg.norm(mu.x, axis=1), 1, rtol=1e-6)


@both
def test_given_weights_follow_the_points_dtype(dtype):
    mu = measure.empirical(SQUARE.astype(dtype), np.array([0.0, 0.5, 0.25, 0.25]))
    assert mu.w.dtype == dtype
    np.testing.assert_array_equal(mu.w, [0.0, 0.5, 0.25, 0.25])


def test_integers_are_points_and_weights_too():
    mu = measure.empirical(np.eye(2, dtype=int), np.array([1, 0]))
    assert mu.x.dtype == mu.w.dtype == jnp.float64


def test_a_single_particle_is_a_measure():
    assert float(measure.empirical(np.array([[0.0, 0.0, 1.0]])).w[0]) == 1.0


def test_at_moves_the_points_and_keeps_the_weights():
    mu = measure.empirical(SQUARE, np.array([0.1, 0.2, 0.3, 0.4]))
    moved = mu.at(-mu.x)
    np.testing.assert_array_equal(moved.x, -SQUARE)
    np.testing.assert_array_equal(moved.w, mu.w)


def test_traced_points_and_weights_are_accepted():
    total = jax.jit(lambda x, w: jnp.sum(measure.empirical(x, w).w))
    assert float(total(SQUARE, jnp.asarray([0.1, 0.2, 0.3, 0.4]))) == pytest.approx(1)


def test_traced_weights_do_not_hide_bad_points():
    with pytest.raises(ValueError, match="point 0 has length 2"):
        jax.jit(lambda w: measure.empirical(2 * SQUARE, w).w)(jnp.full(4, 0.25))


@pytest.mark.parametrize("amplitude", [0.0, 1e-3, 0.5, -0.5])
@pytest.mark.parametrize("mode", [1, 5])
def test_perturbed_uniform_has_the_fourier_modes_of_its_density(amplitude, mode):
    """The density `(1 + amplitude cos(mode t)) / 2 pi` has moment amplitude/2 at `mode`, 1 at 0 and none elsewhere."""
    z = np.asarray(measure.perturbed_uniform(1200, mode, amplitude).x) @ np.array([1, 1j])
    expected = [amplitude / 2 if k == mode else 0.0 for k in range(1, 13)]
    np.testing.assert_allclose([(z**k).mean() for k in range(1, 13)], expected, atol=1e-14)


def test_perturbed_uniform_points_are_the_quantiles():
    """At amplitude 0.99 too: the distribution function at the points is `(i + 1/2)/n`."""
    x = np.asarray(measure.perturbed_uniform(50, 3, 0.99).x)
    theta = np.arctan2(x[:, 1], x[:, 0]) % (2 * np.pi)
    np.testing.assert_allclose((theta + 0.33 * np.sin(3 * theta)) / (2 * np.pi), (np.arange(50) + 0.5) / 50, atol=1e-15)
