"""The Jacobians of the implicit integrator against automatic differentiation of the velocity."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape.distributed import particle_mesh
from mflandscape.drifts import Attention, FreePerceptron, Perceptron, SoftmaxAttention
from mflandscape.flows import Dynamics
from mflandscape.flows.linearised import CircleModes, TangentMatrix, linearise, take_apart
from mflandscape.interactions import CircleFourier
from mflandscape.interactions.sharded import sharded
from mflandscape.measure import empirical
from mflandscape.sphere import chart

rng = np.random.default_rng(3)
MODES = CircleFourier.for_beta(8.0)


def drifts(d, beta):
    relu = Perceptron(rng.normal(size=(3, d)), rng.normal(size=3), 0.3 * rng.normal(size=3))
    gelu = Perceptron(rng.normal(size=(3, d)), rng.normal(size=3), activation="gelu")
    free = FreePerceptron(rng.normal(size=(3, d)), rng.normal(size=(3, d)), activation="tanh")
    how = {"interaction": MODES} if d == 2 else {}
    return {
        "heads": Attention(beta, **how) + Attention(jnp.asarray(2.0), **how) + relu,
        "softmax": SoftmaxAttention(beta, **how) + gelu + free,
        "divided": Attention(beta, interaction=sharded(MODES, particle_mesh())) + gelu,
    }


def start(d, n):
    x = rng.normal(size=(n, d))
    w = rng.uniform(0.5, 1.5, n)
    w[:2] = 0.0  # massless particles move, and are moved by nobody
    mu = empirical(x / np.linalg.norm(x, axis=1, keepdims=True), w / w.sum())
    return mu, chart(d).coordinates(mu.x)


@pytest.mark.parametrize(
    ("d", "n", "kind", "name", "direction"),
    [
        (2, 100, CircleModes, "heads", "descent"),
        (2, 100, CircleModes, "softmax", "ascent"),
        (2, 100, CircleModes, "divided", "descent"),
        (2, 12, TangentMatrix, "heads", "ascent"),
        (3, 12, TangentMatrix, "softmax", "descent"),
    ],
)
def test_solves_with_the_jacobian_of_the_velocity(d, n, kind, name, direction):
    """`(2/h - J)` by `jax.jvp` takes every solution back to its right-hand side."""
    mu, u = start(d, n)
    dynamics = Dynamics(drifts(d, jnp.asarray(4.0))[name], mu.w, direction, d)
    r = jnp.asarray(rng.normal(size=(3, *u.shape)))

    @jax.jit
    def error(h):
        def velocity(u):
            return dynamics.velocity(dynamics.chart.wrap(u))

        jacobian = linearise(dynamics, u, velocity(u), None, None)
        assert isinstance(jacobian, kind)
        z = jax.vmap(jacobian.factor(h).solve)(r)
        return 2 / h * z - jax.vmap(lambda one: jax.jvp(velocity, (u,), (one,))[1])(z) - r

    assert np.max(np.abs(error(jnp.asarray(0.05)))) < 1e-12


@pytest.mark.parametrize(("d", "n", "direction"), [(2, 100, "ascent"), (3, 12, "descent")])
def test_a_step_is_definite_up_to_twice_the_time_of_the_fastest_instability(d, n, direction):
    """Against the largest eigenvalue of the Jacobian by `jax.jacfwd`; on the circle's modes the test is the stricter
    one of the diagonal as well."""
    mu, u = start(d, n)
    mu = empirical(mu.x)
    dynamics = Dynamics(drifts(d, jnp.asarray(4.0))["heads"], mu.w, direction, d)

    @jax.jit
    def found(shares):
        jacobian = linearise(dynamics, u, dynamics.velocity(u), None, None)
        full = jax.jacfwd(lambda v: dynamics.velocity(dynamics.chart.wrap(v)))(u).reshape(u.size, u.size)
        rate = jnp.max(jnp.linalg.eigvalsh((full + full.T) / 2))  # equal masses: symmetric but for what is normal
        limit = jnp.minimum(2 / rate, jacobian.longest() / 0.9)
        return rate, jax.vmap(lambda share: jacobian.factor(share * limit).definite)(shares)

    rate, definite = found(jnp.asarray([0.9, 1.1]))
    assert rate > 0.01
    assert definite.tolist() == [True, False]


def test_other_drifts_are_not_taken_apart():
    head, perceptron = Attention(1.0), Perceptron(rng.normal(size=(2, 2)), rng.normal(size=2))
    assert take_apart(head + perceptron) is not None
    assert take_apart(Attention(1.0, matrix=np.eye(2)) + perceptron) is None
    assert take_apart(SoftmaxAttention(1.0) + head) is None
