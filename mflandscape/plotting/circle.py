"""Pictures of runs on the circle: trajectories over the landscape, and histograms at start, middle and end."""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator
from xarray import Dataset

from .landscape import TWO_PI, Landscape, landscape, on_circle
from .members import Member, Members, as_members, ending_of, name_of, path, shared_by, state
from .style import (
    ANGLE_NAMES,
    ANGLE_TICKS,
    ANGLES,
    BLUE,
    COLUMN,
    FAINT,
    GREY,
    INK,
    NEGATIVE,
    PAGE,
    POSITIVE,
    SIGNED,
    new_figure,
    note_below,
    region_shade,
    styled,
    tidy,
    time_axis,
)

BINS = 120
LINES = 2000  # at most so many particles are drawn as lines
# neighbours this close, together this heavy and this share of the mass around them, are drawn as an atom
ATOM_GAP, ATOM_MASS, ATOM_SHARE = TWO_PI / 20000.0, 0.02, 0.8


def histogram(
    angle: Float[np.ndarray, " N"], mass: Float[np.ndarray, " N"] | None = None
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " edges"]]:
    """Mass (of equal particles, if none is given) in equal bins of [0, 2 pi), and the bins' edges."""
    edges = np.linspace(0.0, TWO_PI, BINS + 1)
    place = np.minimum((angle % TWO_PI / TWO_PI * BINS).astype(int), BINS - 1)
    count = np.bincount(place, mass, minlength=BINS)
    return count / len(angle) if mass is None else count, edges


def atoms(angle: Float[np.ndarray, " N"]) -> list[tuple[float, float]]:
    """What looks like points at the picture's resolution: (angle, mass) of heavy runs of all but equal angles.

    A run counts if it is narrower than a bin and holds nearly all the mass within a bin's width of it. Cost O(N log N).
    """
    ordered = np.sort(angle % TWO_PI)
    cut = int(np.argmax(np.diff(np.append(ordered, ordered[0] + TWO_PI)))) + 1
    ordered = np.concatenate([ordered[cut:], ordered[:cut] + TWO_PI])
    width, total, found = TWO_PI / BINS, len(angle), []
    for run in np.split(ordered, np.flatnonzero(np.diff(ordered) > ATOM_GAP) + 1):
        around = np.searchsorted(ordered, run[-1] + width) - np.searchsorted(ordered, run[0] - width)
        if run[-1] - run[0] < width and len(run) >= max(3, ATOM_MASS * total, ATOM_SHARE * around):
            found.append((float(run.mean() % TWO_PI), len(run) / total))
    return sorted(found)


