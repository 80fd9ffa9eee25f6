"""`mflandscape info`, `plot` and `export`: what is done with a run on disk."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ..store import StoreError, describe, export_csv, open_run
from .keys import toml
from .teaching import Sections, print_json, print_rows

_INFO = """Describe the run in the folder RUN: members done, size, versions, conventions and its whole spec.

\b
  mflandscape info results/demo
  mflandscape info results/demo --json
"""
_PLOT = """Draw the pictures of the run in the folder RUN: all that fit it, or those named.

\b
  mflandscape plot results/demo
  mflandscape plot results/demo --picture trajectories --format pdf
"""
_EXPORT = """Write the run in the folder RUN as tables: summary.csv, a row for each member.

\b
  mflandscape export results/demo --csv
  mflandscape export results/demo --csv --full --out tables
"""
# The names of `plotting.PICTURES`, which loads matplotlib: help has no time for that.
_PICTURES = ("trajectories", "trajectories-log", "histograms", "particles", "spherical-histogram",
             "energy-and-residual", "cluster-counts", "cluster-masses", "stop-times")  # fmt: skip
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


@click.command(cls=Sections, help=_INFO, short_help="Describe a run.")
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(run: str, as_json: bool) -> None:
    """Describe a run."""
    found = describe(one_run(run))
    if as_json:
        print_json(found)
        return
    print_rows(_description(found))
    click.echo(f"\n{toml(found['spec'])}")


@click.command(cls=Sections, help=_PLOT, short_help="Draw a run's pictures.")
@click.argument("run")
@click.option(
    "--picture", "names", metavar="NAME", multiple=True, help=f"One of {', '.join(_PICTURES)}.  [default: all that fit]"
)
@click.option("--out", metavar="DIR", help="Folder of the pictures.  [default: RUN/pictures]")
@click.option(
    "--format",
    "formats",
    metavar="FORMAT",
    multiple=True,
    default=("png", "pdf"),
    help="[png, pdf, svg; default: png and pdf]",
)
def plot(run: str, names: Sequence[str], out: str | None, formats: Sequence[str]) -> None:
    """Draw a run's pictures."""
    folder = one_run(run)
    for path in draw_pictures(folder, Path(out) if out else folder / "pictures", formats, names or None):
        click.echo(path)


@click.command(cls=Sections, help=_EXPORT, short_help="Write a run as tables.")
@click.argument("run")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated tables, the one format there is.")
@click.option("--full", is_flag=True, help="Also trajectory.csv: a row for each member, snapshot and particle.")
@click.option("--out", metavar="DIR", help="Folder of the tables.  [default: RUN/csv]")
def export(run: str, as_csv: bool, full: bool, out: str | None) -> None:
    """Write a run as tables."""
    folder = one_run(run)
    if not as_csv:
        raise ValueError("no format given: expected --csv; add it")
    for path in export_csv(folder, Path(out) if out else folder / "csv", full=full):
        click.echo(path)


def draw_pictures(
    run: Path, out: Path, formats: Sequence[str] = ("png", "pdf"), names: Sequence[str] | None = None
) -> list[Path]:
    """Draw a run's pictures and return their files.

    Raises:
        ValueError: no finished member, an unknown picture or format, or a picture that does not fit the run.
    """
    dataset = open_run(run)
    if not bool(dataset["complete"].any()):
        raise ValueError(f"{run}: no member is finished, one is needed for a picture; go on with {_resume(run)}")
    from ..plotting import draw

    return draw(dataset, out, tuple(formats), names)


def one_run(name: str) -> Path:
    """The folder of one run; of several, their names are in the error."""
    path = Path(name)
    inside = sorted(str(file.parent) for file in path.glob("dim-*/run.json"))
    if inside and not (path / "run.json").exists():
        raise StoreError(f"{path} holds several runs; expected one; name {' or '.join(inside)}")
    return path


def _description(found: dict[str, Any]) -> list[tuple[str, str]]:
    done, total, attrs = found["done"], found["members"], found["attrs"]
    rows = [("run", found["path"]), ("members", f"{done} of {total} done")]
    if found["in_flight"]:
        rows.append(("in flight", f"{found['in_flight']} members with a saved state"))
    if found["damaged"]:
        rows.append(("damaged", f"members {', '.join(map(str, found['damaged']))}: computed again by --resume"))
    if done < total:
        rows.append(("resume", _resume(Path(found["path"]))))
    dims = ", ".join(f"{name} {size}" for name, size in found["dims"].items())
    rows += [("size", _size(found["bytes"])), ("dims", dims)]
    rows.append(("versions", ", ".join(f"{name} {version}" for name, version in found["versions"].items())))
    shown = {name: text for name, text in attrs.items() if name not in ("versions", "spec")}
    return rows + [(name.replace("_", " "), str(text)) for name, text in shown.items()]


def _resume(run: Path) -> str:
    return f"mflandscape run --resume --out {shlex.quote(str(run))}"


def _size(size: int) -> str:
    unit, letter = next(((unit, letter) for unit, letter in _UNITS if size >= unit), _UNITS[-1])
    return f"{size / unit:.3g} {letter}"
