"""Time of one Euler step of attention alone against N, for every evaluator, with its error and memory.

    python benchmarks/step.py [--quick] [--peers] [--json]
    python benchmarks/step.py --interaction circle-fourier --d 2 --n 1000000 --beta 50 --json

`seconds`: a step in the coordinates in which particles move, in a compiled loop; evaluators of one (d, n, beta) in
turn. `error`: largest deviation of the velocity from a dense float64 NumPy sum, on at most 256 targets. `memory_bytes`:
what a compiled velocity needs beside its arguments and result. `--json` prints the rows alone; it and a selection
write nothing. `--peers`: NumPy, compiled PyTorch and KeOps (peers.py) against our evaluator in modes, at N = 10^4 on
the circle and 10^5 on S^2: minutes.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from common import (
    EVALUATORS,
    MILLION,
    Evaluator,
    arguments,
    device_name,
    picture,
    present,
    seconds,
    table,
    temporary_bytes,
    write,
)
from peers import PEERS, Peer, tangent

import mflandscape as mfl
from mflandscape.drifts import prepare
from mflandscape.flows import Dynamics

DT = 0.1
SIZES = (1024, 4096, 16_384, 65_536, 262_144, MILLION)
BETAS = {2: (50.0, 1e4), 3: (10.0, 50.0)}
LARGE = ((2, 10 * MILLION, 50.0), (2, MILLION, 1e6))  # in modes only
PEER_GROUPS = ((2, 10_000, 50.0), (3, 100_000, 10.0))
CONTESTANTS: Mapping[str, Evaluator | Peer] = {**EVALUATORS, **PEERS}
OURS = {2: "circle-fourier", 3: "sphere-fourier"}
Row = dict[str, Any]


@dataclass(frozen=True)
class Timed:
    """Something to time: `run()` makes `steps` steps, each of about `once` seconds; error of its velocity, bytes it
    needs (None if not known).
    """

    run: Callable[[], Any]
    steps: int
    once: float
    error: float
    memory: int | None


def points(d: int, n: int) -> np.ndarray:
    """The same uniform points of the sphere for all."""
    x = np.random.default_rng(0).normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def reference(x: np.ndarray, beta: float, targets: np.ndarray) -> np.ndarray:
    """Velocities in descent of some particles by a dense float64 sum, its parts added in extended precision."""
    pull = np.zeros((len(targets), x.shape[1]), np.longdouble)
    for part in np.array_split(x, max(1, len(x) // 4096)):
        pull += np.exp(beta * (x[targets] @ part.T - 1)) @ part
    return -tangent(x[targets], (pull / len(x)).astype(float))


@eqx.filter_jit
def advance(dynamics: Dynamics, u: jax.Array, steps: jax.Array) -> jax.Array:
    """Euler steps in one compiled loop."""
    step = lambda _, u: dynamics.chart.wrap(u + DT * dynamics.velocity(u))  # noqa: E731
    return jax.lax.fori_loop(0, steps, step, u)


def ours(name: str, x: np.ndarray, beta: float, dtype: str, targets: np.ndarray, wanted: np.ndarray) -> Timed:
    """One of our evaluators, compiled."""
    mu = mfl.Measure(jnp.asarray(x, dtype), jnp.full(len(x), 1 / len(x), dtype))
    drift = prepare(mfl.Attention(jnp.asarray(beta, dtype), interaction=EVALUATORS[name].build(beta, dtype)))
    arrays, static = eqx.partition(drift, eqx.is_array)
    velocity = jax.jit(lambda a, x, w: mfl.velocity(eqx.combine(a, static), mfl.Measure(x, w)))
    compiled = velocity.lower(arrays, mu.x, mu.w).compile()
    found = np.asarray(compiled(arrays, mu.x, mu.w)[targets], float)
    dynamics = Dynamics(drift, mu.w, "descent", mu.d)
    u = dynamics.chart.coordinates(mu.x)
    once = seconds(lambda: advance(dynamics, u, jnp.asarray(1)), repeats=1)[0]
    steps = int(np.clip(np.ceil(0.03 / once), 1, 1000))
    count, error = jnp.asarray(steps), float(np.abs(found - wanted).max())
    return Timed(lambda: advance(dynamics, u, count), steps, once, error, temporary_bytes(compiled))


def theirs(name: str, x: np.ndarray, beta: float, targets: np.ndarray, wanted: np.ndarray) -> Timed:
    """One of the peers; its velocity, without the step's few operations a particle."""
    run = PEERS[name].make(x, beta)
    error = float(np.abs(run()[targets] - wanted).max())  # compiles
    return Timed(run, 1, 0.0 if len(x) <= 20_000 else np.inf, error, None)


