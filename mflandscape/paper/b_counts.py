"""Paper B's cluster counts: `k_max` of them from prepared starts, their distribution from random ones (B8), and starts
that are not uniform (B6).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from xarray import Dataset

from ..meanfield import cosine_density, prepared_density
from ..plotting.circle import angle_axis
from ..plotting.style import BLUE, INK, ORANGE, PAGE, key_below, new_figure, styled, tidy
from ..theory import k_max
from .clouds import (
    clouds,
    clusters,
    compared,
    lattice_angles,
    mean_and_error,
    random_angles,
)
from .registry import Finding, PaperFigure

PLATEAU = 8  # clusters of random starts are counted at 8/gamma after the predicted exit, gamma t = log(N)/2
CELLS = 180  # of the histograms
SMALL = 0.5  # largest tilt that is still called a perturbation of the uniform start


def _plateau(n: int) -> int:
    return round(np.log(n) / 2) + PLATEAU


def _counted(angles: np.ndarray, betas: list[float]) -> np.ndarray:
    """Clusters of each cloud `(B, S, N)`."""
    found = [[clusters(a, b).count for a in cloud] for cloud, b in zip(angles, betas, strict=True)]
    return np.array(found, float)


def _gap(angles: np.ndarray, beta: float) -> float:
    """Median distance between neighbouring clusters over `2 pi / k_max`."""
    centres = np.asarray(clusters(angles, beta).centres)
    at = np.sort(np.arctan2(centres[:, 1], centres[:, 0]))
    return float(np.median(np.diff(np.append(at, at[0] + 2 * np.pi)))) * k_max(beta) / (2 * np.pi)


def _histogram(angles: np.ndarray) -> np.ndarray:
    """Density times `2 pi` of a cloud in equal cells of the circle."""
    cell = (np.mod(angles, 2 * np.pi) / (2 * np.pi) * CELLS).astype(int) % CELLS
    return np.bincount(cell, minlength=CELLS) * CELLS / angles.size


def _commonest(counts: np.ndarray) -> int:
    """The mode of the counts; of two equally common the larger."""
    values, times = np.unique(counts.astype(int), return_counts=True)
    return int(values[np.flatnonzero(times == times.max())[-1]])


def _spread(counts: np.ndarray) -> str:
    """Distribution in words: "6: 50, 7: 14"."""
    values, times = np.unique(counts.astype(int), return_counts=True)
    return ", ".join(f"{value}: {n}" for value, n in zip(values, times, strict=True))


def _count_settings(quick: bool) -> dict[str, Any]:
    return {
        "betas": [1.0, 5.0, 25.0] if quick else [1.0, 5.0, 25.0, 50.0, 100.0],
        "shown": 25.0,
        "prepared": {
            "n": 1000 if quick else 100_000,
            "seeds": 2 if quick else 3,
            "amplitude": 0.01,
            "noise": 1e-3,
            "gamma_t": [20.0, 16.0, 16.0] if quick else [20.0, 16.0, 16.0, 16.0, 16.0],
        },
        "random": {"n": 1000 if quick else 10_000, "seeds": 12 if quick else 64},
    }


def _count_data(settings: dict[str, Any], folder: Path) -> dict[str, Dataset]:
    betas, prepared, random = settings["betas"], settings["prepared"], settings["random"]
    n, until = prepared["n"], np.array(prepared["gamma_t"])

    def start(beta: float, seed: int) -> np.ndarray:
        return lattice_angles(prepared_density(k_max(beta), prepared["amplitude"], prepared["noise"], seed), n)

    starts = np.array([[start(beta, seed) for seed in range(prepared["seeds"])] for beta in betas])
    regular, _ = clouds(betas, starts, until.min(), stretch=until / until.min())
    n, seeds = random["n"], random["seeds"]
    starts = np.array([[random_angles(seed + i * seeds, n) for seed in range(seeds)] for i in range(len(betas))])
    irregular, _ = clouds(betas, starts, _plateau(n), stretch=until / until.min())
    shown = betas.index(settings["shown"])
    examples = np.stack([_histogram(regular[shown, 0]), _histogram(irregular[shown, 0])])
    data = Dataset(
        {
            "prepared": (("beta", "prepared_seed"), _counted(regular, betas)),
            "random": (("beta", "seed"), _counted(irregular, betas)),
            "predicted": (("beta",), np.array([float(k_max(beta)) for beta in betas])),
            "density": (("start", "cell"), examples),
        },
        coords={"beta": betas, "start": ["prepared", "random"]},
        attrs={"shown_beta": settings["shown"], "n_prepared": prepared["n"], "n_random": n, "gamma_t": _plateau(n)},
    )
    return {"counts": data}


def _bubbles(axes: Axes, at: np.ndarray, counts: np.ndarray, color: str = BLUE) -> None:
    """Discs whose area is the share of the seeds with this count, one column a row of `counts`."""
    for x, row in zip(at, counts, strict=True):
        values, times = np.unique(row, return_counts=True)
        axes.scatter(np.full(len(values), x), values, s=160 * times / len(row), color=color, linewidths=0, zorder=2)


@styled
def _count_drawing(data: Mapping[str, Dataset]) -> Figure:
    ds = data["counts"]
    figure = new_figure(PAGE, 3.0)
    left, right = figure.subplots(1, 2, width_ratios=[1.1, 1.0])
    theta = (np.arange(ds.sizes["cell"]) + 0.5) * 2 * np.pi / ds.sizes["cell"]
    for name, color, height in (("prepared", ORANGE, 1.0), ("random", BLUE, -1.0)):
        values = ds["density"].sel(start=name).values
        left.bar(theta, height * values / values.max(), width=theta[1] - theta[0], color=color, linewidth=0)
        left.text(0.02, 0.97 if height > 0 else 0.03, f"{name} start", transform=left.transAxes, color=color,
                  va="top" if height > 0 else "bottom")  # fmt: skip
    left.axhline(0, color=INK, linewidth=0.6)
    left.set(ylim=(-1.25, 1.25), yticks=[], ylabel="Density (each to its own height)")
    angle_axis(left, "x")
    left.set_title(rf"One cloud each at the plateau, $\beta$ = {ds.attrs['shown_beta']:g}")
    columns = np.arange(ds.sizes["beta"])
    expected = ds["predicted"].values
    right.hlines(expected, columns - 0.35, columns + 0.35, color=INK, linewidth=1.2, zorder=3)
    _bubbles(right, columns + 0.12, ds["random"].values)
    prepared = ds["prepared"].values
    right.scatter(np.repeat(columns - 0.2, prepared.shape[1]), prepared.ravel(), marker="D", s=18,
                  facecolors="white", edgecolors=ORANGE, linewidths=0.9, zorder=4)  # fmt: skip
    right.set_xticks(columns, [f"{beta:g}" for beta in ds["beta"].values])
    right.set(xlabel=r"Inverse temperature $\beta$", ylabel="Clusters", ylim=(0, 1.12 * expected.max() + 0.5))
    right.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    key_below(figure, [
        Line2D([], [], color=INK, linewidth=1.2, label=r"$k_{\max}$"),
        Line2D([], [], color=ORANGE, marker="D", markerfacecolor="white", linestyle="none",
               label=f"prepared, N = {ds.attrs['n_prepared']}, {ds.sizes['prepared_seed']} seeds"),
        Line2D([], [], color=BLUE, marker="o", linestyle="none",
               label=f"random, N = {ds.attrs['n_random']}: area = share of {ds.sizes['seed']} seeds"),
    ], columns=3)  # fmt: skip
    for axes in (left, right):
        tidy(axes, bare=True)
    return figure


def _count_findings(data: Mapping[str, Dataset]) -> list[Finding]:
    ds, found = data["counts"], []
    for beta in ds["beta"].values:
        row = ds.sel(beta=beta)
        k, prepared, random = int(row["predicted"]), row["prepared"].values, row["random"].values
        mean, error = mean_and_error(random)
        found += [
            compared(
                f"clusters at beta = {beta:g}, prepared start, N = {ds.attrs['n_prepared']}",
                f"{k} (k_max, paper B)",
                f"{_spread(prepared)} of {prepared.size} seeds",
                bool((prepared == k).all()),
            ),
            compared(
                f"commonest count at beta = {beta:g}, random starts, N = {ds.attrs['n_random']}",
                f"{k} +- 1 (k_max, paper B)",
                f"{_commonest(random)}; mean {mean:.2f} +- {error:.2f}; {_spread(random)} of {random.size} seeds",
                abs(_commonest(random) - k) <= 1,
            ),
        ]
    return found


def _tilt_settings(quick: bool) -> dict[str, Any]:
    return {
        "betas": [25.0] if quick else [25.0, 50.0],
        "tilts": [0.0, 0.5, 0.95] if quick else [0.0, 0.2, 0.4, 0.6, 0.8, 0.95],
        "n": 1000 if quick else 5_000,
        "seeds": 6 if quick else 16,
    }


def _tilt_data(settings: dict[str, Any], folder: Path) -> dict[str, Dataset]:
    betas, tilts, n, seeds = settings["betas"], settings["tilts"], settings["n"], settings["seeds"]
    laws = [cosine_density(1, {1: (tilt, 0.0)}) for tilt in tilts]
    starts = np.array([random_angles(i * seeds + s, n, law) for i, law in enumerate(laws) for s in range(seeds)])
    ends, _ = clouds(betas, np.stack([starts] * len(betas)), _plateau(n))
    shape = (len(betas), len(tilts), seeds)
    gaps = np.array([[_gap(end, beta) for end in row] for row, beta in zip(ends, betas, strict=True)])
    data = Dataset(
        {
            "clusters": (("beta", "tilt", "seed"), _counted(ends, betas).reshape(shape)),
            "gap": (("beta", "tilt", "seed"), gaps.reshape(shape), {"unit": "2 pi / k_max"}),
            "predicted": (("beta",), np.array([float(k_max(beta)) for beta in betas])),
            "density": (("tilt", "cell"), np.array([_histogram(end) for end in ends[0, ::seeds]])),
        },
        coords={"beta": betas, "tilt": tilts},
        attrs={"n": n, "gamma_t": _plateau(n)},
    )
    return {"tilts": data}


@styled
def _tilt_drawing(data: Mapping[str, Dataset]) -> Figure:
    ds = data["tilts"]
    betas, tilts = ds["beta"].values, ds["tilt"].values
    figure = new_figure(PAGE, 2.9)
    left, *others = figure.subplots(1, 1 + len(betas), width_ratios=[1.5] + [1.0] * len(betas))
    rows = np.arange(len(tilts))
    theta = (np.arange(ds.sizes["cell"]) + 0.5) * 2 * np.pi / ds.sizes["cell"]
    for row, density, tilt in zip(rows, ds["density"].values, tilts, strict=True):
        left.bar(theta, 0.62 * density / density.max(), theta[1] - theta[0], row, color=BLUE, linewidth=0)
        start = 1 + tilt * np.cos(theta)
        left.plot(theta, row + 0.8 * start / 2, color=ORANGE, linewidth=0.8)
    left.set_yticks(rows, [f"{tilt:g}" for tilt in tilts])
    left.set(ylabel="Tilt $a$ of the start", ylim=(-0.1, len(tilts)))
    angle_axis(left, "x")
    left.set_title(rf"Start $1 + a \cos\theta$, and plateau, $\beta$ = {betas[0]:g}")
    for axes, beta in zip(others, betas, strict=True):
        k = float(ds["predicted"].sel(beta=beta))
        axes.axhline(k, color=INK, linewidth=1.0)
        axes.text(0.98, k + 0.15, r"$k_{\max}$", transform=axes.get_yaxis_transform(), va="bottom", ha="right")
        _bubbles(axes, rows, ds["clusters"].sel(beta=beta).values)
        axes.set_xticks(rows, [f"{tilt:g}" for tilt in tilts])
        axes.set(xlabel="Tilt $a$", ylabel="Clusters", ylim=(0, 1.2 * k + 1), xlim=(-0.6, len(tilts) - 0.4))
        axes.set_title(rf"$\beta$ = {beta:g}")
        axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    key_below(figure, [
        Line2D([], [], color=ORANGE, label="density of the start"),
        Line2D([], [], color=BLUE, linewidth=3, label="a cloud at the plateau (each to its own height)"),
        Line2D([], [], color=BLUE, marker="o", linestyle="none",
               label=f"counts: area = share of {ds.sizes['seed']} seeds, N = {ds.attrs['n']}"),
    ], columns=3)  # fmt: skip
    for axes in (left, *others):
        tidy(axes, bare=True)
    return figure


def _tilt_findings(data: Mapping[str, Dataset]) -> list[Finding]:
    ds, found = data["tilts"], []
    for beta in ds["beta"].values:
        k = int(ds["predicted"].sel(beta=beta))
        for tilt in ds["tilt"].values:
            row = ds.sel(beta=beta, tilt=tilt)
            counts, (gap, error) = row["clusters"].values, mean_and_error(row["gap"].values)
            (mean, spread), common = mean_and_error(counts), _commonest(counts)
            what = f"commonest count at beta = {beta:g} from the density 1 + {tilt:g} cos(theta)"
            measured = f"{common}; mean {mean:.2f} +- {spread:.2f}; median gap {gap:.2f} +- {error:.2f} of 2 pi/k_max"
            if tilt <= SMALL:
                found.append(compared(what, f"{k} +- 1 (k_max, paper B)", measured, abs(common - k) <= 1))
            else:
                words = f"{k} for small perturbations (k_max, paper B); this one is not small"
                found.append(Finding(what, words, measured, "not comparable"))
    return found


FIGURES = (
    PaperFigure(
        "B6", "Robustness: cluster counts from starts that are not uniform", _tilt_settings, _tilt_data,
        _tilt_drawing, _tilt_findings,
    ),
    PaperFigure(
        "B8", "Cluster counts at the plateau against beta: prepared and random starts", _count_settings, _count_data,
        _count_drawing, _count_findings,
    ),
)  # fmt: skip
