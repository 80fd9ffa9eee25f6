"""`mflandscape classify`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from .._options import Rule
from ..experiment import Experiment
from ..measure import Measure
from ..spec import Spec
from ..stationary.classify import Classification, classify
from ..store import describe
from .devices import prepare
from .ends import end_states, member_numbers
from .numbers import number_in
from .results import one_run
from .teaching import Sections, print_json, print_rows

_HELP = """Say of the end states in the folder RUN whether they are stationary, stable, and optimal.

Every particle counts as an atom. Three levels: transport (the Hessian's smallest eigenvalue), splitting (the same for
parts of a particle), global (the gap: how much lower the first variation is elsewhere). Computed in float64 and in the
shifted kernel's units; stable is positive, for descent and ascent.

\b
  mflandscape classify results/demo
  mflandscape classify results/demo --member 3 --json
  mflandscape classify results/demo --no-gap --reach 1e-4
"""
_GRID = {"beta": "beta", "weight_seed": "weight\nseed", "start_seed": "start\nseed", "scale": "scale"}
_UNDETERMINED = "-"
_AT_LEAST_0 = Rule("float", "", least=0)


@click.command(cls=Sections, name="classify", help=_HELP, short_help="Class and stability of a run's end states.")
@click.argument("run")
@click.option("--member", metavar="INTEGER", multiple=True, help="Number of a member; may be repeated.  [default: all]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--no-gap", is_flag=True, help="Leave out the gap, which takes longest.")
@click.option(
    "--reach", metavar="ANGLE", default="1e-6", show_default=True, help="From a kink within it both sides are examined."
)
@click.option(
    "--stationary-tol", metavar="SPEED", default="1e-6", show_default=True, help="Residual called stationary."
)
def command(run: str, member: Sequence[str], as_json: bool, no_gap: bool, reach: str, stationary_tol: str) -> None:
    """Class and stability of a run's end states."""
    prepare()
    settings = {
        "reach": number_in(_AT_LEAST_0, "reach", reach),
        "stationary_tol": number_in(_AT_LEAST_0, "stationary_tol", stationary_tol),
        "gap": not no_gap,
    }
    folder = one_run(run)
    experiment = Experiment(Spec.from_dict(describe(folder)["spec"]).replace(dtype="float64"))
    ends, unfinished = end_states(folder, experiment, member_numbers(member, experiment.spec.members))
    members = [_row(experiment, m, mu, settings) for m, mu in ends]
    if as_json:
        print_json(
            {
                "run": str(folder),
                "kernel": experiment.spec.kernel,
                "direction": experiment.spec.direction,
                "reach": settings["reach"],
                "stationary_tol": settings["stationary_tol"],
                "members": members,
                "unfinished": unfinished,
            }
        )
        return
    _print_table(members)
    click.echo()
    print_rows(_sentences(experiment, members, unfinished, folder))


def _row(experiment: Experiment, member: int, mu: Measure, settings: Mapping[str, Any]) -> dict[str, Any]:
    direction = "ascent" if experiment.spec.direction == "ascent" else "descent"
    found = classify(experiment.drift(member), mu, direction=direction, **settings)
    return {"member": member, **experiment.point(member), "particles": mu.n, **payload(found)}


def payload(found: Classification) -> dict[str, Any]:
    """A classification as `--json` prints it."""
    spectrum, gap = found.spectrum, found.gap
    return {
        "residual": found.residual,
        "stationary": found.stationary,
        "class": found.kind,
        "hessian_class": found.hessian_kind,
        "smallest_eigenvalue": found.smallest_eigenvalue,
        "lower_side": found.transport.lower,
        "upper_side": found.transport.upper,
        "kinks": found.kinks,
        "cutoff": spectrum.cutoff,
        "null_dimension": spectrum.null.dimension,
        "null_rotation": spectrum.null.rotation,
        "null_dead_zone": spectrum.null.dead_zone,
        "null_other": spectrum.null.other,
        "null_complete": spectrum.null.complete,
        "splitting_stable": found.splitting_stable,
        "splitting_eigenvalue": found.splitting.value,
        "splitting_lower_side": found.splitting.lower,
        "splitting_upper_side": found.splitting.upper,
        "gap": None if gap is None else gap.value,
        "gap_rigorous": None if gap is None else gap.rigorous,
        "gap_certificate": None if gap is None else gap.certificate,
        "globally_stable": None if gap is None else gap.stable,
        "globally_optimal": None if gap is None else gap.optimal,
        "symmetric": spectrum.symmetric,
        "smallest_real_part": spectrum.smallest_real_part,
        "method": spectrum.method,
        "converged": spectrum.converged,
    }


def _print_table(members: Sequence[Mapping[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    swept = [name for name in _GRID if name == "beta" or len({row[name] for row in members}) > 1]
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for title in ("member", *(_GRID[name] for name in swept), "residual", "smallest\neigenvalue"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("class", no_wrap=True)
    for title in ("null", "splitting\neigenvalue", "gap"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in members:
        table.add_row(
            str(row["member"]),
            *(f"{row[name]:.10g}" for name in swept),
            f"{row['residual']:.1e}",
            f"{row['smallest_eigenvalue']:.3g}",
            row["class"],
            f"{row['null_dimension']}" + ("" if row["null_complete"] else "+"),
            f"{min(row['splitting_eigenvalue'], row['splitting_lower_side']):.3g}",
            _UNDETERMINED if row["gap"] is None else f"{row['gap']:.1e}",
        )
    console = Console(markup=False, highlight=False)
    console.width = max(console.width, console.measure(table).maximum)
    console.print(table)


def _sentences(
    experiment: Experiment, members: Sequence[Mapping[str, Any]], unfinished: Sequence[int], folder: Path
) -> list[tuple[str, str]]:
    """What the table does not say by itself."""

    def of(test) -> str:
        return ", ".join(str(row["member"]) for row in members if test(row))

    rows = [
        ("not stationary", of(lambda r: not r["stationary"]), "bring them closer with mflandscape refine"),
        ("beside a kink", of(lambda r: r["kinks"]), "the splitting eigenvalue is that of its lower side"),
        (
            "gains by splitting",
            of(lambda r: not r["splitting_stable"]),
            "some atom, on some side of a kink in reach",
        ),
        ("optimal, certified", of(lambda r: r["globally_optimal"] is True), "no measure has a lower energy"),
        ("not optimal", of(lambda r: r["globally_optimal"] is False), "moving mass elsewhere helps at first order"),
        ("gap not proven", of(lambda r: r["gap_rigorous"] is False), "the extremum was searched, not bounded"),
        ("not converged", of(lambda r: not r["converged"]), "some eigenvalues; those given are upper bounds"),
        ("not finished", ", ".join(map(str, unfinished)), f"mflandscape run --resume --out {folder}"),
    ]
    found = [(name, f"member{'s' if ',' in which else ''} {which}: {note}") for name, which, note in rows if which]
    if any(not row["symmetric"] for row in members):
        found.append(("no energy", "eigenvalues of the symmetric part, class of the linearised flow, no gap"))
    if any(not row["null_complete"] for row in members):
        found.append(("null 3+", "at least: not all eigenvalues were computed"))
    if experiment.spec.kernel == "exponential":
        found.append(("units", "the shifted kernel's: times e^beta in the exponential one's"))
    return found
