"""Pictures of global minimisers: how many atoms they have, against beta."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .style import BLUE, FAINT, GREEN, GREY, ORANGE, PAGE, PURPLE, SKY, key_below, new_figure, styled, tidy

Row = Mapping[str, Any]
_TITLES = {"shifted": r"kernel $e^{\beta(x\cdot y - 1)}/\beta$", "exponential": r"kernel $e^{\beta x\cdot y}/\beta$"}
_NAMES = {"relu": "ReLU", "gelu": "GeLU"}
_COLORS = (BLUE, ORANGE, GREEN, PURPLE, SKY)


@styled
def atom_counts(rows: Sequence[Row]) -> Figure:
    """Number of atoms of the global minimiser against beta: a panel for each activation and kernel convention.

    Rows have `activation, kernel, weight_seed, beta, counts, resolved, intervals`. A full dot is a count that is the
    same at all gaps; a bar from the least to the largest count, with hollow ends, is one that is not resolved. The grey
    line is the number of intervals of length tau/2 that cover the circle, of order sqrt(beta) [paper A, corollary 3.6].
    """
    acts = list(dict.fromkeys(row["activation"] for row in rows))
    kernels = list(dict.fromkeys(row["kernel"] for row in rows))
    seeds = list(dict.fromkeys(row["weight_seed"] for row in rows))
    figure = new_figure(PAGE, 2.4 * len(acts))
    panels = figure.subplots(len(acts), len(kernels), squeeze=False, sharex="col")
    for i, act in enumerate(acts):
        for j, kernel in enumerate(kernels):
            axes = panels[i, j]
            inside = [row for row in rows if row["activation"] == act and row["kernel"] == kernel]
            for seed, color in zip(seeds, _COLORS, strict=False):
                _series(axes, [row for row in inside if row["weight_seed"] == seed], color)
            _bound(axes, inside)
            axes.set_title(f"{_NAMES.get(act, act)}, {_TITLES[kernel]}")
            axes.set(yscale="log", xscale="log")
            axes.set_xlabel(r"$\beta$" if i == len(acts) - 1 else "")
            axes.set_ylabel("Atoms" if j == 0 else "")
            _plain(axes)
            tidy(axes, bare=True)
    key_below(figure, _key(seeds), columns=3)
    return figure


def _series(axes: Axes, rows: Sequence[Row], color: str) -> None:
    """One set of weights: a line through resolved counts, bars where the gaps disagree or are not proved."""
    rows = sorted(rows, key=lambda row: row["beta"])
    known = [row for row in rows if row["resolved"]]
    axes.plot([r["beta"] for r in known], [r["counts"][-1] for r in known], "o-", color=color, gid="resolved")
    for row in rows:
        if not row["resolved"]:
            low, high = min(row["counts"]), max(row["counts"])
            style: dict[str, Any] = {"color": color, "markerfacecolor": "white", "linewidth": 0.9, "gid": "unresolved"}
            axes.plot([row["beta"]] * 2, [low, high], "o-", **style)


def _bound(axes: Axes, rows: Sequence[Row]) -> None:
    found = dict(sorted((row["beta"], row["intervals"]) for row in rows))
    axes.plot(list(found), list(found.values()), color=FAINT, linewidth=1.4, zorder=0.5, gid="bound")


def _plain(axes: Axes) -> None:
    """Ticks at plain numbers."""
    for axis, values in ((axes.xaxis, (0.5, 1, 2, 5, 10, 20, 50)), (axes.yaxis, (1, 2, 5, 10, 20, 50, 100))):
        low, high = sorted(axis.get_data_interval())
        shown = [value for value in values if low / 1.2 <= value <= high * 1.2]
        axis.set_ticks(shown, labels=[f"{value:g}" for value in shown])
        axis.set_ticks([], minor=True)
    low = np.min(axes.yaxis.get_data_interval())
    axes.set_ylim(bottom=0.8 * low)


def _key(seeds: Sequence[int]) -> list[Line2D]:
    entries = [
        Line2D([], [], color=color, marker="o", label=f"weights of seed {seed}")
        for seed, color in zip(seeds, _COLORS, strict=False)
    ]
    hollow = Line2D([], [], color=GREY, marker="o", markerfacecolor="white", label="not resolved in float64")
    return [
        *entries,
        hollow,
        Line2D([], [], color=FAINT, linewidth=1.4, label=r"intervals $\lceil 4\pi/\tau_\beta\rceil$"),
    ]
