"""`mflandscape run`."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from .. import runner
from ..distributed import leads
from .devices import device_options, output_kept, prepare
from .interrupt import Interrupt
from .keys import key_options
from .plan import Plan, make_plan
from .progress import progress_shown
from .results import draw_pictures
from .summary import payload, print_summary
from .teaching import INTERRUPTED, NOT_CONVERGED, Sections, print_json, print_rows

_HELP = """Run a grid of members and store it: --beta 1,5 --start-seed 0,1,2 are six members.

CONFIG is a TOML file of the keys below (with underscores: n_particles = 1000), or the published code's config.json.
Keys in CONFIG override the preset's, options override both.

\b
  mflandscape run --preset paper-s1
  mflandscape run mine.toml --beta 0.1 --beta 5 --out mine
  mflandscape run config.json --n-particles 500
  mflandscape run --dim 3 --beta 9 --weights paper-s2 --direction ascent
  mflandscape run --resume --out mine             go on after Ctrl-C or a kill
  srun -n 4 mflandscape run --preset paper-s1 --out demo      four processes
"""
_EPILOG = """Exit codes: 0 done; 2 bad input, nothing written; 3 with --strict if a member did not converge (results are
kept); 130 interrupted, and the command that resumes is printed."""


@click.command(cls=Sections, help=_HELP, short_help="Run a grid of members and store it.", epilog=_EPILOG)
@click.argument("config", required=False)
@click.option("--preset", metavar="NAME", help="Start from one of the paper's experiments (`mflandscape presets`).")
@click.option(
    "--out", metavar="DIR", help="Folder of the results, a new one.  [default: results/PRESET-HASH or CONFIG's name]"
)
@click.option("--resume", is_flag=True, help="Go on with the run in --out; finished members are checked and kept.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("--strict", is_flag=True, help="Exit with 3 if some member did not converge.")
@click.option("--pictures/--no-pictures", default=False, help="Draw pictures to DIR/pictures.  [default: no]")
@click.pass_context
def run(
    ctx: click.Context,
    config: str | None,
    preset: str | None,
    out: str | None,
    resume: bool,
    as_json: bool,
    quiet: bool,
    strict: bool,
    pictures: bool,
    devices: int | None,
    shard: Any,
    coordinator: str | None,
    processes: int | None,
    process_id: int | None,
    **keys: Any,
) -> None:
    """Run a grid of members and store it."""
    plan = make_plan(config, preset, keys, out, resume)
    prepare(devices, coordinator, processes, process_id)
    first = leads()
    quiet, as_json, pictures = quiet or not first, as_json and first, pictures and first
    if not quiet:
        print_rows(plan.notes, err=True)
    bar = sys.stderr.isatty() and not as_json
    placement = {name: value for name, value in (("devices", devices), ("shard", shard)) if value is not None}
    with Interrupt() as interrupted, output_kept():
        reports = _run_all(plan, resume, quiet, bar, interrupted, placement)
    stopped = len(reports) < len(plan.specs) or reports[-1].interrupted
    drawn = [draw_pictures(r.path, r.path / "pictures") if pictures and not stopped else [] for r in reports]
    _print_results(reports, drawn, several=len(plan.specs) > 1, as_json=as_json, quiet=quiet)
    if stopped:
        if first:
            click.echo(_how_to_resume(reports, plan, ctx.obj), err=True)
        ctx.exit(INTERRUPTED)
    if strict and not all(row["converged"] for report in reports for row in report.members):
        ctx.exit(NOT_CONVERGED)


run.params.extend(device_options() + key_options())


def _run_all(
    plan: Plan, resume: bool, quiet: bool, bar: bool, interrupted: Interrupt, placement: dict[str, Any]
) -> list[runner.Report]:
    """The runs of a plan one after the other, up to an interruption."""
    reports: list[runner.Report] = []
    for spec, folder in zip(plan.specs, plan.folders, strict=True):
        with progress_shown(folder.name if len(plan.specs) > 1 else "run", quiet, bar) as show:
            report = runner.run(spec, folder, resume=resume, progress=show, interrupted=interrupted, **placement)
        reports.append(report)
        for note in report.notes if not quiet else ():
            click.echo(f"{folder}: {note}", err=True)
        if report.interrupted or interrupted():
            break
    return reports


def _print_results(
    reports: Sequence[runner.Report], drawn: Sequence[Sequence[Path]], several: bool, as_json: bool, quiet: bool
) -> None:
    if as_json:
        objects = [payload(report, files) for report, files in zip(reports, drawn, strict=True)]
        print_json({"runs": objects} if several else objects[0])
    elif not quiet:
        for report, files in zip(reports, drawn, strict=True):
            print_summary(report, files, title=str(report.path) if several else "")


def _how_to_resume(reports: Sequence[runner.Report], plan: Plan, words: Sequence[str]) -> str:
    """What is stored, and the command line as it was typed, with --out and --resume."""
    done = sum(len(report.members) for report in reports)
    total = sum(spec.members for spec in plan.specs)
    options = [word.split("=")[0] for word in words]
    command = ["mflandscape", *words]
    command += [] if "--out" in options else ["--out", str(plan.out)]
    command += [] if "--resume" in options else ["--resume"]
    return f"interrupted: {done} of {total} members finished, the others' states saved; resume with\n  " + shlex.join(
        command
    )
