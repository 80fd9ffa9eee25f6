"""Run by test_sharded.py on four CPU devices: what a mesh changes, as numbers on standard output (JSON)."""

import functools
import json
import re
import sys

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

import mflandscape as mfl  # noqa: E402
from mflandscape.distributed import gathered, particle_mesh, shard  # noqa: E402
from mflandscape.flows.solve import solve  # noqa: E402
from mflandscape.gradient import hessian_vector_product  # noqa: E402
from mflandscape.interactions import Fused, SphereFourier  # noqa: E402
from mflandscape.interactions.sharded import sharded  # noqa: E402

BETA, N = jnp.asarray(3.0), 1536
MESH = particle_mesh()


def relative(a, b):
    """Largest deviation of the leaves, each relative to its own largest entry."""
    pairs = zip(jax.tree.leaves(gathered(a)), jax.tree.leaves(gathered(b)), strict=True)
    return max(float(np.max(np.abs(u - v)) / np.max(np.abs(u))) for u, v in pairs)


def quantities(kind, interaction, mu):
    """A value, its reverse-mode derivatives in beta and x, the velocity, and a Hessian-vector product."""

    def value(beta, x):
        held = mu.at(x / jnp.linalg.norm(x, axis=1, keepdims=True))
        return jnp.sum(held.w * kind(beta, interaction=interaction).potential(held.x, held))

    drift = kind(BETA, interaction=interaction)
    moved = jnp.roll(mu.x, 1, axis=0)
    return (
        jax.value_and_grad(value, (0, 1))(BETA, mu.x),
        mfl.velocity(drift, mu),
        hessian_vector_product(drift, mu, moved),
    )


def evaluator(kind, interaction, n, d=2):
    """Against `Dense` on one device."""
    mu = mfl.uniform(jax.random.key(0), n, d)
    at = jax.jit(quantities, static_argnums=(0, 1))
    return relative(at(kind, mfl.Dense(), mu), at(kind, sharded(interaction, MESH), shard(mu, MESH)))


def problem(beta, mu):
    attention = mfl.Attention(beta, interaction=mfl.CircleFourier.for_beta(BETA))
    return mfl.Problem(
        attention + mfl.Perceptron(np.eye(2), np.ones(2), activation="gelu"),
        mu,
        stop=mfl.MaxSteps(20),
        save=mfl.SaveLog(4),
        observe=mfl.Observe(5, energy=True),
    )


def forward(beta, mu, place):
    """The solution of a flow, and the derivative of its final energy by forward mode."""

    def end(beta):
        solution = solve(place(problem(beta, mu)), mfl.Forward())
        return solution.energy, solution

    _, slope, solution = jax.jvp(end, (beta,), (jnp.ones_like(beta),), has_aux=True)
    return solution, slope


def reverse(beta, mu, place):
    """The same by reverse mode."""

    def end(beta):
        solution = solve(place(problem(beta, mu)), mfl.Unrolled())
        return solution.energy, solution

    (_, solution), slope = jax.value_and_grad(end, has_aux=True)(beta)
    return solution, slope


def whole_flow(mode):
    """Deviations from one device, and what the compiled program holds: global arrays, parts of them, exchanges."""
    start, found = mfl.uniform(jax.random.key(0), N, 2), []
    for place in (lambda tree: tree, lambda tree: shard(tree, MESH)):
        program = jax.jit(functools.partial(mode, place=place)).lower(BETA, place(start)).compile()
        solution, slope = program(BETA, place(start))
        looks = solution.series.residual, solution.series.energy
        found.append((solution.u, solution.saved_u, *looks, solution.residual_l2, slope))
    text = program.as_text()
    return {
        "flow": relative(*found),
        "gathers": len(re.findall(r"\b(all-gather|all-to-all)(-start)?\(", text)),
        "sums over devices": len(re.findall(r"\ball-reduce(-start)?\(", text)),
        "whole arrays": len(re.findall(rf"f64\[(?:\d+,)*{N}[,\]]", text)),
        "parts": len(re.findall(rf"f64\[(?:\d+,)*{N // 4}[,\]]", text)),
        "rows a device": found[1][0].addressable_shards[0].data.shape[0],
    }


def starts():
    """The same arrays for any number of devices, a part on each (all of it where it cannot be divided); and noise."""
    mu = mfl.uniform(jax.random.key(0), N, 3)
    placed = [shard(mu, particle_mesh(devices)) for devices in (1, 2, 3, 4)]
    odd = shard(mfl.uniform(jax.random.key(0), 61, 3), MESH)
    same = all(np.array_equal(gathered(mu.x), gathered(p.x)) for p in placed)
    noise = functools.partial(jax.random.normal, jax.random.key(1), (N,))
    drawn = jax.jit(noise, out_shardings=NamedSharding(MESH, PartitionSpec("particles")))()
    rows = [shard.data.shape[0] for p in (*placed, odd) for shard in p.x.addressable_shards[:1]]
    return {"starts": same, "rows": rows, "noise": np.array_equal(noise(), drawn)}


CASES = {
    "moments": lambda: {"deviation": evaluator(mfl.Attention, mfl.CircleFourier.for_beta(BETA), 61)},
    "pairs": lambda: {"deviation": evaluator(mfl.SoftmaxAttention, mfl.Blocked(8), 64)},
    "sphere": lambda: {"deviation": evaluator(mfl.Attention, SphereFourier.for_beta(BETA), 61, 3)},
    "fused": lambda: {"deviation": evaluator(mfl.SoftmaxAttention, Fused(), 61, 3)},
    "flow": lambda: whole_flow(forward),
    "reverse": lambda: whole_flow(reverse),
    "starts": starts,
}

if __name__ == "__main__":
    print(json.dumps({name: CASES[name]() for name in sys.argv[1:]}))