def angle_axis(axes: Axes, which: str) -> None:
    """Make the x or the y axis ("x", "y") that of an angle in [0, 2 pi]."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(ANGLE_TICKS))
    axis.set_major_formatter(FixedFormatter(ANGLE_NAMES))
    (axes.set_xlim if which == "x" else axes.set_ylim)(0.0, TWO_PI)
    (axes.set_xlabel if which == "x" else axes.set_ylabel)(r"Angle $\theta$ (rad)")


def background(axes: Axes, perceptron: Landscape | None, which: str) -> None:
    """Shade the regions (dead zone darkest), or where no zone is dead the sign of v, and draw the hyperplane angles."""
    if perceptron is None:
        return
    span = axes.axvspan if which == "x" else axes.axhspan
    if perceptron.activation.dead or perceptron.strength is None:
        for number, (low, high, active) in enumerate(perceptron.regions()):
            shade = region_shade(active, len(perceptron.a))
            span(low, high, facecolor=str(shade), edgecolor="none", zorder=0.0, gid=f"region-{number}-active-{active}")
    else:
        edges = np.linspace(0.0, TWO_PI, 361)
        value = perceptron.value(on_circle((edges[1:] + edges[:-1]) / 2.0))
        level = float(np.max(np.abs(value))) or 1.0
        strip = value[None, :] if which == "x" else value[:, None]
        across = np.array([0.0, 1.0])
        grid = (edges, across) if which == "x" else (across, edges)
        place = axes.get_xaxis_transform() if which == "x" else axes.get_yaxis_transform()
        shown: dict[str, Any] = dict(cmap=SIGNED, vmin=-level, vmax=level, zorder=0.0, rasterized=True, transform=place)
        axes.pcolormesh(*grid, strip, gid="sign-of-v", **shown)
    line = axes.axvline if which == "x" else axes.axhline
    for angle in perceptron.hyperplane_angles():
        line(angle, color=GREY, linewidth=0.5, linestyle=(0, (4, 2)), zorder=0.6, gid="hyperplane")


def _paths(axes: Axes, times: np.ndarray, angles: np.ndarray) -> None:
    """One thin line for each particle, carried over the cut at 2 pi without a line across the picture."""
    unwrapped = np.unwrap(angles, axis=0)
    low = np.floor(unwrapped.min(axis=0) / TWO_PI).astype(int)
    high = np.floor(unwrapped.max(axis=0) / TWO_PI).astype(int)
    look: dict[str, Any] = dict(
        cmap=ANGLES, linewidths=0.45, alpha=float(np.clip(150.0 / angles.shape[1], 0.25, 0.9)), zorder=1.0
    )
    for turn in range(int(low.min()), int(high.max()) + 1):
        here = (low <= turn) & (turn <= high)
        lines = np.stack(np.broadcast_arrays(times[:, None], unwrapped[:, here] - TWO_PI * turn), axis=-1)
        bundle = LineCollection(list(np.swapaxes(lines, 0, 1)), rasterized=True, gid=f"particles{turn:+d}", **look)
        bundle.set_array(angles[0, here])
        bundle.set_clim(0.0, TWO_PI)
        axes.add_collection(bundle, autolim=False)


def _side(axes: Axes, angle: np.ndarray, perceptron: Landscape | None) -> None:
    """The final histogram along the angle axis, with the landscape v/2 on the upper scale."""
    mass, edges = histogram(angle)
    axes.barh(edges[:-1], mass, height=np.diff(edges), align="edge", color=BLUE, zorder=1.0)
    axes.set_xlim(0.0, 1.08 * mass.max())
    axes.set_xlabel("Final mass")
    axes.xaxis.set_major_locator(MaxNLocator(2, prune=None))
    axes.tick_params(labelleft=False)
    tidy(axes)
    if perceptron is None or perceptron.strength is None:
        return
    top = axes.twiny()
    grid = np.linspace(0.0, TWO_PI, 361)
    top.plot(perceptron.value(on_circle(grid)) / 2.0, grid, color=INK, linewidth=0.9, gid="landscape")
    top.margins(x=0.12)
    top.xaxis.set_major_locator(MaxNLocator(2))
    top.set_xlabel(r"$v/2$ (line)", labelpad=3)
    tidy(top)


def trajectory_panel(
    axes: Axes, side: Axes, ds: Dataset, member: Member, every: int = 1, log_time: bool = False
) -> None:
    """One member: each `every`-th particle's angle against time over the landscape, and beside the final histogram."""
    perceptron = landscape(ds, member)
    times, angles = path(ds, member, every)
    background(axes, perceptron, "y")
    _paths(axes, times, angles)
    time_axis(axes, times, log_time)
    angle_axis(axes, "y")
    tidy(axes)
    _side(side, state(ds, member)[1], perceptron)


