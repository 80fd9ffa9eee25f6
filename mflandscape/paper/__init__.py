"""The papers' figures by name: settings, data, drawing, and what was found beside what was expected.

A1 to A12 and Astop are of paper A (arXiv 2601.21366), B1 and so on are about paper B (arXiv 2410.23228).
"""

import re
from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType

from .registry import Finding, PaperFigure

__all__ = ["FIGURES", "Finding", "PaperFigure"]


def _collected() -> dict[str, PaperFigure]:
    """The `FIGURES` of all files a_*.py and b_*.py, in the order of their names and numbers."""
    files = sorted(found.name for found in iter_modules(__path__) if found.name.startswith(("a_", "b_")))
    figures = [figure for file in files for figure in import_module(f"{__name__}.{file}").FIGURES]
    return {figure.name: figure for figure in sorted(figures, key=lambda figure: _place(figure.name))}


def _place(name: str) -> tuple[str, float, str]:
    """The paper's letter, the number (those without one last), the rest."""
    number = re.match(r"[A-Z](\d+)", name)
    return name[0], float(number[1]) if number else float("inf"), name


FIGURES: Mapping[str, PaperFigure] = MappingProxyType(_collected())
