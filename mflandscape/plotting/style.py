"""One look for every picture: fonts, sizes, colours, colour maps, and a `save` whose files are reproducible."""

import os
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, Colormap, LinearSegmentedColormap, ListedColormap
from matplotlib.container import Container
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator

COLUMN, PAGE = 3.4, 7.0  # inches: one journal column, the full page

# Okabe and Ito's palette: distinct under the common colour-vision deficiencies and in grey
BLUE, ORANGE, GREEN, PURPLE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9"
INK, GREY, FAINT = "#222222", "#777777", "#BBBBBB"
POSITIVE, NEGATIVE = GREEN, ORANGE  # sign of the perceptron potential, as in the paper's figures
DEAD, ACTIVE = 0.70, (0.86, 1.0)  # grey levels: dead zone; from one active neuron to all of them

FONT = "STIXGeneral"
RC: dict[Any, Any] = {
    "font.family": FONT,
    "font.size": 9.0,
    "mathtext.fontset": "stix",
    "axes.titlesize": 9.0,
    "axes.labelsize": 9.0,
    "axes.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "axes.grid": False,
    "axes.unicode_minus": True,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "lines.linewidth": 1.1,
    "lines.markersize": 4.0,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "pdf.fonttype": 42,
    "svg.hashsalt": "mflandscape",
}
METADATA = {
    "png": {"Software": "mflandscape"},
    "pdf": {"Creator": "mflandscape", "Producer": "matplotlib", "CreationDate": None},
    "svg": {"Creator": "mflandscape", "Date": None},
}
DPI = {"png": 200, "pdf": 300, "svg": 300}
ANGLE_TICKS = [0.0, np.pi / 2.0, np.pi, 3.0 * np.pi / 2.0, 2.0 * np.pi]
ANGLE_NAMES = ["0", r"$\pi/2$", r"$\pi$", r"$3\pi/2$", r"$2\pi$"]
_P = ParamSpec("_P")


def styled(draw: Callable[_P, Figure]) -> Callable[_P, Figure]:
    """A picture function that draws with this look, whatever the caller's own matplotlib settings are."""

    @wraps(draw)
    def inside(*args: _P.args, **kwargs: _P.kwargs) -> Figure:
        with matplotlib.rc_context(RC):
            return draw(*args, **kwargs)

    return inside


