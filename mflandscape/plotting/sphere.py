"""Pictures of runs on S^2: particles on two shaded hemispheres, and the histogram of the spherical angles."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, NullLocator
from xarray import Dataset

from .landscape import TWO_PI, Landscape, landscape
from .members import Members, as_members, ending_of, name_of, shared_by, state
from .style import (
    ANGLE_NAMES,
    ANGLE_TICKS,
    COLUMN,
    DENSITY,
    GREY,
    INK,
    MASSES,
    NEGATIVE,
    PAGE,
    SIGNED,
    new_figure,
    note_below,
    region_shade,
    styled,
    tidy,
)

VIEW = (np.deg2rad(30.0), np.deg2rad(20.0))  # azimuth and elevation of the viewer
NEAR = 0.1  # radians: radius of the cap in which local mass is counted
POINTS = 5000  # at most so many particles are drawn as points
PIXELS = 320
AZIMUTHS, HEIGHTS = 48, 24  # cells of equal area in (azimuth, z)


def camera(view: tuple[float, float] = VIEW) -> Float[np.ndarray, "3 3"]:
    """Rows: the unit vectors to the right, upwards and towards a viewer at the given azimuth and elevation."""
    azimuth, elevation = view
    towards = np.array([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)])
    right = np.array([-np.sin(azimuth), np.cos(azimuth), 0.0])
    return np.stack([right, np.cross(towards, right), towards])


def local_mass(x: Float[np.ndarray, "N 3"], radius: float = NEAR) -> Float[np.ndarray, " N"]:
    """The fraction of points within a geodesic radius of each point. Cost O(N^2), memory O(N)."""
    least = np.cos(radius)
    blocks = np.array_split(x, max(1, len(x) // 512))
    return np.concatenate([np.sum(block @ x.T >= least, axis=1) for block in blocks]) / len(x)


def groups(
    x: Float[np.ndarray, "N 3"], near: Float[np.ndarray, " N"], radius: float = NEAR
) -> tuple[Int[np.ndarray, " G"], Float[np.ndarray, " G"]]:
    """Points with the most mass near them and that mass, taken greedily with their caps removed, heaviest first."""
    centres, masses, left = [], [], np.ones(len(x), dtype=bool)
    while left.any() and len(centres) < 64:
        centre = int(np.argmax(np.where(left, near, -1.0)))
        cap = left & (x @ x[centre] >= np.cos(2.0 * radius))
        centres.append(centre)
        masses.append(float(cap.mean()))
        left &= ~cap
    order = np.argsort(masses, kind="stable")[::-1]
    return np.array(centres, dtype=int)[order], np.array(masses)[order]


def disc(axes: Axes, perceptron: Landscape | None, frame: np.ndarray) -> None:
    """The hemisphere facing the viewer, shaded by its active regions (or the sign of v) and lightly as a ball."""
    line = (np.arange(PIXELS) + 0.5) / PIXELS * 2.0 - 1.0
    right, up = np.meshgrid(line, line)
    inside = right**2 + up**2 < 1.0
    depth = np.sqrt(np.where(inside, 1.0 - right**2 - up**2, 0.0))
    points = np.stack([right[inside], up[inside], depth[inside]], axis=1)
    color = np.ones((len(points), 3))
    if perceptron is not None:
        x, units = points @ frame, len(perceptron.a)
        if perceptron.activation.dead or perceptron.strength is None:
            shades = np.array([region_shade(count, units) for count in range(units + 1)])
            color *= shades[perceptron.active(x)][:, None]
        else:
            value = perceptron.value(x)
            color = SIGNED(0.5 + 0.5 * value / (np.max(np.abs(value)) or 1.0))[:, :3]
    light = np.array([-0.4, 0.55, 0.73])
    color = color * (0.84 + 0.16 * np.clip(points @ light, 0.0, 1.0))[:, None]
    image = np.zeros((PIXELS, PIXELS, 4))
    image[inside] = np.concatenate([color, np.ones((len(color), 1))], axis=1)
    axes.imshow(image, origin="lower", extent=(-1, 1, -1, 1), aspect="auto", zorder=0.0, gid="hemisphere")
    axes.add_patch(Circle((0.0, 0.0), 1.0, fill=False, edgecolor=INK, linewidth=0.7, zorder=3.0))
    axes.set(xlim=(-1.03, 1.03), ylim=(-1.2, 1.27), aspect="equal")  # room for the words above and below
    axes.set_axis_off()


def _curves(perceptron: Landscape | None) -> list[tuple[int, Float[np.ndarray, "K 3"]]]:
    curves = [(j, perceptron.hyperplane_curve(j)) for j in range(len(perceptron.a))] if perceptron is not None else []
    return [(j, curve) for j, curve in curves if curve is not None]


def hyperplanes(axes: Axes, perceptron: Landscape | None, frame: np.ndarray) -> None:
    """The circles `a_j . x + b_j = 0` on the visible hemisphere, with ticks on their active side."""
    for neuron, curve in _curves(perceptron):
        seen = curve @ frame.T
        shown = np.where(seen[:, 2:] >= -1e-3, seen[:, :2], np.nan)
        axes.plot(shown[:, 0], shown[:, 1], color=INK, linewidth=0.8, zorder=1.0, gid=f"hyperplane-{neuron}")
        foot = curve[::18]
        normal = np.cross(curve[1] - curve[0], curve[2] - curve[1])  # along a_j: curves turn about it
        tip = foot + 0.06 * normal / np.linalg.norm(normal)
        tip /= np.linalg.norm(tip, axis=1, keepdims=True)
        ticks = np.stack([foot @ frame.T, tip @ frame.T], axis=1)
        ticks = ticks[np.all(ticks[:, :, 2] >= 0.0, axis=1)][:, :, :2]
        axes.add_collection(LineCollection(list(ticks), colors=INK, linewidths=0.6, zorder=1.0), autolim=False)


def _points(axes: Axes, x: np.ndarray, near: np.ndarray, frame: np.ndarray, norm: LogNorm) -> None:
    """The particles of the visible hemisphere, heaviest on top, and the masses of clusters where these are few."""
    seen = x @ frame.T
    order = np.argsort(near, kind="stable")
    order = order[seen[order, 2] >= 0.0]
    size = 3.0 + 22.0 * near[order]
    spots = axes.scatter(seen[order, 0], seen[order, 1], s=size, c=near[order], cmap=MASSES, norm=norm, zorder=2.0)
    spots.set(linewidths=0.0, rasterized=True, gid="particles")
    centres, masses = groups(x, near)
    if len(centres) > 12 and masses[:8].sum() < 0.75:
        return
    for centre, mass in zip(centres[:8], masses[:8], strict=True):
        right, up, depth = seen[centre]
        if depth < 0.0 or mass < 0.03:
            continue
        offset = (-6.0 if right > 0.0 else 6.0, -6.0 if up > 0.0 else 6.0)  # towards the middle of the disc
        text = axes.annotate(f"{mass:.2f}", (right, up), offset, textcoords="offset points", fontsize=7.5, va="center")
        text.set(
            ha="right" if right > 0.0 else "left", zorder=4.0, path_effects=[withStroke(linewidth=2.0, foreground="w")]
        )


@styled
def particles(ds: Dataset, members: Members = None, when: int = -1, view: tuple[float, float] = VIEW) -> Figure:
    """Particles of S^2 on the hemisphere facing the viewer and, turned about the vertical, on the one behind.

    Circles are the neurons' hyperplanes, ticks point to the active side, grey levels count active neurons (dead zone
    darkest); the colour is the mass within 0.1 rad. At most 5000 evenly chosen particles are drawn.
    Cost O(members * 5000^2). Raises `ValueError` for a member or a snapshot that the run does not have.
    """
    chosen = as_members(ds, members)
    total = ds.sizes["particle"]
    every = -(-total // POINTS)
    clouds = [state(ds, member, when) for member in chosen]
    crowd = [(x[::every], local_mass(x[::every])) for _, x in clouds]
    across = 1 if len(chosen) in (1, 3) else 2
    down = -(-len(chosen) // across)
    figure = new_figure(COLUMN if across == 1 else PAGE, 2.05 * down + 0.5)
    panels = figure.subplots(down, 2 * across, squeeze=False)
    bounds = mass_range(len(crowd[0][0]), [near for _, near in crowd])
    norm = LogNorm(*bounds)
    front = camera(view)
    back = front * np.array([[-1.0], [1.0], [-1.0]])
    for place, member in enumerate(chosen):
        perceptron, (x, near) = landscape(ds, member), crowd[place]
        pair = panels[place // across, 2 * (place % across) : 2 * (place % across) + 2]
        for axes, frame, side in zip(pair, (front, back), ("front", "back"), strict=True):
            disc(axes, perceptron, frame)
            hyperplanes(axes, perceptron, frame)
            _points(axes, x, near, frame, norm)
            axes.text(0.0, -1.05, side, ha="center", va="top", fontsize=7.5, color=GREY)
        words = ending_of(ds, member) if when == -1 else rf"$t = {clouds[place][0]:.4g}$"
        pair[0].text(-1.0, 1.09, f"{name_of(ds, member, chosen)}: {words}", va="bottom")
    for axes in panels.flat[2 * len(chosen) :]:
        axes.set_visible(False)
    mass_bar(figure, panels, ScalarMappable(norm, MASSES), bounds, f"Mass within {NEAR:g} rad")
    left_out = [f"{-(-total // every)} of {total} particles drawn"] if every > 1 else []
    note_below(figure, shared_by(ds, chosen) + left_out)
    return figure


def mass_range(count: int, masses: Sequence[np.ndarray]) -> tuple[float, float]:
    """From one particle's mass (or a tenth of the largest) to the largest mass shown."""
    high = max(float(mass.max()) for mass in masses)
    return min(1.0 / count, high / 10.0), high