@styled
def trajectories(ds: Dataset, members: Members = None, log_time: bool = False) -> Figure:
    """Angles against time (linear or logarithmic) over the landscape, the final histogram beside: a panel a member.

    Lines are coloured by the initial angle; at most 2000 evenly chosen particles are drawn, the histogram counts all.
    Cost O(members * (N S)). Raises `ValueError` for a member outside the grid.
    """
    chosen = as_members(ds, members)
    across = {1: 1, 3: 3}.get(len(chosen), 2)
    down = -(-len(chosen) // across)
    figure = new_figure(COLUMN if across == 1 else PAGE, 2.45 * down)
    ratios = [2.6, 1.0] if across < 3 else [2.2, 1.0]
    panels = figure.subplots(down, 2 * across, squeeze=False, sharey=True, width_ratios=ratios * across)
    total = ds.sizes["particle"]
    every = -(-total // LINES)
    for place, member in enumerate(chosen):
        axes, side = panels[place // across, 2 * (place % across) : 2 * (place % across) + 2]
        trajectory_panel(axes, side, ds, member, every, log_time)
        axes.set_title(f"{name_of(ds, member, chosen)}: {ending_of(ds, member)}", loc="left")
        if place % across:
            axes.set_ylabel("")
    for axes in panels.flat[2 * len(chosen) :]:
        axes.set_visible(False)
    left_out = [f"{-(-total // every)} of {total} particles drawn"] if every > 1 else []
    note_below(figure, shared_by(ds, chosen) + left_out)
    return figure


def histogram_bars(axes: Axes, angle: np.ndarray, perceptron: Landscape | None) -> None:
    """A histogram with its atoms as stems that carry their masses."""
    background(axes, perceptron, "x")
    mass, edges = histogram(angle)
    axes.bar(edges[:-1], mass, width=np.diff(edges), align="edge", color=BLUE, zorder=1.0, gid="mass")
    points = atoms(angle)
    for place, weight in points:
        axes.plot([place, place], [0.0, weight], color=NEGATIVE, linewidth=0.9, zorder=1.2, gid="atom")
        axes.plot([place], [weight], "o", color=NEGATIVE, markersize=2.6, zorder=1.3)
    labelled: list[float] = []
    for place, weight in sorted(points, key=lambda point: -point[1]):
        clear = all(abs((place - other + np.pi) % TWO_PI - np.pi) > 0.6 for other in labelled)
        if clear and weight >= 0.04 and len(labelled) < 5:
            labelled.append(place)
            side = "left" if place < 0.25 else "right" if place > TWO_PI - 0.25 else "center"
            top = max(weight, float(mass[int(place / TWO_PI * BINS) % BINS]))
            text = axes.annotate(f"{weight:.2f}", (place, top), (0, 3), textcoords="offset points", ha=side, fontsize=7)
            text.set_path_effects([withStroke(linewidth=1.5, foreground="w", alpha=0.7)])
    axes.set_ylim(0.0, (1.22 if labelled else 1.12) * max([mass.max(), *(weight for _, weight in points)]))
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.set_xlim(0.0, TWO_PI)
    tidy(axes)


def _strip(axes: Axes, perceptron: Landscape) -> None:
    """The landscape v/2 against the angle, filled by its sign."""
    if perceptron.activation.dead:
        background(axes, perceptron, "x")
    grid = np.linspace(0.0, TWO_PI, 721)
    half = perceptron.value(on_circle(grid)) / 2.0
    axes.fill_between(grid, half, 0.0, where=half >= 0.0, color=POSITIVE, alpha=0.55, linewidth=0.0, zorder=0.8)
    axes.fill_between(grid, half, 0.0, where=half <= 0.0, color=NEGATIVE, alpha=0.55, linewidth=0.0, zorder=0.8)
    axes.axhline(0.0, color=FAINT, linewidth=0.5, zorder=0.7)
    axes.plot(grid, half, color=INK, linewidth=0.9, zorder=1.0, gid="landscape")
    axes.margins(y=0.12)
    axes.yaxis.set_major_locator(MaxNLocator(3))
    tidy(axes)


def three_times(times: np.ndarray) -> list[tuple[str, int]]:
    """Names and indices of the start, the middle snapshot and the end."""
    last = len(times) - 1
    names = [("Start", 0), ("Middle", last // 2), ("End", last)] if last > 1 else [("Start", 0), ("End", last)]
    return [(rf"{name}, $t = {times[i]:.4g}$", i) for name, i in names]


@styled
def histograms(ds: Dataset, members: Members = None) -> Figure:
    """Mass against angle at the start, the middle snapshot and the end, a row a member, with the landscape below.

    Bars sum to 1; what is a point at this resolution is drawn as a stem with its mass. Raises `ValueError` for a member
    outside the grid.
    """
    chosen = as_members(ds, members)
    scenes = [landscape(ds, member) for member in chosen]
    last_of = [i + 1 == len(chosen) or chosen[i][1::2] != chosen[i + 1][1::2] for i in range(len(chosen))]
    rows: list[tuple[int, bool]] = []  # member, whether the row is its landscape
    for i, scene in enumerate(scenes):
        rows.append((i, False))
        if last_of[i] and scene is not None and scene.strength is not None:
            rows.append((i, True))
    heights = [0.55 if strip else 1.0 for _, strip in rows]
    columns = max(min(3, len(path(ds, member)[0])) for member in chosen)
    figure = new_figure(PAGE, 0.6 + 1.25 * sum(heights))
    panels = figure.subplots(len(rows), columns, squeeze=False, sharex=True, height_ratios=heights)
    for row, (i, strip) in zip(panels, rows, strict=True):
        scene, (times, angles) = scenes[i], path(ds, chosen[i])
        shown = three_times(times)
        for axes, (label, when) in zip(row, shown, strict=False):
            if strip and scene is not None:
                _strip(axes, scene)
                continue
            histogram_bars(axes, angles[when], scene)
            axes.set_title(label, loc="right", fontsize=8)
        for axes in row[len(shown) :]:
            axes.set_visible(False)
        row[0].set_ylabel(r"$v/2$" if strip else "Mass per bin")
        if not strip:
            row[0].set_title(name_of(ds, chosen[i], chosen), loc="left")
    for axes in panels[-1]:
        angle_axis(axes, "x")
    note_below(figure, shared_by(ds, chosen))
    return figure
