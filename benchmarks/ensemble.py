"""Figure 9's whole ensemble as one resident program: 13 betas x 4 setups x 16 starts, N = 1000 on the circle.

    python benchmarks/ensemble.py [--quick] [--programs 1 4] [--lanes 256] [--starts 16] [--max-steps 20000]

The setups, {ReLU, GeLU} x {descent, ascent}, differ in a program's structure. Here the direction is a number, the
energy times +1 or -1, and both activations are computed and one is taken, so that all members share one program and
one queue, and lanes are refilled across setups. `--programs 4` runs the four setups as they are, one after the other.
On two CPU cores the program in common costs nothing for GeLU members and 11% for ReLU members, and compiles once.
Lanes: one member a device on a CPU, as many as fill the device on an accelerator.

Share: the members' own steps over lanes x steps executed. Seconds: everything, compilation and the host's work with it.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from common import arguments, device_name, table, write
from jaxtyping import Array, Float

from mflandscape._types import Scalar
from mflandscape.activations import AbstractActivation, GeLU, ReLU
from mflandscape.drifts import AbstractEnergy, Perceptron
from mflandscape.ensemble import default_lanes, run_lanes
from mflandscape.experiment import Experiment
from mflandscape.flows import Problem, Solution
from mflandscape.measure import Measure
from mflandscape.presets import PAPER_BETAS, preset
from mflandscape.starts import expand_seeds

SETUPS = {
    "relu descent": "paper-s1",
    "gelu descent": "paper-s1-gelu",
    "relu ascent": "paper-s1-ascent",
    "gelu ascent": "paper-s1-ascent-gelu",
}
QUICK = {"betas": (1.0, 5.0, 25.0), "starts": 2, "n_particles": 100, "max_steps": 500}
Row = dict[str, Any]


class Either(AbstractActivation):
    """GeLU where `smooth` is 1 and ReLU where it is 0; both are computed, as in a `vmap` they must be."""

    name: ClassVar[str] = "relu or gelu"
    kinks: ClassVar[tuple[float, ...]] = ReLU.kinks
    dead: ClassVar[bool] = False
    steepness: ClassVar[float] = GeLU.steepness
    bend: ClassVar[float] = GeLU.bend
    smooth: Scalar

    def __call__(self, s: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        return jnp.where(self.smooth > 0, GeLU()(s), ReLU()(s))

    def primitive(self, s: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        return jnp.where(self.smooth > 0, GeLU().primitive(s), ReLU().primitive(s))


class Signed(AbstractEnergy):
    """An energy times `sign`: its ascent is the energy's ascent or descent."""

    energy: AbstractEnergy
    sign: Scalar

    def potential(self, x: Float[Array, "M d"], mu: Measure) -> Float[Array, " M"]:
        return self.sign * self.energy.potential(x, mu)

    def __call__(self, mu: Measure) -> Scalar:
        return self.sign * self.energy(mu)


