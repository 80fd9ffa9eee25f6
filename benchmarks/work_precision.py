"""Time to a given accuracy of the state at time T, and time to a residual of 1e-8, for every integrator.

    python benchmarks/work_precision.py [--quick] [--integrator NAME]

The paper's circle experiment (its weights and start, descent), `CircleFourier`. Error: the largest angle of a particle
from a reference by Dopri8 at 1e-13, beside which stands how far RK4 at dt = 0.0025 lies from it. Residual: the largest
speed; `Euler/it` is how many times as long Euler with dt = 0.1 takes (up to 40 000 steps, if it gets no further; the
adaptive methods stop after 4000). `--quick` takes one case and five integrators; a choice of them writes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import diffrax
import equinox as eqx
import jax.numpy as jnp
from common import arguments, picture, seconds, table, write

import mflandscape as mfl
from mflandscape.experiment import Experiment
from mflandscape.flows.adaptive import Adaptive
from mflandscape.flows.integrators import AbstractIntegrator, Midpoint
from mflandscape.flows.rosenbrock import Rosenbrock
from mflandscape.flows.settle import settle
from mflandscape.flows.stabilised import Stabilised
from mflandscape.presets import preset

CASES = {"GeLU 5": ("paper-s1-gelu", 5.0), "GeLU 25": ("paper-s1-gelu", 25.0), "ReLU 5": ("paper-s1", 5.0)}
QUICK = ("euler", "rk4", "dopri8", "rosenbrock", "stabilised")
Row = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """An integrator by its setting: dt or tolerance, those to try for the state, and the one for the residual."""

    make: Callable[[float], AbstractIntegrator]
    settings: tuple[float, ...]
    stationary: float
    every: int = 1  # steps between looks
    most: int = 4000  # steps


def _adaptive(solver: type) -> Method:
    def make(tol: float) -> Adaptive:
        # Tolerances as arrays, which Diffrax takes too: one program for all settings.
        tolerances = jnp.asarray(tol), jnp.asarray(tol / 100)
        return eqx.tree_at(
            lambda i: (i.controller.rtol, i.controller.atol), Adaptive(solver(scan_kind="bounded")), tolerances
        )

    return Method(make, (1e-4, 1e-6, 1e-8, 1e-10), 1e-8)


METHODS: Mapping[str, Method] = {
    "euler": Method(mfl.Euler, (0.1, 0.02, 0.004), 0.1, 10, 40_000),
    "midpoint": Method(Midpoint, (0.2, 0.05, 0.0125), 0.1, 10, 40_000),
    "rk4": Method(mfl.RK4, (0.4, 0.1, 0.025), 0.1, 10, 40_000),
    "tsit5": _adaptive(diffrax.Tsit5),
    "dopri5": _adaptive(diffrax.Dopri5),
    "dopri8": _adaptive(diffrax.Dopri8),
    "rosenbrock": Method(Rosenbrock, (1e-2, 1e-3, 1e-4, 1e-5), 1e-3),
    "stabilised": Method(Stabilised, (1e-2, 1e-3, 1e-4, 1e-5), 1e-4),
}


@dataclass(frozen=True)
class Case:
    """A start and what moves it, in descent."""

    drift: Any
    mu: mfl.Measure

    @classmethod
    def of(cls, name: str, n: int) -> "Case":
        """A member of a preset with n particles."""
        title, beta = CASES[name]
        experiment = Experiment(preset(title).replace(beta=beta, n_particles=n, interaction="circle-fourier"))
        return cls(experiment.drift(0), experiment.start(0)[0])

    def run(self, method: Method, setting: float, stop):
        """The flow to a stop, or to the method's limit of steps."""
        stop, observe = stop | mfl.MaxSteps(method.most), mfl.Observe(every=method.every)
        integrator = method.make(setting)
        return mfl.flow(self.drift, self.mu, integrator=integrator, stop=stop, observe=observe, throw=False)


