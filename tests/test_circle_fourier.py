"""The schemes behind `CircleFourier` against direct sums in long double, their derivatives, precision and memory."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape import Attention, Blocked, CircleFourier, Dense, Measure, sphere, velocity
from mflandscape.interactions.circle_bins import (
    add_powers,
    at_points,
    empty_table,
    nodes_for,
    powers_for,
    series_table,
    table_moments,
)
from mflandscape.interactions.circle_products import loop_series, product_moments, product_series
from mflandscape.kernels import Exponential

MODES = (1, 300)


def grid_moments(y, q, modes):
    return table_moments(add_powers(empty_table(modes, q.shape[1], q.dtype), y, q), modes, q.dtype)


SCHEMES = {
    "grid": (grid_moments, lambda x, a: at_points(series_table(a), x)),
    "products": (product_moments, product_series),
    "loop": (product_moments, functools.partial(loop_series, group=16)),
}


@functools.cache
def points():
    """On the axes and within rounding of them, nodes and midpoints between nodes of the grid, and anywhere."""
    rng = np.random.default_rng(0)
    axes = np.arange(8) * np.pi / 4
    spacing = 2 * np.pi / nodes_for(MODES[-1])
    special = np.concatenate([axes, axes + 1e-16, axes - 1e-9, spacing * np.arange(5), spacing * (np.arange(5) + 0.5)])
    theta = np.concatenate([special, rng.uniform(-np.pi, np.pi, 40)])
    return np.stack([np.cos(theta), np.sin(theta)], axis=1), rng.normal(size=(len(theta), 2)) / len(theta)


def exact(x, q, a):
    """Both sums in long double, from the points as they are stored."""
    x, q, a = (np.asarray(v).astype(np.longdouble) for v in (x, q, a))
    angles = np.arctan2(x[:, 1], x[:, 0])[:, None] * np.arange(len(a))
    cos, sin = np.cos(angles), np.sin(angles)
    return np.stack([cos.T @ q, sin.T @ q], axis=1), cos @ a[:, 0] + sin @ a[:, 1]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_moments_and_series_are_the_direct_sums(scheme, dtype):
    """To a few roundings of the points' angles, which the number of the mode multiplies."""
    moments, series = SCHEMES[scheme]
    x, q = (jnp.asarray(v, dtype) for v in points())
    for modes in MODES:
        rng = np.random.default_rng(modes)
        a = jnp.asarray(rng.normal(size=(modes + 1, 2, 2)) / (modes + 1), dtype)
        got = jax.jit(lambda x, q, a, modes=modes: (moments(x, q, modes), series(x, a)))(x, q, a)
        for value, expected in zip(got, exact(x, q, a), strict=True):
            assert value.dtype == dtype
            np.testing.assert_allclose(value, expected, rtol=0, atol=(4 + modes / 8) * float(jnp.finfo(dtype).eps))


def test_the_grid_is_exact_to_rounding_with_as_few_powers_as_may_be():
    """8 nodes a mode: 12 powers in float64, 7 in float32; more nodes, fewer powers."""
    assert [powers_for(127, dtype) for dtype in (np.float64, np.float32)] == [12, 7]
    assert powers_for(67, np.float64) == 10 and nodes_for(127) == 1024 and nodes_for(128) == 2048


def scattered(n, dtype=jnp.float64):
    x = sphere.uniform(jax.random.key(n), n, 2, dtype)
    return x, jax.random.normal(jax.random.key(n + 1), (n, 1), dtype) / n


@functools.cache
def many(evaluator):
    """Values and derivatives for so many sources, then targets, that the grid is taken, in blocks that do not fit."""
    (few, p), (lots, q) = scattered(40), scattered(4001)
    move = sphere.tangent(lots, jnp.cos(3 * lots))

    @jax.jit
    def run():
        kernel = Exponential(1000.0, centred=True)
        to_few = lambda y, q: evaluator.apply(kernel, few, y, q)  # noqa: E731
        to_lots = lambda x: evaluator.apply(kernel, sphere.retract(x), few, p)  # noqa: E731
        value, change = jax.jvp(to_few, (lots, q), (move, 2 * q))
        back = jax.vjp(to_few, lots, q)[1](jnp.sin(value))
        slope = jax.grad(lambda x: jnp.sum(jnp.sin(to_lots(x))))
        product = jax.jvp(slope, (lots,), (move,))[1]
        back = sphere.tangent(lots, back[0]), back[1]  # along the sphere, where all evaluators are the same function
        return value, change, back, to_lots(lots), slope(lots), sphere.tangent(lots, product)

    return run()


@pytest.mark.parametrize("block,backend", [(512, None), (512, "gpu")])
def test_many_points_agree_with_dense(block, backend):
    """Whatever the device's schemes, to 1e-15 of what the sum could be; dense sums lose beta times the rounding."""
    modes = CircleFourier.for_beta(1000.0).modes
    found = jax.tree.leaves(many(CircleFourier(modes, block, backend)))
    for got, expected in zip(found, jax.tree.leaves(many(Dense())), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12 * (1e-3 + float(jnp.abs(expected).max())))


