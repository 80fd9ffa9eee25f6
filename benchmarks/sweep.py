"""A sweep of 13 betas x 8 starts on the circle, N = 1000, the published stop: share of useful work, and wall time
against one member at a time.

    python benchmarks/sweep.py [--quick] [--n-particles 1000] [--starts 8] [--max-steps 20000]

Share: the members' own steps over lanes x steps executed, padding and idle lanes included. One by one: `flow` for
each member in one process, compiled once beforehand. Lanes = 1 runs one member a device on two virtual CPU devices,
lanes = 8 eight side by side on one.
"""

import time
from collections.abc import Sequence
from typing import Any

import jax
from common import arguments, picture, table, write

from mflandscape.ensemble import run_lanes
from mflandscape.experiment import Experiment
from mflandscape.flows import Unrolled
from mflandscape.flows.solve import solve
from mflandscape.presets import preset

PRESETS = ("paper-s1-ascent", "paper-s1-gelu")
Row = dict[str, Any]


def one_by_one(experiment: Experiment) -> tuple[float, int]:
    """Seconds and steps of all members, one after the other on one device."""
    jax.block_until_ready(solve(experiment.problem(0), Unrolled()))
    began, steps = time.perf_counter(), 0
    for member in range(experiment.spec.members):
        steps += int(solve(experiment.problem(member), Unrolled()).steps)
    return time.perf_counter() - began, steps


def swept(experiment: Experiment, lanes: int, devices) -> Row:
    """Seconds after the first chunk (compilation), steps and share of a sweep."""
    chunks = run_lanes(
        experiment.problem, range(experiment.spec.members), lanes=lanes, devices=devices, siblings=experiment.siblings
    )
    chunk = next(chunks)
    began = time.perf_counter()
    for chunk in chunks:  # noqa: B007
        pass
    took = time.perf_counter() - began
    return {
        "lanes": lanes,
        "devices": len(devices),
        "seconds": took,
        "steps": chunk.useful,
        "share": chunk.useful / chunk.executed,
    }


def draw(rows: Sequence[Row]):
    """Useful share and time against one by one, a group of bars for each sweep."""
    from mflandscape.plotting.style import BLUE, ORANGE, PAGE, new_figure, styled, tidy

    @styled
    def figure():
        page = new_figure(PAGE, 2.4)
        names = [f"{r['sweep']}\n" + (f"{r['lanes']} lanes x {r['devices']}" if r["lanes"] else "serial") for r in rows]
        for axes, column, color in zip(page.subplots(1, 2), ("share", "of one by one"), (BLUE, ORANGE), strict=True):
            axes.barh(names, [row[column] for row in rows], color=color)
            axes.set(xlabel=column.capitalize())
            axes.invert_yaxis()
            tidy(axes, bare=True)
            axes.tick_params(axis="y", labelsize=6)
        return page

    return figure()


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__)
    parser.add_argument("--n-particles", type=int, default=1000)
    parser.add_argument("--starts", type=int)
    parser.add_argument("--max-steps", type=int)
    given = parser.parse_args(argv)
    jax.config.update("jax_num_cpu_devices", 2)
    starts, most = given.starts or (2 if given.quick else 8), given.max_steps or (2000 if given.quick else 20_000)
    rows = []
    for name in PRESETS:
        spec = preset(name).replace(
            n_particles=given.n_particles, start_seed=tuple(range(starts)), max_steps=most, save="ends"
        )
        experiment = Experiment(spec)
        serial, steps = one_by_one(experiment)
        one = {"lanes": 0, "devices": 1, "seconds": serial, "steps": steps, "share": 1.0}
        rows.append({"sweep": name, **one, "of one by one": 1.0})
        for lanes, devices in ((1, jax.devices()), (8, jax.devices()[:1])):
            row = swept(experiment, lanes, devices)
            rows.append({"sweep": name, **row, "of one by one": row["seconds"] / serial})
    table("13 betas x starts on the circle (lanes = 0: one by one)", rows)
    write("sweep", {"n": given.n_particles, "starts": starts, "max_steps": most, "rows": rows})
    picture("sweep", draw(rows))


if __name__ == "__main__":
    main()