def mass_bar(
    figure: Figure, panels: np.ndarray, shades: ScalarMappable, bounds: tuple[float, float], label: str
) -> None:
    """A colour bar of mass below the panels, ticks at 1 and 3 times powers of ten within `bounds`."""
    low, high = bounds
    ticks = [t for e in range(-8, 1) for t in (10.0**e, 3.0 * 10.0**e) if low * 0.999 <= t <= high * 1.001]
    ticks = ticks if len(ticks) < 7 else ticks[::2]
    bar = figure.colorbar(
        shades, ax=list(panels.flat), location="bottom", fraction=0.05, aspect=45, pad=0.02, shrink=0.8
    )
    bar.set_ticks(ticks)
    bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda t, _: f"{t:.1g}"))
    bar.ax.xaxis.set_minor_locator(NullLocator())
    bar.set_label(label, labelpad=2)
    bar.outline.set_linewidth(0.6)  # type: ignore[operator]
    tidy(bar.ax)


def equal_area(x: Float[np.ndarray, "N 3"], mass: Float[np.ndarray, " N"] | None = None) -> Float[np.ndarray, "K L"]:
    """Mass (of equal particles, if none is given) in cells equal in azimuth and in z, so equal in area."""
    azimuth = np.minimum((np.arctan2(x[:, 1], x[:, 0]) % TWO_PI / TWO_PI * AZIMUTHS).astype(int), AZIMUTHS - 1)
    height = np.clip(((x[:, 2] + 1.0) / 2.0 * HEIGHTS).astype(int), 0, HEIGHTS - 1)
    count = np.bincount(height * AZIMUTHS + azimuth, mass, minlength=HEIGHTS * AZIMUTHS).reshape(HEIGHTS, AZIMUTHS)
    return count / len(x) if mass is None else count