def group(d: int, n: int, beta: float, names: Sequence[str], dtype: str, repeats: int) -> list[Row]:
    """Rows of all contestants at one (d, n, beta), timed in turn; three times or once if that takes long."""
    x = points(d, n).astype(dtype).astype(float)
    targets = np.random.default_rng(1).permutation(n)[: max(16, min(256, 20 * MILLION // n))]
    wanted = reference(x, beta, targets)
    timed = [
        ours(name, x, beta, dtype, targets, wanted) if name in EVALUATORS else theirs(name, x, beta, targets, wanted)
        for name in names
    ]
    slowest = max(t.once for t in timed)
    repeats = 1 if slowest > 20 else min(repeats, 3 if slowest > 2 else repeats)
    took = seconds(*(t.run for t in timed), repeats=repeats, warm=False)
    return [
        {
            "interaction": name, "d": d, "n": n, "beta": beta, "dtype": dtype if name in EVALUATORS else "float64",
            "device": device_name() if name in EVALUATORS else "cpu", "seconds": s / t.steps, "error": t.error,
            "memory_bytes": t.memory,
        }
        for name, s, t in zip(names, took, timed, strict=True)
    ]  # fmt: skip


def slopes(rows: Sequence[Row]) -> list[Row]:
    """Log-log slope of time against N from 4096 on, of every evaluator and beta seen at two such sizes at least."""
    found = []
    key = lambda row: (row["interaction"], row["d"], row["beta"])  # noqa: E731
    for (name, d, beta), part in itertools.groupby(sorted(rows, key=key), key):
        large = [(row["n"], row["seconds"]) for row in part if row["n"] >= 4096]
        if len({n for n, _ in large}) > 1:
            n, s = np.log(np.array(large)).T
            slope = float(np.polyfit(n, s, 1)[0])
            found.append({"interaction": name, "d": d, "beta": beta, "largest n": max(large)[0], "slope": slope})
    return found


def ratios(rows: Sequence[Row]) -> list[Row]:
    """How many times as long as the fastest of our evaluators each takes, at every (d, n, beta)."""
    found = []
    key = lambda row: (row["d"], row["n"], row["beta"])  # noqa: E731
    for (d, n, beta), part in itertools.groupby(sorted(rows, key=key), key):
        times = {row["interaction"]: row["seconds"] for row in part}
        mine = [name for name in times if name in EVALUATORS]
        if mine and len(times) > 1:
            best = min(mine, key=times.__getitem__)
            found += [
                {"d": d, "n": n, "beta": beta, "fastest": best, "interaction": name, "times": s / times[best]}
                for name, s in times.items()
                if name != best
            ]
    return found


def loops(repeats: int, steps: int = 1000) -> list[Row]:
    """What `flow` costs a step beside the velocity: against the bare compiled loop, N = 1000 on the circle."""
    beta = BETAS[2][0]
    mu = mfl.from_angles(np.random.default_rng(0).uniform(0, 2 * np.pi, 1000))
    drift = mfl.Attention(beta, interaction=EVALUATORS["circle-fourier"].build(beta))
    dynamics, count = Dynamics(prepare(drift), mu.w, "descent", 2), jnp.asarray(steps)
    u, stop, look = dynamics.chart.coordinates(mu.x), mfl.MaxSteps(steps), mfl.Observe(every=10)
    whole = lambda: mfl.flow(drift, mu, stop=stop, observe=look, throw=False).u  # noqa: E731
    flow, bare = seconds(whole, lambda: advance(dynamics, u, count), repeats=repeats)
    row = {"n": 1000, "beta": beta, "flow s a step": flow / steps, "loop s a step": bare / steps}
    return [row | {"flow/loop": flow / bare}]


def contests(given: Any) -> Iterator[tuple[int, int, float, list[str]]]:
    """Dimension, size, beta and contestants of what was asked for."""
    if given.peers:
        for d, n, beta in (g for g in PEER_GROUPS if g[0] in (given.d or OURS)):
            n = min(n, *given.n) if given.n else n
            others = [p for p, peer in PEERS.items() if peer.takes(d) and not peer.missing]
            yield d, n, beta, [OURS[d], *(p for p in others if n <= 20_000 or p in ("torch", "keops"))]
        return
    sizes = given.n or (SIZES[:4] if given.quick else SIZES)
    for d in given.d or (2, 3):
        for beta in given.beta or BETAS.get(d, (10.0,))[: 1 if given.quick else None]:
            for n in sizes:
                names = given.interaction or [
                    *(name for name, e in present().items() if e.affordable(4 * n if given.quick else n)),
                    *(name for name, p in PEERS.items() if n <= p.largest and not p.needs),
                ]
                names = [name for name in names if CONTESTANTS[name].takes(d)]
                if names:
                    yield d, n, beta, names
    if not (given.quick or given.interaction or given.d or given.n or given.beta):
        for d, n, beta in LARGE:
            yield d, n, beta, [name for name, e in present().items() if e.series and e.takes(d)]


def parse(argv: Sequence[str] | None) -> Any:
    """What was asked for; refuses (exit 2) unknown names and what cannot be had here."""
    parser = arguments(__doc__)
    names = list(CONTESTANTS)
    parser.add_argument("--interaction", action="append", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--d", action="append", type=int, help="ambient dimension: 2, 3, ...")
    parser.add_argument("--n", action="append", type=int, help="particles")
    parser.add_argument("--beta", action="append", type=float)
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peers", action="store_true", help="against PyTorch and KeOps, where installed")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON, and nothing else")
    given = parser.parse_args(argv)
    for name in given.interaction or []:
        entry = CONTESTANTS[name]
        if entry.missing:
            parser.error(f"{name} needs the package {entry.missing}: install it, or choose another of {names}")
        if given.d and not any(entry.takes(d) for d in given.d):
            parser.error(f"{name} does not take d = {given.d}: it works in dimensions {entry.dimensions}")
    if min(given.d or [2]) < 2 or min(given.n or [1]) < 1 or min(given.beta or [0]) < 0 or given.repeats < 1:
        parser.error("expected d >= 2, n >= 1, beta >= 0, repeats >= 1")
    return given


def draw(rows: Sequence[Row]):
    """Seconds a step against N: a panel for each dimension, a colour for each kind of contestant, dashed the larger
    beta.
    """
    from matplotlib import colormaps

    from mflandscape.plotting.style import COLUMN, key_below, new_figure, styled, tidy

    @styled
    def figure():
        dimensions = sorted({row["d"] for row in rows})
        page = new_figure(COLUMN * len(dimensions), 3.2)
        names = list(dict.fromkeys(row["interaction"] for row in rows))
        kinds = list(dict.fromkeys(map(_kind, names)))
        colors = {name: colormaps["tab10"](kinds.index(_kind(name)) % 10) for name in names}
        lines = {}
        for d, axes in zip(dimensions, page.subplots(1, len(dimensions), squeeze=False)[0], strict=True):
            inside = [row for row in rows if row["d"] == d]
            betas = sorted({row["beta"] for row in inside})[:2]
            for name, beta in itertools.product(names, betas):
                line = sorted((r["n"], r["seconds"]) for r in inside if (r["interaction"], r["beta"]) == (name, beta))
                if line:
                    style = ".-" if beta == betas[0] else ".--"
                    drawn = axes.loglog(*zip(*line, strict=True), style, markersize=3, color=colors[name], label=name)
                    lines.setdefault(name, drawn[0])
            title = ", ".join(f"{beta:g} ({style})" for beta, style in zip(betas, ("solid", "dashed"), strict=False))
            axes.set(xlabel="Particles", ylabel="Seconds a step", title=rf"$S^{d - 1}$, $\beta$ = {title}")
            axes.minorticks_off()  # a third of the file's size
            tidy(axes, bare=True)
        key_below(page, list(lines.values()), columns=5)
        return page

    return figure()


def _kind(name: str) -> str:
    """The same mathematics on the circle and the sphere."""
    return name.removeprefix("circle-").removeprefix("sphere-")


def main(argv: Sequence[str] | None = None) -> None:
    given = parse(argv)
    rows = [row for g in contests(given) for row in group(*g, dtype=given.dtype, repeats=given.repeats)]
    if given.json:
        print(json.dumps(rows, indent=1))
        return
    name = "peers" if given.peers else "step"
    table("One Euler step of attention (medians)", rows)
    figures = {"rows": rows, "slopes": slopes(rows), "ratios": ratios(rows)}
    selected = given.interaction or given.d or given.n or given.beta
    if not (selected or given.peers):
        figures["loops"] = loops(given.repeats)
    for title in list(figures)[1:]:
        if figures[title]:
            table(title, figures[title])
    if not selected:
        write(name, figures, given.dtype)
        picture(name, draw(rows))


if __name__ == "__main__":
    main()
