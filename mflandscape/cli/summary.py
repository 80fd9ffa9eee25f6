"""The end of a run: a table for people, one object for machines."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..runner import Report
from .teaching import NO_BREAK, print_rows

_GRID = {"beta": "beta", "weight_seed": "weight\nseed", "start_seed": "start\nseed", "scale": "scale"}
_NAMED = 20


def payload(report: Report, pictures: Sequence[Path]) -> dict[str, Any]:
    """A run as `--json` prints it."""
    return {
        "run": str(report.path),
        "members": report.members,
        "total": report.total,
        "interrupted": report.interrupted,
        "notes": report.notes,
        "pictures": [str(path) for path in pictures],
    }


def print_summary(report: Report, pictures: Sequence[Path], title: str = "") -> None:
    """The table of members, those that did not converge by name, and where the results are."""
    if title:
        click.echo(f"\n{title}\n")
    swept = [name for name in _GRID if name == "beta" or len({row[name] for row in report.members}) > 1]
    if report.members:
        _print_table(report.members, swept)
    failed = [row for row in report.members if not row["converged"]]
    if failed:
        names = [f"{_point(row, swept)} ({row['stop_reason']})".replace(" ", NO_BREAK) for row in failed[:_NAMED]]
        names += [f"and {len(failed) - _NAMED} more, in the table"] if len(failed) > _NAMED else []
        click.echo(f"\ndid not converge, {len(failed)} of {report.total}:")
        print_rows([("", "; ".join(names))])
    click.echo()
    run = shlex.quote(str(report.path))
    rows = [("results", str(report.path))]
    rows += [("pictures", str(path)) for path in pictures] or [("pictures", f"mflandscape plot {run}")]
    print_rows([*rows, ("tables", f"mflandscape export {run} --csv"), ("python", f'mfl.open("{report.path}")')])


def _print_table(members: Sequence[Mapping[str, Any]], swept: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for name in swept:
        table.add_column(_GRID[name], justify="right", no_wrap=True)
    for title in ("clusters", "heaviest\nmass", "residual"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("stop reason", no_wrap=True)
    for title in ("steps", "seconds"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in members:
        table.add_row(
            *(f"{row[name]:.10g}" for name in swept),
            str(row["clusters"]),
            f"{row['heaviest_mass']:.4f}",
            f"{row['residual']:.1e}",
            row["stop_reason"],
            str(row["steps"]),
            f"{row['seconds']:.1f}",
            style=None if row["converged"] else "yellow",
        )
    console = Console(markup=False, highlight=False)
    console.width = max(console.width, console.measure(table).maximum)
    console.print(table)


def _point(row: Mapping[str, Any], swept: Sequence[str]) -> str:
    return ", ".join(f"{name} = {row[name]:.10g}" for name in swept)
