"""The nonuniform-FFT evaluators against `Dense`, where jax-finufft is installed; and what is said where it is not."""

import functools
import importlib.util
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape import Attention, Dense, Measure, sphere, velocity
from mflandscape.interactions import (
    NonuniformFFT,
    SphereFourier,
    SphereNonuniformFFT,
    double_fourier,
    nufft,
    sphere_nufft,
)
from mflandscape.kernels import Exponential

installed = pytest.mark.skipif(
    importlib.util.find_spec("jax_finufft") is None, reason="the optional package jax-finufft is not installed"
)
EVALUATORS = {2: NonuniformFFT, 3: SphereNonuniformFFT}


@installed
@pytest.mark.parametrize(
    "d,dtype,tolerance",
    [
        (2, jnp.float64, 1e-12),
        (2, jnp.float32, 3e-5),
        (3, jnp.float64, 1e-12),
        pytest.param(3, jnp.float32, 3e-5, marks=pytest.mark.slow),
    ],
)
def test_values_and_derivatives_agree_with_dense(d, dtype, tolerance):
    """Value, gradients in everything, a Hessian-vector product; for two betas at once."""
    key = jax.random.split(jax.random.key(0), 4)
    x, y = sphere.uniform(key[0], 9, d, dtype), sphere.uniform(key[1], 23, d, dtype)
    q, moves = jax.random.normal(key[2], (23, 2), dtype) / 23, jax.random.normal(key[3], (9, d), dtype)

    def everything(interaction, beta):
        def total(beta, x, y, q):
            on = sphere.retract
            return jnp.sum(jnp.sin(interaction.apply(Exponential(beta, centred=True), on(x), on(y), q)))

        gradient = jax.grad(total, argnums=(0, 1, 2, 3))
        product = jax.jvp(lambda x: gradient(beta, x, y, q)[:3], (x,), (sphere.tangent(x, moves),))[1]
        return total(beta, x, y, q), gradient(beta, x, y, q), product

    betas = jnp.asarray([1.0, 20.0], dtype)
    run = jax.jit(jax.vmap(everything, in_axes=(None, 0)), static_argnums=0)
    got, expected = run(EVALUATORS[d].for_beta(20.0, dtype), betas), run(Dense(), betas)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * (1 + float(jnp.abs(b).max())))


@installed
@pytest.mark.parametrize("swap", [False, True])
def test_on_the_sphere_sums_over_points_are_those_of_the_tables(swap):
    """Of three series, an odd number, with coefficients that no kernel has; the poles are among the points."""
    size, x = 5, jnp.concatenate([sphere.uniform(jax.random.key(0), 17, 3), jnp.eye(3), -jnp.eye(3)])
    a, q = jax.random.normal(jax.random.key(1), (3, 2, size, 2, 2 * size)), jnp.sin(jnp.arange(69.0)).reshape(3, 23)
    run = jax.jit(lambda at: (at.synthesis(a, swap), at.analysis(q, swap), at.radius, at.along))
    got, expected = run(sphere_nufft.points(x, size)), run(double_fourier.basis(x, size))
    for found, table in zip(got, expected, strict=True):
        np.testing.assert_allclose(found, table, rtol=0, atol=1e-12)


@functools.cache
def cloud():
    """Uniform points, the six ends of the axes among them."""
    return sphere.uniform(jax.random.key(3), 41, 3).at[:6].set(jnp.concatenate([jnp.eye(3), -jnp.eye(3)]))


def field(interaction):
    energy = Attention(20.0, interaction=interaction)
    return lambda x: velocity(energy, Measure(x, jnp.full(len(x), 1 / len(x), x.dtype)))


@installed
@pytest.mark.parametrize("turn", ["rotated", "not_rotated"])
def test_on_the_sphere_derivatives_of_a_velocity_agree_with_dense_at_the_poles(turn, monkeypatch):
    """All particles move. Without the rotation some lie exactly on the frame's poles."""
    if turn == "not_rotated":
        monkeypatch.setattr(double_fourier, "_TURN", np.eye(3))
    x = cloud()
    dx = sphere.tangent(x, jax.random.normal(jax.random.key(4), x.shape))

    def derivatives(interaction):
        value, change = jax.jvp(field(interaction), (x,), (dx,))
        return value, sphere.tangent(x, change), sphere.tangent(x, jax.vjp(field(interaction), x)[1](dx)[0])

    got, *others = (
        jax.jit(lambda i=i: derivatives(i))() for i in (SphereNonuniformFFT(48), SphereFourier(48), Dense())
    )
    for other in others:
        for a, b in zip(got, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)


@installed
@pytest.mark.parametrize("dtype,tolerance", [(jnp.float64, 1e-15), (jnp.float32, 3e-7)])
def test_on_the_sphere_each_lane_has_its_points(dtype, tolerance):
    """The velocities of two clouds, in one program, against `Dense` in float64."""
    x = jnp.stack([cloud(), jnp.roll(cloud(), 1, axis=1)])
    got = jax.jit(jax.vmap(field(SphereNonuniformFFT.for_beta(20.0, dtype))))(x.astype(dtype))
    assert got.dtype == dtype
    np.testing.assert_allclose(got, jax.jit(jax.vmap(field(Dense())))(x), rtol=0, atol=tolerance)


BAD = {
    "modes": (lambda: NonuniformFFT(0), "modes = 0"),
    "dimension 3": (lambda: NonuniformFFT(9).check(3, False), "NonuniformFFT on points of dimension 3.*d = 2"),
    "degree": (lambda: SphereNonuniformFFT(0), "degree = 0"),
    "dimension 2": (lambda: SphereNonuniformFFT(9).check(2, False), "SphereNonuniformFFT on.*dimension 2.*d = 3"),
    "matrix": (lambda: SphereNonuniformFFT(9).check(3, True), "SphereNonuniformFFT with a matrix B"),
    "negative beta": (lambda: SphereNonuniformFFT.for_beta(-1.0), "beta = -1.*finite inverse temperatures"),
    "traced beta": (
        lambda: jax.jit(lambda b: b * SphereNonuniformFFT.for_beta(b).degree)(1.0),
        r"traced beta.*SphereNonuniformFFT.for_beta\(max",
    ),
}


@installed
@pytest.mark.parametrize("case", BAD)
def test_what_they_cannot_take_is_refused(case):
    build, words = BAD[case]
    with pytest.raises(ValueError, match=words):
        build()


@pytest.mark.parametrize("kind,instead", [(NonuniformFFT, "CircleFourier"), (SphereNonuniformFFT, "SphereFourier")])
def test_a_missing_package_is_named_with_what_to_install(kind, instead, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax_finufft", None)
    nufft.finufft.cache_clear()
    with pytest.raises(ValueError, match=rf"{kind.__name__} needs.*pip install 'mflandscape\[nufft\]'.*{instead}"):
        kind(5)
    nufft.finufft.cache_clear()
