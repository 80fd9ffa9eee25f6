"""Achieved against counted: a step's operations and bytes at the ceilings of this machine, measured in the same run.

    python benchmarks/roofline.py [--quick] [--dtype float32]

Ceilings: a matrix product of 2048^2 (GEMM flop/s), multiply-adds and exponentials on values that stay in cache, a
triad on arrays far larger than any cache (bytes/s). Counts: what the scheme needs at least, derived in `counted`,
nothing that an implementation adds. The floor is the time of the operations one after the other at their ceilings, or
of reading points and weights and writing velocities, whichever is longer; the efficiency is floor over measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import EVALUATORS, arguments, device_name, picture, present, seconds, table, write
from step import group

_CHAIN = 32  # multiply-adds or exponentials on a value before it is written
SIZES = {"direct": (4096, 16_384), "series": (65_536, 262_144)}
BETAS = {2: 50.0, 3: 10.0}
Row = dict[str, Any]


@dataclass(frozen=True)
class Counts:
    """Operations of matrix products, other operations, exponentials, and bytes of main memory of one step."""

    gemm: float
    flops: float
    exps: float
    bytes: float

    def floor(self, ceilings: Row) -> float:
        """Least seconds at these ceilings."""
        work = self.gemm / ceilings["gemm"] + self.flops / ceilings["flops"] + self.exps / ceilings["exps"]
        return max(work, self.bytes / ceilings["bytes"])


def ceilings(dtype: str, scale: int = 1) -> Row:
    """Operations and bytes a second, the best of several; `scale` divides the sizes."""
    rng = np.random.default_rng(0)
    a = jnp.asarray(rng.normal(size=(2048 // scale,) * 2), dtype)
    cached = jnp.asarray(rng.uniform(size=(2**20 // scale,)), dtype)
    long, other = (jnp.asarray(rng.uniform(size=(2**25 // scale,)), dtype) for _ in range(2))

    @jax.jit
    def multiply_add(v):
        chains = [v, v + 1, v + 2, v + 3]  # four at a time, so that latency does not count
        for _ in range(_CHAIN // 4):
            chains = [c * v + 0.5 for c in chains]
        return sum(chains[1:], chains[0])

    @jax.jit
    def exponential(v):
        chains = [v, v + 0.1, v + 0.2, v + 0.3]
        for _ in range(_CHAIN // 4):
            chains = [jnp.exp(-c) for c in chains]
        return sum(chains[1:], chains[0])

    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    triad = jax.jit(lambda b, c: b + 3.0 * c)
    runs = {
        "gemm": (lambda: product(a), 2 * a.shape[0] ** 3),
        "flops": (lambda: multiply_add(cached), 2 * _CHAIN * cached.size),
        "exps": (lambda: exponential(cached), _CHAIN * cached.size),
        "bytes": (lambda: triad(long, other), 3 * long.nbytes),
    }
    return {name: work / min(seconds(run, repeats=1)[0] for _ in range(5)) for name, (run, work) in runs.items()}


def counted(name: str, d: int, n: int, beta: float, dtype: str) -> Counts | None:
    """What one step of attention needs; None for schemes not counted here.

    Direct sums, a pair: <x, y> (d multiply-adds), beta (t - 1) (one), exp, times y added up (d). On the circle, a
    point: 20 for each mode, moments and series in a loop, or about 140 by an even grid and polynomials about its nodes,
    whichever is less; the angle's cosine and sine count as two exponentials. On S^2, J = degree/2 + 1: three matrix
    products of 16 J^2 (one analysis, the series' two derivatives), tables of 60 J.
    """
    evaluator, size = EVALUATORS[name].build(beta, dtype), np.dtype(dtype).itemsize
    traffic = (2 * d + 1 + d) * n * size  # points for sources and for targets, weights, velocities
    if not EVALUATORS[name].series:
        return Counts(0.0, (4 * d + 2) * n * n, n * n, traffic)
    if name == "circle-fourier":
        return Counts(0.0, min(20 * evaluator.modes, 140) * n, 2 * n, traffic)
    if name == "sphere-fourier":
        half = evaluator.degree // 2 + 1
        return Counts(48 * half**2 * n, 60 * half * n, 0.0, traffic)
    return None


def measured(names: Sequence[str], d: int, n: int, dtype: str, rates: Row, repeats: int) -> list[Row]:
    """Evaluators at one size against their floors."""
    rows = []
    for row in group(d, n, BETAS[d], names, dtype, repeats) if names else []:
        counts = counted(row["interaction"], d, n, BETAS[d], dtype)
        if counts is not None:
            floor, taken = counts.floor(rates), row["seconds"]
            operations = counts.gemm + counts.flops + counts.exps
            rows.append(
                {
                    "interaction": row["interaction"], "d": d, "n": n, "beta": BETAS[d], "seconds": taken,
                    "floor": floor, "efficiency": floor / taken, "Gop/s": operations / taken / 1e9,
                    "GB/s": counts.bytes / taken / 1e9, "op/byte": operations / counts.bytes,
                }
            )  # fmt: skip
    return rows


def draw(rows: Sequence[Row], rates: Row):
    """Achieved operations a second against operations a byte of main memory, under the ceilings."""
    from matplotlib import colormaps

    from mflandscape.plotting.style import COLUMN, GREY, INK, key_below, new_figure, styled, tidy

    @styled
    def figure():
        page = new_figure(1.4 * COLUMN, 3.6)
        axes, key = page.subplots(), []
        low, high = (f(row["op/byte"] for row in rows) for f in (min, max))
        intensity = np.geomspace(low / 4, high * 4, 60)
        for ceiling, style in (("gemm", "-"), ("flops", "--"), ("exps", ":")):
            line = np.minimum(rates[ceiling], intensity * rates["bytes"]) / 1e9
            key += axes.loglog(intensity, line, style, color=GREY, label=f"ceiling, {ceiling}")
        names = list(dict.fromkeys(row["interaction"] for row in rows))
        for name, d in dict.fromkeys((row["interaction"], row["d"]) for row in rows):
            inside = [row for row in rows if (row["interaction"], row["d"]) == (name, d)]
            key += axes.loglog(
                [row["op/byte"] for row in inside], [row["Gop/s"] for row in inside], "o" if d == 2 else "s",
                color=colormaps["tab10"](names.index(name)), markeredgecolor=INK, label=f"{name}, $S^{d - 1}$",
            )  # fmt: skip
        axes.set(xlabel="Operations a byte", ylabel=r"$10^9$ operations a second")
        key_below(page, key, columns=3)
        axes.minorticks_off()  # a third of the file's size
        tidy(axes, bare=True)
        return page

    return figure()


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__)
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--n", type=int, help="one size for all")
    given = parser.parse_args(argv)
    rates = ceilings(given.dtype, scale=16 if given.n else 1)
    rows = []
    for kind, sizes in SIZES.items():
        for n in [given.n] if given.n else sizes[: 1 if given.quick else None]:
            for d in BETAS:
                able = {k: e for k, e in present().items() if e.takes(d) and e.affordable(n)}
                names = [k for k, e in able.items() if e.series == (kind == "series") and not e.needs]
                rows += measured(names, d, n, given.dtype, rates, 3 if given.quick else 7)
    table(f"Ceilings on {device_name()}, {given.dtype} (1e9 a second)", [{k: v / 1e9 for k, v in rates.items()}])
    table("A step against the time of its counted operations", rows)
    write("roofline", {"ceilings": rates, "rows": rows}, given.dtype)
    picture("roofline", draw(rows, rates))


if __name__ == "__main__":
    main()