def mass_map(axes: Axes, x: np.ndarray, perceptron: Landscape | None, norm: LogNorm) -> None:
    """One histogram with the hyperplanes as curves, broken where they cross azimuth 0."""
    mass = equal_area(x)
    edges = np.linspace(0.0, TWO_PI, AZIMUTHS + 1), np.linspace(-1.0, 1.0, HEIGHTS + 1)
    cells = axes.pcolormesh(*edges, np.ma.masked_equal(mass, 0.0), cmap=DENSITY, norm=norm, rasterized=True)
    cells.set(gid="mass", zorder=1.0)
    for neuron, curve in _curves(perceptron):
        azimuth = np.arctan2(curve[:, 1], curve[:, 0]) % TWO_PI
        jump = np.flatnonzero(np.abs(np.diff(azimuth)) > np.pi) + 1
        azimuth, height = np.insert(azimuth, jump, np.nan), np.insert(curve[:, 2], jump, np.nan)
        axes.plot(
            azimuth, height, color=GREY, linewidth=0.8, linestyle=(0, (4, 2)), zorder=2.0, gid=f"hyperplane-{neuron}"
        )
    heavy = np.argwhere(mass >= 0.05)
    for row, column in heavy if len(heavy) <= 10 else []:
        centre = (column + 0.5) * TWO_PI / AZIMUTHS, (row + 0.5) * 2.0 / HEIGHTS - 1.0
        ring: dict[str, Any] = dict(
            markersize=7.0, markerfacecolor="none", markeredgecolor=NEGATIVE, markeredgewidth=0.8
        )
        axes.plot(*centre, "o", clip_on=False, zorder=3.0, **ring)
        turned = centre[0] > 0.85 * TWO_PI
        offset, words = (-5.0 if turned else 5.0, -5.0 * round(centre[1])), f"{mass[row, column]:.2f}"
        text = axes.annotate(words, centre, offset, textcoords="offset points", fontsize=7.5, zorder=4.0)
        text.set(ha="right" if turned else "left", va="center", path_effects=[withStroke(linewidth=2, foreground="w")])
    axes.xaxis.set_major_locator(FixedLocator(ANGLE_TICKS))
    axes.xaxis.set_major_formatter(FixedFormatter(ANGLE_NAMES))
    axes.set(xlim=(0.0, TWO_PI), ylim=(-1.0, 1.0), yticks=[-1.0, -0.5, 0.0, 0.5, 1.0])
    tidy(axes)


