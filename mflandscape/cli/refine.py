"""`mflandscape refine`."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from .._options import Rule
from ..experiment import Experiment
from ..measure import Measure
from ..stationary.refine import Refined
from ..stationary.refine import refine as refine_state
from .devices import prepare
from .ends import end_states, member_numbers, stored_experiment
from .numbers import number_in
from .results import one_run
from .teaching import Sections, plain, print_json, print_rows

_HELP = """Bring the end states in the folder RUN to critical points: clouds become atoms, Newton's method moves them.

Masses stay. Computed in float64 and in the shifted kernel's units. The run itself is not changed.

\b
  mflandscape refine results/demo
  mflandscape refine results/demo --member 3 --json
  mflandscape refine results/demo --merge-tolerance 1e-3 --out atoms.json
"""
_SHOWN = 20
_TOLERANCE = Rule("float", "", above=0, most=1.0)
_ANGLE = Rule("float", "", above=0, most=math.pi)


@click.command(cls=Sections, name="refine", help=_HELP, short_help="Bring a run's end states to critical points.")
@click.argument("run")
@click.option("--member", metavar="INTEGER", multiple=True, help="Number of a member; may be repeated.  [default: all]")
@click.option("--tol", metavar="SPEED", default="1e-12", show_default=True, help="Residual to reach.")
@click.option("--merge-tolerance", metavar="ANGLE", help="Particles joined by steps up to it merge.  [default: chosen]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--out", metavar="FILE", help="Write that object to a file too.")
def command(
    run: str, member: Sequence[str], tol: str, merge_tolerance: str | None, as_json: bool, out: str | None
) -> None:
    """Bring a run's end states to critical points."""
    prepare()
    speed = number_in(_TOLERANCE, "tol", tol)
    angle = None if merge_tolerance is None else number_in(_ANGLE, "merge_tolerance", merge_tolerance)
    folder = one_run(run)
    experiment = stored_experiment(folder)
    ends, unfinished = end_states(folder, experiment, member_numbers(member, experiment.spec.members))
    members = [_row(experiment, m, mu, speed, angle) for m, mu in ends]
    found = {
        "run": str(folder),
        "kernel": experiment.spec.kernel,
        "direction": experiment.spec.direction,
        "tol": speed,
        "members": members,
        "unfinished": unfinished,
    }
    if out is not None:
        Path(out).write_text(json.dumps(plain(found), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    if as_json:
        print_json(found)
        return
    for each in members:
        _print(each)
    if unfinished:
        print_rows([("not finished", f"{', '.join(map(str, unfinished))}: mflandscape run --resume --out {folder}")])
    if out is not None:
        print_rows([("written", out)])


def _row(experiment: Experiment, member: int, mu: Measure, tol: float, angle: float | None) -> dict[str, Any]:
    direction = "ascent" if experiment.spec.direction == "ascent" else "descent"
    found = refine_state(experiment.drift(member), mu, merge_tolerance=angle, tol=tol, direction=direction)
    return {"member": member, **experiment.point(member), "particles": mu.n, **payload(found)}


def payload(found: Refined) -> dict[str, Any]:
    """A refined state as `--json` prints it."""
    x, w = np.asarray(found.mu.x), np.asarray(found.mu.w)
    angles = np.mod(np.arctan2(x[:, 1], x[:, 0]), 2 * math.pi)
    atoms = [
        {
            "point": x[i],
            **({"angle": angles[i]} if x.shape[1] == 2 else {}),
            "mass": w[i],
            "particles": int(found.merged[i]),
            "moved": float(found.moved[i]),
            "residual": float(found.residuals[i]),
        }
        for i in range(len(w))
    ]
    return {
        "atom_count": len(w),
        "residual_before": found.residual_before,
        "residual": found.residual,
        "converged": found.converged,
        "steps": found.steps,
        "moved_max": float(np.max(found.moved)),
        "displacement": found.displacement,
        "merge_tolerance": found.merge_tolerance,
        "massless": found.massless,
        "unresolved_mass": found.unresolved_mass,
        "unsettled": np.flatnonzero(found.unsettled),
        "clarke": np.flatnonzero(found.clarke),
        "kinks": [{"atom": int(atom), "neuron": int(neuron)} for atom, neuron in np.asarray(found.kinks)],
        "energy_before": found.energy_before,
        "energy": found.energy,
        "growth": found.growth,
        "against_flow": found.against_flow,
        "other_basin": found.other_basin,
        "atoms": atoms,
    }


def _print(member: Mapping[str, Any]) -> None:
    name = f"beta {member['beta']:.10g}, weight seed {member['weight_seed']}, start seed {member['start_seed']}"
    count, particles = member["atom_count"], member["particles"]
    steps, tolerance, far = member["steps"], member["merge_tolerance"], member["moved_max"]
    rows = [
        (f"member {member['member']}", f"{name}, scale {member['scale']:.10g}"),
        ("residual", f"{member['residual_before']:.1e} before, {member['residual']:.1e} after {steps} Newton steps"),
        (
            "atoms",
            f"{count} of {particles} particles, merged at {tolerance:.3g}, moved up to {far:.1e}",
        ),
        ("energy", f"{_value(member['energy_before'])} before, {_value(member['energy'])} after"),
    ]
    if not member["converged"]:
        which = ", ".join(map(str, member["unsettled"]))
        rows.append(("unsettled", f"atoms {which}, together of mass {member['unresolved_mass']:.6g}"))
    if len(member["clarke"]):
        which = ", ".join(map(str, member["clarke"]))
        rows.append(("Clarke", f"atoms {which}: stationary between the two sides of a jump of the gradient"))
    if member["kinks"]:
        pairs = ", ".join(f"{pair['atom']} (neuron {pair['neuron']})" for pair in member["kinks"])
        rows.append(("at a kink", f"atoms {pairs}"))
    if member["other_basin"]:
        rows.append(("other basin", _why_elsewhere(member)))
    if member["massless"]:
        rows.append(("massless", f"{member['massless']} particles, left out"))
    for atom in member["atoms"][:_SHOWN]:
        place = f"angle {atom['angle']:.10f}" if "angle" in atom else _coordinates(atom["point"])
        rows.append(("", f"mass {atom['mass']:.6f}  {place}"))
    if count > _SHOWN:
        rows.append(("", f"and {count - _SHOWN} more, all of them with --json"))
    print_rows(rows)
    click.echo()


def _why_elsewhere(member: Mapping[str, Any]) -> str:
    if not member["against_flow"]:
        return "a particle moved by more than 0.05: the flow may have ended elsewhere"
    if member["growth"] > 0:
        return f"the flow would not have ended here: unstable, growth rate {member['growth']:.1e}"
    return "the flow would not have ended here: the energy changed against its direction"


def _value(energy: float) -> str:
    return f"{energy:.12g}" if math.isfinite(energy) else "none"


def _coordinates(x: np.ndarray) -> str:
    return "(" + ", ".join(f"{value:.10f}" for value in x) + ")"