class Ensemble:
    """Members numbered over setups, then over each setup's betas and starts."""

    def __init__(self, betas: Sequence[float], starts: int, n_particles: int, max_steps: int):
        seeds = expand_seeds(42, starts)
        self.setups = [
            Experiment(preset(name).replace(beta=betas, start_seed=seeds, n_particles=n_particles, max_steps=max_steps))
            for name in SETUPS.values()
        ]
        self.each = self.setups[0].spec.members
        self.members = self.each * len(self.setups)

    def as_it_is(self, member: int) -> Problem:
        """A member's problem, without snapshots."""
        setup, inner = divmod(member, self.each)
        return self._problem(self.setups[setup].problem(inner))

    def in_common(self, member: int) -> Problem:
        """The same in the structure that all setups share."""
        problem = self.as_it_is(member)
        attention, perceptron = problem.drift.terms
        dtype = problem.mu.x.dtype
        either = Either(jnp.asarray(isinstance(perceptron.activation, GeLU), dtype))
        both = attention + Perceptron(perceptron.a, perceptron.omega, perceptron.bias, either)
        sign = jnp.asarray(1 if problem.direction == "ascent" else -1, dtype)
        return self._problem(problem, drift=Signed(both, sign), direction="ascent")

    def _problem(self, p: Problem, **changes: Any) -> Problem:
        same = {name: getattr(p, name) for name in ("drift", "direction", "stop", "integrator", "observe")}
        return Problem(mu=p.mu, angles=p.u, **same | changes)

    def siblings(self, member: int) -> Iterable[int]:
        setup, inner = divmod(member, self.each)
        return [setup * self.each + other for other in self.setups[setup].siblings(inner)]

    def run(self, programs: int, lanes: int | None) -> tuple[list[Solution], Row]:
        """All solutions, through one program, or one a setup; and what it took."""
        build = self.in_common if programs == 1 else self.as_it_is
        size = self.members // programs
        parts = [self._run(build, range(first, first + size), lanes) for first in range(0, self.members, size)]
        total = {
            key: sum(part[key] for _, part in parts) for key in ("seconds", "until first chunk", "steps", "executed")
        }
        row = {"programs": programs, "members": self.members, **total, "share": total["steps"] / total["executed"]}
        return list(itertools.chain(*(found for found, _ in parts))), row

    def _run(self, build: Callable[[int], Problem], members: range, lanes: int | None) -> tuple[list[Solution], Row]:
        found: dict[int, Solution] = {}
        first = useful = executed = 0
        began = time.perf_counter()
        for chunk in run_lanes(build, members, lanes=lanes, siblings=self.siblings):
            first = first or time.perf_counter() - began
            found |= {done.member: done.solution for done in chunk.finished}
            useful, executed = chunk.useful, chunk.executed
        work = {
            "seconds": time.perf_counter() - began,
            "until first chunk": first,
            "steps": useful,
            "executed": executed,
        }
        return [found[member] for member in members], work

    def figure(self, solutions: Sequence[Solution]) -> list[Row]:
        """Over the starts of each setup and beta: median number of clusters, median stop time, how many stopped."""
        counts = [int(s.series.clusters[int(s.looked) - 1]) for s in solutions]
        times = [float(s.time) for s in solutions]
        limit = self.setups[0].spec.step_limit
        rows, starts = [], len(self.setups[0].spec.start_seed)
        for k in range(0, self.members, starts):
            setup, inner = divmod(k, self.each)
            rows.append(
                {
                    "setup": list(SETUPS)[setup],
                    "beta": self.setups[setup].point(inner)["beta"],
                    "median clusters": float(np.median(counts[k : k + starts])),
                    "median time": float(np.median(times[k : k + starts])),
                    "stopped": sum(int(s.steps) < limit for s in solutions[k : k + starts]),
                    "of": starts,
                }
            )
        return rows


def main() -> None:
    jax.config.update("jax_num_cpu_devices", 2)
    parser = arguments(__doc__)
    parser.add_argument("--programs", type=int, nargs="+", choices=(1, 4), default=[1])
    parser.add_argument("--lanes", type=int, default=None)
    parser.add_argument("--starts", type=int, default=16)
    parser.add_argument("--n-particles", type=int, default=1000)
    parser.add_argument("--max-steps", type=int, default=20_000)
    given = parser.parse_args()
    size = {
        "betas": PAPER_BETAS,
        "starts": given.starts,
        "n_particles": given.n_particles,
        "max_steps": given.max_steps,
    }
    ensemble = Ensemble(**QUICK if given.quick else size)
    lanes = given.lanes or default_lanes(lambda: ensemble.in_common(0))
    rows, figure = [], []
    for programs in given.programs:
        solutions, row = ensemble.run(programs, lanes)
        rows.append({"lanes": lanes, "devices": jax.local_device_count(), **row})
        figure = figure or ensemble.figure(solutions)
    table("clusters and stop times", figure)
    table(f"work, on {device_name()}", rows)
    write("ensemble", {"arguments": vars(given), "figure": figure, "rows": rows})


if __name__ == "__main__":
    main()
