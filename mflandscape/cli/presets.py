"""`mflandscape presets`."""

import click

from ..presets import PRESETS, preset
from .keys import toml
from .teaching import Sections, print_rows

_HELP = """List the paper's experiments; with NAME, print one as a TOML file for `run`.

\b
  mflandscape presets
  mflandscape presets paper-s1 > mine.toml
  mflandscape run mine.toml
"""


@click.command(cls=Sections, help=_HELP, short_help="List the paper's experiments.")
@click.argument("name", required=False)
def presets(name: str | None) -> None:
    """List the paper's experiments, or print one."""
    if name is None:
        print_rows([(each.name, each.description) for each in PRESETS.values()])
        return
    spec = preset(name)
    click.echo(f"# {name}: {PRESETS[name].description}\n\n{toml(spec.to_dict())}")
