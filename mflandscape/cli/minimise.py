"""`mflandscape minimise`."""

import math
from collections.abc import Mapping
from typing import Any

import click
import numpy as np

from .._options import Rule
from ..drifts import AbstractEnergy
from ..experiment import Experiment
from ..stationary import Minimum
from ..stationary import minimise as find_minimum
from .devices import prepare
from .model import model_options, read_models
from .numbers import number_in
from .teaching import NOT_CONVERGED, Sections, print_json, print_rows

_HELP = """The global minimiser of the energy among all probability measures (descent), with a certificate.

E[mu] - min E is at most the gap; "rigorous" says whether that is proved (d = 2 and 3) or a multi-start's estimate.

\b
  mflandscape minimise --beta 5
  mflandscape minimise --beta 1,5,25,50 --weights paper-s1 --activation gelu --json
  mflandscape minimise --beta 5 --dim 3 --weights mine.json --kernel exponential
"""
_MODEL = (
    "beta",
    "weight_seed",
    "mlp_scale",
    "dim",
    "kernel",
    "attention_mode",
    "direction",
    "activation",
    "weights",
    "mlp_units",
    "mlp_scale_mode",
    "gradient_mlp",
)
_TOLERANCE = Rule("float", "", automatic="by dimension", above=0, most=0.1)
_SHOWN = 40


@click.command(cls=Sections, help=_HELP, short_help="The global minimiser, certified.")
@click.option("--tol", metavar="NUMBER", help="Relative tolerance of the gap.  [default: 1e-12 for d = 2, 1e-9 above]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; several members are its `members`.")
@click.option("--strict", is_flag=True, help="Exit with 3 if a gap is above the tolerance.")
@click.pass_context
def minimise(ctx: click.Context, as_json: bool, tol: str | None, strict: bool, **options: Any) -> None:
    """The global minimiser of the energy."""
    tolerance = None if tol is None else number_in(_TOLERANCE, "tol", tol)
    prepare()
    experiment = read_models(options)
    _refuse(experiment)
    members = [_member(experiment, m, tolerance) for m in range(math.prod(experiment.shape))]
    if as_json:
        print_json(members[0] if len(members) == 1 else {"members": members})
    else:
        for member in members:
            _print(member)
        print_rows([("convention", experiment.convention.sentence)])
    if strict and not all(member["converged"] for member in members):
        ctx.exit(NOT_CONVERGED)


minimise.params.extend(model_options(*_MODEL))


def _refuse(experiment: Experiment) -> None:
    spec = experiment.spec
    if spec.direction == "ascent":
        raise ValueError(
            "direction = ascent: minimise expected descent; for ascent the maximisers are Diracs, see "
            "`mflandscape maximise`"
        )
    if spec.attention_mode == "normalized":
        raise ValueError("attention_mode = normalized: softmax attention has no energy; leave --attention-mode out")


def _member(experiment: Experiment, member: int, tol: float | None) -> dict[str, Any]:
    """A member's minimiser as `--json` prints it, in the units of its kernel convention."""
    point, energy = experiment.point(member), experiment.drift(member)
    if not isinstance(energy, AbstractEnergy):
        raise ValueError("free output vectors have no energy: expected omega_j parallel to a_j (--gradient-mlp)")
    found = find_minimum(energy, d=experiment.spec.dim, tol=tol)
    unit = float(experiment.convention.energy_factor(point["beta"]))
    names = ("beta", "weight_seed", "scale")
    return {name: point[name] for name in names} | _found(found, unit)


def _found(found: Minimum, unit: float) -> dict[str, Any]:
    x, w = np.asarray(found.mu.x, float), np.asarray(found.mu.w, float)
    angles = np.mod(np.arctan2(x[:, 1], x[:, 0]), 2 * math.pi)
    atoms: list[Mapping[str, Any]] = [
        {"point": x[i], "mass": w[i]} | ({"angle": angles[i]} if x.shape[1] == 2 else {}) for i in range(len(w))
    ]
    return {
        "energy": found.energy * unit,
        "gap": found.gap * unit,
        "energy_scale": found.scale * unit,
        "multiplier": found.multiplier * unit,
        "rigorous": found.rigorous,
        "why_not": found.why_not,
        "converged": found.converged,
        "iterations": found.iterations,
        "atoms": atoms,
    }


def _print(member: Mapping[str, Any]) -> None:
    rows = [
        ("member", f"beta {member['beta']:.10g}, weight seed {member['weight_seed']}, scale {member['scale']:.10g}"),
        ("energy", f"{member['energy']:.15g}"),
        ("gap", f"{member['gap']:.3g}, {_proof(member)}"),
        ("multiplier", f"{member['multiplier']:.15g}"),
        ("atoms", f"{len(member['atoms'])}, found in {member['iterations']} rounds"),
    ]
    for atom in member["atoms"][:_SHOWN]:
        place = f"angle {atom['angle']:.10f}" if "angle" in atom else _coordinates(atom["point"])
        rows.append(("", f"mass {atom['mass']:.10f}  {place}"))
    if len(member["atoms"]) > _SHOWN:
        rows.append(("", f"and {len(member['atoms']) - _SHOWN} more, all of them with --json"))
    print_rows(rows)
    click.echo()


def _proof(member: Mapping[str, Any]) -> str:
    relative = f"{member['gap'] / member['energy_scale']:.1e} of the scale"
    if not member["converged"]:
        relative += ", above the tolerance"
    return f"{relative}; " + ("proved" if member["rigorous"] else f"not proved: {member['why_not']}")


def _coordinates(x: np.ndarray) -> str:
    return "(" + ", ".join(f"{value:.10f}" for value in x) + ")"
