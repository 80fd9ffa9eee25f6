"""Temporary memory of a compiled velocity, its JVP and its VJP, and their time against a velocity's, every evaluator.

    python benchmarks/memory.py [--quick]

All particles move: derivatives go through targets and sources. Bytes are the compiler's own account, beside arguments
and results, at two sizes: linear memory has the same bytes a particle at both. Times are medians, the three operations
in turn.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from common import EVALUATORS, MILLION, arguments, picture, present, seconds, table, temporary_bytes, write

import mflandscape as mfl
from mflandscape.drifts import prepare

BETAS = {2: (50.0, 1e4), 3: (10.0, 50.0)}
SIZES, TIMED = (100_000, MILLION), (4096, 65_536)  # time: direct sums, series
OPERATIONS: dict[str, Callable] = {
    "velocity": lambda f, x, v: f(x),
    "jvp": lambda f, x, v: jax.jvp(f, (x,), (v,))[1],
    "vjp": lambda f, x, v: jax.vjp(f, x)[1](v)[0],
}
Row = dict[str, Any]


@functools.cache
def programs(name: str, d: int, beta: float, n: int) -> dict[str, Any]:
    """The compiled operations, as functions of points and directions."""
    drift = prepare(mfl.Attention(beta, interaction=EVALUATORS[name].build(beta)))
    arrays, static = eqx.partition(drift, eqx.is_array)
    x, w = jax.ShapeDtypeStruct((n, d), jnp.float64), jax.ShapeDtypeStruct((n,), jnp.float64)
    compiled = {}
    for label, operation in OPERATIONS.items():

        def run(arrays, x, v, w, operation=operation):
            return operation(lambda z: mfl.velocity(eqx.combine(arrays, static), mfl.Measure(z, w)), x, v)

        made = jax.jit(run).lower(arrays, x, x, w).compile()
        compiled[label] = made, lambda x, v, w, made=made: made(arrays, x, v, w)
    return compiled


def sizes(name: str, d: int, beta: float, n: int) -> Row:
    """Bytes at one size."""
    compiled = {label: made for label, (made, _) in programs(name, d, beta, n).items()}
    each = {f"{label} B/particle": temporary_bytes(made) / n for label, made in compiled.items()}
    row = {"interaction": name, "d": d, "beta": beta, "n": n}
    whole = temporary_bytes(compiled["velocity"]) / 2**20
    return row | {"velocity MiB": whole} | each


def times(name: str, d: int, beta: float, n: int, repeats: int) -> Row:
    """Seconds of a velocity, and its derivatives in velocities."""
    rng = np.random.default_rng(0)
    x, v = (jnp.asarray(rng.normal(size=(n, d))) for _ in range(2))
    x, w = x / jnp.linalg.norm(x, axis=1, keepdims=True), jnp.full(n, 1 / n)
    runs = [lambda run=run: run(x, v, w) for _, run in programs(name, d, beta, n).values()]
    velocity, jvp, vjp = seconds(*runs, repeats=repeats)
    row = {"interaction": name, "d": d, "beta": beta, "n": n}
    return row | {"velocity s": velocity, "jvp/velocity": jvp / velocity, "vjp/velocity": vjp / velocity}


def draw(rows: Sequence[Row]):
    """Bytes a particle at the largest size, a group of bars for each evaluator."""
    from mflandscape.plotting.style import BLUE, GREEN, ORANGE, PAGE, new_figure, styled, tidy

    @styled
    def figure():
        page = new_figure(PAGE, 3.0)
        axes = page.subplots()
        largest = max(row["n"] for row in rows)
        shown = [row for row in rows if row["n"] == largest]
        for i, (label, color) in enumerate(zip(OPERATIONS, (BLUE, ORANGE, GREEN), strict=True)):
            heights = [max(row[f"{label} B/particle"], 0.1) for row in shown]
            axes.bar(np.arange(len(shown)) + 0.27 * (i - 1), heights, 0.27, color=color, label=label)
        names = [f"{row['interaction']}\n$S^{row['d'] - 1}$, {row['beta']:g}" for row in shown]
        axes.set_xticks(range(len(shown)), names, fontsize=6)
        axes.set(yscale="log", ylabel=f"Bytes a particle, N = {largest}")
        axes.axhline(400, color="0.5", linewidth=0.6)
        axes.legend()
        tidy(axes, bare=True)
        axes.tick_params(axis="x", labelsize=6)
        return page

    return figure()


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__)
    parser.add_argument("--n", type=int, nargs=2, default=SIZES, help="the two sizes")
    given = parser.parse_args(argv)
    cases = [
        (name, d, beta)
        for name, evaluator in present().items()
        for d in (2, 3)
        if evaluator.takes(d)
        for beta in BETAS[d][: 1 if given.quick or not evaluator.series else None]
    ]
    # All pairs at once need 8 N^2 bytes; what a CPU interprets is not timed, an accelerator runs something else.
    held = [sizes(*case, n) for case in cases if case[0] != "dense" for n in given.n]
    taken = [
        times(*case, min(TIMED[EVALUATORS[case[0]].series], *given.n), 3 if given.quick else 7)
        for case in cases
        if EVALUATORS[case[0]].affordable(4096)
    ]
    table("Temporary memory, compiled", held)
    table("Derivatives of a velocity, in velocities", taken)
    write("memory", {"memory": held, "times": taken})
    picture("memory", draw(held))


if __name__ == "__main__":
    main()
