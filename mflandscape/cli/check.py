"""`mflandscape check`."""

import time
from typing import Any

import click

from .._options import unknown
from .devices import prepare
from .teaching import Sections, print_json, print_rows

FAILED = 1
_HELP = """Check theorems of the papers by numbers: hypotheses, what was measured, its tolerance, and the verdict.

NAME is that of a check (--list); all of them without one. A verdict is "holds", "fails", or "not_applicable" where a
hypothesis is not met.

\b
  mflandscape check --list
  mflandscape check theorem-3.1 lemma-5.3
  mflandscape check --quick --json
"""
_EPILOG = "Exit codes: 0 no check fails; 1 one fails; 2 bad input."
_WORDS = {"holds": "holds", "fails": "FAILS", "not_applicable": "not applicable"}


@click.command(cls=Sections, help=_HELP, short_help="The papers' theorems, checked.", epilog=_EPILOG)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--list", "listed", is_flag=True, help="List the checks, a line each.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list, an object for each check.")
@click.option("--quick", is_flag=True, help="Smaller sizes: about half of the time.")
@click.pass_context
def check(ctx: click.Context, names: tuple[str, ...], listed: bool, as_json: bool, quick: bool) -> None:
    """Check theorems of the papers."""
    from ..checks import CHECKS

    if listed:
        rows = [(each.name, each.title) for each in CHECKS.values()]
        print_json([{"name": name, "title": title} for name, title in rows]) if as_json else print_rows(rows)
        return
    for name in names:
        if name not in CHECKS:
            raise unknown("check", name, CHECKS)
    prepare()
    found, failed = [], False
    for name in dict.fromkeys(names or CHECKS):
        began = time.perf_counter()
        verdict = CHECKS[name].run(quick)
        failed |= verdict.verdict == "fails"
        found.append(verdict.payload() | {"seconds": time.perf_counter() - began})
        if not as_json:
            _print(found[-1])
    if as_json:
        print_json(found)
    elif len(found) > 1:
        counts = ", ".join(f"{sum(v['verdict'] == word for v in found)} {said}" for word, said in _WORDS.items())
        click.echo(f"{len(found)} checks: {counts}; {sum(v['seconds'] for v in found):.0f} s")
    if failed:
        ctx.exit(FAILED)


def _print(found: dict[str, Any]) -> None:
    rows = [("statement", found["statement"])]
    rows.append(("hypotheses", "met" if found["hypotheses_met"] else "not met: " + "; ".join(found["unmet"])))
    for what, measured in found["measured"].items():
        limit = found["tolerance"].get(what, {})
        compared = "".join(f" ({relation} {_number(value)})" for relation, value in limit.items())
        rows.append(("measured" if limit else "besides", f"{what}: {_number(measured)}{compared}"))
    said = _WORDS[found["verdict"]]
    if not found["hypotheses_met"]:
        said += f"; the conclusion by itself {found['conclusion']}"
    click.echo(f"{found['name']}  ({found['seconds']:.1f} s)")
    print_rows([("  " + label, text) for label, text in (*rows, ("verdict", said))])
    click.echo()


def _number(value: float | int) -> str:
    return f"{value:.4g}"
