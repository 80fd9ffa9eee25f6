"""What the compiler says a velocity and its derivatives need beside their arguments; nothing is run."""

import jax
import jax.numpy as jnp
import pytest

from mflandscape import Attention, Blocked, CircleFourier, Measure, velocity
from mflandscape.interactions import SphereFourier

OPERATIONS = {
    "velocity": lambda f, x, v: f(x),
    "jvp": lambda f, x, v: jax.jvp(f, (x,), (v,)),
    "vjp": lambda f, x, v: jax.vjp(f, x)[1](v),
}


INTERACTIONS = {
    "circle_fourier": (2, CircleFourier.for_beta(50.0)),
    "sphere_fourier": (3, SphereFourier.for_beta(50.0)),
    "blocked": (2, Blocked()),
}


def temporary(name, operation, n):
    d, interaction = INTERACTIONS[name]
    x, w = jax.ShapeDtypeStruct((n, d), jnp.float64), jax.ShapeDtypeStruct((n,), jnp.float64)
    energy = Attention(50.0, interaction=interaction)
    run = lambda x, v, w: OPERATIONS[operation](lambda z: velocity(energy, Measure(z, w)), x, v)  # noqa: E731
    return jax.jit(run).lower(x, x, w).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", INTERACTIONS)
def test_temporary_memory_is_at_most_400_bytes_a_particle_and_linear(name, operation):
    one, two = (temporary(name, operation, n) for n in (100_000, 200_000))
    assert one <= 400 * 100_000
    assert two <= 2.1 * one


def test_a_million_particles_on_the_sphere_take_32_mib():
    assert temporary("sphere_fourier", "velocity", 10**6) <= 32 * 2**20
