"""Figures 9 and 11 of paper A: the number of clusters against sqrt(beta), on the circle, on S^2 and above."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ..plotting.members import Member, converged, pick
from ..plotting.statistics import SERIES, by_seeds, root_beta, seeds_key, series_of_seeds
from ..plotting.style import BLUE, GREEN, GREY, ORANGE, PAGE, key_below, new_figure, styled, tidy
from ..presets import THREE_BETAS
from ..spec import Spec
from ..theory import k_max
from .a_trajectories import went_on
from .published_runs import FALSE_CONVERGENCES, against_published
from .registry import Finding, PaperFigure
from .runs import OWN_STEPS, minimisers, own_kind, sized, stored_run, with_own_end

Data = Mapping[str, xr.Dataset]
KEPT = ("clusters", "heaviest_mass", "cluster_mass", "stop_reason", "residual", "final_time", "steps")
# key of the panel: preset, scale's index, title, the published code's setup
_SETUPS = {
    "attention": ("paper-s1-ascent", 1, "Circle, ascent, attention alone", "s1_asc_nomlp"),
    "ascent": ("paper-s1-ascent", 0, "Circle, ascent, ReLU", "s1_asc_relu"),
    "descent": ("paper-s1", 0, "Circle, descent, ReLU", "s1_desc_relu"),
    "gelu": ("paper-s1-gelu", 0, "Circle, descent, GeLU", "s1_desc_gelu"),
    "sphere-ascent": ("paper-s2-ascent", 0, "$S^2$, ascent, ReLU", "s2_asc_relu"),
    "sphere-descent": ("paper-s2", 0, "$S^2$, descent, ReLU", "s2_desc_relu"),
}
_QUICK = ("attention", "ascent", "descent")
_SEEDS = {True: {"weight_seed": (1,), "start_seed": (1,)}, False: {"weight_seed": (1, 2, 3), "start_seed": (1, 2, 3)}}


def _spec(key: str, quick: bool, **changes: Any) -> Spec:
    name = _SETUPS[key][0]
    both = {"mlp_scale": (1.0, 0.0)} if name in ("paper-s1", "paper-s1-ascent") else {}
    return sized(name, quick, **(both | changes))


def _scale(key: str) -> dict[str, Any]:
    """The descent's other scale is for figure 1 only."""
    return {"mlp_scale": 1.0} if key == "descent" else {}


def _settings(quick: bool) -> dict[str, Any]:
    keys = _QUICK if quick else tuple(_SETUPS)
    runs = {key: _spec(key, quick).to_dict() for key in keys}
    few = {} if quick else {"n_particles": 500}
    return {
        "runs": runs,
        "published": {key: _spec(key, quick, **few).to_dict() for key in keys},
        "seeds": {key: _spec(key, quick, **_SEEDS[quick] | _scale(key)).to_dict() for key in keys},
        "own_steps": OWN_STEPS[quick],
    }


def _compute(settings: dict[str, Any], folder: Path) -> dict[str, xr.Dataset]:
    found = {}
    for key, values in settings["runs"].items():
        spec, scale = Spec.from_dict(values), _SETUPS[key][1]
        ds = stored_run(spec, folder).isel(scale=[scale])
        if spec.dim == 2:
            ds = with_own_end(spec, ds.load(), settings["own_steps"])
        own = [str(name) for name in ds if str(name).startswith("own_end_") and "final" not in str(name)]
        found[key] = ds[[*KEPT, "final_angle" if spec.dim == 2 else "final_position", *own]].load()
        for more in ("published", "seeds"):
            other = stored_run(Spec.from_dict(settings[more][key]), folder)
            found[f"{key}-{more}"] = other[[*KEPT, "start"]].isel(scale=[scale]).load()
    if "gelu" in settings["runs"]:  # at full size
        found["minimiser"] = minimisers(Spec.from_dict(settings["runs"]["descent"]))
        found["minimiser-gelu"] = minimisers(Spec.from_dict(settings["runs"]["gelu"]))
    return found


def _band(axes: Axes, x: np.ndarray, main: xr.Dataset, seeds: xr.Dataset) -> None:
    """From the least to the largest count over all seeds of weights and starts, and their mean."""
    values = np.concatenate([by_seeds(main, "clusters")[0][:, 0], by_seeds(seeds, "clusters")[0][:, 0]], axis=1)
    axes.fill_between(x, values.min(axis=1), values.max(axis=1), color=BLUE, alpha=0.15, linewidth=0.0, zorder=0.8)
    axes.plot(x, values.mean(axis=1), color=BLUE, linewidth=0.8, linestyle=":", zorder=0.9)


