"""Newton's method against Euler steps from the published code's end states (circle, GeLU, descent, N = 500).

    python benchmarks/refine.py [--steps 20000]

For each beta: atoms, how far the particles were from them, the residual reached and the time of `refine` (second call),
against the Euler steps of 0.1 that the flow needs from the same end state to a residual of 1e-8, and how far its end
lies from the atoms: where that is more than 1e-3, the two are different critical points (or the flow has not arrived).
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from common import seconds, table, write

import mflandscape as mfl
from mflandscape.stationary.refine import refine

jax.config.update("jax_enable_x64", True)
DATA = Path(__file__).parents[1] / "tests" / "data" / "gelu_circle_ends.npz"


def row(beta: float, theta: np.ndarray, a: np.ndarray, omega: np.ndarray, most: int) -> dict:
    mu = mfl.from_angles(theta)
    perceptron = mfl.Perceptron(a, omega, activation="gelu")
    dense = mfl.Attention(beta) + perceptron
    fast = mfl.Attention(beta, interaction=mfl.CircleFourier.for_beta(beta)) + perceptron
    stop = mfl.Stationary(1e-8) | mfl.MaxSteps(most)

    def flow():
        return mfl.flow(fast, mu, stop=stop, integrator=mfl.Euler(0.1), observe=mfl.Observe(every=10))

    found, end = refine(dense, mu), flow()
    newton_seconds, flow_seconds = seconds(lambda: refine(dense, mu).mu.x, lambda: flow().u, repeats=3)
    gap = mfl.sphere.distance(end.mu.x, found.mu.x[found.owner])
    return {
        "beta": beta, "atoms": found.mu.n, "residual before": found.residual_before, "residual": found.residual,
        "Newton steps": found.steps, "moved": float(jnp.max(found.moved)), "displacement": found.displacement,
        "other basin": found.other_basin, "refine s": newton_seconds, "Euler steps": int(end.steps),
        "Euler residual": float(end.residual), "Euler s": flow_seconds, "Euler/refine": flow_seconds / newton_seconds,
        "flow to atoms": float(jnp.max(gap)), "same state": bool(jnp.max(gap) < 1e-3),
        "energy - flow's": found.energy - float(end.energy),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000, help="most Euler steps")
    most = parser.parse_args().steps
    data = np.load(DATA)
    rows = [
        row(beta, theta, data["a"], data["omega"], most)
        for beta, theta in zip(data["beta"].tolist(), data["angle"], strict=True)
    ]
    table(f"refine to 1e-12 against Euler to 1e-8 (at most {most} steps)", rows)
    write("refine", {"ends": rows, "most_steps": most})


if __name__ == "__main__":
    main()
