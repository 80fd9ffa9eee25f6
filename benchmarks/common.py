"""What the benchmarks share: the table of evaluators, timing, a table on the screen, a picture, and a small JSON with
device, dtype, versions and commit.

Figures go to `benchmarks/results`, pictures to `results/benchmarks` of the repository, which git ignores; or both to
the folder that BENCH_RESULTS names (`make bench` does, so that a short run leaves the published figures alone).
"""

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.typing import DTypeLike

jax.config.update("jax_enable_x64", True)
HERE = Path(__file__).parent
RESULTS = Path(os.environ.get("BENCH_RESULTS") or HERE / "results")
PICTURES = Path(os.environ.get("BENCH_RESULTS") or HERE.parent / "results" / "benchmarks")
MILLION = 1_000_000
PAUSE = 0.02  # seconds


@dataclass(frozen=True)
class Evaluator:
    """A class of `mflandscape.interactions`, the dimensions it takes (all, if none), and the most particles that
    benchmarks give it unasked, on a CPU and on an accelerator.

    `series`: its size follows from beta and dtype (`for_beta`). `needs` is an optional package.
    """

    name: str
    dimensions: tuple[int, ...] = ()
    largest: tuple[int, int] = (10 * MILLION, 10 * MILLION)
    series: bool = False
    needs: str | None = None

    @property
    def missing(self) -> str | None:
        """What to install first, if anything."""
        if self.needs is None or importlib.util.find_spec(self.needs) is not None:
            return None
        return self.needs

    def takes(self, d: int) -> bool:
        """Whether it works in dimension d."""
        return not self.dimensions or d in self.dimensions

    def affordable(self, n: int) -> bool:
        """Whether n particles are to be given to it unasked, on this device."""
        return n <= self.largest[jax.devices()[0].platform != "cpu"]

    def build(self, beta: float, dtype: DTypeLike = np.float64):
        """The evaluator for one beta."""
        from mflandscape import interactions

        made = getattr(interactions, self.name)
        return made.for_beta(beta, dtype) if self.series else made()


# Direct sums: all pairs at once, in tiles, in one loop (XLA), in one kernel (Pallas, interpreted on a CPU). Then modes.
EVALUATORS: Mapping[str, Evaluator] = {
    "dense": Evaluator("Dense", largest=(4096, 32_768)),
    "blocked": Evaluator("Blocked", largest=(65_536, 262_144)),
    "fused": Evaluator("Fused", largest=(4096, 262_144)),
    "tiled": Evaluator("Tiled", largest=(1024, 262_144)),
    "circle-fourier": Evaluator("CircleFourier", (2,), series=True),
    "sphere-fourier": Evaluator("SphereFourier", (3,), series=True),
    "circle-nufft": Evaluator("NonuniformFFT", (2,), series=True, needs="jax_finufft"),
    "sphere-nufft": Evaluator("SphereNonuniformFFT", (3,), series=True, needs="jax_finufft"),
}


def present() -> dict[str, Evaluator]:
    """The evaluators that can be built here."""
    return {name: evaluator for name, evaluator in EVALUATORS.items() if not evaluator.missing}


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """A parser with the file's first sentence, and `--quick`."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n\n")[0].replace("\n", " "))
    parser.add_argument("--quick", action="store_true", help="a short run at smaller sizes")
    return parser


def seconds(*runs: Callable[[], Any], repeats: int = 7, warm: bool = True) -> list[float]:
    """Median wall time of each function, called in turn (A B C A B C ...) so that drift hits all alike; with `warm`
    after one uncounted round. Before each call a pause: threads of another's pool spin on for some milliseconds.
    """
    times: list[list[float]] = [[] for _ in runs]
    for counted in range(-1 if warm else 0, repeats):
        for run, taken in zip(runs, times, strict=True):
            time.sleep(PAUSE if len(runs) > 1 else 0)
            began = time.perf_counter()
            jax.block_until_ready(run())
            if counted >= 0:
                taken.append(time.perf_counter() - began)
    return [statistics.median(taken) for taken in times]


def temporary_bytes(compiled: Any) -> int:
    """Bytes that a compiled program needs beside its arguments and results, by the compiler's own account."""
    return int(compiled.memory_analysis().temp_size_in_bytes)


def device_name() -> str:
    """Platform and kind of the first device."""
    device = jax.devices()[0]
    return f"{device.platform} ({device.device_kind})"


def environment(dtype: str = "float64") -> dict[str, Any]:
    """Where the figures come from."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "device": device_name(),
        "devices": len(jax.devices()),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "dtype": dtype,
        "versions": {name: version(name) for name in ("mflandscape", "jax", "jaxlib", "equinox", "numpy")},
        "commit": commit.stdout.strip() or None,
        "short": "--quick" in sys.argv,
    }


def table(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Prints rows of equal keys."""
    print(f"\n{title}")
    cells = [[_text(value) for value in row.values()] for row in rows]
    heads = list(rows[0])
    widths = [max(len(head), *(len(line[i]) for line in cells)) for i, head in enumerate(heads)]
    for line in [heads, *cells]:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def write(name: str, figures: dict[str, Any], dtype: str = "float64") -> None:
    """Writes `RESULTS/NAME.json`."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"environment": environment(dtype), **figures}, indent=1) + "\n")
    print(f"\nwritten to {path}", file=sys.stderr)


def picture(name: str, figure: Any) -> None:
    """Saves a matplotlib figure as `PICTURES/NAME.svg`."""
    from mflandscape.plotting.style import save

    print("drawn to", *save(figure, PICTURES / name, ("svg",)), file=sys.stderr)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
