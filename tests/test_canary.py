"""jax-ml/jax#39103: some releases give wrong sums on CPU; the requirement refuses them, this finds one that slips."""

import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


@pytest.mark.parametrize("n", [16384, 16385])
def test_jitted_sums_of_batched_products_are_right(n):
    rng = np.random.default_rng(0)
    b, r = rng.normal(size=(n, 3)), rng.normal(size=(5, 3))
    expected = np.sum((b @ r.T) ** 2, axis=0)
    on_device = jnp.asarray(b)

    def total(row):
        return jnp.sum((on_device @ row) ** 2)

    eager = np.stack([total(row) for row in jnp.asarray(r)])
    np.testing.assert_allclose(eager, expected, rtol=1e-13)
    np.testing.assert_allclose(jax.jit(jax.vmap(total))(jnp.asarray(r)), expected, rtol=1e-13)


def test_the_wrong_releases_are_refused():
    packaging = pytest.importorskip("packaging.requirements")
    written = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    wanted = {line.name: line.specifier for line in map(packaging.Requirement, written)}["jax"]
    assert [v for v in ("0.10.1", "0.10.2", "0.11.0", "0.12.0.1") if v in wanted] == ["0.10.1", "0.12.0.1"]
    assert jax.__version__ in wanted
