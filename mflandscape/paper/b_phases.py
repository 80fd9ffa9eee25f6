"""Paper B's phases: how long the linear, the quasi-linear and the clustering one last (B3), and the periodicity that is
kept in the second (B4).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from xarray import Dataset

from ..meanfield import prepared_density
from ..plotting.style import BLUE, GREEN, GREY, INK, ORANGE, PAGE, key_below, new_figure, styled, tidy
from ..theory import eigenvalues, growth_rates, k_max
from .clouds import clouds, compared, fitted_slope, lattice_angles, mean_and_error, random_angles
from .registry import Finding, PaperFigure

ENDS = ("linear", "quasi-linear", "clustering")
COLORS = (BLUE, GREEN, ORANGE)
LOOKS = 4  # in the time 1/gamma
FORMED = 0.5  # largest |M_k| at the end of the quasi-linear phase
STILL = 0.1  # clustering ends when the dissipation has fallen to this share of its peak
LONG = 10  # time watched after the predicted exit, in 1/gamma


def crossing(values: Float[np.ndarray, "S T"], level: float) -> np.ndarray:
    """Where each row first reaches the level, by linear interpolation between looks; nan where it never does."""
    reached = values >= level
    at = np.maximum(reached.argmax(axis=1), 1)
    row = np.arange(len(values))
    before, after = values[row, at - 1], values[row, at]
    part = np.clip((level - before) / np.where(after > before, after - before, 1.0), 0.0, 1.0)
    return np.where(reached.any(axis=1), at - 1 + part, np.nan)


def phase_ends(modes: np.ndarray, beta: float) -> Float[np.ndarray, "S 3"]:
    """`gamma t` at which the three phases of each path `(S, T, K + 1)` of modes end.

    Linear: until the nonlinear part `|M_2k - e^{gamma_2k t} M_2k(0)|` of the mode `2 k_max` reaches the linear one: the
    harmonic then follows `M_k^2`. Quasi-linear: until the largest `|M_k|` reaches 1/2. Clustering: until the
    dissipation `dE/dt` falls to a tenth of its peak.
    """
    k, last = k_max(beta), modes.shape[2] - 1
    rates = growth_rates(beta, 2, range(last + 1))
    times = np.arange(modes.shape[1]) / LOOKS
    linear = modes[:, :1, 2 * k] * np.exp(rates[2 * k] / rates[k] * times)
    left = crossing(np.abs(modes[:, :, 2 * k] - linear) / np.abs(linear), 1.0)
    formed = crossing(np.abs(modes[:, :, 1:]).max(axis=2), FORMED)
    energy = (np.abs(modes[:, :, 1:]) ** 2) @ eigenvalues(beta, 2, range(1, last + 1))
    dissipation = np.gradient(energy, axis=1)
    peak = np.maximum.accumulate(dissipation, axis=1)
    after = np.arange(modes.shape[1]) > formed[:, None]
    still = crossing(np.where(after, STILL * peak / np.maximum(dissipation, 1e-300), 0.0), 1.0)
    return np.stack([left, formed, still], axis=1) / LOOKS


def _phase_settings(quick: bool) -> dict[str, Any]:
    sizes = [500, 2000] if quick else [1000, 3000, 10_000, 30_000, 100_000]
    return {"beta": 5.0, "n": sizes, "seeds": [24 if quick else max(8, min(64, 800_000 // n)) for n in sizes]}


def _phase_data(settings: dict[str, Any], folder: Path) -> dict[str, Dataset]:
    beta, sizes, seeds = settings["beta"], settings["n"], settings["seeds"]
    ends = np.full((len(sizes), max(seeds), 3), np.nan)
    paths = {}
    for i, (n, count) in enumerate(zip(sizes, seeds, strict=True)):
        starts = np.array([[random_angles(1000 * i + seed, n) for seed in range(count)]])
        _, modes = clouds([beta], starts, round(np.log(n) / 2) + LONG, LOOKS)
        ends[i, :count] = phase_ends(modes[0], beta)
        paths[n] = modes[0, 0]
    shown = np.abs(paths[sizes[-1]])
    rates = growth_rates(beta, 2, [k_max(beta), 2 * k_max(beta)])
    data = Dataset(
        {
            "end": (("n", "seed", "phase"), ends, {"unit": "1/gamma"}),
            "shown": (("time", "mode"), shown[:, 1 : 3 * k_max(beta) + 1]),
        },
        coords={"n": sizes, "phase": list(ENDS), "time": np.arange(len(shown)) / LOOKS,
                "mode": np.arange(1, 3 * k_max(beta) + 1)},
        attrs={"beta": beta, "k_max": k_max(beta), "gamma": float(rates[0]), "harmonic": float(rates[1] / rates[0])},
    )  # fmt: skip
    return {"phases": data}


def _predicted(ds: Dataset) -> tuple[float, float, float]:
    """Slopes of the phases' ends in log N, in 1/gamma.

    The harmonic is left when `N^{-1} e^{2 gamma t} = N^{-1/2} e^{gamma_2k t}`; the perturbation is of size one when
    `N^{-1/2} e^{gamma t} = 1`; the rest does not depend on N.
    """
    return 1 / (2 * (2 - ds.attrs["harmonic"])), 0.5, 0.5


@styled
def _phase_drawing(data: Mapping[str, Dataset]) -> Figure:
    ds = data["phases"]
    sizes, k = ds["n"].values, ds.attrs["k_max"]
    figure = new_figure(PAGE, 2.9)
    left, right = figure.subplots(1, 2)
    for mode, color, name in ((k, INK, r"$|M_k|$, $k = k_{\max}$"), (2 * k, GREY, r"$|M_{2k}|$")):
        left.plot(ds["time"], ds["shown"].sel(mode=mode), color=color, label=name)
    left.legend(loc="lower right")
    edges = [0.0, *ds["end"].isel(n=-1, seed=0).values]
    for low, high, color in zip(edges, edges[1:], COLORS, strict=False):
        left.axvspan(low, high, color=color, alpha=0.18, linewidth=0)
    left.set(yscale="log", xlabel=r"$\gamma t$", xlim=(0, float(ds["time"][-1])), ylim=(None, 1.6))
    left.set_title(rf"One random cloud, N = {sizes[-1]}, $\beta$ = {ds.attrs['beta']:g}")
    x = np.log(sizes)
    for name, color, slope in zip(ENDS, COLORS, _predicted(ds), strict=True):
        ends = ds["end"].sel(phase=name).values
        mean, error = np.array([mean_and_error(row) for row in ends]).T
        right.errorbar(sizes, mean, 2 * error, color=color, fmt="o", capsize=2, elinewidth=0.9)
        right.plot(sizes, mean.mean() + slope * (x - x.mean()), color=color, linewidth=0.9, linestyle="--")
    right.set(xscale="log", xlabel="Particles N", ylabel=r"$\gamma t$ at the end of the phase", ylim=(0, None))
    right.set_xticks(sizes, [f"{n:g}" for n in sizes])
    right.minorticks_off()
    dots = [Line2D([], [], color=c, marker="o", linestyle="none", label=n) for n, c in zip(ENDS, COLORS, strict=True)]
    key_below(figure, [
        *dots,
        Line2D([], [], color=INK, linestyle="--", linewidth=0.9, label="predicted slope in log N"),
    ], columns=4)  # fmt: skip
    for axes in (left, right):
        tidy(axes, bare=True)
    return figure


def _phase_findings(data: Mapping[str, Dataset]) -> list[Finding]:
    ds = data["phases"]
    x, linear, exit_slope = np.log(ds["n"].values), *_predicted(ds)[:2]
    ends = ds["end"].values
    spans = {
        "linear phase": (ends[..., 0], linear, "1/(2 (2 - gamma_2k/gamma_k)): M_2k becomes M_k^2"),
        "quasi-linear phase": (ends[..., 1] - ends[..., 0], exit_slope - linear, "the rest of 1/2"),
        "both, until |M_k| = 1/2": (ends[..., 1], exit_slope, "paper B: log(N)/(2 gamma)"),
        "clustering phase": (ends[..., 2] - ends[..., 1], 0.0, "paper B: no dependence on N"),
    }
    found = []
    for name, (values, expected, source) in spans.items():
        mean, error = np.array([mean_and_error(row) for row in values]).T
        slope, uncertain = fitted_slope(x, mean, error)
        lasts = f"lasts {mean[0]:.2f} to {mean[-1]:.2f} for N = {int(ds['n'][0])} to {int(ds['n'][-1])}"
        found.append(
            compared(
                f"{name}: growth of gamma t with log N at beta = {ds.attrs['beta']:g}",
                f"{expected:.3f} within 0.05 and 3 standard errors ({source})",
                f"{slope:.3f} +- {uncertain:.3f}; {lasts}",
                abs(slope - expected) <= 3 * uncertain + 0.05,
            )
        )
    return found


def _period_settings(quick: bool) -> dict[str, Any]:
    return {
        "betas": [5.0, 25.0] if quick else [5.0, 25.0, 50.0],
        "n": 1000 if quick else 10_000,
        "seeds": 3 if quick else 8,
        "amplitude": 0.01,
        "noise": 1e-3,
        "gamma_t": 12,
    }


def _period_data(settings: dict[str, Any], folder: Path) -> dict[str, Dataset]:
    betas, n, seeds = settings["betas"], settings["n"], range(settings["seeds"])

    def regular(beta: float, seed: int) -> np.ndarray:
        return lattice_angles(prepared_density(k_max(beta), settings["amplitude"], settings["noise"], seed), n)

    starts = [[regular(beta, s) for s in seeds] + [random_angles(s + 100 * i, n) for s in seeds]
              for i, beta in enumerate(betas)]  # fmt: skip
    _, modes = clouds(betas, np.array(starts), settings["gamma_t"], LOOKS)
    power = np.abs(modes.reshape(len(betas), 2, len(seeds), *modes.shape[2:])) ** 2
    shares, largest, others = [], [], []
    for row, beta in zip(power, betas, strict=True):
        k = k_max(beta)
        shares.append(row[..., k::k].sum(-1) / row[..., 1:].sum(-1))
        largest.append(np.sqrt(row[..., [k, 2 * k, 3 * k]]))
        others.append(np.sqrt(np.delete(row, np.arange(0, row.shape[-1], k), axis=-1).max(-1)))
    dims = ("beta", "start", "seed", "time")
    data = Dataset(
        {
            "share": (dims, np.array(shares)),
            "harmonic": ((*dims, "multiple"), np.array(largest)),
            "other": (dims, np.array(others)),
        },
        coords={"beta": betas, "start": ["prepared", "random"], "multiple": [1, 2, 3],
                "time": np.arange(modes.shape[2]) / LOOKS},
        attrs={"n": n, "amplitude": settings["amplitude"], "noise": settings["noise"]},
    )  # fmt: skip
    return {"periods": data}


@styled
def _period_drawing(data: Mapping[str, Dataset]) -> Figure:
    ds = data["periods"]
    time = ds["time"].values
    figure = new_figure(PAGE, 2.9)
    left, right = figure.subplots(1, 2)
    for beta, color in zip(ds["beta"].values, COLORS, strict=False):
        for start, style in (("prepared", "-"), ("random", "--")):
            share = ds["share"].sel(beta=beta, start=start).values
            left.plot(time, share.mean(axis=0), color=color, linestyle=style)
            left.fill_between(time, share.min(axis=0), share.max(axis=0), color=color, alpha=0.18, linewidth=0)
    left.set(xlabel=r"$\gamma t$", ylabel=r"Share of the multiples of $k_{\max}$", ylim=(0, 1.03), xlim=(0, time[-1]))
    beta = ds["beta"].values[-1]
    one = ds.sel(beta=beta, start="prepared").isel(seed=0)
    for multiple, color, name in ((1, BLUE, "$|M_k|$"), (2, GREEN, "$|M_{2k}|$"), (3, ORANGE, "$|M_{3k}|$")):
        values = one["harmonic"].sel(multiple=multiple).values
        right.plot(time, values, color=color, label=name)
    first = float(one["harmonic"].sel(multiple=1)[0])
    right.plot(time, first * np.exp(time), color=BLUE, linewidth=0.8, linestyle=":", label=r"$e^{\gamma t}$")
    right.plot(time, one["other"], color=GREY, label="largest other mode")
    right.set(yscale="log", xlabel=r"$\gamma t$", ylabel="Amplitude", xlim=(0, time[-1]), ylim=(1e-6, 3))
    right.set_title(rf"A prepared start, $\beta$ = {beta:g}")
    right.legend(loc="lower right")
    key_below(figure, [
        *(Line2D([], [], color=c, label=rf"$\beta$ = {b:g}") for b, c in zip(ds["beta"].values, COLORS, strict=False)),
        Line2D([], [], color=INK, label="prepared"),
        Line2D([], [], color=INK, linestyle="--", label=f"random; bands: {ds.sizes['seed']} seeds"),
    ], columns=5)  # fmt: skip
    for axes in (left, right):
        tidy(axes, bare=True)
    return figure


def _period_findings(data: Mapping[str, Dataset]) -> list[Finding]:
    ds, found = data["periods"], []
    for beta in ds["beta"].values:
        row = ds.sel(beta=beta)
        k = k_max(beta)
        main = row["harmonic"].sel(multiple=1)
        quasi = (main >= 0.1) & (main <= FORMED)
        share = row["share"].where(quasi)
        prepared, random = (share.sel(start=start).min("time").values for start in ("prepared", "random"))
        mean, error = mean_and_error(prepared)
        found.append(
            compared(
                f"least share of the multiples of {k} while 0.1 <= |M_{k}| <= 0.5, prepared start, beta = {beta:g}",
                "above 0.95 (the phase stays 2 pi/k_max-periodic, paper B)",
                f"{mean:.4f} +- {error:.4f}, least of the seeds {prepared.min():.4f}",
                bool(prepared.min() > 0.95),
            )
        )
        mean, error = mean_and_error(random)
        rates = np.sort(growth_rates(beta, 2, range(1, 3 * k + 3)))[::-1]
        power = (1 - rates[1] / rates[0]) / 2
        found.append(
            Finding(
                f"the same from random starts, N = {ds.attrs['n']}, beta = {beta:g}",
                f"tends to 1 only as N^{power:.3f} grows: the next mode's rate is {rates[1] / rates[0]:.2f} gamma",
                f"{mean:.2f} +- {error:.2f}",
                "not comparable",
            )
        )
    return found


FIGURES = (
    PaperFigure(
        "B3", "The linear, quasi-linear and clustering phases: durations against log N", _phase_settings, _phase_data,
        _phase_drawing, _phase_findings,
    ),
    PaperFigure(
        "B4", "Periodicity kept in the quasi-linear phase", _period_settings, _period_data, _period_drawing,
        _period_findings,
    ),
)  # fmt: skip
