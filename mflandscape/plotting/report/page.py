"""The page itself: tables and words around the panels that its script draws."""

import base64
import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import Colormap, to_hex
from xarray import Dataset

from ..members import dimension, option, pick
from ..statistics import every_member
from ..style import ANGLES, BLUE, DENSITY, GREEN, GREY, INK, MASSES, NEGATIVE, SIGNED
from .payload import member_title, run_data

_ATOMS = 60  # of one member in its table
_ACTIVATIONS = {"relu": "ReLU", "gelu": "GeLU"}
_CLASSES = (
    "residual: the largest speed of the refined atoms. class: strictly SOPD (a strict local optimum among moves of the "
    "atoms), degenerate (a direction is free), saddle. null: free directions. splitting: smallest "
    "eigenvalue for parts of an atom, below 0 if an atom gains by splitting. gap: how much lower the first variation "
    "is elsewhere; 0 for a global optimum. In the shifted kernel's units."
)


def page(
    ds: Dataset,
    numbers: Sequence[int],
    *,
    name: str,
    toml: str,
    commands: Sequence[str],
    critical: Mapping[int, Mapping[str, Any]] | None = None,
) -> str:
    """A run as one HTML page: particles with a time slider, landscape, histogram, curves, masses, tables, its spec.

    Needs no server and no network: the drawing library is inside (some 5 MB). At most 40 snapshots and 2000 particles
    of a member are shown, fewer where there are many members; the page says how many. Above d = 3 statistics only.

    Args:
        ds: an opened run.
        numbers: the members to show, finished ones.
        name: the run's name, the page's title.
        toml: the specification as a file that `mflandscape run` takes.
        commands: lines that compute the run again.
        critical: of a member its refined end state: `atoms` (each with `point`, `mass`), `residual`, `class`,
            `smallest_eigenvalue`, `null`, `splitting`, `gap`, or else a `note` that says why there is none.
    """
    from plotly.offline import get_plotlyjs

    critical = critical or {}
    data: dict[str, Any] = {**run_data(ds, numbers), "colors": _colors()}
    for member in data["members"]:
        member["atoms"] = critical.get(member["number"], {}).get("atoms")
    parts = {
        "name": html.escape(name),
        "summary": html.escape(_summary(ds)),
        "ends": _ends(ds, numbers),
        "critical": _critical(ds, numbers, critical),
        "atoms": "".join(_atoms(number, found) for number, found in critical.items() if found.get("atoms")),
        "toml": html.escape(toml),
        "toml_link": "data:text/plain;base64," + base64.b64encode(toml.encode()).decode(),
        "commands": html.escape("\n".join(commands)),
        "attrs": _attrs(ds),
        "css": _inside("page.css"),
        "script": _inside("page.js"),
        "plotly": get_plotlyjs(),
        "data": json.dumps(data, allow_nan=False, separators=(",", ":")).replace("</", "<\\/"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _inside("page.html"))


def _inside(name: str) -> str:
    """A file beside this one."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _colors() -> dict[str, Any]:
    """The house's colours and colour maps, as the script takes them."""
    found: dict[str, Any] = {"ink": INK, "grey": GREY, "blue": BLUE, "green": GREEN, "negative": NEGATIVE}
    maps: dict[str, Colormap] = {"angles": ANGLES, "masses": MASSES, "density": DENSITY, "signed": SIGNED}
    for name, colormap in maps.items():
        found[name] = [[place, to_hex(colormap(place))] for place in np.linspace(0.0, 1.0, 17)]
    return found


def _summary(ds: Dataset) -> str:
    """One line on what was run."""
    betas = ds["beta"].values
    space = {2: "the circle", 3: "the sphere S²"}.get(dimension(ds), f"the sphere in d = {dimension(ds)}")
    words = [str(option(ds, "direction", "descent"))]
    if "a" in ds and ds.sizes["neuron"] and option(ds, "weights", "numpy") != "none":
        act = str(option(ds, "activation", None) or "relu")
        words.append(f"{_ACTIVATIONS.get(act, act)} perceptron of {ds.sizes['neuron']} neurons")
    else:
        words.append("attention alone")
    if option(ds, "attention_mode", "unnormalized") == "normalized":
        words.append("softmax attention")
    words.append(f"β = {betas[0]:g}" if len(betas) == 1 else f"{len(betas)} β from {betas.min():g} to {betas.max():g}")
    return f"{', '.join(words)}, {ds.sizes['particle']} particles on {space}"


def _table(titles: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], kind: str = "") -> str:
    """A table; each row with its attributes. Cells are escaped here."""
    head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
    body = "".join(
        f"<tr{marks}>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>" for marks, cells in rows
    )
    return f'<table class="{kind}">{f"<thead><tr>{head}</tr></thead>" if titles else ""}<tbody>{body}</tbody></table>'


