"""`mflandscape evaluators`."""

import dataclasses
from typing import Any

import click

from .._options import Rule
from ..interactions import Choice, choice_table, choose, named_interaction
from ..theory.arguments import MAX_BETA
from .numbers import number_in
from .teaching import Sections, print_json, print_rows

_HELP = """How the attention is summed: the table that `--interaction auto` reads, and what it gives for a run.

\b
  mflandscape evaluators
  mflandscape evaluators --dim 3 --n-particles 65536 --beta 50
  mflandscape evaluators --dim 3 --n-particles 131072 --dtype float32 --device gpu --json

The first line that holds is taken. `mflandscape run --interaction NAME` takes another.
"""
_RULES = {
    "dim": Rule("int", "", least=2),
    "n_particles": Rule("int", "", least=1),
    "beta": Rule("float", "", least=0, most=MAX_BETA),
}


@click.command(cls=Sections, help=_HELP, short_help="How the attention is summed, and why.")
@click.option("--dim", metavar="INTEGER", default="2", show_default=True, help="Dimension d of the sphere S^(d-1).")
@click.option("--n-particles", metavar="INTEGER", default="1000", show_default=True, help="Number of particles N.")
@click.option("--beta", metavar="NUMBER", default="1", show_default=True, help="Largest inverse temperature.")
@click.option(
    "--dtype", type=click.Choice(["float64", "float32"]), default="float64", show_default=True, help="Of the run."
)
@click.option("--device", type=click.Choice(["cpu", "gpu"]), help="Of the run.  [default: where JAX computes]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def evaluators(dtype: str, device: str | None, as_json: bool, **options: str) -> None:
    """How the attention is summed: the table, and what it gives for a run."""
    import jax

    d, n, beta = (number_in(rule, name, options[name]) for name, rule in _RULES.items())
    platform = ("cpu" if jax.default_backend() == "cpu" else "gpu") if device is None else device
    line = choose(int(d), int(n), beta, device=platform)
    found = named_interaction(line.evaluator, beta, dtype)
    given = {"dim": int(d), "n_particles": int(n), "beta": beta, "dtype": dtype, "device": platform}
    if as_json:
        chosen = {"evaluator": line.evaluator, "interaction": repr(found), "where": line.where, "why": line.why}
        print_json({"table": [_line(each) for each in choice_table()], "given": given, "chosen": chosen})
        return
    print_rows([(each.evaluator, f"{each.where}: {each.why}") for each in choice_table()])
    click.echo()
    case = f"d = {d:g}, N = {n:g}, beta = {beta:g}, {dtype}, {platform}"
    print_rows([("given", case), ("chosen", f"{line.evaluator}, {found!r}: {line.why}")])


def _line(line: Choice) -> dict[str, Any]:
    return dataclasses.asdict(line) | {"where": line.where}
