"""`mflandscape theory`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np

from .._options import Rule
from ..theory import (
    concavity_window,
    exit_time,
    growth_rates,
    k_max,
    log_exit_time,
    log_growth_rates,
    lone_atom_bound,
    mass_bound,
    mass_bound_asymptotic,
)
from ..theory.arguments import MAX_BETA, MAX_DEGREE
from .numbers import parse_number
from .teaching import Sections, print_json, print_rows

_HELP = """Growth rates at the uniform measure, the number of clusters they predict, and bounds, without a simulation.

Shifted kernel exp(beta (x.y - 1))/beta; rates for ascent (descent: the opposite sign). The bounds are those of
stationary measures on the circle under descent, without a perceptron.

\b
  mflandscape theory --beta 5
  mflandscape theory --beta 1,5,25,50,100 --n-particles 1000
  mflandscape theory --beta 25 --dim 8 --attention-mode normalized --json
"""
_MODES = ("unnormalized", "normalized")
_RULES = {
    "beta": Rule("float", "", many=True, least=0, most=MAX_BETA),
    "dim": Rule("int", "", least=2),
    "degrees": Rule("int", "", automatic="past k_max", least=1, most=MAX_DEGREE),
    "n_particles": Rule("int", "", automatic="none", least=2),
    "attention_mode": Rule("str", "", choices=_MODES),
}
_MOST_DEGREES = 2000  # printed without being asked for
_SHOWN = 12


@click.command(cls=Sections, help=_HELP, short_help="Growth rates, k_max and bounds.")
@click.option("--beta", metavar="NUMBER", multiple=True, help="Inverse temperature; several: repeat it, or use commas.")
@click.option("--dim", metavar="INTEGER", default="2", show_default=True, help="Dimension d of the sphere S^(d-1).")
@click.option("--degrees", metavar="INTEGER", help="Highest degree.  [default: 2 k_max + 10, up to 2000]")
@click.option("--n-particles", metavar="INTEGER", help="Particles of an independent start; adds the exit time.")
@click.option("--attention-mode", metavar="NAME", default=_MODES[0], help=f"Of the exit time.  [{' or '.join(_MODES)}]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; several betas are its `members`.")
def theory(as_json: bool, **options: Any) -> None:
    """Growth rates at the uniform measure, the number of clusters they predict, and bounds."""
    given = _read(options)
    members = [_predict(beta, given) for beta in given["beta"]]
    if as_json:
        print_json(members[0] if len(members) == 1 else {"members": members})
    else:
        _print(members, given)


def _read(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as numbers.

    Raises:
        ValueError: no beta, not a number, out of range, or an unknown attention mode.
    """
    found = dict(options)
    words = [word for text in options["beta"] for word in text.split(",") if word.strip()]
    if not words:
        raise ValueError("no beta given: expected --beta NUMBER; add it, such as --beta 5")
    found["beta"] = [parse_number("beta", word, _RULES["beta"].allowed()) for word in words]
    for name in ("dim", "degrees", "n_particles"):
        if found[name] is not None:
            found[name] = parse_number(name, found[name], _RULES[name].allowed())
    return {name: rule.convert(name, found[name]) for name, rule in _RULES.items()}


def _predict(beta: float, given: Mapping[str, Any]) -> dict[str, Any]:
    """All that is known at one beta, as `--json` prints it."""
    d, n, normalised = given["dim"], given["n_particles"], given["attention_mode"] == "normalized"
    k = k_max(beta, d)
    top = given["degrees"] or max(k + 10, min(2 * k + 10, _MOST_DEGREES))
    degrees = np.arange(top + 1)
    found = {
        "beta": beta,
        "dim": d,
        "degrees": top,
        "attention_mode": given["attention_mode"],
        "k_max": k,
        "k_max_normalised": k,
        "growth_rates": growth_rates(beta, d, degrees),
        "log_growth_rates": log_growth_rates(beta, d, degrees),
        "growth_rates_normalised": growth_rates(beta, d, degrees, normalised=True),
        "tau": concavity_window(beta),
        "mass_bound_asymptotic": mass_bound_asymptotic(),
        "mass_bound_exact": mass_bound(beta).value,
        "lone_atom_bound": lone_atom_bound(beta).value,
    }
    if n is not None:
        found |= {
            "n_particles": n,
            "exit_time": exit_time(beta, d, n, normalised),
            "log_exit_time": log_exit_time(beta, d, n, normalised),
        }
    return found


def _print(members: Sequence[Mapping[str, Any]], given: Mapping[str, Any]) -> None:
    n, d = given["n_particles"], given["dim"]
    names = ["beta", "k_max", "growth rate", "tau", "mass\nbound", "lone atom\nbound"]
    rows = [
        [f"{m['beta']:.10g}", str(m["k_max"]), _power(float(log_growth_rates(m["beta"], d, m["k_max"])))]
        + [f"{m[name]:.5f}" for name in ("tau", "mass_bound_exact", "lone_atom_bound")]
        for m in members
    ]
    if n is not None:
        names.append("exit time")
        rows = [[*row, _power(m["log_exit_time"])] for row, m in zip(rows, members, strict=True)]
    _print_table(names, rows)
    click.echo()
    if len(members) == 1:
        _print_degrees(members[0])
    bounds = (
        "largest share of the mass in a cluster (of diameter tau/2 at most; for large beta paper A has "
        f"{mass_bound_asymptotic():.4f}) and in one atom; circle, descent, no perceptron"
    )
    notes = [
        ("k_max", f"degree that grows fastest at the uniform measure, d = {d}, ascent"),
        ("growth rate", "of that degree, unnormalised attention"),
        ("bounds", bounds),
    ]
    if n is not None:
        notes.append(("exit time", f"end of the linear phase of {n} particles, {given['attention_mode']} attention"))
    print_rows(notes)


def _print_degrees(member: Mapping[str, Any]) -> None:
    """The rates of the first degrees, and of those around the fastest."""
    k, top = member["k_max"], member["degrees"]
    first = max(0, min(k - _SHOWN // 2, top - _SHOWN + 1))
    shown = range(first, min(first + _SHOWN, top + 1))
    rates, normalised = member["growth_rates"], member["growth_rates_normalised"]
    rows = [[str(degree), f"{rates[degree]:.6g}", f"{normalised[degree]:.6g}"] for degree in shown]
    _print_table(["degree", "growth rate", "normalised"], rows)
    click.echo(f"degrees {shown[0]} to {shown[-1]} of 0 to {top}; all of them with --json\n")


def _power(log: float) -> str:
    """`e^log` in words, also where it overflows."""
    exponent = math.floor(log / math.log(10))
    return f"{math.exp(log):.5g}" if abs(exponent) < 300 else f"{10 ** (log / math.log(10) - exponent):.3f}e{exponent}"


def _print_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console(markup=False, highlight=False)
    console.width = max(console.width, console.measure(table).maximum)
    console.print(table)
