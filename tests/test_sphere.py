import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape import sphere

DTYPES = [jnp.float32, jnp.float64]
SEPARATIONS = [
    1e-15,
    1e-12,
    1e-8,
    1e-5,
    1e-3,
    0.1,
    1.0,
    3.0,
    np.pi - 1e-3,
    np.pi - 1e-5,
    np.pi - 1e-8,
    np.pi - 1e-12,
    np.pi,
]
both = pytest.mark.parametrize("dtype", DTYPES)
dimensions = pytest.mark.parametrize("d", [2, 3, 17])
exp, log, distance = jax.jit(sphere.exp), jax.jit(sphere.log), jax.jit(sphere.distance)
tangent, retract, tangent_basis = jax.jit(sphere.tangent), jax.jit(sphere.retract), jax.jit(sphere.tangent_basis)


@functools.cache
def points(d, n=20, seed=0, dtype=jnp.float64):
    return sphere.uniform(jax.random.key(seed), n, d, dtype)


@functools.cache
def pairs(d, n=20, dtype=jnp.float64):
    x = points(d, n, 0, dtype)
    return x, retract(tangent(x, jax.random.normal(jax.random.key(1), (n, d), dtype)))


def eps(dtype):
    return float(jnp.finfo(dtype).eps)


# Maps of a point x and a tangent vector v ("to_": a second point), differentiated where points meet or oppose.
MAPS = {
    "tangent": sphere.tangent,
    "retract": lambda x, v: sphere.retract(x + v),
    "exp": sphere.exp,
    "log": lambda x, v: sphere.log(x, sphere.exp(x, v)),
    "distance": lambda x, v: sphere.distance(x, sphere.exp(x, v)),
    "to_log": sphere.log,
    "to_distance": sphere.distance,
    "tangent_basis": lambda x, v: sphere.tangent_basis(sphere.exp(x, v)),
    "angle": lambda x, v: sphere.to_angle(sphere.exp(x, v)[:, :2]),
}


@dimensions
@both
def test_tangent_is_the_orthogonal_projection(d, dtype):
    x, _ = pairs(d, dtype=dtype)
    v = jax.random.normal(jax.random.key(2), x.shape, dtype)
    p = tangent(x, v)
    assert p.dtype == dtype
    np.testing.assert_allclose(jnp.sum(p * x, axis=1), 0, atol=20 * eps(dtype))
    np.testing.assert_allclose(tangent(x, p), p, atol=20 * eps(dtype))
    np.testing.assert_allclose(v - p, jnp.sum(v * x, axis=1)[:, None] * x, atol=20 * eps(dtype))


@dimensions
@both
def test_exp_is_the_great_circle(d, dtype):
    length = np.array([0.0, 1e-9, 0.05, 0.0999, 0.1001, 0.2, 1.0, 3.0, 7.0], dtype)[:, None]
    x, u = pairs(d, len(length), dtype)
    y = exp(x, length * u)
    expected = np.cos(length) * np.asarray(x, float) + np.sin(length) * np.asarray(u, float)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, expected, atol=20 * eps(dtype))


@dimensions
@both
def test_log_is_the_inverse_of_exp(d, dtype):
    x, u = pairs(d, len(SEPARATIONS), dtype)
    y = retract(exp(x, jnp.asarray(SEPARATIONS, dtype)[:, None] * u))
    v = log(x, y)
    np.testing.assert_allclose(exp(x, v), y, atol=40 * eps(dtype))
    np.testing.assert_allclose(jnp.sum(x * v, axis=1), 0, atol=20 * eps(dtype))
    np.testing.assert_allclose(jnp.linalg.norm(v, axis=1), distance(x, y), rtol=40 * eps(dtype), atol=20 * eps(dtype))


@dimensions
@both
def test_log_of_the_antipode_has_length_pi(d, dtype):
    x = points(d, dtype=dtype)
    np.testing.assert_allclose(log(x, -x), jnp.pi * tangent_basis(x)[:, 0], rtol=1e-6)


@dimensions
def test_distance_is_exact_at_all_separations(d):
    """Points in a coordinate plane: `e_1` and `cos a e_1 + sin a e_2`, rounded only in the cosine's last bit."""
    x = np.zeros((len(SEPARATIONS), d))
    y = np.zeros((len(SEPARATIONS), d))
    x[:, 0], y[:, 0], y[:, 1] = 1, np.cos(SEPARATIONS), np.sin(SEPARATIONS)
    np.testing.assert_allclose(distance(jnp.asarray(x), jnp.asarray(y)), SEPARATIONS, rtol=4e-16)