def new_figure(width: float, height: float) -> Figure:
    """An empty figure (inches) with the constrained layout; no window and no global state."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03)  # type: ignore[union-attr]
    return figure


def tidy(axes: Axes, *, bare: bool = False) -> None:
    """Small outward ticks in the common font; `bare` removes the upper and right spines."""
    axes.tick_params(which="both", direction="out", length=2.5, width=0.6, labelsize=8.0, labelfontfamily=FONT)
    axes.tick_params(which="minor", length=1.5)
    if bare:
        axes.spines[["top", "right"]].set_visible(False)


def part_of(name: str, low: float, high: float) -> LinearSegmentedColormap:
    """The part of a named colour map between the fractions `low` and `high`, so that its ends stay visible on paper."""
    shades = matplotlib.colormaps[name](np.linspace(low, high, 256))
    return LinearSegmentedColormap.from_list(f"{name}-part", shades)


ANGLES = part_of("viridis", 0.0, 0.92)  # particles by their initial angle
MASSES = part_of("plasma_r", 0.12, 1.0)  # mass near a particle
DENSITY = part_of("magma_r", 0.06, 0.95)  # mass in a cell
BETAS = part_of("viridis", 0.0, 0.9)
SIGNED = LinearSegmentedColormap.from_list("sign", ["#F0B48C", "#FFFFFF", "#8FD0BB"])  # background: v < 0, 0, v > 0


def sampled(colormap: Colormap, count: int) -> Float[np.ndarray, "count 4"]:
    """`count` colours at equal steps along a colour map (its start if one is asked for)."""
    return np.asarray(colormap(np.linspace(0.0, 1.0, count) if count > 1 else np.zeros(1)))


def region_shade(active: int, units: int) -> float:
    """Grey level of a region by its number of active neurons: the dead zone darkest, white where all are active."""
    if active <= 0:
        return DEAD
    low, high = ACTIVE
    return high if units <= 1 else low + (high - low) * (active - 1) / (units - 1)


def time_axis(axes: Axes, times: Float[np.ndarray, " S"], log_time: bool) -> None:
    """Label and scale the time axis from 0 to the last time; if logarithmic, linear up to the first positive time."""
    axes.set_xlabel(r"Time $t$")
    last, first = float(times.max(initial=0.0)), float(times[times > 0.0].min(initial=np.inf))
    axes.set_xlim(0.0, last if last > 0.0 else 1.0)
    if not log_time or not first < last:
        axes.xaxis.set_major_locator(MaxNLocator(4, min_n_ticks=3))
        return
    axes.set_xscale("symlog", linthresh=first, linscale=0.35)
    decades = 10.0 ** np.arange(np.ceil(np.log10(first)), np.floor(np.log10(last)) + 1)
    shown = decades[decades > 3.0 * first] if len(decades) > 2 else decades
    shown = shown[:: max(1, int(np.ceil(len(shown) / 4)))]
    axes.xaxis.set_major_locator(FixedLocator([0.0, *shown]))
    axes.xaxis.set_major_formatter(FixedFormatter(["0", *(rf"$10^{{{round(np.log10(t))}}}$" for t in shown)]))
    between = (np.append(decades[:1] / 10.0, decades)[:, None] * np.arange(1, 10)).ravel()
    axes.xaxis.set_minor_locator(FixedLocator(between[(between >= first) & (between <= last)].tolist()))


def note_below(figure: Figure, words: Sequence[str]) -> None:
    """What a picture leaves out or holds fixed, in small grey type under it."""
    if words:
        figure.supxlabel("; ".join(words), fontsize=7.5, color=GREY)


def key_below(figure: Figure, entries: Sequence[Artist | Container], columns: int = 2) -> None:
    """A legend under the axes, where it can cover no data."""
    figure.legend(handles=list(entries), loc="outside lower center", ncols=columns, columnspacing=1.2, borderpad=0.1)


def beta_bar(figure: Figure, betas: Sequence[float], axes: Sequence[Axes]) -> None:
    """A colour bar with one band for each beta, beside the given axes."""
    colors = ListedColormap(list(sampled(BETAS, len(betas))))
    norm = BoundaryNorm(np.arange(len(betas) + 1) - 0.5, len(betas))
    bar = figure.colorbar(
        ScalarMappable(norm, colors), ax=list(axes), ticks=list(range(len(betas))), pad=0.02, aspect=28
    )
    bar.set_ticklabels([f"{beta:g}" for beta in betas])
    bar.ax.minorticks_off()
    bar.ax.set_title(r"$\beta$", pad=4)
    bar.outline.set_linewidth(0.6)  # type: ignore[operator]
    tidy(bar.ax)


def save(figure: Figure, path_stem: str | Path, formats: Sequence[str] = ("png", "pdf")) -> list[Path]:
    """Write `path_stem.FORMAT` (png at 200 dpi) for each format, aside and then renamed; equal pictures, equal bytes.

    Raises `ValueError` for a format other than png, pdf, svg.
    """
    stem, written = Path(path_stem), []
    for kind in formats:
        if kind not in METADATA:
            raise ValueError(f"picture format {kind!r}; expected one of {', '.join(METADATA)}; choose one of these")
    for kind in formats:
        path = stem.with_name(f"{stem.name}.{kind}")
        aside = path.with_name(f".{path.name}.part")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with matplotlib.rc_context(RC):
                figure.savefig(aside, format=kind, dpi=DPI[kind], metadata=METADATA[kind])
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
        written.append(path)
    return written
