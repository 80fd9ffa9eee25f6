"""Figures 3, 5 and 8 of paper A: particles of the circle against time, for three temperatures.

The paper's three betas stand in its pictures only; 1, 5 and 25 are ours.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from ..plotting.circle import LINES, trajectory_panel
from ..plotting.landscape import landscape, on_circle
from ..plotting.members import Member, converged, ending_of, name_of, pick
from ..plotting.style import PAGE, new_figure, note_below, styled
from ..presets import THREE_BETAS
from ..spec import Spec
from .published_runs import count_finding, row_of
from .registry import Finding, PaperFigure, Verdict
from .runs import OWN_STEPS, chosen, own_ending, own_kind, sized, stored_run, with_own_end

Data = Mapping[str, xr.Dataset]
_SCALES = (1.0, 0.0)  # with the perceptron, and without


def _compute(settings: dict[str, Any], folder: Path) -> dict[str, xr.Dataset]:
    spec = Spec.from_dict(settings["run"])
    ds = chosen(stored_run(spec, folder), beta=settings["shown"], scale=[1.0])
    return {"run": with_own_end(spec, ds, settings["own_steps"])}


def _compute_softmax(settings: dict[str, Any], folder: Path) -> dict[str, xr.Dataset]:
    return {name: stored_run(Spec.from_dict(settings[name]), folder).load() for name in ("ascent", "descent")}


def _panels(figure: Figure, panels: np.ndarray, ds: xr.Dataset, label: str = "") -> None:
    members = [Member(beta=i) for i in range(ds.sizes["beta"])]
    every = -(-ds.sizes["particle"] // LINES)
    for i, member in enumerate(members):
        axes, side = panels[2 * i : 2 * i + 2]
        trajectory_panel(axes, side, ds, member, every, log_time=True)
        words = own_ending(ds, member) if "own_end_clusters" in ds else ending_of(ds, member)
        axes.set_title(f"{label}{name_of(ds, member, members)}\n{words}", loc="left", fontsize=8.0)
        if i:
            axes.set_ylabel("")
    notes = [f"{ds.sizes['particle']} particles, coloured by their angle at the start"]
    note_below(figure, notes + ["at rest: when continued, to speed 1e-8"] * ("own_end_clusters" in ds))


@styled
def _draw(data: Data) -> Figure:
    ds = data["run"]
    figure = new_figure(PAGE, 2.75)
    panels = figure.subplots(1, 2 * ds.sizes["beta"], sharey=True, width_ratios=[2.2, 1.0] * ds.sizes["beta"])
    _panels(figure, panels, ds)
    return figure


@styled
def _draw_softmax(data: Data) -> Figure:
    figure = new_figure(PAGE, 5.0)
    betas = data["ascent"].sizes["beta"]
    panels = figure.subplots(2, 2 * betas, sharey=True, width_ratios=[2.2, 1.0] * betas)
    for row, (name, ds) in zip(panels, data.items(), strict=True):
        _panels(figure, row, ds, f"{name}, ")
    return figure


def went_on(ds: xr.Dataset, scale: int = 0) -> str:
    """What each end state of the first seeds was, and where the flow goes on to."""
    words = []
    for i, beta in enumerate(ds["beta"].values):
        member = Member(beta=i, scale=scale)
        count, later = (int(pick(ds, name, member)) for name in ("clusters", "own_end_clusters"))
        change = "" if count == later else f", {count} -> {later}"
        words.append(f"beta {beta:g} {own_kind(ds, member)}{change}")
    return "; ".join(words)


def _found_ascent(data: Data) -> list[Finding]:
    ds = data["run"]
    several = [i for i in range(ds.sizes["beta"]) if int(pick(ds, "clusters", Member(beta=i))) > 1]
    left = [i for i in several if own_kind(ds, Member(beta=i)) == "metastable"]
    return [
        *count_finding(ds, "s1_asc_relu", "ascent, ReLU"),
        Finding(
            "states with several clusters that the flow leaves (continued to speed 1e-8)",
            "some: v has one local maximum, the maximiser is a Dirac; several atoms are likely metastable (the text)",
            f"{len(left)} of {len(several)}: {went_on(ds)} (distant atoms attract by e^-beta)",
            "agrees" if left else "differs",
        ),
    ]


def _dead(ds: xr.Dataset, name: str, i: int) -> float:
    """The mass where no neuron is active."""
    scene = landscape(ds, Member(beta=i))
    assert scene is not None
    return float(np.mean(scene.active(on_circle(pick(ds, name, Member(beta=i)))) == 0))


def _found_descent(data: Data) -> list[Finding]:
    ds = data["run"]
    betas = range(ds.sizes["beta"])
    before, after = ([_dead(ds, name, i) for i in betas] for name in ("final_angle", "own_end_final_angle"))
    resting = [float(pick(ds, "own_end_residual", Member(beta=i))) for i in betas]
    shown = "; ".join(
        f"beta {beta:g}: {b:.3f}, later {a:.3f} (speed {r:.0e})"
        for beta, b, a, r in zip(ds["beta"].values, before, after, resting, strict=True)
    )
    return [
        *count_finding(ds, "s1_desc_relu", "descent, ReLU"),
        Finding(
            "mass in the dead zone, where the ReLUs vanish, at the stop and at the flow's own end",
            "positive: clusters in active regions beside frozen mass in dead zones (the text)",
            shown,
            "agrees" if min(before) > 0 else "differs",
        ),
        Finding(
            "end states at the published stop",
            "stationary (the text: the simulation stops at speed 1e-4)",
            went_on(ds),
            _all_stationary([own_kind(ds, Member(beta=i)) for i in betas]),
        ),
    ]


def _all_stationary(kinds: list[str]) -> Verdict:
    if "unfinished" in kinds or "undecided" in kinds:
        return "not comparable"
    return "agrees" if set(kinds) == {"at rest"} else "differs"


def _found_softmax(data: Data) -> list[Finding]:
    found = []
    for name, ds in data.items():
        ended = converged(ds)[:, 0, 0, 0]
        counts, times, residuals = (ds[v].values[:, 0, 0, 0] for v in ("clusters", "final_time", "residual"))
        rows = zip(ds["beta"].values, counts, times, residuals, ended, strict=True)
        said = "; ".join(
            f"beta {b:g}: {c} at t = {t:.0f}, speed {r:.0e}{'' if e else ' (not converged)'}" for b, c, t, r, e in rows
        )
        expected = "clusters form as without normalisation (the text; the published numbers are not at hand)"
        found.append(Finding(f"softmax attention, {name}: clusters and stop time", expected, said, "not comparable"))
    return [*found, _faster(data["ascent"])]


def _faster(ds: xr.Dataset) -> Finding:
    """Stop times of softmax attention beside those of the published code without it."""
    times, plain = ds["final_time"].values[:, 0, 0, 0], [0.1 * row_of("s1_asc_relu", b)[1] for b in ds["beta"].values]
    return Finding(
        "softmax attention, ascent: stop times at beta = 1, 5, 25",
        f"shorter, velocities being divided by Z < 1: {' '.join(f'{t:.0f}' for t in plain)} without (published code)",
        " ".join(f"{t:.0f}" for t in times),
        "agrees" if all(t < p for t, p in zip(times, plain, strict=True)) else "differs",
    )


def _one(name: str, quick: bool) -> dict[str, Any]:
    return {
        "run": sized(name, quick, mlp_scale=_SCALES).to_dict(),
        "shown": list(THREE_BETAS),
        "own_steps": OWN_STEPS[quick],
    }


def _two(quick: bool) -> dict[str, Any]:
    names = {"ascent": "paper-s1-softmax", "descent": "paper-s1-softmax-descent"}
    return {key: sized(name, quick, beta=THREE_BETAS).to_dict() for key, name in names.items()}


FIGURES = (
    PaperFigure("A3", "circle, ascent with ReLU: trajectories at three beta, and whether their ends are metastable",
                lambda quick: _one("paper-s1-ascent", quick), _compute, _draw, _found_ascent),
    PaperFigure("A5", "circle, descent with ReLU: trajectories at three beta, mass frozen in dead zones",
                lambda quick: _one("paper-s1", quick), _compute, _draw, _found_descent),
    PaperFigure("A8", "circle, softmax attention: trajectories at three beta, ascent and descent",
                _two, _compute_softmax, _draw_softmax, _found_softmax),
)  # fmt: skip