@both
@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e3])
def test_distance_of_neighbours_resolves_what_a_product_cannot(dtype, factor):
    small = factor * eps(dtype)
    y = jnp.asarray([[1.0, small]], dtype)
    assert float(distance(jnp.asarray([[1.0, 0.0]], dtype), y)[0]) == pytest.approx(small, rel=4 * eps(dtype))


def test_distance_is_rotation_invariant_and_symmetric():
    x, y = points(5), points(5, seed=3)
    q = jnp.linalg.qr(jax.random.normal(jax.random.key(4), (5, 5)))[0]
    np.testing.assert_allclose(distance(x @ q, y @ q), distance(y, x), rtol=1e-14)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("d", [2, 3])
@both
def test_first_and_second_derivatives_are_finite_at_coincident_and_antipodal_points(name, d, dtype):
    x = jnp.asarray(np.eye(d)[[0, 0, 0, 0]], dtype)
    v = jnp.asarray(np.array([0.0, np.pi, 1e-14, np.pi - 1e-14])[:, None] * np.eye(d)[[1]], dtype)
    if name.startswith("to_"):
        v = exp(x, v)
    total = lambda x, v: jnp.sum(jnp.sin(MAPS[name](x, v)))  # noqa: E731
    first = jax.grad(total, argnums=(0, 1))
    along = jnp.asarray(np.random.default_rng(0).normal(size=(2, 4, d)), dtype)
    derivatives = jax.jit(lambda x, v: jax.jvp(first, (x, v), tuple(along)))(x, v)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(derivatives))


@dimensions
def test_gradient_of_the_distance_is_the_unit_geodesic(d):
    separation = np.array([1e-12, 1e-3, 1.0, np.pi - 1e-3])[:, None]
    x, u = pairs(d, 4)
    y = exp(x, separation * u)
    gradient = tangent(x, jax.jit(jax.grad(lambda x: jnp.sum(distance(x, y))))(x))
    assert np.all(np.abs(gradient + u) < 1e-14 + 1e-15 / separation + 1e-15 / (np.pi - separation))


@pytest.mark.parametrize("d", [2, 3])
def test_half_the_squared_distance_has_the_identity_as_hessian_where_points_meet(d):
    x, u = pairs(d, 1)
    f = lambda s: 0.5 * distance(x, exp(x, s * u))[0] ** 2  # noqa: E731
    assert float(jax.jit(jax.grad(jax.grad(f)))(1e-7)) == pytest.approx(1, rel=1e-7)


@pytest.mark.parametrize("length", [0.0, 0.099, 0.101, 2.0])
def test_derivatives_of_exp_agree_with_the_closed_form(length):
    x, u = jnp.asarray([[1.0, 0.0, 0.0]]), jnp.asarray([[0.0, 1.0, 0.0]])
    curve = lambda s: exp(x, s * u)[0]  # noqa: E731
    third = jax.jit(jax.jacfwd(jax.jacfwd(jax.jacfwd(curve))))(length)
    np.testing.assert_allclose(third, [np.sin(length), -np.cos(length), 0], atol=1e-13)


@dimensions
@both
def test_log_differentiates_to_the_identity_at_coincident_points(d, dtype):
    x, u = pairs(d, dtype=dtype)
    _, moved = jax.jvp(lambda y: log(x, y), (x,), (u,))
    np.testing.assert_allclose(moved, u, atol=20 * eps(dtype))


@pytest.mark.parametrize("d", [2, 3, 5, 17])
@both
def test_tangent_bases_are_orthonormal_at_and_near_the_poles_too(d, dtype):
    pole, scatter = np.eye(d)[[-1]], np.asarray(points(d))
    near = [sign * pole + size * scatter for sign in (1, -1) for size in (0, 1e-300, 1e-17, 1e-9, 1e-3, 1)]
    x = retract(jnp.asarray(np.concatenate([*near, scatter]), dtype))
    frames = jnp.concatenate([tangent_basis(x), x[:, None]], axis=1)
    assert frames.dtype == dtype
    grams = jnp.einsum("nid,njd->nij", frames, frames, precision="highest")
    np.testing.assert_allclose(grams, np.broadcast_to(np.eye(d), grams.shape), atol=10 * eps(dtype))


def test_the_tangent_of_the_circle_turns_counter_clockwise():
    np.testing.assert_array_equal(tangent_basis(jnp.asarray([[1.0, 0.0], [0.0, 1.0]])), [[[0, 1]], [[-1, 0]]])