@styled
def spherical_histogram(ds: Dataset, members: Members = None, when: int = -1) -> Figure:
    """Mass in cells of equal area over azimuth and z (the cosine of the colatitude), a panel for each member.

    Dashed curves are the hyperplanes; cells holding at least 5% carry their mass where they are few; empty cells are
    white. Cost O(N). Raises `ValueError` for a member or a snapshot that the run does not have.
    """
    chosen = as_members(ds, members)
    across = {1: 1, 3: 3}.get(len(chosen), 2)
    down = -(-len(chosen) // across)
    figure = new_figure(COLUMN if across == 1 else PAGE, 1.95 * down + 0.55)
    panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    clouds = [state(ds, member, when) for member in chosen]
    bounds = mass_range(ds.sizes["particle"], [equal_area(x) for _, x in clouds])
    norm = LogNorm(*bounds)
    for axes, member, (time, x) in zip(panels.flat, chosen, clouds, strict=False):
        mass_map(axes, x, landscape(ds, member), norm)
        words = ending_of(ds, member) if when == -1 else rf"$t = {time:.4g}$"
        axes.set_title(f"{name_of(ds, member, chosen)}: {words}", loc="left")
    for axes in panels.flat[len(chosen) :]:
        axes.set_visible(False)
    for place, axes in enumerate(panels.flat[: len(chosen)]):
        axes.set_ylabel(r"$z$ (cosine of colatitude)" if place % across == 0 else "")
        if place + across >= len(chosen):
            axes.set_xlabel("Azimuth (rad)")
            axes.tick_params(labelbottom=True)
    mass_bar(figure, panels, ScalarMappable(norm, DENSITY), bounds, "Mass per cell")
    note_below(figure, shared_by(ds, chosen))
    return figure
