"""One trace for many numbers: what may be swept is an array leaf and compiles nothing anew; shapes do."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape.drifts import Attention, Perceptron
from mflandscape.drifts.base import AbstractPotential
from mflandscape.flows import (
    RK4,
    Brownian,
    ClustersSettled,
    Euler,
    Forward,
    MaxSteps,
    MaxTime,
    Observe,
    SaveAt,
    Stationary,
    flow,
)
from mflandscape.interactions import CircleFourier
from mflandscape.measure import empirical, uniform

CALLS = []


class Counted(AbstractPotential):
    """A drift that notes each time its field is traced."""

    inner: AbstractPotential

    def potential(self, x, mu):
        CALLS.append(x.shape)
        return self.inner.potential(x, mu)


KEY = jax.random.key(0)


def run(
    *,
    beta=2.0,
    omega=0.5,
    n=6,
    seed=0,
    weights=None,
    dt=0.1,
    temperature=0.1,
    tol=1e-6,
    end=0.45,
    threshold=0.3,
    times=(0.1, 0.2),
    steps=9,
    direction="descent",
    modes=30,
    adjoint=None,
    every=1,
    inner=Euler,
):  # fmt: skip
    x = uniform(jax.random.key(seed), n, 2).x
    rule = Stationary(tol) | (ClustersSettled(40) & Stationary(tol)) | MaxTime(end) | MaxSteps(steps)
    drift = Attention(beta, interaction=CircleFourier(modes)) + Perceptron(jnp.eye(2), omega * jnp.ones(2))
    flow(
        Counted(drift),
        empirical(x, weights),
        stop=rule,
        direction=direction,
        integrator=Brownian(inner(dt), temperature),
        save=SaveAt(np.array(times)),
        observe=Observe(every=every, threshold=threshold),
        adjoint=adjoint,
        key=jax.random.fold_in(KEY, seed),
    )


@pytest.fixture(scope="module", autouse=True)
def _compiled_once():
    run()
    assert CALLS


NUMBERS = [
    dict(beta=3.0),
    dict(beta=0.0),
    dict(beta=jnp.asarray(1.0)),
    dict(beta=np.float64(4.0)),
    dict(omega=-2.0),
    dict(seed=1),
    dict(weights=np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])),
    dict(dt=0.05),
    dict(temperature=0.0),
    dict(tol=1e-3),
    dict(end=0.3),
    dict(threshold=0.1),
    dict(times=(0.15, 0.4)),
]
SHAPES = [
    dict(n=7),
    dict(steps=10),
    dict(modes=31),
    dict(times=(0.1,)),
    dict(direction="ascent"),
    dict(inner=RK4),
    dict(adjoint=Forward()),
    dict(every=2),
]


@pytest.mark.parametrize("change", NUMBERS, ids=lambda change: next(iter(change)))
def test_numbers_do_not_trace_again(change):
    before = len(CALLS)
    run(**change)
    assert len(CALLS) == before


@pytest.mark.slow
@pytest.mark.parametrize("change", SHAPES, ids=lambda change: next(iter(change)))
def test_shapes_do(change):
    before = len(CALLS)
    run(**change)
    assert len(CALLS) > before


def test_a_flow_inside_a_program_is_traced_once_for_a_grid():
    drift, mu = Counted(Attention(1.0)), uniform(KEY, 5, 3)

    @eqx.filter_jit
    @eqx.debug.assert_max_traces(max_traces=1)
    def end(beta):
        return flow(eqx.tree_at(lambda d: d.inner.kernel.beta, drift, beta), mu, stop=MaxSteps(7), throw=False).mu.x

    ends = [np.asarray(end(jnp.asarray(beta))) for beta in (0.5, 1.0, 5.0)]
    assert np.abs(ends[0] - ends[2]).max() > 1e-3
