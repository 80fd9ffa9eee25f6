"""The fused direct sums: derivatives against `Dense`, and the Triton code they are lowered to on a GPU."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape import Attention, Dense, Measure, SoftmaxAttention, sphere
from mflandscape.gradient import velocity
from mflandscape.interactions import Fused, Tiled, tiled
from mflandscape.kernels import Exponential

EVALUATORS = {"tiled": Tiled(8, 4), "fused": Fused(7)}  # tiles of which no size below is a multiple
each = pytest.mark.parametrize("name", EVALUATORS)


def data(m, n, d, c=1, dtype=jnp.float64):
    key = jax.random.split(jax.random.key(d), 3)
    x, y = sphere.uniform(key[0], m, d, dtype), sphere.uniform(key[1], n, d, dtype)
    return x, y.at[0].set(x[0]), jax.random.normal(key[2], (n, c), dtype).at[3].set(0.0) / n


def agree(got, expected, tolerance=1e-12):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * (1 + float(jnp.abs(b).max())))


@each
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_sums_agree_with_dense_in_many_dimensions_and_charges(name, dtype, monkeypatch):
    """Charges for two passes, coordinates for a loop, sources in several parts, all betas at once."""
    monkeypatch.setattr(tiled, "_CHARGES", 2)
    monkeypatch.setattr(tiled, "_WRITTEN_OUT", 3)
    x, y, q = data(9, 103, 5, 3, dtype)

    @functools.partial(jax.jit, static_argnums=0)
    def sums(interaction, betas):
        each = lambda beta: interaction.apply(Exponential(beta), x, y, q)  # noqa: E731
        return jax.vmap(each)(betas)

    betas = jnp.asarray([0.5, 5.0, 50.0], dtype)
    got = sums(EVALUATORS[name], betas)
    agree(got, sums(Dense(), betas), 1e-12 if dtype == jnp.float64 else 1e-5)


@pytest.mark.parametrize("interaction", [Tiled(8, 4), Fused(64)], ids=["tiled", "fused"])
def test_sums_of_many_float32_terms_keep_their_digits(interaction, monkeypatch):
    """Positive terms, 5000 additions in a row: without care about 1e-5 of the sum are lost."""
    monkeypatch.setattr(tiled, "_PROGRAMS", 1)
    x, y, _ = data(8, 20_000, 3, dtype=jnp.float32)
    q = jnp.full((20_000, 1), 0.1, jnp.float32)
    exact = Dense().apply(Exponential(1.0), *(v.astype(jnp.float64) for v in (x, y, q)))
    np.testing.assert_allclose(interaction.apply(Exponential(jnp.float32(1)), x, y, q), exact, rtol=5e-7)


def test_a_block_of_no_sources_is_refused():
    with pytest.raises(ValueError, match="block = 0: expected at least 1"):
        Fused(0)


@functools.partial(jax.jit, static_argnums=0)
def derivatives(interaction, betas):
    """Gradient and Hessian-vector product of a function of sums at several betas, batched before it is transposed."""
    x, y, q = data(9, 23, 3, 2)

    def f(betas, x, y, q):
        each = lambda beta: interaction.apply(Exponential(beta, centred=True), x, y, q)  # noqa: E731
        return jnp.sum(jnp.sin(jax.vmap(each)(betas)))

    args = (betas, x, y, q)
    return jax.jvp(jax.grad(f, argnums=(0, 1, 2, 3)), args, tuple(map(jnp.cos, args)))


@each
def test_first_and_second_derivatives_agree_with_dense(name):
    betas = jnp.asarray([0.0, 5.0, 50.0])
    agree(derivatives(EVALUATORS[name], betas), derivatives(Dense(), betas))


@functools.partial(jax.jit, static_argnums=0)
def logarithm(interaction, beta):
    """Gradient and Hessian-vector product of a log-sum-exp, some sources without mass: the closed rules twice."""
    y = data(9, 23, 3)[1]
    w = jnp.where(jnp.arange(23) % 5 == 3, 0.0, 1 / 18)
    slope = jax.grad(lambda y: jnp.sum(jnp.sin(interaction.log_sum(Exponential(beta), y, y, w))))
    return jax.jvp(slope, (y,), (jnp.cos(y),))


@each
def test_second_derivatives_of_a_logarithm_agree_with_dense(name):
    for beta in jnp.asarray([0.1, 20.0]):
        agree(logarithm(EVALUATORS[name], beta), logarithm(Dense(), beta))


@each
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_soft_maximum_does_not_underflow_far_away(name, dtype):
    """Sources near the pole, targets at its antipode, beta = 1e4: the sum is e^-20000. A massless source nearby."""
    angle = np.linspace(0, 0.1, 20)
    near = np.stack([np.sin(angle), 0 * angle, np.cos(angle)], axis=1)
    y, w = np.concatenate([near, -near[:1]]), np.append(np.full(20, 0.05), 0.0)
    kernel, targets = Exponential(1e4, centred=True), jnp.asarray(-near[:5], dtype)
    f = lambda x: EVALUATORS[name].soft_maximum(kernel, x, jnp.asarray(y, dtype), jnp.asarray(w, dtype))  # noqa: E731
    value, pull = jax.vjp(jax.jit(f), targets)
    terms = 1e4 * (np.asarray(targets, np.longdouble) @ y[:20].T - 1)
    share = np.exp(terms - terms.max(1, keepdims=True))
    expected = (terms.max(1) + np.log(share.mean(1))) / 1e4
    np.testing.assert_allclose(value, expected.astype(float), rtol=1e-14 if dtype == jnp.float64 else 1e-6)
    slope = (share / share.sum(1, keepdims=True) @ near).astype(float)
    np.testing.assert_allclose(pull(jnp.ones_like(value))[0], slope, atol=1e-11 if dtype == jnp.float64 else 2e-3)


@each
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
@pytest.mark.parametrize("noun", [Attention, SoftmaxAttention])
def test_a_velocity_lowers_for_cuda_without_a_matrix_product_in_reduced_precision(name, noun, dtype):
    """Batched as in an ensemble; the code is made here, run on a GPU only."""
    x = sphere.uniform(jax.random.key(0), 1000, 3, dtype)
    mu = Measure(x, jnp.full(1000, 1e-3, dtype))
    interaction = Tiled() if name == "tiled" else Fused()
    move = jax.vmap(lambda beta: velocity(noun(beta, interaction=interaction), mu, "descent"))
    text = jax.jit(move).trace(jnp.asarray([1.0, 5.0], dtype)).lower(lowering_platforms=("cuda",)).as_text()
    assert "dot_general" not in text
    assert ("triton" in text) == (name == "tiled")
    if name == "tiled":
        assert "1000x1000" not in text and "1024x1024" not in text


@pytest.mark.parametrize("field", ["targets", "sources", "warps"])
def test_a_tile_is_a_power_of_two(field):
    with pytest.raises(ValueError, match=f"{field} = 12: expected a power of two"):
        Tiled(**{field: 12})
