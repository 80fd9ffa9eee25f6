"""A velocity with its particles divided among devices, against one device in the same process.

    python benchmarks/scaling.py [--quick] [--devices 1 2 4]

On a CPU each number of devices is a process of its own that makes so many virtual devices; elsewhere the first ones are
taken (by default powers of two up to all). Direct sums have fewer particles. `speed-up` is one device's time over
theirs, `error` the largest deviation from one device, `bytes sent` what a device sends and receives for the sum by the
algorithm: the moments, or the sources around the ring. Virtual devices share the cores: 1.0 is then what to expect of
more devices than cores, and what is below it is the price of dividing.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from common import EVALUATORS, MILLION, arguments, picture, seconds, table, write

import mflandscape as mfl
from mflandscape.distributed import particle_mesh, shard
from mflandscape.drifts import prepare

# Evaluator, d, beta, N, N with --quick.
CASES = (
    ("circle-fourier", 2, 50.0, MILLION, 65_536),
    ("sphere-fourier", 3, 10.0, 262_144, 16_384),
    ("blocked", 3, 10.0, 16_384, 2048),
)
Row = dict[str, Any]


def sent(drift: mfl.Attention, n: int, d: int, devices: int) -> int:
    """Bytes a device passes on for one velocity."""
    interaction = drift.interaction
    if hasattr(interaction, "source"):
        moments = jax.eval_shape(interaction.source, jnp.zeros((1, d)), jnp.zeros((1, 1)))
        return int(2 * moments.size * 8 * (devices - 1) / devices)
    return 8 * n * (2 * d) * (devices > 1)  # a velocity's sources have d coordinates and d charges


def measured(case: tuple, devices: int, quick: bool) -> Row:
    """One row, in a process with so many devices."""
    name, d, beta, large, small = case
    n, repeats = (small, 3) if quick else (large, 7)
    drift = prepare(mfl.Attention(beta, interaction=EVALUATORS[name].build(beta)))
    mu, mesh = mfl.uniform(jax.random.key(0), n, d), particle_mesh(devices)
    velocity = jax.jit(lambda drift, mu: mfl.velocity(drift, mu))
    placed = shard(drift, mesh), shard(mu, mesh)
    one, all_of_them = seconds(lambda: velocity(drift, mu), lambda: velocity(*placed), repeats=repeats)
    error = float(jnp.max(jnp.abs(velocity(drift, mu) - jax.device_put(velocity(*placed), jax.devices()[0]))))
    row: Row = {"interaction": name, "d": d, "beta": beta, "n": n, "devices": devices}
    row |= {"one device s": one, "seconds": all_of_them, "speed-up": one / all_of_them, "error": error}
    return row | {"bytes sent": sent(drift, n, d, devices)}


def in_a_process(devices: int, quick: bool) -> list[Row]:
    """The rows of so many virtual CPU devices."""
    words = [sys.executable, __file__, "--worker", str(devices), *["--quick"] * quick]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)}
    return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout)


def draw(rows: Sequence[Row]):
    """Speed-up against the number of devices."""
    from mflandscape.plotting.style import BLUE, GREEN, ORANGE, PAGE, new_figure, styled, tidy

    @styled
    def figure():
        page = new_figure(PAGE, 3.0)
        axes = page.subplots()
        for (name, *_), color in zip(CASES, (BLUE, ORANGE, GREEN), strict=True):
            shown = [row for row in rows if row["interaction"] == name]
            axes.plot([r["devices"] for r in shown], [r["speed-up"] for r in shown], "o-", color=color, label=name)
        most = max(row["devices"] for row in rows)
        axes.plot([1, most], [1, most], color="0.5", linewidth=0.6)
        axes.set(xlabel="Devices", ylabel="Speed-up")
        axes.legend()
        tidy(axes, bare=True)
        return page

    return figure()


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__)
    parser.add_argument("--devices", type=int, nargs="+", help="numbers of devices  [default: 1, 2, 4, ... all]")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.worker:
        print(json.dumps([measured(case, given.worker, given.quick) for case in CASES]))
        return
    on_cpu = jax.default_backend() == "cpu"
    most = 4 if on_cpu else len(jax.devices())
    rows: list[Row] = []
    for devices in given.devices or [2**k for k in range(most.bit_length())]:
        rows += in_a_process(devices, given.quick) if on_cpu else [measured(c, devices, given.quick) for c in CASES]
    rows.sort(key=lambda row: (row["interaction"], row["devices"]))
    table("A velocity, particles divided among devices", rows)
    write("scaling", {"rows": rows})
    picture("scaling", draw(rows))


if __name__ == "__main__":
    main()
