"""A sweep of 13 betas x 8 starts on the circle, N = 1000, the published stop: share of useful work, and wall time
against one member at a time.

    python benchmarks/sweep.py [--n-particles 1000] [--starts 8] [--max-steps 20000]

Share: the members' own steps over lanes x steps executed, padding and idle lanes included. One by one: `flow` for
each member in one process, compiled once beforehand. Lanes = 1 runs one member a device on two virtual CPU devices,
lanes = 8 eight side by side on one.
"""

import argparse
import time

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 2)

from common import table, write  # noqa: E402

from mflandscape.ensemble import run_lanes  # noqa: E402
from mflandscape.experiment import Experiment  # noqa: E402
from mflandscape.flows import Unrolled  # noqa: E402
from mflandscape.flows.solve import solve  # noqa: E402
from mflandscape.presets import preset  # noqa: E402


def one_by_one(experiment: Experiment) -> tuple[float, int]:
    """Seconds and steps of all members, one after the other on one device."""
    jax.block_until_ready(solve(experiment.problem(0), Unrolled()))
    began, steps = time.perf_counter(), 0
    for member in range(experiment.spec.members):
        steps += int(solve(experiment.problem(member), Unrolled()).steps)
    return time.perf_counter() - began, steps


def swept(experiment: Experiment, lanes: int, devices) -> dict:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n-particles", type=int, default=1000)
    parser.add_argument("--starts", type=int, default=8)
    parser.add_argument("--max-steps", type=int, default=20_000)
    arguments = parser.parse_args()
    rows = []
    for name in ("paper-s1-ascent", "paper-s1-gelu"):
        spec = preset(name).replace(
            n_particles=arguments.n_particles,
            start_seed=tuple(range(arguments.starts)),
            max_steps=arguments.max_steps,
            save="ends",
        )
        experiment = Experiment(spec)
        serial, steps = one_by_one(experiment)
        rows.append(
            {
                "sweep": name,
                "lanes": 0,
                "devices": 1,
                "seconds": serial,
                "steps": steps,
                "share": 1.0,
                "of one by one": 1.0,
            }
        )
        for lanes, devices in ((1, jax.devices()), (8, jax.devices()[:1])):
            row = swept(experiment, lanes, devices)
            rows.append({"sweep": name, **row, "of one by one": row["seconds"] / serial})
    table("13 betas x starts on the circle (lanes = 0: one by one)", rows)
    write("sweep", {"arguments": vars(arguments), "rows": rows})


if __name__ == "__main__":
    main()