def states(name: str, case: Case, methods: Mapping[str, Method], time: float, repeats: int) -> tuple[list[Row], float]:
    """Seconds and error of every setting at the given time; how far two references are apart."""
    until = mfl.MaxTime(time)
    exact = case.run(METHODS["dopri8"], 1e-13, until).mu.x
    apart = lambda x: float(mfl.sphere.distance(x, exact).max())  # noqa: E731
    rows = []
    for label, method in methods.items():
        for setting in method.settings:
            run = lambda m=method, s=setting: case.run(m, s, until)  # noqa: E731
            end = run()
            took = seconds(lambda run=run: run().u, repeats=repeats, warm=False)[0]
            rows.append(
                {
                    "case": name, "integrator": label, "setting": setting, "steps": int(end.steps),
                    "velocities": int(end.evaluations), "seconds": took, "error": apart(end.mu.x),
                }
            )  # fmt: skip
    return rows, apart(case.run(METHODS["rk4"], 0.0025, until).mu.x)


def stationary(name: str, case: Case, methods: Mapping[str, Method], tol: float, repeats: int) -> list[Row]:
    """Seconds to the residual, all methods in turn; Euler first, `settle` (which merges particles) last."""
    runs: dict[str, Callable[[], Any]] = {}
    for label, method in methods.items():
        runs[label] = lambda m=method: case.run(m, m.stationary, mfl.Stationary(tol))
    runs["settle"] = lambda: settle(case.drift, case.mu, tol=tol, throw=False)
    ends = {label: run() for label, run in runs.items()}
    taken = seconds(*(lambda run=run: run().mu.x for run in runs.values()), repeats=repeats, warm=False)
    euler = dict(zip(runs, taken, strict=True)).get("euler")
    return [
        {
            "case": name, "integrator": label, "steps": int(end.steps), "velocities": int(end.evaluations),
            "residual": float(end.residual), "reached": bool(end.residual <= tol), "seconds": s,
            "Euler/it": euler / s if euler else None,
        }
        for (label, end), s in zip(ends.items(), taken, strict=True)
    ]  # fmt: skip


def draw(rows: Sequence[Row]):
    """Seconds against error, a panel for each case, a line for each integrator."""
    from mflandscape.plotting.style import BETAS, COLUMN, key_below, new_figure, sampled, styled, tidy

    @styled
    def figure():
        cases = list(dict.fromkeys(row["case"] for row in rows))
        names = list(dict.fromkeys(row["integrator"] for row in rows))
        page = new_figure(max(COLUMN, 2.4 * len(cases)), 3.0)
        panels = page.subplots(1, len(cases), squeeze=False, sharey=True)[0]
        lines = []
        for case, axes in zip(cases, panels, strict=True):
            lines = []
            for name, color in zip(names, sampled(BETAS, len(names)), strict=True):
                inside = [row for row in rows if (row["case"], row["integrator"]) == (case, name)]
                points = [max(row["error"], 1e-16) for row in inside], [row["seconds"] for row in inside]
                lines += axes.loglog(*points, ".-", color=color, label=name)
            axes.set(xlabel="Largest error, radians", title=case)
            tidy(axes, bare=True)
        panels[0].set_ylabel("Seconds")
        key_below(page, lines, columns=4)
        return page

    return figure()


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__)
    parser.add_argument("--integrator", action="append", choices=list(METHODS), help="these only")
    parser.add_argument("--n-particles", type=int, default=1000)
    parser.add_argument("--time", type=float, default=10.0, help="T")
    parser.add_argument("--tol", type=float, default=1e-8, help="the residual")
    given = parser.parse_args(argv)
    chosen = given.integrator or (QUICK if given.quick else METHODS)
    methods = {name: method for name, method in METHODS.items() if name in chosen}
    repeats = 1 if given.quick else 5
    accuracy, residual, references = [], [], {}
    for name in list(CASES)[: 1 if given.quick else None]:
        case = Case.of(name, given.n_particles)
        rows, references[name] = states(name, case, methods, given.time, repeats)
        accuracy += rows
        residual += stationary(name, case, methods, given.tol, repeats)
    table(f"State at T = {given.time:g}, N = {given.n_particles} (references {references} apart)", accuracy)
    table(f"To residual {given.tol:g}", residual)
    if not given.integrator:
        figures = {"n": given.n_particles, "time": given.time, "references": references}
        write("work_precision", figures | {"tol": given.tol, "state": accuracy, "residual": residual})
        picture("work_precision", draw(accuracy))


if __name__ == "__main__":
    main()
