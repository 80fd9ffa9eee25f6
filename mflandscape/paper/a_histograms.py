"""Figures 1 and 6 of paper A: histograms of the descent on the circle, its energies, the global minimiser beside."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..plotting.circle import angle_axis, histogram_bars, three_times
from ..plotting.landscape import landscape, on_circle
from ..plotting.members import Member, converged, name_of, path, pick, state
from ..plotting.statistics import observed
from ..plotting.style import BLUE, GREEN, GREY, PAGE, PURPLE, key_below, new_figure, styled, tidy, time_axis
from ..spec import Spec
from .published_runs import against_published, count_finding
from .registry import Finding, PaperFigure, Verdict
from .runs import OWN_STEPS, chosen, minimisers, own_ending, own_kind, sized, stored_run, with_own_end

Data = Mapping[str, xr.Dataset]
_SHOWN = {True: 0.5, False: 5.0}  # quick or not: beta of figure 1 (ours; quick: one that converges in few steps)
_FOUR = (1.0, 5.0, 25.0, 50.0)
_ENERGY_AT = 25.0  # where the two primitives of GeLU are compared
_WITH, _WITHOUT = Member(scale=0), Member(scale=1)


def _first_settings(quick: bool) -> dict[str, Any]:
    return {"run": sized("paper-s1", quick, mlp_scale=(1.0, 0.0)).to_dict(), "shown": _SHOWN[quick]}


def _first_compute(settings: dict[str, Any], folder: Path) -> dict[str, xr.Dataset]:
    return {"run": chosen(stored_run(Spec.from_dict(settings["run"]), folder), beta=[settings["shown"]])}


@styled
def _first_draw(data: Data) -> Figure:
    ds = data["run"]
    figure = new_figure(PAGE, 4.3)
    panels = figure.subplots(2, 3)
    times, angles = path(ds, _WITH)
    for axes, (label, when) in zip(panels[0], three_times(times), strict=True):
        histogram_bars(axes, angles[when], landscape(ds, _WITH))
        axes.set_title(label, loc="left")
    histogram_bars(panels[1, 0], state(ds, _WITHOUT)[1], None)
    panels[1, 0].set_title("Attention alone, end", loc="left")
    for axes in (*panels[0], panels[1, 0]):
        angle_axis(axes, "x")
        axes.set_ylabel("Mass per bin" if axes in panels[:, 0] else "")
    for member, color, label in ((_WITH, BLUE, "with perceptron"), (_WITHOUT, PURPLE, "attention alone")):
        for axes, name in zip(panels[1, 1:], ("energy", "residual"), strict=True):
            axes.plot(*observed(ds, member, name), color=color, label=label, linewidth=1.1)
    longest = observed(ds, _WITH, "energy")[0]
    for axes, title in zip(panels[1, 1:], (r"Energy $E$", "Largest speed"), strict=True):
        time_axis(axes, longest, log_time=True)
        axes.set_title(title, loc="left")
        tidy(axes, bare=True)
    panels[1, 2].set_yscale("log")
    panels[1, 2].axhline(1e-4, color=GREY, linewidth=0.8, linestyle=":")
    key_below(figure, panels[1, 1].get_legend_handles_labels()[0])
    figure.suptitle(name_of(ds, _WITH, [_WITH]) + f", {ds.sizes['particle']} particles", fontsize=9.0)
    return figure


def _first_found(data: Data) -> list[Finding]:
    ds = data["run"]
    rises = {}
    for member, name in ((_WITH, "with perceptron"), (_WITHOUT, "attention alone")):
        energy = observed(ds, member, "energy")[1]
        rises[name] = int(np.sum(np.diff(energy) > 1e-14 * np.abs(energy).max()))
    said = ", ".join(f"{name}: {count}" for name, count in rises.items())
    energies = [float(pick(ds, "energy", member)) for member in (_WITH, _WITHOUT)]
    angle = pick(ds, "final_angle", _WITHOUT)
    moment = max(abs(np.mean(np.exp(1j * k * angle))) for k in (1, 2, 3))
    return [
        *count_finding(ds, "s1_desc_relu", "descent, ReLU"),
        Finding("looks at which the energy rises", "0: descent (the text)", said, _verdict(not any(rises.values()))),
        Finding(
            "largest Fourier coefficient (k = 1, 2, 3) of the end state without perceptron",
            "0: the uniform measure, unique minimiser (proposition 3.7)",
            f"{moment:.1e}, at speed {float(pick(ds, 'residual', _WITHOUT)):.0e}",
            _verdict(moment < 0.02),
        ),
        Finding(
            "energy at the end, with and without perceptron",
            "the perceptron's is lower: v is negative somewhere (figure 1, lower right)",
            f"{energies[0]:.5f}, {energies[1]:.5f}",
            _verdict(energies[0] < energies[1]),
        ),
    ]  # fmt: skip


def _second_settings(quick: bool) -> dict[str, Any]:
    return {
        "run": sized("paper-s1-gelu", quick).to_dict(),
        "shown": list(_FOUR),
        "energy_at": _ENERGY_AT,
        "own_steps": OWN_STEPS[quick],
        "minimiser": not quick,  # its compilation takes longer than a quick figure may
    }


def _second_compute(settings: dict[str, Any], folder: Path) -> dict[str, xr.Dataset]:
    spec = Spec.from_dict(settings["run"])
    stored = stored_run(spec, folder)
    found = {"minimiser": minimisers(spec.replace(beta=tuple(settings["shown"])))} if settings["minimiser"] else {}
    return found | {
        "run": with_own_end(spec, chosen(stored, beta=settings["shown"]), settings["own_steps"]),
        "all": stored[["clusters", "heaviest_mass", "stop_reason", "residual", "final_angle"]].load(),
        "energy": two_energies(chosen(stored, beta=[settings["energy_at"]])),
    }


def two_energies(ds: xr.Dataset) -> xr.Dataset:
    """Energies at the snapshots: with the primitive of GeLU, and with the published code's, which is none:
    `s^2 Phi + s n` in place of `(s^2 - 1) Phi + s n + 1/2`.
    """
    beta, scene = float(ds["beta"].values[0]), landscape(ds, Member())
    assert scene is not None and scene.strength is not None
    times, angles = path(ds, Member())
    right, published = [], []
    for angle in angles:
        x = on_circle(angle)
        attention = np.mean(np.exp(beta * (x @ x.T - 1.0))) / (2.0 * beta)
        right.append(attention + np.mean(scene.value(x)) / 2.0)
        cdf = 0.5 * (1.0 + np.vectorize(math.erf)(scene.levels(x) / math.sqrt(2.0)))
        published.append(right[-1] + np.mean((cdf - 0.5) @ scene.strength) / 2.0)
    known = {"right": (("snapshot",), np.array(right)), "published": (("snapshot",), np.array(published))}
    return xr.Dataset(known, coords={"time": (("snapshot",), times)}, attrs={"beta": beta})


def _mark_minimiser(axes: Axes, minimiser: xr.Dataset, i: int) -> None:
    """The minimiser's atoms as hollow diamonds at their masses."""
    for text in [*axes.texts]:  # masses that the marks would cover; the axis tells them
        place, height = text.xy  # pyright: ignore[reportAttributeAccessIssue]
        near = np.abs(minimiser["angle"][i].values - place) < 0.35
        if (near & (np.abs(minimiser["mass"][i].values - height - 0.03) < 0.08)).any():
            text.remove()
    axes.plot(minimiser["angle"][i], minimiser["mass"][i], "D", color=GREEN, markerfacecolor="white", markersize=4.0,
              zorder=3.0, clip_on=False, gid="minimiser")  # fmt: skip
    axes.set_ylim(0.0, 1.15 * max(axes.get_ylim()[1], float(minimiser["mass"][i].max())))


