"""Figure 10 of paper A: how much the end depends on the start, for many starts on the circle at one beta."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..plotting.circle import angle_axis, histogram
from ..plotting.members import converged
from ..plotting.style import BLUE, DENSITY, ORANGE, PAGE, key_below, new_figure, styled, tidy
from ..spec import Spec
from ..starts import expand_seeds
from .registry import Finding, PaperFigure
from .runs import OWN_STEPS, sized, stored_run, with_own_end

Data = Mapping[str, xr.Dataset]
_BETA = 5.0  # ours: the paper's own is not in its text
_STARTS = {True: 8, False: 50}
_TITLES = {"attention": "Attention alone, ascent", "ascent": "GeLU, ascent", "descent": "GeLU, descent"}


def _settings(quick: bool) -> dict[str, Any]:
    at: dict[str, Any] = {"beta": _BETA, "start_seed": expand_seeds(42, _STARTS[quick])}
    at |= {"n_particles": 200} if quick else {}
    ascent = sized("paper-s1-starts-ascent", quick, mlp_scale=(1.0, 0.0), **at)
    return {
        "ascent": ascent.to_dict(),
        "descent": sized("paper-s1-starts", quick, **at).to_dict(),
        "own_steps": OWN_STEPS[quick],
    }


def _compute(settings: dict[str, Any], folder: Path) -> dict[str, xr.Dataset]:
    found = {}
    for key, run, scale in (("attention", "ascent", 1), ("ascent", "ascent", 0), ("descent", "descent", 0)):
        spec = Spec.from_dict(settings[run])
        names = ["final_angle", "clusters", "heaviest_mass", "stop_reason", "residual"]
        ds = stored_run(spec, folder)[names].isel(scale=[scale]).load()
        found[key] = with_own_end(spec, ds, settings["own_steps"])
    return found


def _same_place(ds: xr.Dataset) -> float:
    """|mean over starts| of the means of `e^{i theta}` over |their mean size|: 1 if every start puts its mass alike."""
    centres = np.exp(1j * ds["own_end_final_angle"].values[0, 0, :, 0]).mean(axis=-1)
    return float(np.abs(centres.mean()) / np.abs(centres).mean())


@styled
def _draw(data: Data) -> Figure:
    figure = new_figure(PAGE, 4.4)
    panels = figure.subplots(2, 3, height_ratios=[1.5, 1.0])
    starts = data["ascent"].sizes["start_seed"]
    norm = LogNorm(1.0 / data["ascent"].sizes["particle"], 1.0)
    for (top, bottom), (key, ds) in zip(panels.T, data.items(), strict=True):
        rows = [histogram(angle) for angle in ds["final_angle"].values[0, 0, :, 0]]
        mass = np.stack([row for row, _ in rows])
        shades = top.pcolormesh(
            rows[0][1], np.arange(starts + 1), np.ma.masked_equal(mass, 0.0), cmap=DENSITY, norm=norm
        )
        angle_axis(top, "x")
        top.set_title(_TITLES[key], loc="left")
        tidy(top)
        counts = [ds[name].values.ravel() for name in ("clusters", "own_end_clusters")]
        values = np.arange(1, max(int(each.max()) for each in counts) + 1)
        for each, color, shift in zip(counts, (BLUE, ORANGE), (-0.2, 0.2), strict=True):
            share = [float((each == value).mean()) for value in values]
            label = "at the published stop" if shift < 0 else "at the flow's own end (speed 1e-8)"
            bottom.bar(values + shift, share, width=0.38, color=color, label=label)
        bottom.set_xlabel("Clusters")
        bottom.set_ylim(0.0, 1.05)
        bottom.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        tidy(bottom, bare=True)
    panels[0, 0].set_ylabel("Start (a row each)")
    panels[1, 0].set_ylabel("Share of the starts")
    bar = figure.colorbar(shades, ax=list(panels[0]), pad=0.02, aspect=18)
    bar.set_label("Mass per bin")
    tidy(bar.ax)
    key_below(figure, panels[1, 0].get_legend_handles_labels()[0])
    return figure


def _spread(values: np.ndarray) -> str:
    found, times = np.unique(values, return_counts=True)
    return ", ".join(f"{count} x {value}" for value, count in zip(found, times, strict=True))


def _found(data: Data) -> list[Finding]:
    found = []
    for key, ds in data.items():
        stop, own = ds["clusters"].values.ravel(), ds["own_end_clusters"].values.ravel()
        settled, resting = int(converged(ds).sum()), int((ds["own_end_reason"].values == "stationary").sum())
        said = f"{_spread(stop)} at the stop ({settled} of {stop.size} converged), {_spread(own)} at the flow's own end"
        claim = "counts vary little with the start (figure 10; no published numbers)"
        found.append(
            Finding(
                f"{_TITLES[key]}, beta = 5: starts x clusters", claim, f"{said} ({resting} at rest)", "not comparable"
            )
        )
    alike = {key: _same_place(ds) for key, ds in data.items()}
    what = "how alike starts place their mass in the end (1: all the same; 0: at random)"
    claim = "near 0 for attention alone (rotations are free), near 1 with a perceptron (maxima of v attract)"
    said = ", ".join(f"{key} {value:.2f}" for key, value in alike.items())
    holds = alike["attention"] < 0.6 < min(alike["ascent"], alike["descent"])
    found.append(Finding(what, claim, said, "agrees" if holds else "differs"))
    return found


FIGURES = (
    PaperFigure("A10", "circle, many starts at beta = 5 with GeLU: attention alone, ascent, descent",
                _settings, _compute, _draw, _found),
)  # fmt: skip