def _ends(ds: Dataset, numbers: Sequence[int]) -> str:
    grid, rows = every_member(ds), []
    for number in numbers:
        member = grid[number]
        value = {name: pick(ds, name, member) for name in ("final_time", "heaviest_mass", "residual", "energy")}
        cells = [str(number), member_title(ds, member), str(pick(ds, "stop_reason", member)).replace("_", " ")]
        cells += [f"{value['final_time']:.5g}", f"{int(pick(ds, 'clusters', member))}", f"{value['heaviest_mass']:.4f}"]
        cells += [f"{value['residual']:.1e}", _number(float(value["energy"]), ".8g")]
        rows.append((f' data-member="{number}"', cells))
    titles = ("member", "", "ended", "time", "clusters", "heaviest mass", "residual", "energy")
    left = len(grid) - len(numbers)
    note = f'<p class="note">{left} of {len(grid)} members are not on this page.</p>' if left else ""
    return _table(titles, rows) + note


def _critical(ds: Dataset, numbers: Sequence[int], critical: Mapping[int, Mapping[str, Any]]) -> str:
    """Classes of the refined end states, and why there is none where there is none."""
    if not critical:
        return '<p class="plain">Not computed; see mflandscape refine and mflandscape classify.</p>'
    grid, rows = every_member(ds), []
    notes: dict[str, list[int]] = {}
    for number in numbers:
        found = critical.get(number, {})
        if found.get("note"):
            notes.setdefault(found["note"], []).append(number)
        if not found.get("atoms"):
            continue
        cells = [str(number), member_title(ds, grid[number]), str(len(found["atoms"])), f"{found['residual']:.1e}"]
        cells += [found["class"], _number(found["smallest_eigenvalue"], ".3g"), str(found["null"])]
        cells += [_number(found["splitting"], ".3g"), _number(found["gap"], ".1e")]
        rows.append((f' data-member="{number}"', cells))
    titles = ("member", "", "atoms", "residual", "class", "smallest eigenvalue", "null", "splitting", "gap")
    table = _table(titles, rows) + f'<p class="plain">{_CLASSES}</p>' if rows else ""
    return table + "".join(
        f'<p class="plain">Member{"s" * (len(of) > 1)} {", ".join(map(str, of))}: {html.escape(note)}.</p>'
        for note, of in notes.items()
    )


def _atoms(number: int, found: Mapping[str, Any]) -> str:
    """The atoms of one member, heaviest first; the script shows those of the member chosen."""
    atoms = found["atoms"]
    rows = [
        ("", [str(i), f"{atom['mass']:.6f}", _place(atom["point"])]) for i, atom in enumerate(atoms[:_ATOMS], start=1)
    ]
    circle = len(atoms[0]["point"]) == 2
    more = f'<p class="plain">and {len(atoms) - _ATOMS} lighter ones</p>' if len(atoms) > _ATOMS else ""
    table = _table(("", "mass", "angle (rad)" if circle else "point"), rows)
    return f'<details data-atoms="{number}" hidden><summary>Atoms of member {number}</summary>{table}{more}</details>'


def _place(point: Sequence[float]) -> str:
    if len(point) == 2:
        return f"{np.arctan2(point[1], point[0]) % (2.0 * np.pi):.8f}"
    return "(" + ", ".join(f"{value:.6f}" for value in point) + ")"


def _attrs(ds: Dataset) -> str:
    rows = [("", (name.replace("_", " "), _sentence(value))) for name, value in ds.attrs.items() if name != "spec"]
    return _table((), rows, "words")


def _sentence(value: Any) -> str:
    try:
        found = json.loads(str(value))
    except ValueError:
        return str(value)
    return ", ".join(f"{key} {item}" for key, item in found.items()) if isinstance(found, dict) else str(value)


def _number(value: float | None, digits: str) -> str:
    return "-" if value is None or not np.isfinite(value) else format(value, digits)
