"""Stop time against the perceptron's scale, descent with ReLU on the circle. [paper A, section 4, (iii)]"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from ..plotting.members import converged
from ..plotting.statistics import by_seeds, seeds_key, series_of_seeds
from ..plotting.style import BLUE, COLUMN, ORANGE, key_below, new_figure, styled, tidy
from ..spec import Spec
from .registry import Finding, PaperFigure
from .runs import OWN_STEPS, sized, stored_run, with_own_end

Data = Mapping[str, xr.Dataset]
_SEEDS = {True: (42, 1), False: (42, 1, 2, 3, 4)}


def _settings(quick: bool) -> dict[str, Any]:
    at: dict[str, Any] = {"n_particles": 200, "beta": 5.0, "max_steps": 20_000} if quick else {"beta": 5.0}
    spec = sized("paper-s1-scales", quick, start_seed=_SEEDS[quick], **at)
    return {"run": spec.to_dict(), "own_steps": OWN_STEPS[quick]}


def _compute(settings: dict[str, Any], folder: Path) -> dict[str, xr.Dataset]:
    spec = Spec.from_dict(settings["run"])
    names = ["final_angle", "clusters", "final_time", "stop_reason", "residual"]
    ds = with_own_end(spec, stored_run(spec, folder)[names].load(), settings["own_steps"])
    return {"run": ds.drop_vars(["final_angle", "own_end_final_angle"])}


@styled
def _draw(data: Data) -> Figure:
    ds = data["run"]
    figure = new_figure(COLUMN, 3.3)
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=[1.6, 1.0])
    scale = ds["scale"].values
    times, settled = by_seeds(ds, "final_time")
    series_of_seeds(axes, scale, times[0], settled[0], BLUE)
    for name, color in (("clusters", BLUE), ("own_end_clusters", ORANGE)):
        below.plot(scale, by_seeds(ds, name)[0][0].mean(axis=1), "o-", color=color, markersize=3.0)
    axes.set(xscale="log", yscale="log", ylabel="Stop time")
    below.set(ylabel="Clusters", xlabel="Perceptron scale")
    below.set_ylim(0.0, 1.12 * below.get_ylim()[1])
    below.set_xticks(scale, [f"{value:g}" for value in scale])
    below.xaxis.set_minor_locator(NullLocator())
    for each in (axes, below):
        tidy(each, bare=True)
    entries = [
        *seeds_key(settled),
        Line2D([], [], color=BLUE, marker="o", markersize=3.0, label="at the published stop"),
        Line2D([], [], color=ORANGE, marker="o", markersize=3.0, label="at the flow's own end"),
    ]
    key_below(figure, entries)
    return figure


def _found(data: Data) -> list[Finding]:
    ds = data["run"]
    times = by_seeds(ds, "final_time")[0][0].mean(axis=1)
    ended = converged(ds)[0, 0]
    rows = zip(ds["scale"].values, times, ended.all(axis=0), strict=True)
    said = ", ".join(f"{scale:g}: {time:.0f}{'' if end else '*'}" for scale, time, end in rows)
    small, large = float(times[:3].mean()), float(times[-3:].mean())
    return [
        Finding(
            "mean stop time at each scale (* not all converged), beta = 5",
            "convergence time depends on the scale (section 4, iii; no published numbers)",
            f"{said}; first three {small:.0f}, last three {large:.0f}",
            "not comparable",
        ),
        Finding(
            "stops at which every particle stays on the way to speed 1e-8",
            "all (the text: the run has converged)",
            f"{_stayed(ds)} of {int(ended.sum())} converged runs keep their count",
            "agrees" if _stayed(ds) == int(ended.sum()) else "differs",
        ),
    ]


def _stayed(ds: xr.Dataset) -> int:
    same = (ds["own_end_clusters"].values == ds["clusters"].values) & (ds["own_end_reason"].values == "stationary")
    return int(np.sum(same & converged(ds)))


FIGURES = (
    PaperFigure("Astop", "stop time and clusters against the perceptron's scale, circle, descent with ReLU, beta = 5",
                _settings, _compute, _draw, _found),
)  # fmt: skip