def _panel(axes: Axes, data: Data, key: str) -> None:
    ds = data[key]
    x = root_beta(axes, ds)
    values, settled = by_seeds(ds, "clusters")
    _band(axes, x, ds, data[f"{key}-seeds"])
    series_of_seeds(axes, x, values[:, 0], settled[:, 0], BLUE)
    if "own_end_clusters" in ds:
        rests = ds["own_end_reason"].values[:, 0, 0, 0] == "stationary"
        own = np.where(rests, ds["own_end_clusters"].values[:, 0, 0, 0], np.nan)
        axes.plot(x, own, "x", color=ORANGE, markersize=5.0, zorder=2.5, gid="own-end")
    if key == "attention":
        axes.plot(
            x, [k_max(beta) for beta in ds["beta"].values], color=GREY, linewidth=0.9, linestyle="--", gid="k-max"
        )
    least = {"descent": "minimiser", "gelu": "minimiser-gelu"}.get(key, "")
    if least in data:
        look: dict[str, Any] = dict(color=GREEN, markerfacecolor="white", markersize=4.0, zorder=2.2)
        axes.plot(x, data[least]["atoms"].values, "D", gid="minimiser", **look)
    axes.set_title(_SETUPS[key][2], loc="left")
    axes.set_ylim(bottom=0.0)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    tidy(axes, bare=True)


