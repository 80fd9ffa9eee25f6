"""What a figure of the papers is here: settings, computation, drawing, and what was found beside what was expected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import Dataset

Verdict = Literal["agrees", "differs", "not comparable"]


@dataclass(frozen=True)
class Finding:
    """One number of a figure beside what was expected.

    Args:
        what: the quantity and where it was taken, "clusters at beta = 25".
        expected: the expected value as text, with its source, "7 (k_max, paper B)".
        measured: the value found, as text, with its error or tolerance.
        verdict: whether the two agree; "not comparable" where the expectation is of another thing (a state that was not
            stationary, a hypothesis not met).
    """

    what: str
    expected: str
    measured: str
    verdict: Verdict


@dataclass(frozen=True)
class PaperFigure:
    """One figure of a paper: settings, then data, then a drawing and its findings, each made from the one before alone.

    Args:
        name: "A1", "B3".
        title: one line.
        settings: from quick (smaller N, fewer temperatures) to JSON values: all that the data depend on.
        compute: from the settings and a folder for runs (shared by all figures) to labelled data, one dataset a key.
        draw: from the data to a figure; computes nothing that the data do not hold.
        findings: from the data to its numbers beside the expected ones.
    """

    name: str
    title: str
    settings: Callable[[bool], dict[str, Any]]
    compute: Callable[[dict[str, Any], Path], dict[str, Dataset]]
    draw: Callable[[Mapping[str, Dataset]], Figure]
    findings: Callable[[Mapping[str, Dataset]], list[Finding]]
