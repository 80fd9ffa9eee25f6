"""What the compiler says a velocity and its derivatives need beside their arguments; nothing is run."""

import jax
import jax.numpy as jnp
import pytest

from mflandscape import Attention, Blocked, CircleFourier, Measure, velocity

OPERATIONS = {
    "velocity": lambda f, x, v: f(x),
    "jvp": lambda f, x, v: jax.jvp(f, (x,), (v,)),
    "vjp": lambda f, x, v: jax.vjp(f, x)[1](v),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("interaction", [CircleFourier.for_beta(50.0), Blocked()], ids=["circle_fourier", "blocked"])
def test_temporary_memory_is_at_most_400_bytes_a_particle_and_linear(interaction, operation):
    def temporary(n):
        x, w = jax.ShapeDtypeStruct((n, 2), jnp.float64), jax.ShapeDtypeStruct((n,), jnp.float64)
        energy = Attention(50.0, interaction=interaction)
        run = lambda x, v, w: OPERATIONS[operation](lambda z: velocity(energy, Measure(z, w)), x, v)  # noqa: E731
        return jax.jit(run).lower(x, x, w).compile().memory_analysis().temp_size_in_bytes

    one, two = temporary(100_000), temporary(200_000)
    assert one <= 400 * 100_000
    assert two <= 2.1 * one
