"""A run as a film: particles on the circle with their histogram, or on two hemispheres, a frame a snapshot."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Wedge
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator
from xarray import Dataset

from .circle import BINS, angle_axis, background, histogram
from .landscape import TWO_PI, Landscape, landscape, on_circle
from .members import Member, dimension, name_of, path, pick
from .sphere import NEAR, VIEW, camera, disc, hyperplanes, local_mass, mass_bar, mass_range
from .style import ANGLES, BLUE, GREY, INK, MASSES, PAGE, RC, SIGNED, new_figure, note_below, region_shade, tidy

FORMATS = ("gif", "mp4")
_DPI = 110
_HEIGHT = 3.5  # inches
_MOST_FPS = 50  # what a GIF can say: hundredths of a second
_DRAWN = 2000  # at most so many particles
_COLORS = 256
_SPOKE = 0.8  # length of a spoke that holds all mass, in radii


def animate(ds: Dataset, member: Member, out: str | Path, *, fps: float = 10.0) -> tuple[Path, int]:
    """Write a film of one member, a frame a snapshot, and return its path and the number of frames.

    The format is that of the name's ending: GIF (through Pillow, looping; equal runs give equal bytes) or MP4
    (through ffmpeg). Times are shown, not kept: snapshots follow each other at `fps`. Cost O(snapshots) pictures.

    Raises:
        ValueError: another ending, no ffmpeg for an MP4, fps outside 0.1 to 50, d above 3, fewer than two snapshots.
    """
    out = Path(out)
    kind = out.suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise ValueError(f"film format {kind!r}; expected one of {', '.join(FORMATS)}; name the file so")
    if not 0.1 <= fps <= _MOST_FPS:
        raise ValueError(f"fps = {fps:g}; expected 0.1 to {_MOST_FPS} frames a second; choose one of these")
    if kind == "mp4" and shutil.which("ffmpeg") is None:
        raise ValueError("no ffmpeg here, which an MP4 needs; expected it on the path; install it or ask for a gif")
    if dimension(ds) > 3:
        raise ValueError(f"a film of a run with d = {dimension(ds)}; expected d = 2 or 3; draw its statistics instead")
    times, states = path(ds, member)
    if len(times) < 2:
        raise ValueError("a film of one snapshot; expected at least two; run it with save = log or save = every")
    scene = _Circle if dimension(ds) == 2 else _Sphere
    with matplotlib.rc_context(RC):
        frames = _drawn(scene(ds, member, times, states))
        aside = out.with_name(f".{out.stem}.part{out.suffix}")
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            (_gif if kind == "gif" else _mp4)(frames, aside, fps)
            os.replace(aside, out)
        finally:
            aside.unlink(missing_ok=True)
    return out, len(times)


def _gif(frames: Iterator[np.ndarray], path: Path, fps: float) -> None:
    """One palette for all frames, that of a mosaic of four of them: no flicker from frame to frame."""
    from PIL import Image

    pictures = [Image.fromarray(frame) for frame in frames]
    some = [np.asarray(pictures[i]) for i in np.linspace(0, len(pictures) - 1, 4).round().astype(int)]
    palette = Image.fromarray(np.concatenate(some)).quantize(_COLORS, method=Image.Quantize.MEDIANCUT)
    flat = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    duration = 10 * round(100 / fps)
    flat[0].save(path, save_all=True, append_images=flat[1:], duration=duration, loop=0, optimize=False, disposal=1)


def _mp4(frames: Iterator[np.ndarray], path: Path, fps: float) -> None:
    """Through ffmpeg, with its usual codec for MP4; a white line more where a side is odd."""
    pictures = list(frames)
    height, width, _ = pictures[0].shape
    given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-framerate", f"{fps:g}", "-i", "pipe:0"]
    even = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2:color=white", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
    command = ["ffmpeg", "-loglevel", "error", "-y", *given, *even, str(path)]
    done = subprocess.run(command, input=b"".join(each.tobytes() for each in pictures), capture_output=True)
    if done.returncode:
        why = (done.stderr.decode(errors="replace").strip().splitlines() or ["no word"])[-1]
        raise ValueError(f"ffmpeg could not write {path.suffix}: {why}; expected a film; ask for a gif")


def _drawn(film: "_Circle | _Sphere") -> Iterator[Float[np.ndarray, "height width 3"]]:
    """The frames as pixels; the layout is that of the first."""
    canvas = FigureCanvasAgg(film.figure)
    film.figure.set_dpi(_DPI)
    for when in range(len(film.times)):
        film.show(when)
        canvas.draw()
        film.figure.set_layout_engine("none")
        yield np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _head(ds: Dataset, member: Member, time: float) -> str:
    return rf"{name_of(ds, member, [member])}, $t = {time:.4g}$"


def _thinned(figure: Figure, total: int) -> int:
    """Each which particle is drawn; says so under the figure if not all are."""
    every = -(-total // _DRAWN)
    if every > 1:
        note_below(figure, [f"{-(-total // every)} of {total} particles drawn"])
    return every


class _Circle:
    """Particles on the ring with a spoke a bin, and the histogram over the landscape; both as the root of the mass."""

    def __init__(self, ds: Dataset, member: Member, times: np.ndarray, states: np.ndarray):
        self.ds, self.member, self.times = ds, member, times
        self.figure = new_figure(PAGE, _HEIGHT)
        ring, side = self.figure.subplots(1, 2, width_ratios=[1.0, 1.25])
        every, scene = _thinned(self.figure, states.shape[1]), landscape(ds, member)
        self.angles = states[:, ::every]
        weight = pick(ds, "weight", member) if "weight" in ds else None
        self.masses = np.stack([histogram(angle, weight)[0] for angle in states])
        _ring(ring, scene)
        self.spokes = LineCollection([], colors=BLUE, linewidths=1.6, zorder=1.5)
        ring.add_collection(self.spokes, autolim=False)
        began = self.angles[0] % TWO_PI
        self.dots = ring.scatter(*on_circle(began).T, c=began, cmap=ANGLES, s=9.0, linewidths=0.0, zorder=2.0)
        self.dots.set_clim(0.0, TWO_PI)
        self.title = ring.text(-1.3, 1.33, "", va="bottom")
        self.bars = _histogram(side, scene, float(self.masses.max()))

    def show(self, when: int) -> None:
        """Set the figure to one snapshot."""
        mass = self.masses[when]
        middle = on_circle((np.arange(BINS) + 0.5) * TWO_PI / BINS)
        inner = middle * (1.0 - _SPOKE * np.sqrt(mass))[:, None]
        self.spokes.set_segments(list(np.stack([middle, inner], axis=1)[mass > 0.0]))
        self.dots.set_offsets(on_circle(self.angles[when]))
        self.title.set_text(_head(self.ds, self.member, self.times[when]))
        for bar, height in zip(self.bars, mass, strict=True):
            bar.set_height(height)


def _ring(axes: Axes, scene: Landscape | None) -> None:
    """The circle, its regions by active neurons (where zones are dead), and outside it the sign of v."""
    if scene is not None and (scene.activation.dead or scene.strength is None):
        for low, high, active in scene.regions():
            shade = str(region_shade(active, len(scene.a)))
            axes.add_patch(Wedge((0.0, 0.0), 1.0, np.degrees(low), np.degrees(high), color=shade, linewidth=0.4))
    if scene is not None and scene.strength is not None:
        grid = np.linspace(0.0, TWO_PI, 361)
        value = scene.value(on_circle(grid))
        level = float(np.max(np.abs(value))) or 1.0
        band = axes.scatter(*(1.14 * on_circle(grid).T), c=value, cmap=SIGNED, s=28.0, linewidths=0.0, zorder=0.5)
        band.set(clim=(-level, level), gid="sign-of-v")
    axes.add_patch(Circle((0.0, 0.0), 1.0, fill=False, edgecolor=GREY, linewidth=0.6, zorder=1.0))
    axes.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal")
    axes.set_axis_off()


def _histogram(axes: Axes, scene: Landscape | None, most: float):
    """Bars on a root scale that fits all frames, and v/2 on a scale of its own."""
    background(axes, scene, "x")
    width = TWO_PI / BINS
    bars = axes.bar(np.arange(BINS) * width, np.zeros(BINS), width=width, align="edge", color=BLUE, zorder=1.0)
    axes.set_yscale("function", functions=(lambda mass: np.sqrt(np.maximum(mass, 0.0)), np.square))
    axes.set_ylim(0.0, 1.1 * most)
    shown = [0.0] + [mass for mass in (0.001, 0.01, 0.05, 0.2, 0.5, 1.0) if 0.02 * most < mass <= 1.1 * most]
    axes.yaxis.set_major_locator(FixedLocator(shown))
    axes.yaxis.set_major_formatter(FixedFormatter([f"{mass:g}" for mass in shown]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("Mass per bin (root scale)")
    angle_axis(axes, "x")
    tidy(axes)
    if scene is not None and scene.strength is not None:
        grid = np.linspace(0.0, TWO_PI, 361)
        right = axes.twinx()
        right.plot(grid, scene.value(on_circle(grid)) / 2.0, color=INK, linewidth=0.9)
        right.set_ylabel(r"$v/2$ (line)")
        right.margins(y=0.12)
        tidy(right)
    return bars


class _Sphere:
    """Particles on the hemisphere facing the viewer and on the one behind, coloured by the mass near them."""

    def __init__(self, ds: Dataset, member: Member, times: np.ndarray, states: np.ndarray):
        self.ds, self.member, self.times = ds, member, times
        self.figure = new_figure(PAGE, _HEIGHT + 0.4)
        panels = self.figure.subplots(1, 2)
        self.points = states[:, :: _thinned(self.figure, states.shape[1])]
        self.near = np.stack([local_mass(x) for x in self.points])
        bounds = mass_range(self.points.shape[1], list(self.near))
        front = camera(VIEW)
        self.views = (front, front * np.array([[-1.0], [1.0], [-1.0]]))
        scene, norm = landscape(ds, member), LogNorm(*bounds)
        self.dots = []
        for axes, view, side in zip(panels, self.views, ("front", "back"), strict=True):
            disc(axes, scene, view)
            hyperplanes(axes, scene, view)
            self.dots.append(axes.scatter([], [], c=[], cmap=MASSES, norm=norm, linewidths=0.0, zorder=2.0))
            axes.text(0.0, -1.05, side, ha="center", va="top", fontsize=7.5, color=GREY)
        self.title = panels[0].text(-1.0, 1.09, "", va="bottom")
        mass_bar(self.figure, panels, ScalarMappable(norm, MASSES), bounds, f"Mass within {NEAR:g} rad")

    def show(self, when: int) -> None:
        """Set the figure to one snapshot."""
        near = self.near[when]
        order = np.argsort(near, kind="stable")
        for dots, view in zip(self.dots, self.views, strict=True):
            seen = self.points[when][order] @ view.T
            before = seen[:, 2] >= 0.0
            dots.set_offsets(seen[before, :2])
            dots.set_array(near[order][before])
            dots.set_sizes(3.0 + 22.0 * near[order][before])
        self.title.set_text(_head(self.ds, self.member, self.times[when]))
