"""Figures 4 and 7 of paper A: the sphere S^2 by histograms of the spherical angles, ascent and descent."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from ..plotting.landscape import landscape
from ..plotting.members import Member, name_of, pick, state
from ..plotting.sphere import equal_area, mass_bar, mass_map, mass_range
from ..plotting.style import DENSITY, PAGE, new_figure, note_below, styled
from ..presets import THREE_BETAS
from ..spec import Spec
from .a_trajectories import went_on
from .published_runs import FALSE_CONVERGENCES, PARTICLES, against_published, count_finding
from .registry import Finding, PaperFigure
from .runs import own_ending, own_kind, sized, stored_run, with_own_end

Data = Mapping[str, xr.Dataset]
_NAMES = {"relu": "ReLU", "gelu": "GeLU"}
_QUICK = (1.0, 5.0, 25.0)
_OWN_STEPS = {True: {"ascent": 60, "descent": 60}, False: {"ascent": 1000, "descent": 1000}}


def _settings(quick: bool, **names: str) -> dict[str, Any]:
    size = {"beta": _QUICK, "max_steps": 2000} if quick else {}
    specs = {key: sized(name, quick, **size).to_dict() for key, name in names.items()}
    return {"runs": specs, "shown": list(THREE_BETAS), "own_steps": _OWN_STEPS[quick]}


def _compute(settings: dict[str, Any], folder: Path) -> dict[str, xr.Dataset]:
    found = {}
    for key, values in settings["runs"].items():
        spec = Spec.from_dict(values)
        ds = stored_run(spec, folder)
        names = ["clusters", "heaviest_mass", "stop_reason", "residual", "final_position"]
        found[f"{key}-all"] = ds[names].load()
        found[key] = with_own_end(spec, ds.sel(beta=settings["shown"]).load(), settings["own_steps"])
    return found


@styled
def _draw(data: Data) -> Figure:
    rows = {key: ds for key, ds in data.items() if not key.endswith("-all")}
    betas = next(iter(rows.values())).sizes["beta"]
    figure = new_figure(PAGE, 0.9 + 1.75 * len(rows))
    panels = figure.subplots(len(rows), betas, squeeze=False, sharex=True, sharey=True)
    members = [Member(beta=i) for i in range(betas)]
    clouds = {(key, m): state(ds, m)[1] for key, ds in rows.items() for m in members}
    particles = next(iter(rows.values())).sizes["particle"]
    bounds = mass_range(particles, [equal_area(x) for x in clouds.values()])
    norm = LogNorm(*bounds)
    for line, (key, ds) in zip(panels, rows.items(), strict=True):
        for axes, member in zip(line, members, strict=True):
            mass_map(axes, clouds[key, member], landscape(ds, member), norm)
            words = f"{_NAMES[key]}, {name_of(ds, member, members)}\n{own_ending(ds, member)}"
            axes.set_title(words, loc="left", fontsize=8.0)
        line[0].set_ylabel(r"$z$ (cosine of colatitude)")
    for axes in panels[-1]:
        axes.set_xlabel("Azimuth (rad)")
    mass_bar(figure, panels, ScalarMappable(norm, DENSITY), bounds, "Mass per cell")
    note_below(figure, [f"{particles} particles, 48 x 24 cells of equal area"])
    return figure


def _found_ascent(data: Data) -> list[Finding]:
    ds = data["relu"]
    counts = [int(pick(ds, "own_end_clusters", Member(beta=i))) for i in range(ds.sizes["beta"])]
    return [
        *against_published(data["relu-all"], "s2_asc_relu", "S^2, ascent, ReLU"),
        *count_finding(ds, "s2_asc_relu", "S^2, ascent, ReLU"),
        Finding(
            "clusters at the flow's own end",
            "few atoms at maxima of the landscape, as on the circle (the text)",
            f"{' '.join(map(str, counts))}: {went_on(ds)}",
            "agrees" if max(counts) <= 4 else "differs",
        ),
    ]


def _found_descent(data: Data) -> list[Finding]:
    ds, gelu = data["relu"], data["gelu"]
    found = [
        *against_published(data["relu-all"], "s2_desc_relu", "S^2, descent, ReLU"),
        *count_finding(ds, "s2_desc_relu", "S^2, descent, ReLU"),
        Finding(
            "descent, GeLU: clusters at every beta",
            "2 (published code, weights of seed 111; with those of its shipped file, seed 777: 2 to 5)",
            f"{' '.join(map(str, np.unique(data['gelu-all']['clusters'].values)))}: {went_on(gelu)}",
            "agrees" if (data["gelu-all"]["clusters"].values == 2).all() else "differs",
        ),
    ]
    at = ds["beta"].values.tolist().index(1.0)
    member, later = Member(beta=at), FALSE_CONVERGENCES["s2_desc_relu", 1.0]
    seen = int(pick(ds, "own_end_clusters", member))
    verdict = "agrees" if seen == later else "differs"
    words = f"{int(pick(ds, 'clusters', member))} at the stop ({own_kind(ds, member)}), {seen} at the flow's own end"
    found.append(
        Finding(
            "descent, ReLU, beta = 1: clusters after the published stop",
            f"4 at its stop at speed 9e-5, {later} after 400 more steps (published code, N = {PARTICLES})",
            words,
            verdict if ds.sizes["particle"] == PARTICLES else "not comparable",
        )
    )
    return found


FIGURES = (
    PaperFigure("A4", "sphere S^2, ascent with ReLU: mass over the spherical angles at three beta",
                lambda quick: _settings(quick, relu="paper-s2-ascent"), _compute, _draw, _found_ascent),
    PaperFigure("A7", "sphere S^2, descent with ReLU and GeLU: mass over the spherical angles at three beta",
                lambda quick: _settings(quick, relu="paper-s2", gelu="paper-s2-gelu"), _compute, _draw, _found_descent),
)  # fmt: skip