@styled
def _draw(data: Data) -> Figure:
    keys = [key for key in _SETUPS if key in data]
    across = 3 if len(keys) > 4 or len(keys) == 3 else 2
    down = -(-len(keys) // across)
    figure = new_figure(PAGE, 0.6 + 2.2 * down)
    panels = figure.subplots(down, across, squeeze=False, sharex=True)
    for axes, key in zip(panels.flat, keys, strict=False):
        _panel(axes, data, key)
        axes.set_ylabel("Clusters" if axes in panels[:, 0] else "")
    mark: dict[str, Any] = dict(linestyle="none", markersize=4.0)
    entries = [
        *seeds_key(all_settled(data[key] for key in keys)),
        Line2D([], [], color=BLUE, linewidth=6.0, alpha=0.25, label="range over seeds of weights and starts"),
        Line2D([], [], color=ORANGE, marker="x", label="the flow's own end (speed 1e-8)", **mark),
        Line2D([], [], color=GREY, linestyle="--", label=r"$k_{\max}$ (paper B)"),
    ]
    if "minimiser" in data:
        entries.append(
            Line2D([], [], color=GREEN, marker="D", markerfacecolor="white", label="atoms of the minimiser", **mark)
        )
    key_below(figure, entries, columns=3)
    return figure


def all_settled(datasets: Iterable[xr.Dataset]) -> np.ndarray:
    """Which members converged, of several datasets, as `seeds_key` takes it."""
    return np.concatenate([converged(ds).ravel() for ds in datasets])[:, None, None]


def _found(data: Data) -> list[Finding]:
    keys = [key for key in _SETUPS if key in data]
    found = []
    for key in keys:
        title, setup = _SETUPS[key][2].replace("$", ""), _SETUPS[key][3]
        found += against_published(data[f"{key}-published"], setup, title)
    found += [_at_rest(data[key], key) for key in keys if "own_end_clusters" in data[key]]
    return [*found, *_metastable(data), *_slope(data)]


def _at_rest(ds: xr.Dataset, key: str) -> Finding:
    """Which end states the flow leaves."""
    kinds = [own_kind(ds, Member(beta=i)) for i in range(ds.sizes["beta"])]
    several = [kinds[i] for i in range(len(kinds)) if int(pick(ds, "clusters", Member(beta=i))) > 1]
    left = kinds.count("metastable")
    if key in ("attention", "ascent"):
        claim, good = "metastable where there are several clusters, mostly (the text)", "metastable" in several
    else:
        claim, good = "at rest (the text: atoms at convergence)", left == 0
    verdict = "not comparable" if "unfinished" in kinds else "agrees" if good else "differs"
    said = f"{left} of {len(kinds)} metastable: {went_on(ds)}"
    title = _SETUPS[key][2].replace("$", "")
    return Finding(f"{title}: end states at the published stop", claim, said, verdict)


def _metastable(data: Data) -> list[Finding]:
    """Attention alone beside k_max, and the published code's false convergences."""
    ds = data["attention"]
    counts = ds["clusters"].values[:, 0, 0, 0]
    known = [k_max(beta) for beta in ds["beta"].values]
    large = ds["beta"].values >= 25
    near = all(count <= k for count, k in zip(counts[large], np.array(known)[large], strict=True))
    found = [
        Finding(
            "attention alone, clusters at the published stop beside k_max",
            f"{' '.join(map(str, known))} = k_max while metastable (paper B), fewer as clusters merge",
            f"{' '.join(map(str, counts))} at beta = {' '.join(f'{b:g}' for b in ds['beta'].values)}",
            "agrees" if near else "differs",
        )
    ]
    for (setup, beta), later in FALSE_CONVERGENCES.items():
        if setup != "s1_asc_nomlp" or beta not in ds["beta"].values or ds.sizes["particle"] != 500:
            continue
        member = Member(beta=ds["beta"].values.tolist().index(beta))
        count, end = (int(pick(ds, name, member)) for name in ("clusters", "own_end_clusters"))
        found.append(
            Finding(
                f"attention alone, beta = {beta:g}: clusters after the published stop",
                f"{later} or fewer: the published code stops before stationarity and loses clusters when continued",
                f"{count} at the stop, {end} at the flow's own end",
                "agrees" if end <= later < count else "differs",
            )
        )
    return found


def _slope(data: Data) -> list[Finding]:
    """How the count grows with beta, where attention is alone."""
    ds = data["attention"]
    beta, counts = ds["beta"].values, ds["clusters"].values[:, 0, 0, 0]
    large = beta >= 5
    slope = float(np.polyfit(np.log(beta[large]), np.log(counts[large]), 1)[0])
    return [
        Finding(
            "attention alone: exponent of the count in beta, beta >= 5",
            "1/2: the number of clusters grows like sqrt(beta) (figure 9)",
            f"{slope:.2f} (least squares)",
            "agrees" if 0.3 <= slope <= 0.8 else "differs",
        )
    ]


DIMENSIONS = {"2": "paper-s1", "3": "paper-s2", "5": "paper-d5", "10": "paper-d10"}


def dimension_specs(quick: bool) -> dict[str, Any]:
    """Descent with ReLU for d = 2, 3, 5, 10, as JSON values: the runs of figures 11 and 12."""
    small = {"beta": THREE_BETAS, "max_steps": 2000}
    sizes = {
        "2": {"mlp_scale": (1.0, 0.0)},
        "3": small,
        "5": small | {"n_particles": 200},
        "10": small | {"n_particles": 200},
    }
    full: dict[str, Any] = {"2": {"mlp_scale": (1.0, 0.0)}}
    return {d: sized(n, quick, **(sizes if quick else full).get(d, {})).to_dict() for d, n in DIMENSIONS.items()}


def dimension_runs(specs: Mapping[str, Any], folder: Path) -> dict[str, xr.Dataset]:
    """Ends of the runs of `dimension_specs`, with the perceptron."""
    runs = {d: stored_run(Spec.from_dict(values), folder) for d, values in specs.items()}
    return {
        d: ds[[*KEPT, "largest_diameter", "observed_residual", "start"]].isel(scale=[0]).load()
        for d, ds in runs.items()
    }


@styled
def _draw_dimensions(data: Data) -> Figure:
    figure = new_figure(PAGE, 2.9)
    left, right = figure.subplots(1, 2)
    entries = []
    for (d, ds), color in zip(data.items(), SERIES, strict=False):
        x = root_beta(left, ds)
        for axes, name in ((left, "clusters"), (right, "residual")):
            values, settled = by_seeds(ds, name)
            series_of_seeds(axes, x, values[:, 0], settled[:, 0], color)
        entries.append(Line2D([], [], color=color, label=f"$d = {d}$, {ds.sizes['particle']} particles"))
    root_beta(right, next(iter(data.values())))
    right.axhline(1e-4, color=GREY, linewidth=0.8, linestyle=":")
    for axes, title in ((left, "Clusters at the end"), (right, "Largest speed at the end")):
        axes.set(yscale="log", title=title)
        axes.set_xlim(0.0, 1.04 * max(float(np.sqrt(ds["beta"].max())) for ds in data.values()))
        tidy(axes, bare=True)
    left.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    left.yaxis.set_minor_locator(NullLocator())
    key_below(figure, [*entries, *seeds_key(all_settled(data.values()))], 3)
    return figure


def _found_dimensions(data: Data) -> list[Finding]:
    found = []
    for d, ds in data.items():
        setup = {"2": "s1_desc_relu", "3": "s2_desc_relu"}.get(d)
        found += against_published(ds, setup, f"d = {d}, descent, ReLU") if setup else []
    for d, ds in data.items():
        ended, counts = converged(ds)[:, 0, 0, 0], ds["clusters"].values[:, 0, 0, 0]
        rows = zip(ds["beta"].values, counts, ended, strict=True)
        said = ", ".join(f"{beta:g}: {count}{'' if end else '*'}" for beta, count, end in rows)
        found.append(
            Finding(
                f"d = {d}: clusters at each beta (* at the step limit, still moving)",
                "counts at convergence (figure 11; for d > 3 the published code has no seed of the weights)",
                f"{said}; {int(ended.sum())} of {len(ended)} converged",
                "agrees" if ended.all() and d in "23" else "not comparable",
            )
        )
    return found


FIGURES = (
    PaperFigure("A9", "cluster counts against sqrt(beta), the flow's own end, seeds, k_max and the minimiser",
                _settings, _compute, _draw, _found),
    PaperFigure("A11", "cluster counts and last speeds against sqrt(beta) in dimensions 2, 3, 5, 10, descent with ReLU",
                dimension_specs, dimension_runs, _draw_dimensions, _found_dimensions),
)  # fmt: skip