def test_velocities_of_a_clustered_measure_are_exact_to_1e_15():
    """At beta = 1e4 against long double, where <x, y> - 1 in float64 would lose four digits."""
    n, beta = 20_011, 1e4
    rng = np.random.default_rng(1)
    theta = np.where(np.arange(n) % 2, rng.normal(1.0, 0.02, n), rng.uniform(0, 2 * np.pi, n))
    mu = Measure(sphere.from_angle(jnp.asarray(theta)), jnp.full(n, 1 / n))
    got = jax.jit(lambda: velocity(Attention(beta, interaction=CircleFourier.for_beta(beta)), mu))()
    x = np.asarray(mu.x).astype(np.longdouble)
    for i in range(1, 400, 13):
        weight = np.exp(-beta / 2 * ((x - x[i]) ** 2).sum(axis=1)) / n
        turn = -(weight * (x[i, 0] * x[:, 1] - x[i, 1] * x[:, 0])).sum()
        np.testing.assert_allclose(got[i], turn * np.array([-x[i, 1], x[i, 0]]), rtol=0, atol=1e-15)


def test_third_derivatives_are_those_of_the_kernel():
    """Forward twice over reverse, reverse twice over forward; each source and target turns at a speed of its own."""
    rng = np.random.default_rng(3)
    theta, phi, p, q, speed, other = rng.normal(size=(6, 5))
    beta, evaluator = 5.0, CircleFourier.for_beta(5.0)
    u, relative = theta[:, None] - phi, speed[:, None] - other
    kernel = np.sin(u) * (1 + 3 * beta * np.cos(u) - (beta * np.sin(u)) ** 2) * np.exp(beta * (np.cos(u) - 1))

    def total(h):
        x, y = (sphere.from_angle(jnp.asarray(v) + h * jnp.asarray(s)) for v, s in ((theta, speed), (phi, other)))
        return jnp.sum(jnp.asarray(p) * evaluator.apply(Exponential(beta), x, y, jnp.asarray(q)[:, None])[:, 0])

    forward = lambda f: lambda h: jax.jvp(f, (h,), (jnp.ones(()),))[1]  # noqa: E731
    thrice = jax.jit(lambda h: (forward(forward(jax.grad(total)))(h), jax.grad(jax.grad(forward(total)))(h)))
    np.testing.assert_allclose(thrice(jnp.zeros(())), np.sum(p[:, None] * q * relative**3 * kernel), rtol=1e-12)


@pytest.mark.parametrize("axes", [(None, 0), (0, None), (1, 2)])
def test_a_batch_is_its_members(axes):
    """More charges on the same points, more points, and both; the transpose too."""
    evaluator, kernel = CircleFourier(7), Exponential(1.0)
    x, y = (sphere.uniform(jax.random.key(i), 4 * n, 2).reshape(4, n, 2) for i, n in ((0, 5), (1, 6)))
    q = jnp.sin(jnp.arange(48.0)).reshape(4, 6, 2)
    f = lambda y, q: jax.vjp(lambda q: evaluator.apply(kernel, x[0], y, q), q)[1](q[:5])[0]  # noqa: E731
    arranged = [v[0] if i is None else jnp.moveaxis(v, 0, i) for v, i in zip((y, q), axes, strict=True)]
    got = jax.jit(jax.vmap(f, in_axes=axes))(*arranged)
    for i in range(4):
        expected = f(*(v[0] if j is None else v[i] for v, j in zip((y, q), axes, strict=True)))
        np.testing.assert_allclose(got[i], expected, atol=1e-14)


@pytest.mark.parametrize("x64", [True, False])
@pytest.mark.parametrize("name", ["products", "grid", "blocked"])
def test_sums_of_float32_points_do_not_lose_digits_with_their_number(name, x64):
    """Equal charges within a cluster, in blocks of 64: added up in float32 they would be 1e-5 off."""
    n = 200_000
    theta = np.random.default_rng(2).normal(0.5, 0.1, n)
    x = np.stack([np.cos(theta), np.sin(theta)], axis=1).astype(np.float32)
    q = np.full((n, 1), np.float32(1 / n))
    angles = np.arctan2(*x.astype(float).T[::-1])
    with contextlib.nullcontext() if x64 else jax.enable_x64(False):
        if name == "blocked":
            f = jax.jit(lambda y, q: Blocked(64).apply(Exponential(jnp.float32(5.0)), y[:64], y, q, 1))
            got = f(x, q)[:, 0]
            expected = [q[0, 0] * np.exp(5 * (np.cos(angles - angle) - 1)).sum(dtype=float) for angle in angles[:64]]
        else:
            got = jax.jit(CircleFourier(5 if name == "products" else 100, 64).moments)(x, q)[:4, 0, 0]
            expected = [q[0, 0] * np.cos(k * angles).sum(dtype=float) for k in range(4)]
        assert got.dtype == jnp.float32
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("beta", [50.0, 1e4])
def test_a_velocity_of_ten_million_particles_needs_little_beside_them(beta):
    n = 10_000_000
    x, w = jax.ShapeDtypeStruct((n, 2), jnp.float64), jax.ShapeDtypeStruct((n,), jnp.float64)
    energy = Attention(beta, interaction=CircleFourier.for_beta(beta))
    run = jax.jit(lambda x, w: velocity(energy, Measure(x, w)))
    assert run.lower(x, w).compile().memory_analysis().temp_size_in_bytes <= 16 * n + 2**22
