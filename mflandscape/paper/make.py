"""Makes a figure: data once, kept on disk; then the picture and its findings."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from .._options import unknown
from ..store.files import canonical
from . import FIGURES
from .data import read_data, write_data
from .registry import Finding, PaperFigure


@dataclass(frozen=True)
class Made:
    """A figure that was made.

    Attributes:
        name, title: the figure's.
        data: the folder of its datasets, `KEY.zarr` each.
        pictures: PNG and PDF; none if only data were asked for.
        findings: its numbers beside the expected ones.
        cached: whether the data were there already.
        compute_seconds: what computing the data took, then or now; runs shared with other figures count where they
            were first made.
        seconds: what making it took now.
    """

    name: str
    title: str
    data: Path
    pictures: list[Path]
    findings: list[Finding]
    cached: bool
    compute_seconds: float
    seconds: float


def find_figure(name: str) -> PaperFigure:
    """The figure of a name.

    Raises:
        ValueError: there is none; the nearest is named.
    """
    if name not in FIGURES:
        raise unknown("figure", name, FIGURES)
    return FIGURES[name]


def make_figure(
    name: str,
    out: str | Path,
    *,
    quick: bool = False,
    data_only: bool = False,
    formats: Sequence[str] = ("png", "pdf"),
) -> Made:
    """Computes the figure's data unless they are there, then draws it and compares its numbers.

    Data go to `out/NAME/data/HASH/KEY.zarr`, HASH that of the settings and the package's version; runs to `out/runs`,
    shared by all figures and resumed after an interruption; pictures to `out/NAME/NAME.png` and `.pdf`, with `-quick`
    in the name for the smaller sizes.

    Raises:
        ValueError: no such figure or format; data that are damaged.
    """
    figure, out, began = find_figure(name), Path(out), time.perf_counter()
    settings = figure.settings(quick)
    folder = out / name / "data" / _hash(settings)
    cached = folder.exists()
    if not cached:
        computed = figure.compute(settings, out / "runs")
        write_data(folder, computed, {"settings": settings, "compute_seconds": time.perf_counter() - began})
    data, notes = read_data(folder)
    pictures: list[Path] = []
    if not data_only:
        from ..plotting import save

        pictures = save(figure.draw(data), out / name / (name + "-quick" * quick), formats)
    findings = figure.findings(data)
    seconds = time.perf_counter() - began
    return Made(name, figure.title, folder, pictures, findings, cached, float(notes["compute_seconds"]), seconds)


def _hash(settings: dict) -> str:
    content = canonical({"settings": settings, "version": version("mflandscape")})
    return hashlib.sha256(content.encode()).hexdigest()[:16]
