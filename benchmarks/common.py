"""What the benchmarks share: timing, a table on the screen, and a small JSON with device, dtype, versions and
commit.
"""

import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

RESULTS = Path(__file__).parent / "results"


def seconds(*runs: Callable[[], Any], repeats: int = 7) -> list[float]:
    """Median wall time of each function, called in turn (A B C A B C ...) after one uncounted round, so that drift
    hits all alike.
    """
    times: list[list[float]] = [[] for _ in runs]
    for counted in range(-1, repeats):
        for run, taken in zip(runs, times, strict=True):
            began = time.perf_counter()
            jax.block_until_ready(run())
            if counted >= 0:
                taken.append(time.perf_counter() - began)
    return [statistics.median(taken) for taken in times]


def environment(dtype: str = "float64") -> dict[str, Any]:
    """Where the figures come from."""
    device = jax.devices()[0]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "device": f"{device.platform} ({device.device_kind})",
        "devices": len(jax.devices()),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "dtype": dtype,
        "versions": {name: version(name) for name in ("mflandscape", "jax", "jaxlib", "equinox", "numpy")},
        "commit": commit.stdout.strip() or None,
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
    """Writes `results/NAME.json`."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"environment": environment(dtype), **figures}, indent=1) + "\n")
    print(f"\nwritten to {path}", file=sys.stderr)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
