"""Figure 9's ensemble at a tiny size: four setups in one program are the four setups."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape import velocity
from mflandscape.clusters import arc_count, cluster_threshold
from mflandscape.ensemble import default_lanes, lanes_that_fill

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
ensemble = pytest.importorskip("ensemble")


@pytest.fixture(scope="module")
def tiny():
    return ensemble.Ensemble((1.0, 25.0), 1, 24, 60)


def test_the_common_structure_moves_particles_as_the_setups_do(tiny):
    assert tiny.members == 8 and [list(tiny.siblings(m)) for m in (0, 7)] == [[0], [7]]
    for member in range(tiny.members):
        alone, common = tiny.as_it_is(member), tiny.in_common(member)
        expected = velocity(alone.drift, alone.mu, alone.direction)
        found = velocity(common.drift, common.mu, common.direction)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)
        sign = 1 if alone.direction == "ascent" else -1
        np.testing.assert_allclose(sign * common.drift(common.mu), alone.drift(alone.mu), rtol=1e-14)


@pytest.mark.slow
def test_one_program_runs_them_all(tiny):
    solutions, row = tiny.run(1, 2)
    assert row["programs"] == 1 and row["members"] == 8
    assert row["steps"] == sum(int(s.steps) for s in solutions) <= row["executed"]
    for member, solution in enumerate(solutions):
        problem = tiny.as_it_is(member)
        mu = problem.mu.at(jnp.asarray(solution.mu.x))
        speed = jnp.linalg.norm(velocity(problem.drift, mu, problem.direction), axis=1)
        np.testing.assert_allclose(jnp.max(speed), solution.residual, rtol=1e-10)
    figure = tiny.figure(solutions)
    assert [(line["setup"], line["beta"]) for line in figure] == [(s, b) for s in ensemble.SETUPS for b in (1.0, 25.0)]
    for line, solution in zip(figure, solutions, strict=True):
        threshold = cluster_threshold(jnp.asarray(line["beta"]), 2)
        assert line["median clusters"] == int(arc_count(jnp.asarray(solution.u), threshold)[0])
        assert line["median time"] == float(solution.time) and line["stopped"] == (int(solution.steps) < 60)


def test_lanes_fill_an_accelerator_and_fit_its_memory(tiny):
    problem = tiny.in_common(0)
    leaves = [v for v in jax.tree.leaves(problem) if hasattr(v, "dtype")]
    least = sum(v.size * v.dtype.itemsize for v in leaves)
    assert lanes_that_fill(problem, np.inf) == 1024
    assert 0 < lanes_that_fill(problem, 1e6) <= 1e6 / (5 * least)
    assert lanes_that_fill(problem, 1.0) == default_lanes() == 1
    thousand = ensemble.Ensemble((1.0,), 1, 1000, 60).in_common(0)
    assert lanes_that_fill(thousand, 80e9) == 256
