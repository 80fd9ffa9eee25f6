"""What is promised of one GPU, in one command; and the same at tiny sizes anywhere.

    python benchmarks/gpu.py [--quick]

Direct sums in float32 at N = 131 072 on S^2 within 1.5 times the time of their counted operations (roofline.py); a step
of 10^7 particles on the circle (beta = 50, float64) under 20 ms, of 10^6 on S^2 (beta = 10, float32) under 10 ms; the
whole ensemble of figure 9 (13 betas x 4 setups x 16 starts, N = 1000) under 60 s. `--quick` shows that it runs.
"""

from collections.abc import Sequence
from typing import Any

import jax
from common import MILLION, arguments, device_name, present, table, write
from roofline import ceilings, measured
from step import group

from mflandscape.presets import PAPER_BETAS

Row = dict[str, Any]
DIRECT = ("tiled", "fused", "blocked")
QUICK = {"betas": (1.0, 5.0), "starts": 1, "n_particles": 16, "max_steps": 20}
FULL = {"betas": PAPER_BETAS, "starts": 16, "n_particles": 1000, "max_steps": 20_000}


def direct(quick: bool) -> list[Row]:
    """Direct sums against the time of their operations."""
    rates = ceilings("float32", scale=16 if quick else 1)
    names = [name for name in DIRECT if name in present()]
    rows = measured(names, 3, 256 if quick else 131_072, "float32", rates, 1 if quick else 5)
    return [
        {
            "case": f"{row['interaction']}, S^2, float32, over counted operations", "n": row["n"],
            "measured": row["seconds"] / row["floor"], "promised": 1.5, "seconds": row["seconds"], "error": None,
        }
        for row in rows
    ]  # fmt: skip


def series(quick: bool) -> list[Row]:
    """Steps in modes."""
    cases = ((2, 10 * MILLION, 50.0, "circle-fourier", "float64", 0.020),
             (3, MILLION, 10.0, "sphere-fourier", "float32", 0.010))  # fmt: skip
    rows = []
    for d, n, beta, name, dtype, promised in cases:
        if name in present():
            row = group(d, 4096 if quick else n, beta, [name], dtype, 1 if quick else 7)[0]
            rows.append(
                {
                    "case": f"{name}, beta = {beta:g}, {dtype}, seconds a step", "n": row["n"],
                    "measured": row["seconds"], "promised": promised, "seconds": row["seconds"],
                    "error": row["error"],
                }
            )  # fmt: skip
    return rows


def figure_nine(quick: bool) -> list[Row]:
    """The whole ensemble as one resident program, compilation included."""
    from ensemble import Ensemble

    from mflandscape.ensemble import default_lanes

    whole = Ensemble(**(QUICK if quick else FULL))
    work = whole.run(1, default_lanes(lambda: whole.in_common(0)))[1]
    took = work["seconds"]
    size = {"n": 16 if quick else 1000, "measured": took, "promised": 60.0, "seconds": took, "error": None}
    return [{"case": f"figure 9, {whole.members} members", **size}]


def main(argv: Sequence[str] | None = None) -> None:
    quick = arguments(__doc__).parse_args(argv).quick
    rows = [
        {**row, "met": None if quick else bool(row["measured"] <= row["promised"])}
        for part in (direct, series, figure_nine)
        for row in part(quick)
    ]
    table(f"Promises for a GPU, on {device_name()}" + (" at tiny sizes" if quick else ""), rows)
    if jax.default_backend() != "cpu":
        write("gpu", {"quick": quick, "rows": rows})


if __name__ == "__main__":
    main()
