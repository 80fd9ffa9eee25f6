"""Pictures of whole grids, for every d: energies, residuals, cluster counts and masses, stop times."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator
from xarray import Dataset

from ..theory import mass_bound_asymptotic
from .members import GRID, Member, Members, as_members, converged, option, pick
from .style import (
    BETAS,
    BLUE,
    COLUMN,
    FAINT,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PAGE,
    PURPLE,
    SKY,
    beta_bar,
    key_below,
    new_figure,
    sampled,
    styled,
    tidy,
    time_axis,
)

MASS_BOUND = mass_bound_asymptotic()  # 0.5742 [paper A, theorem 3.5]
RANKS = 5  # cluster masses drawn for each member
SERIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, INK)


def every_member(ds: Dataset) -> list[Member]:
    """All members of the grid, beta varying slowest."""
    return [Member(*at) for at in np.ndindex(*(ds.sizes[name] for name in GRID))]


def observed(ds: Dataset, member: Member, name: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
    """Times and values of one observed number (residual, energy, clusters) of a member, where both are finite."""
    times, values = (pick(ds, f"observed_{which}", member).astype(float) for which in ("time", name))
    known = np.isfinite(times) & np.isfinite(values)
    return times[known], values[known]


def _log_limits(axes: Axes, values: Sequence[float], which: str) -> None:
    """Logarithmic where the positive values span more than a decade, with room around them."""
    positive = [value for value in values if value > 0.0]
    if not positive or len(positive) < len(values) or max(positive) < 10.0 * min(positive):
        return
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")


@styled
def energy_and_residual(ds: Dataset, members: Members = None) -> Figure:
    """Energy change since the start, and residual (largest speed), against time: a line a member, coloured by beta.

    Energies of different beta differ by constants of size 1/beta, so their changes are drawn. Members without an energy
    (free perceptrons, softmax attention) show the residual only; the stop's tolerance is the dotted line.
    """
    chosen = every_member(ds) if members is None else as_members(ds, members)
    order = np.argsort(ds["beta"].values, kind="stable")
    rank = {int(index): i for i, index in enumerate(order)}
    colors = sampled(BETAS, len(order))
    valued = "observed_energy" in ds and bool(np.isfinite(ds["observed_energy"].values).any())
    figure = new_figure(PAGE if valued else COLUMN, 2.5)
    panels = figure.subplots(1, 2 if valued else 1, squeeze=False)[0]
    look: dict[str, Any] = dict(linewidth=1.0, alpha=float(np.clip(12.0 / len(chosen), 0.35, 1.0)))
    seen, least = [np.zeros(1)], np.inf
    for member in chosen:
        color = colors[rank[member.beta % len(order)]]
        times, residual = observed(ds, member, "residual")
        panels[-1].plot(times, residual, color=color, gid="residual", **look)
        seen.append(times)
        least = min(least, residual[residual > 0.0].min(initial=np.inf))
        if valued:
            times, energy = observed(ds, member, "energy")
            panels[0].plot(times, energy - energy[:1], color=color, gid="energy", **look)
    for axes in panels:
        time_axis(axes, np.concatenate(seen), log_time=True)
    panels[-1].set(yscale="log", ylabel="Residual (largest speed)")
    _tolerance(panels[-1], ds, least)
    if valued:
        panels[0].axhline(0.0, color=FAINT, linewidth=0.6, zorder=0.5)
        panels[0].set_ylabel(r"Energy change $E(t) - E(0)$")
    for axes in panels:
        tidy(axes, bare=True)
    if len(order) > 1:
        beta_bar(figure, ds["beta"].values[order].tolist(), list(panels))
    return figure


def _tolerance(axes: Axes, ds: Dataset, least: float) -> None:
    tolerance = option(ds, "drift_tol", None)
    if not isinstance(tolerance, float) or option(ds, "stop", "none") == "none" or tolerance < 0.02 * least:
        return
    axes.axhline(tolerance, color=GREY, linewidth=0.8, linestyle=":", zorder=0.5)
    place = axes.get_yaxis_transform()
    axes.text(0.02, tolerance, "tolerance", transform=place, va="bottom", fontsize=7.5, color=GREY)


def by_seeds(ds: Dataset, name: str) -> tuple[Float[np.ndarray, "B C R"], Bool[np.ndarray, "B C R"]]:
    """A variable with its seeds (weights and start together) on the last axis, and which of those members converged."""

    def arranged(values: np.ndarray) -> np.ndarray:
        return np.moveaxis(values, 3, 1).reshape(values.shape[0], values.shape[3], -1)

    return arranged(ds[name].transpose(*GRID).values.astype(float)), arranged(converged(ds))


def series_of_seeds(axes: Axes, x: np.ndarray, values: np.ndarray, settled: np.ndarray, color: Any) -> None:
    """Members as dots (hollow: not converged) and, for several seeds, their mean with a bar from least to largest."""
    order = np.argsort(x, kind="stable")
    x, values, settled = x[order], values[order], settled[order]
    seeds = values.shape[1]
    known = np.isfinite(values)
    mean = np.where(known, values, 0.0).sum(axis=1) / np.where(known.any(axis=1), known.sum(axis=1), np.nan)
    axes.plot(x, mean, color=color, linewidth=1.0, zorder=1.5, gid="mean")
    if seeds > 1:
        least = np.where(known, values, np.inf).min(axis=1)
        largest = np.where(known, values, -np.inf).max(axis=1)
        reach = np.where(np.isfinite(mean), [mean - least, largest - mean], 0.0)
        axes.errorbar(x, mean, yerr=reach, fmt="none", ecolor=color, elinewidth=0.9, capsize=2.0, zorder=1.6)
    wide, size = np.broadcast_to(x[:, None], values.shape), 11.0 if seeds > 1 else 18.0
    look: dict[str, Any] = dict(s=size, edgecolors=[color], linewidths=0.8, zorder=2.0, clip_on=False)
    axes.scatter(wide[settled], values[settled], facecolors=[color], gid="converged", **look)
    axes.scatter(wide[~settled], values[~settled], facecolors="white", gid="not-converged", **look)


def seeds_key(settled: np.ndarray) -> list[Line2D]:
    """Legend entries: what dots, hollow dots and bars mean."""
    dot: dict[str, Any] = dict(color=INK, linestyle="none", marker="o", markersize=3.6)
    entries = [Line2D([], [], label="converged", **dot)] if settled.any() else []
    if not settled.all():
        entries.append(Line2D([], [], label="not converged", markerfacecolor="white", **dot))
    seeds = settled.shape[-1]
    if seeds > 1:
        label = f"mean, range ({seeds} seeds)"
        entries.append(Line2D([], [], color=INK, marker="|", markersize=7.0, linewidth=1.0, label=label))
    return entries


def _scales(ds: Dataset) -> list[tuple[int, Any, Line2D]]:
    """Index, colour and legend entry of each scale."""
    named = ds["scale"].values
    picked = SERIES[: len(named)] if len(named) <= len(SERIES) else sampled(BETAS, len(named))
    return [(i, c, Line2D([], [], color=c, label=f"scale {named[i]:g}")) for i, c in enumerate(picked)]


def root_beta(axes: Axes, ds: Dataset) -> Float[np.ndarray, " B"]:
    """`sqrt(beta)` of the run, which becomes the x axis."""
    axes.set_xlabel(r"$\sqrt{\beta}$")
    root = np.sqrt(ds["beta"].values.astype(float))
    axes.set_xlim(0.0, 1.04 * max(root.max(), 1e-3))
    return root


@styled
def cluster_counts(ds: Dataset) -> Figure:
    """Cluster count at the end against sqrt(beta): every member, and mean, least and largest over the seeds.

    One series a scale; members that did not converge are hollow.
    """
    figure = new_figure(COLUMN, 2.7)
    axes = figure.subplots()
    values, settled = by_seeds(ds, "clusters")
    root, scales = root_beta(axes, ds), _scales(ds)
    for i, color, _ in scales:
        series_of_seeds(axes, root, values[:, i], settled[:, i], color)
    axes.set_ylabel("Clusters at the end")
    axes.set_ylim(0.0, 1.1 * float(np.max(values, initial=1.0, where=np.isfinite(values))))
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    tidy(axes, bare=True)
    key_below(figure, seeds_key(settled) + [entry for *_, entry in scales if len(scales) > 1])
    return figure


@styled
def cluster_masses(ds: Dataset) -> Figure:
    """Heaviest cluster mass against sqrt(beta), the next four ranks in grey, and for descent the bound 0.5742.

    The bound is that of theorem 3.5 (large beta, exponential kernel, clusters of at least two atoms), for comparison.
    """
    figure = new_figure(COLUMN, 2.7)
    axes = figure.subplots()
    values, settled = by_seeds(ds, "heaviest_mass")
    root, scales = root_beta(axes, ds), _scales(ds)
    ranked = ds["cluster_mass"].transpose("beta", ..., "cluster").values[..., 1:RANKS].reshape(len(root), -1)
    shown = np.broadcast_to(root[:, None], ranked.shape)
    grey: dict[str, Any] = dict(s=5.0, c=FAINT, linewidths=0.0, zorder=1.0, gid="next-ranks", clip_on=False)
    axes.scatter(shown[np.isfinite(ranked)], ranked[np.isfinite(ranked)], **grey)
    for i, color, _ in scales:
        series_of_seeds(axes, root, values[:, i], settled[:, i], color)
    dot: dict[str, Any] = dict(linestyle="none", marker="o", markersize=2.6)
    entries = [*seeds_key(settled), Line2D([], [], color=FAINT, label=f"ranks 2 to {RANKS}", **dot)]
    if option(ds, "direction", "descent") == "descent":
        line: dict[str, Any] = dict(color=ORANGE, linewidth=0.9, linestyle=(0, (5, 2)))
        axes.axhline(MASS_BOUND, zorder=0.8, gid="bound", **line)
        entries.append(Line2D([], [], label=f"bound {MASS_BOUND:.4f} (exp. kernel)", **line))
    axes.set_ylabel("Heaviest cluster mass")
    axes.set_ylim(0.0, 1.05)
    tidy(axes, bare=True)
    key_below(figure, entries + [entry for *_, entry in scales if len(scales) > 1])
    return figure


@styled
def stop_times(ds: Dataset) -> Figure:
    """Time at which the members stopped, against the perceptron's scale (a line a beta), or beta for a single scale."""
    by_scale = ds.sizes["scale"] > 1
    figure = new_figure(COLUMN, 2.7)
    axes = figure.subplots()
    values, settled = by_seeds(ds, "final_time")
    order = np.argsort(ds["beta"].values, kind="stable")
    x = ds["scale" if by_scale else "beta"].values.astype(float)
    if by_scale:
        for color, i in zip(sampled(BETAS, len(order)), order, strict=True):
            series_of_seeds(axes, x, values[i], settled[i], color)
    else:
        series_of_seeds(axes, x, values[:, 0], settled[:, 0], BLUE)
    axes.set_xlabel("Perceptron scale" if by_scale else r"Inverse temperature $\beta$")
    axes.set_ylabel("Stop time")
    _log_limits(axes, list(x), "x")
    _log_limits(axes, list(values[np.isfinite(values)]), "y")
    if by_scale and len(x) <= 6:
        axes.set_xticks(x, [f"{value:g}" for value in x])
        axes.xaxis.set_minor_locator(NullLocator())
    if axes.get_yscale() != "log":
        axes.set_ylim(0.0, 1.15 * float(np.max(values, initial=1e-3, where=np.isfinite(values))))
    tidy(axes, bare=True)
    key_below(figure, seeds_key(settled))
    if by_scale and len(order) > 1:
        beta_bar(figure, ds["beta"].values[order].tolist(), [axes])
    return figure
