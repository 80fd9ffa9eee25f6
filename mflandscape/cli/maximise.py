"""`mflandscape maximise`."""

import math
from typing import Any

import click
import numpy as np

from .._options import Rule
from ..experiment import Experiment
from ..stationary import maximisers
from .devices import prepare
from .model import model_options, read_models
from .numbers import number_in
from .teaching import Sections, print_json, print_rows

_HELP = """Global maximisers of the energy (ascent): the Diracs at the maximisers of the perceptron's potential v.

ReLU and leaky ReLU without biases: exact, by the regions of the arrangement {a_j.x = 0}. Other activations: certified
in two and three dimensions, and wherever the input vectors span at most two; else a multi-start, and so labelled.

\b
  mflandscape maximise --weights paper-s1
  mflandscape maximise --weights paper-s2 --dim 3 --activation gelu --json
  mflandscape maximise --weights mine.json --beta 1,5,25 --kernel exponential
"""
_MODEL = (
    "beta",
    "weight_seed",
    "mlp_scale",
    "dim",
    "kernel",
    "activation",
    "weights",
    "mlp_units",
    "mlp_scale_mode",
)
_TOLERANCE = Rule("float", "", above=0, most=1e-2)
_SHOWN = 12


@click.command(cls=Sections, help=_HELP, short_help="Global maximisers of the energy, certified.")
@click.option("--tol", metavar="NUMBER", default="1e-10", show_default=True, help="Relative tolerance of ties.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; several members are its `members`.")
def maximise(as_json: bool, tol: str, **options: Any) -> None:
    """Global maximisers of the energy."""
    tolerance = number_in(_TOLERANCE, "tol", tol)
    prepare()
    experiment = read_models(options)
    members = [_member(experiment, m, tolerance) for m in range(math.prod(experiment.shape))]
    if as_json:
        print_json(members[0] if len(members) == 1 else {"members": members})
        return
    for member in members:
        _print(member, several=len(members) > 1)
    print_rows([("v", "sum_j omega_j phi(a_j.x + b_j), phi' = 2 sigma"), ("energy", "of the Dirac at each point")])
    click.echo()
    print_rows([("", experiment.convention.sentence)])


maximise.params.extend(model_options(*_MODEL))


def _member(experiment: Experiment, member: int, tol: float) -> dict[str, Any]:
    """A member's maximisers as `--json` prints them, in the units of its kernel convention."""
    point = experiment.point(member)
    found = maximisers.maximise(experiment.drift(member), d=experiment.spec.dim, tol=tol)
    unit = float(experiment.convention.energy_factor(point["beta"]))
    return {name: point[name] for name in ("beta", "weight_seed", "scale")} | _found(found, unit)


def _found(found: maximisers.Maximisers, unit: float) -> dict[str, Any]:
    x = np.asarray(found.points, float)
    angles = {"angles": np.mod(np.arctan2(x[:, 1], x[:, 0]), 2 * math.pi)} if x.shape[1] == 2 else {}
    return {
        "value": found.value * unit,
        "energy": found.energy * unit,
        "points": x,
        **angles,
        "dimensions": found.dimensions,
        "continuum": found.continuum,
        "gap": found.gap * unit,
        "method": found.method,
        "rigorous": found.rigorous,
    }


def _print(member: dict[str, Any], several: bool) -> None:
    if several:
        names = ("beta", "weight_seed", "scale")
        click.echo(", ".join(f"{name.replace('_', ' ')} {member[name]:.10g}" for name in names))
    proof = (
        f"v is nowhere larger by more than {member['gap']:.1e}" if math.isfinite(member["gap"]) else "proves nothing"
    )
    rows = [
        ("maximum of v", f"{member['value']:.15g}"),
        ("energy", f"{member['energy']:.15g}"),
        ("found by", f"{member['method']}: {proof}" + ("" if member["rigorous"] else " (search not finished)")),
    ]
    points = list(zip(member["points"], member["dimensions"], member.get("angles", member["dimensions"]), strict=True))
    for x, dimension, angle in points[:_SHOWN]:
        label = f"continuum, dim {dimension}" if dimension else "point"
        turn = f", angle {angle:.10g}" if "angles" in member else ""
        rows.append((label, _coordinates(x) + turn))
    if len(points) > _SHOWN:
        rows.append(("", f"and {len(points) - _SHOWN} more, all of them with --json"))
    print_rows(rows)
    click.echo()


def _coordinates(x: np.ndarray) -> str:
    return "(" + ", ".join(f"{value:.10g}" for value in x) + ")"
