"""Puts the figures of `benchmarks/results` into the tables of README.md beside it, and the pictures it shows into
`benchmarks/pictures`.

    python benchmarks/summary.py [--print]

A table stands between `<!-- NAME KEY -->` and `<!-- end -->`: the rows under KEY of results/NAME.json, the columns of
`COLUMNS`, on the machine and at the commit that stand below it; a `--quick` run is called short there. Figures that are
missing leave their table as it is.
"""

import argparse
import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from common import HERE, PICTURES, RESULTS

PAGE, SHOWN = HERE / "README.md", HERE / "pictures"
DRAWN = ("step", "work_precision", "roofline")
MOST_BYTES = 100_000
Row = Mapping[str, Any]

COLUMNS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("step", "rows"): ("interaction", "d", "n", "beta", "seconds", "error", "memory_bytes"),
    ("step", "slopes"): ("interaction", "d", "beta", "largest n", "slope"),
    ("peers", "rows"): ("interaction", "d", "n", "beta", "seconds", "error"),
    ("peers", "ratios"): ("d", "n", "beta", "fastest", "interaction", "times"),
    ("work_precision", "state"): ("case", "integrator", "setting", "velocities", "seconds", "error"),
    ("work_precision", "residual"): ("case", "integrator", "steps", "residual", "reached", "seconds", "Euler/it"),
    ("roofline", "ceilings"): ("gemm", "flops", "exps", "bytes"),
    ("roofline", "rows"): ("interaction", "d", "n", "seconds", "floor", "efficiency", "Gop/s", "GB/s"),
    ("memory", "memory"): (
        "interaction", "d", "beta", "n", "velocity MiB", "velocity B/particle", "jvp B/particle", "vjp B/particle"
    ),
    ("memory", "times"): ("interaction", "d", "beta", "n", "velocity s", "jvp/velocity", "vjp/velocity"),
    ("compile_time", "imports"): ("import", "seconds", "of jax, equinox"),
    ("compile_time", "first step"): ("cache", "traces", "first chunk s", "process s", "command of one step s"),
    ("sweep", "rows"): ("sweep", "lanes", "devices", "seconds", "steps", "share", "of one by one"),
    ("stationarity", "random"): (
        "seed", "d", "activation", "direction", "beta", "evaluations", "ms", "Euler ms", "Euler/settle",
        "Euler arrived", "misplaced", "Euler misplaced", "W1", "time"
    ),
    ("gpu", "rows"): ("case", "n", "measured", "promised", "met", "error"),
}  # fmt: skip


def rendered(rows: Sequence[Row], columns: Sequence[str] | None) -> str:
    """A table in Markdown; all columns if none are named."""
    heads = list(columns or rows[0])
    lines = [heads, ["---"] * len(heads), *([_text(row[head]) for head in heads] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def fill(text: str, results: Mapping[str, Mapping[str, Any]]) -> str:
    """The page with all tables whose figures are there."""

    def replaced(found: re.Match[str]) -> str:
        name, key = found["name"], found["key"]
        if key not in results.get(name, ()):
            return found[0]
        figures = results[name]
        rows = figures[key] if isinstance(figures[key], list) else [figures[key]]
        made = rendered(rows, COLUMNS.get((name, key)))
        origin = _origin(figures.get(f"{key} environment", figures["environment"]))
        return f"<!-- {name} {key} -->\n{made}\n\n{origin}\n<!-- end -->"

    return re.sub(r"<!-- (?P<name>\w+) (?P<key>[\w ]+) -->\n(?:(?!<!--).)*<!-- end -->", replaced, text, flags=re.S)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0].replace("\n", " "))
    parser.add_argument("--print", action="store_true", help="print the page and write nothing")
    given = parser.parse_args(argv)
    results = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    page = fill(PAGE.read_text(), results)
    if given.print:
        print(page)
        return
    PAGE.write_text(page)
    for name in DRAWN:
        drawn = PICTURES / f"{name}.svg"
        if drawn.exists() and drawn.stat().st_size <= MOST_BYTES:
            SHOWN.mkdir(exist_ok=True)
            shutil.copyfile(drawn, SHOWN / drawn.name)
        else:
            print(f"{drawn}: missing or larger than {MOST_BYTES} bytes, not shown", file=sys.stderr)


def _origin(environment: Row) -> str:
    where = f"{environment['device']}, {environment.get('cores', '?')} cores, {environment['dtype']}"
    short = ", short run" if environment.get("short") else ""
    return f"*{where}, jax {environment['versions']['jax']}, commit {environment['commit']}{short}.*"


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
