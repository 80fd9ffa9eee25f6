"""`mflandscape report` and `animate`: a run as a page to play with, and as a film."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from .._options import Rule
from ..experiment import Experiment
from ..measure import Measure
from ..stationary import classify, merge, refine
from ..store import describe, open_run
from .devices import prepare
from .ends import end_states, member_numbers, stored_experiment
from .keys import toml
from .numbers import number_in
from .results import one_run
from .teaching import Sections

_REPORT = """Make one interactive HTML page of the run in the folder RUN; it needs no server and no network.

Sphere or circle with a time slider, potential, histogram, energy, cluster masses, classes of the refined end states,
the specification and how to reproduce it.

\b
  mflandscape report results/demo
  mflandscape report results/demo --member 3 --out page.html
"""
_ANIMATE = """Write a film of one member of the run in the folder RUN, a frame a snapshot (d = 2 or 3).

\b
  mflandscape animate results/demo
  mflandscape animate results/demo --member 3 --format mp4 --fps 20
"""
_MOST_PARTICLES = 5000  # whose end states are refined for the page: the cost grows with their square
_MOST_UNKNOWNS = 160
_RATE = Rule("float", "", above=0, most=50.0)
_NOT_SMALL = "too many particles to refine here; see mflandscape refine and mflandscape classify"


@click.command(cls=Sections, help=_REPORT, short_help="One interactive HTML page of a run.")
@click.argument("run")
@click.option("--out", metavar="FILE", help="The page.  [default: RUN/report.html]")
@click.option(
    "--member", metavar="INTEGER", multiple=True, help="Number of a member; may be repeated.  [default: up to 16]"
)
@click.option("--no-classes", is_flag=True, help="Leave out the classes of critical points, which take longest.")
def report(run: str, out: str | None, member: Sequence[str], no_classes: bool) -> None:
    """One interactive HTML page of a run."""
    prepare()
    folder = one_run(run)
    experiment = stored_experiment(folder)
    asked = member_numbers(member, experiment.spec.members) if member else []
    from ..plotting.report import chosen_members, page

    dataset = open_run(folder)
    numbers = chosen_members(dataset, asked)
    critical = {} if no_classes else _critical_points(folder, experiment, numbers)
    spec = toml(describe(folder)["spec"])
    name = folder.resolve().name
    commands = [f"mflandscape run spec.toml --out {shlex.quote(name)}", f"mflandscape report {shlex.quote(name)}"]
    text = page(dataset, numbers, name=name, toml=spec, commands=commands, critical=critical)
    path = Path(out) if out else folder / "report.html"
    aside = path.with_name(f".{path.name}.part")
    try:
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    click.echo(path)


def _critical_points(folder: Path, experiment: Experiment, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Of each member the refined end state and its class, or why there is none."""
    if max(start.n for start in experiment.starts) > _MOST_PARTICLES:
        return {number: {"note": _NOT_SMALL} for number in numbers}
    ends, _ = end_states(folder, experiment, numbers)
    return {number: _critical_point(experiment, number, mu) for number, mu in ends}


def _critical_point(experiment: Experiment, number: int, mu: Measure) -> dict[str, Any]:
    unknowns = _unknowns(mu)
    if unknowns > _MOST_UNKNOWNS:
        return {"note": f"not clustered: at 0.1 rad still {unknowns} unknowns, so there are no atoms to refine"}
    direction = "ascent" if experiment.spec.direction == "ascent" else "descent"
    drift = experiment.drift(number)
    found = refine(drift, mu, direction=direction)
    atoms = [{"point": x.tolist(), "mass": float(w)} for x, w in zip(found.mu.x, found.mu.w, strict=True)]
    kind = classify(drift, found.mu, direction=direction)
    row = {
        "atoms": atoms,
        "residual": found.residual,
        "class": kind.kind,
        "smallest_eigenvalue": kind.smallest_eigenvalue,
        "null": kind.spectrum.null.dimension,
        "splitting": min(kind.splitting.value, kind.splitting.lower),
        "gap": None if kind.gap is None else kind.gap.value,
    }
    if found.other_basin:
        row["note"] = "the refined atoms are not where the flow ended: it was still on its way, or they are unstable"
    return row


def _unknowns(mu: Measure) -> int:
    """Unknowns of the atoms that the particles make at 0.1 rad."""
    return merge(mu, 0.1).mu.n * (mu.d - 1)


@click.command(cls=Sections, help=_ANIMATE, short_help="A film of a run, GIF or MP4.")
@click.argument("run")
@click.option("--out", metavar="FILE", help="The film.  [default: RUN/member-K.gif]")
@click.option(
    "--format", "kind", metavar="FORMAT", help="[gif, or mp4 by ffmpeg; default: that of FILE's ending, or gif]"
)
@click.option("--fps", metavar="NUMBER", default="10", show_default=True, help="Frames a second, up to 50.")
@click.option("--member", metavar="INTEGER", help="Number of the member.  [default: the last finished one]")
def animate(run: str, out: str | None, kind: str | None, fps: str, member: str | None) -> None:
    """A film of a run, GIF or MP4."""
    folder = one_run(run)
    rate = number_in(_RATE, "fps", fps)
    dataset = open_run(folder)
    whole = dataset["complete"]
    asked = [] if member is None else member_numbers([member], whole.size)
    from ..plotting.animate import FORMATS, animate
    from ..plotting.report import chosen_members
    from ..plotting.statistics import every_member

    number = chosen_members(dataset, asked)[-1]
    if kind is not None and kind not in FORMATS:
        raise ValueError(f"format {kind!r}: expected one of {', '.join(FORMATS)}")
    path = Path(out) if out else folder / f"member-{number}.{kind or 'gif'}"
    if kind is not None and path.suffix.lower() != f".{kind}":
        raise ValueError(f"--format {kind} and --out {path}: expected a name that ends in .{kind}; give one of the two")
    found, frames = animate(dataset, every_member(dataset)[number], path, fps=rate)
    click.echo(f"{found}  ({frames} frames)")