@styled
def _second_draw(data: Data) -> Figure:
    ds, count = data["run"], data["run"].sizes["beta"]
    down = -(-count // 2) + 1
    figure = new_figure(PAGE, 0.3 + 1.75 * down)
    panels = figure.subplots(down, 2)
    members = [Member(beta=i) for i in range(count)]
    for axes, member in zip(panels[:-1].flat, members, strict=True):
        histogram_bars(axes, state(ds, member)[1], landscape(ds, member))
        if "minimiser" in data:
            _mark_minimiser(axes, data["minimiser"], member.beta)
        axes.set_title(f"{name_of(ds, member, members)}: {own_ending(ds, member)}", loc="left")
        angle_axis(axes, "x")
        axes.set_ylabel("Mass per bin" if axes in panels[:, 0] else "")
    energy = data["energy"]
    panels[-1, 1].sharey(panels[-1, 0])
    for axes, name, color in zip(panels[-1], ("right", "published"), (BLUE, PURPLE), strict=True):
        axes.plot(energy["time"], energy[name], color=color, linewidth=1.1)
        time_axis(axes, energy["time"].values, log_time=True)
        tidy(axes, bare=True)
    panels[-1, 0].set_title(rf"Energy, $\beta = {energy.attrs['beta']:g}$", loc="left")
    panels[-1, 1].set_title("The published code's energy", loc="left")
    if "minimiser" in data:
        look: dict[str, Any] = dict(color=GREEN, marker="D", markerfacecolor="white", linestyle="none")
        key_below(figure, [Line2D([], [], label="atoms of the global minimiser", **look)])
    return figure


def _second_found(data: Data) -> list[Finding]:
    ds, energy = data["run"], data["energy"]
    members = [Member(beta=i) for i in range(ds.sizes["beta"])]
    kinds = [own_kind(ds, member) for member in members]
    rises = {name: int(np.sum(np.diff(energy[name].values) > 1e-13)) for name in ("right", "published")}
    stopped = int(converged(data["all"]).sum())
    return [
        *against_published(data["all"], "s1_desc_gelu", "descent, GeLU"),
        *count_finding(ds, "s1_desc_gelu", "descent, GeLU"),
        Finding(
            "end states at the published stop",
            "stationary, atomic (the text: histograms at convergence)",
            f"{stopped} of {data['all'].sizes['beta']} converged; {', '.join(kinds)} (continued to speed 1e-8)",
            _verdict(set(kinds) == {"at rest"}),
        ),
        Finding(
            f"snapshots at which the energy rises, beta = {energy.attrs['beta']:g}",
            "0 of a descent; the published code's primitive s^2 Phi + s n is not one of 2 GeLU, its energy rises",
            f"{rises['right']} with the primitive, {rises['published']} with the published code's",
            _verdict(rises["right"] == 0 and rises["published"] > 0),
        ),
        *(_beside_minimiser(ds, data["minimiser"]) if "minimiser" in data else ()),
    ]


def _beside_minimiser(ds: xr.Dataset, minimiser: xr.Dataset) -> list[Finding]:
    counts, atoms = ds["own_end_clusters"].values[:, 0, 0, 0], minimiser["atoms"].values
    proved = f"gaps below {minimiser['gap'].values.max():.0e} of the scale, proved: {bool(minimiser['rigorous'].all())}"
    return [
        Finding(
            f"atoms of the flow's end beside the minimiser's, beta = {' '.join(f'{b:g}' for b in ds['beta'].values)}",
            f"{' '.join(map(str, atoms))} (the global minimiser; {proved})",
            f"{' '.join(map(str, counts))} (local states: no particle can carry mass over the barriers)",
            "agrees" if (counts == atoms).all() else "not comparable",
        )
    ]


def _verdict(holds: bool | np.bool_) -> Verdict:
    return "agrees" if holds else "differs"


FIGURES = (
    PaperFigure("A1", "circle, descent with ReLU: histograms, the end without perceptron, energies and speeds",
                _first_settings, _first_compute, _first_draw, _first_found),
    PaperFigure("A6", "circle, descent with GeLU: histograms at convergence, the minimiser beside, both energies",
                _second_settings, _second_compute, _second_draw, _second_found),
)  # fmt: skip