@both
def test_retract_normalises_and_leaves_the_origin(dtype):
    tiny = float(jnp.finfo(dtype).tiny)
    x = jnp.asarray([[3.0, 4.0], [0.0, 0.0], [3 * tiny, 4 * tiny], [3 / (8 * tiny), 4 / (8 * tiny)]], dtype)
    np.testing.assert_allclose(retract(x), [[0.6, 0.8], [0, 0], [0.6, 0.8], [0.6, 0.8]], rtol=2 * eps(dtype))


@both
def test_one_turn_wraps_as_numpy_mod_to_the_bit(dtype):
    turn = np.asarray(2 * np.pi, dtype)
    theta = np.random.default_rng(0).uniform(-2 * np.pi, 4 * np.pi, 4001).astype(dtype)
    theta = np.concatenate([theta, np.asarray([0, turn, -turn, np.nextafter(turn, 0)], dtype)])
    np.testing.assert_array_equal(sphere.wrap_angle(jnp.asarray(theta)), np.mod(theta, turn))


def test_a_tiny_negative_angle_wraps_to_zero_and_not_to_a_whole_turn():
    assert float(sphere.wrap_angle(jnp.asarray(-1e-20))) == 0.0


@both
def test_angles_and_points_of_the_circle_are_inverse(dtype):
    theta = jnp.asarray(np.linspace(0, 2 * np.pi, 101)[:-1], dtype)
    np.testing.assert_allclose(sphere.to_angle(sphere.from_angle(theta)), theta, atol=20 * eps(dtype))


@pytest.mark.parametrize("d", [2, 3, 5])
@both
def test_charts_round_trip_and_keep_speeds(d, dtype):
    chart = sphere.chart(d)
    x, u = pairs(d, dtype=dtype)
    np.testing.assert_allclose(chart.points(chart.wrap(chart.coordinates(x))), x, atol=10 * eps(dtype))
    np.testing.assert_allclose(chart.speed(chart.components(x, 3 * u)), 3, rtol=10 * eps(dtype))


@pytest.mark.parametrize("d", [2, 3, 5])
def test_a_chart_step_follows_the_exponential_map(d):
    chart = sphere.chart(d)
    x, u = pairs(d)
    h = 1e-3
    moved = chart.points(chart.wrap(chart.coordinates(x) + h * chart.components(x, u)))
    np.testing.assert_allclose(moved, exp(x, h * u), atol=1e-14 if d == 2 else h**3 / 2)


@dimensions
@both
def test_uniform_points_have_the_moments_of_the_sphere(d, dtype):
    n = 20000
    x = np.asarray(points(d, n, 5, dtype), float)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, atol=4 * eps(dtype))
    np.testing.assert_allclose(x.mean(0), 0, atol=5 / np.sqrt(n * d))
    np.testing.assert_allclose(x.T @ x / n, np.eye(d) / d, atol=5 * np.sqrt(2 / n) / d)
    np.testing.assert_allclose((x**4).mean(0), 3 / (d * (d + 2)), atol=5 * np.sqrt(105 / n) / d**2)


def test_uniform_draws_are_a_function_of_the_key():
    draw = lambda seed: sphere.uniform(jax.random.key(seed), 5, 3)  # noqa: E731
    np.testing.assert_array_equal(draw(7), draw(7))
    assert not np.array_equal(draw(7), draw(8))


@both
def test_equispaced_points_kill_the_first_modes(dtype):
    x = np.asarray(sphere.equispaced(12, dtype), float)
    z = x @ np.array([1, 1j])
    assert z[0] == 1
    np.testing.assert_allclose([abs((z**k).mean()) for k in range(1, 12)], 0, atol=20 * eps(dtype))


@pytest.mark.parametrize("n", [1, 2, 50, 1000])
@both
def test_fibonacci_points_are_quasi_uniform(n, dtype):
    x = np.asarray(sphere.fibonacci(n, dtype), float)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, atol=4 * eps(dtype))
    np.testing.assert_allclose(x.mean(0), 0, atol=1 / n)
    if n < 50:
        return
    chords = np.linalg.norm(x[:, None] - x[None], axis=2)[~np.eye(n, dtype=bool)].reshape(n, -1).min(1)
    assert chords.min() > 0.8 * np.sqrt(4 * np.pi / n) * 0.9  # a random draw has pairs n^-1/2 times closer
    np.testing.assert_allclose(x.T @ x / n, np.eye(3) / 3, atol=2 / n)


@pytest.mark.parametrize(
    "make", [lambda t: sphere.fibonacci(5, t), lambda t: sphere.equispaced(5, t), lambda t: points(4, dtype=t)]
)
@both
def test_dtype_follows(make, dtype):
    assert make(dtype).dtype == dtype
    assert make(None).dtype == jnp.float64
