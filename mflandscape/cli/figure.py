"""`mflandscape figure`."""

import dataclasses
import time
from collections import Counter
from typing import Any

import click

from .devices import prepare
from .teaching import INTERRUPTED, Sections, print_json, print_rows

_HELP = """Make figures of the papers: data (computed once, kept), picture, and the numbers beside the expected ones.

NAME is that of a figure (--list) or "all". A-figures are those of arXiv 2601.21366, B-figures are about 2410.23228.

\b
  mflandscape figure --list
  mflandscape figure A9 --quick
  mflandscape figure all --quick --out results/figures
"""
_EPILOG = "Exit codes: 0 done; 2 bad input; 130 interrupted: what is complete is kept, the same command goes on."


@click.command(cls=Sections, help=_HELP, short_help="The papers' figures, with verdicts.", epilog=_EPILOG)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--list", "listed", is_flag=True, help="List the figures, a line each.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list, an object for each figure.")
@click.option("--quick", is_flag=True, help="Smaller sizes: tens of seconds each, most of them compilation.")
@click.option("--data-only", is_flag=True, help="Compute the data and compare the numbers, draw nothing.")
@click.option("--out", metavar="DIR", default="results/figures", show_default=True, help="Folder of the results.")
@click.pass_context
def figure(
    ctx: click.Context, names: tuple[str, ...], listed: bool, as_json: bool, quick: bool, data_only: bool, out: str
) -> None:
    """Make figures of the papers."""
    from ..paper import FIGURES
    from ..paper.make import find_figure, make_figure

    if listed:
        rows = [(each.name, each.title) for each in FIGURES.values()]
        print_json([{"name": name, "title": title} for name, title in rows]) if as_json else print_rows(rows)
        return
    if not names:
        raise ValueError("no figure named: expected names, or all; `mflandscape figure --list` lists them")
    chosen = list(FIGURES) if "all" in names else [find_figure(name).name for name in dict.fromkeys(names)]
    prepare()
    made, began = [], time.perf_counter()
    try:
        for name in chosen:
            made.append(make_figure(name, out, quick=quick, data_only=data_only))
            if not as_json:
                _print(made[-1])
    except KeyboardInterrupt:
        click.echo("interrupted: runs and data that are complete are kept; the same command goes on", err=True)
        ctx.exit(INTERRUPTED)
    if as_json:
        print_json([_payload(each) for each in made])
    elif len(made) > 1:
        _print_total(made, time.perf_counter() - began)


def _payload(made: Any) -> dict[str, Any]:
    return {field.name: getattr(made, field.name) for field in dataclasses.fields(made)} | {
        "findings": [dataclasses.asdict(finding) for finding in made.findings]
    }


def _print(made: Any) -> None:
    click.echo(f"{made.name}  {made.title}")
    rows: list[tuple[str, str]] = []
    for finding in made.findings:
        rows.append((f"  {finding.verdict}", f"{finding.what}: {finding.measured}"))
        rows.append(("", f"expected: {finding.expected}"))
    rows += [("  picture", str(path)) for path in made.pictures]
    computed = f"data computed in {made.compute_seconds:.1f} s"
    rows += [("  data", str(made.data)), ("  time", f"{made.seconds:.1f} s ({computed}{', earlier' * made.cached})")]
    print_rows(rows)
    click.echo()


def _print_total(made: list[Any], seconds: float) -> None:
    verdicts = Counter(finding.verdict for each in made for finding in each.findings)
    said = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    click.echo(f"{len(made)} figures in {seconds:.0f} s; findings: {said}")
