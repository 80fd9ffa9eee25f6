"""The nonuniform-FFT evaluator against `Dense`, where jax-finufft is installed; and what is said where it is not."""

import importlib.util
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape import Dense, sphere
from mflandscape.interactions import nufft
from mflandscape.interactions.nufft import NonuniformFFT
from mflandscape.kernels import Exponential

installed = pytest.mark.skipif(
    importlib.util.find_spec("jax_finufft") is None, reason="the optional package jax-finufft is not installed"
)


@installed
@pytest.mark.parametrize("dtype,tolerance", [(jnp.float64, 1e-12), (jnp.float32, 3e-5)])
def test_values_and_derivatives_agree_with_dense(dtype, tolerance):
    """Value, gradients in everything, a Hessian-vector product; for two betas at once."""
    key = jax.random.split(jax.random.key(0), 4)
    x, y = sphere.uniform(key[0], 9, 2, dtype), sphere.uniform(key[1], 23, 2, dtype)
    q, moves = jax.random.normal(key[2], (23, 2), dtype) / 23, jax.random.normal(key[3], (9, 2), dtype)

    def everything(interaction, beta):
        def total(beta, x, y, q):
            on = sphere.retract
            return jnp.sum(jnp.sin(interaction.apply(Exponential(beta, centred=True), on(x), on(y), q)))

        gradient = jax.grad(total, argnums=(0, 1, 2, 3))
        product = jax.jvp(lambda x: gradient(beta, x, y, q)[:3], (x,), (sphere.tangent(x, moves),))[1]
        return total(beta, x, y, q), gradient(beta, x, y, q), product

    betas = jnp.asarray([1.0, 20.0], dtype)
    run = jax.jit(jax.vmap(everything, in_axes=(None, 0)), static_argnums=0)
    got, expected = run(NonuniformFFT.for_beta(20.0, dtype), betas), run(Dense(), betas)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * (1 + float(jnp.abs(b).max())))


@installed
def test_it_works_on_the_circle_with_at_least_one_mode():
    with pytest.raises(ValueError, match="modes = 0"):
        NonuniformFFT(0)
    with pytest.raises(ValueError, match="NonuniformFFT on points of dimension 3.*d = 2"):
        NonuniformFFT(9).check(3, False)


def test_a_missing_package_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax_finufft", None)
    nufft._finufft.cache_clear()
    with pytest.raises(ValueError, match=r"jax-finufft.*pip install 'mflandscape\[nufft\]'.*CircleFourier"):
        NonuniformFFT(5)
    nufft._finufft.cache_clear()
