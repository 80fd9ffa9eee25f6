"""Start-up: what importing costs, when a run makes its first step, and how often a sweep is traced.

    python benchmarks/compile_time.py [--quick]

All in fresh processes. Imports: `import mflandscape` against `import jax, equinox`, in turn, medians. First step: from
the start of the process to the first chunk of the paper's circle sweep (13 betas), without a compilation cache, with an
empty one, and with what that leaves; and the whole command with one step. Traces: of the step, over the sweep.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from common import arguments, picture, table, write

IMPORTS = ("jax, equinox", "mflandscape")
_IMPORT = "import time; began = time.perf_counter(); import {}; print(time.perf_counter() - began)"
_SWEEP = """
import sys, time; began = time.perf_counter()
from mflandscape.cli.cache import keep_compiled_programs
from mflandscape.cli.devices import prepare
keep_compiled_programs(); prepare()
from mflandscape.experiment import Experiment
from mflandscape.ensemble import run_lanes
from mflandscape.presets import preset
from mflandscape.flows import loop
traces, step = [0], loop._step
def counted(problem, state):
    traces[0] += 1
    return step(problem, state)
loop._step = counted
n, steps = map(int, sys.argv[1:])
spec = preset("paper-s1").replace(n_particles=n, max_steps=steps)
experiment, first = Experiment(spec), None
for chunk in run_lanes(experiment.problem, range(spec.members)):
    first = first or time.perf_counter() - began
print(traces[0], first, time.perf_counter() - began)
"""


def fresh(*command: str, cache: str = "off") -> tuple[float, str]:
    """Wall seconds and output of a Python process of its own, with a folder for compiled programs."""
    settings = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"} | {"MFLANDSCAPE_CACHE": cache}
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=settings, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return time.perf_counter() - began, done.stdout


def imports(repeats: int) -> list[dict[str, Any]]:
    """Seconds of each import, in turn after one uncounted round."""
    taken: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for counted in range(-1, repeats):
        for name, times in taken.items():
            spent = float(fresh("-c", _IMPORT.format(name))[1])
            if counted >= 0:
                times.append(spent)
    base = statistics.median(taken[IMPORTS[0]])
    return [
        {"import": name, "seconds": statistics.median(times), "of jax, equinox": statistics.median(times) / base}
        for name, times in taken.items()
    ]


def first_steps(n: int, steps: int) -> list[dict[str, Any]]:
    """A sweep in a fresh process without cache, with an empty one, and with what that left; then the whole command."""
    rows = []
    command = ("-m", "mflandscape.cli", "run", "--preset", "paper-s1", "--n-particles", str(n), "--max-steps", "1")
    with tempfile.TemporaryDirectory() as folder:
        for label in ("off", "cold", "warm"):
            own = ("off", "off") if label == "off" else (f"{folder}/sweep", f"{folder}/command")
            whole, out = fresh("-c", _SWEEP, str(n), str(steps), cache=own[0])
            traces, first, _ = out.split()
            run = fresh(*command, "--out", f"{folder}/run-{label}", cache=own[1])[0]
            row = {"cache": label, "traces": int(traces), "first chunk s": float(first), "process s": whole}
            rows.append(row | {"command of one step s": run})
    return rows


def draw(first: Sequence[dict[str, Any]]):
    """Seconds to the first chunk and of the command, by state of the cache."""
    from mflandscape.plotting.style import BLUE, COLUMN, ORANGE, new_figure, styled, tidy

    @styled
    def figure():
        page = new_figure(COLUMN, 2.2)
        axes = page.subplots()
        for shift, (label, color) in zip(
            (-0.2, 0.2), {"first chunk s": BLUE, "command of one step s": ORANGE}.items(), strict=True
        ):
            places = [i + shift for i in range(len(first))]
            axes.bar(places, [row[label] for row in first], 0.4, color=color, label=label.removesuffix(" s"))
        axes.set_xticks(range(len(first)), [row["cache"] for row in first])
        axes.set(xlabel="Compilation cache", ylabel="Seconds from the start")
        axes.axhline(5, color="0.5", linewidth=0.6)
        axes.legend()
        tidy(axes, bare=True)
        return page

    return figure()


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__)
    parser.add_argument("--n-particles", type=int, default=1000)
    parser.add_argument("--repeats", type=int, help="of the imports (7; 3 with --quick)")
    given = parser.parse_args(argv)
    figures = {
        "imports": imports(given.repeats or (3 if given.quick else 7)),
        "first step": first_steps(given.n_particles, 20 if given.quick else 300),
    }
    for title, rows in figures.items():
        table(title, rows)
    write("compile_time", figures)
    picture("compile_time", draw(figures["first step"]))


if __name__ == "__main__":
    main()
