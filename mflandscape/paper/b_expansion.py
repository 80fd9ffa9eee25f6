"""Paper B's comparisons with the mean-field equation: propagation of chaos (B5), and Grenier's expansion order by order
(B7).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter
from xarray import Dataset

from ..drifts import Attention
from ..flows import RK4
from ..interactions import CircleFourier
from ..meanfield import Density, chaos, cosine_density, dobrushin_constant, fit_line, grenier, solve_pde
from ..plotting.style import BETAS, BLUE, GREEN, GREY, INK, ORANGE, PAGE, key_below, new_figure, sampled, styled, tidy
from ..theory import k_max
from .clouds import STEPS, compared, mean_and_error, rate
from .registry import Finding, PaperFigure

COLORS = (BLUE, GREEN, ORANGE)
ORDERS = 3  # of the expansion


def _chaos_settings(quick: bool) -> dict[str, Any]:
    return {
        "beta": 5.0,
        "amplitude": 0.2,
        "modes": 256,
        "n": [100, 2000] if quick else [100, 1000, 10_000, 100_000],
        "seeds": 5 if quick else 16,
        "gamma_t": [0.0, 1.0, 2.0] if quick else [0.0, 0.5, 1.0, 1.5, 2.0],
    }


def _attention(beta: float) -> Attention:
    return Attention(beta, interaction=CircleFourier.for_beta(beta))


def _chaos_data(settings: dict[str, Any], folder: Path) -> dict[str, Dataset]:
    beta = settings["beta"]
    times = np.array(settings["gamma_t"]) / rate(beta)
    start = cosine_density(settings["modes"], {k_max(beta): (settings["amplitude"], 0.0)})
    step = RK4(1 / (STEPS * rate(beta)))
    found = chaos(_attention(beta), start, times, settings["n"], range(settings["seeds"]), integrator=step)
    dims = ("n", "seed", "time")
    data = Dataset(
        {"w1": (dims, found.w1, {"unit": "rad"}), "w2": (dims, found.w2, {"unit": "rad"})},
        coords={"n": settings["n"], "time": times},
        attrs={"beta": beta, "gamma": rate(beta), "dobrushin": dobrushin_constant(_attention(beta)),
               "amplitude": settings["amplitude"], "k_max": k_max(beta)},
    )  # fmt: skip
    return {"chaos": data}


@styled
def _chaos_drawing(data: Mapping[str, Dataset]) -> Figure:
    ds = data["chaos"]
    gamma, times, sizes = ds.attrs["gamma"], ds["time"].values, ds["n"].values
    figure = new_figure(PAGE, 3.0)
    left, right = figure.subplots(1, 2)
    fine = np.linspace(0, times[-1], 200)
    for n, color in zip(sizes, sampled(BETAS, len(sizes)), strict=True):
        own = ds["w1"].sel(n=n)
        mean, low, high = (own.reduce(how, "seed").values for how in (np.mean, np.min, np.max))
        left.fill_between(gamma * times, low, high, color=color, alpha=0.18, linewidth=0)
        left.plot(gamma * times, mean, color=color, marker="o")
        left.plot(gamma * fine, mean[0] * np.exp(ds.attrs["dobrushin"] * fine), color=color, linestyle=":")
        left.text(gamma * times[-1], mean[-1], f"  N = {n:g}", color=color, va="center", fontsize=7.5)
    left.set(
        yscale="log", xlabel=r"$\gamma t$", ylabel="$W_1$ to the density (rad)", xlim=(0, 1.25 * gamma * times[-1])
    )
    left.set_ylim(0.3 * float(ds["w1"].min()), 4.0)
    for name, color, marker in (("w1", BLUE, "o"), ("w2", ORANGE, "s")):
        for at, face in ((0, "white"), (len(times) - 1, color)):
            values = ds[name].isel(time=at).values
            mean, error = np.array([mean_and_error(row) for row in values]).T
            right.errorbar(sizes, mean, 2 * error, fmt=marker, color=color, markerfacecolor=face, capsize=2)
            guide = np.exp(np.log(mean).mean() - 0.5 * (np.log(sizes) - np.log(sizes).mean()))
            right.plot(sizes, guide, color=GREY, linewidth=0.7, linestyle="--")
    right.set(xscale="log", yscale="log", xlabel="Particles N", ylabel="Distance to the density (rad)")
    right.yaxis.set_minor_formatter(NullFormatter())
    dot: dict[str, Any] = {"linestyle": "none"}
    key_below(figure, [
        Line2D([], [], color=INK, linestyle=":", label="Dobrushin's bound"),
        Line2D([], [], color=BLUE, marker="o", label="$W_1$", **dot),
        Line2D([], [], color=ORANGE, marker="s", label="$W_2$", **dot),
        Line2D([], [], color=INK, marker="o", markerfacecolor="white", label="start", **dot),
        Line2D([], [], color=INK, marker="o", label=rf"$\gamma t$ = {gamma * times[-1]:g}", **dot),
        Line2D([], [], color=GREY, linestyle="--", label="slope $-1/2$"),
    ], columns=6)  # fmt: skip
    for axes in (left, right):
        tidy(axes, bare=True)
    return figure


def _chaos_findings(data: Mapping[str, Dataset]) -> list[Finding]:
    ds, found = data["chaos"], []
    x = np.log(ds["n"].values)
    for name, words in (("w1", "W_1"), ("w2", "W_2")):
        for at in (0, ds.sizes["time"] - 1):
            slopes = [fit_line(x, row).slope for row in np.log(ds[name].isel(time=at).values.T)]
            mean, error = mean_and_error(np.array(slopes))
            found.append(
                compared(
                    f"slope of {words} in N at gamma t = {ds.attrs['gamma'] * float(ds['time'][at]):.2g}",
                    "-1/2, between -0.6 and -0.4 (propagation of chaos)",
                    f"{mean:.3f} +- {error:.3f}",
                    -0.6 <= mean <= -0.4,
                )
            )
    first, last, span = ds["w1"].isel(time=0), ds["w1"].isel(time=-1), float(ds["time"][-1])
    growth = np.log((ds["w1"] / first).values[..., 1:]) / ds["time"].values[1:]
    fastest, bound = float(growth.max()), ds.attrs["dobrushin"]
    folds = f"{float((last / first).mean()):.1f}-fold, the bound {np.exp(bound * span):.0e}-fold"
    found.append(
        compared(
            "growth of W_1, log(W_1(t)/W_1(0))/t, every N, seed and time",
            f"at most C = {bound:g} (Dobrushin)",
            f"largest {fastest:.3f} = {fastest / ds.attrs['gamma']:.2f} gamma; by t = {span:.3g} W_1 grows {folds}",
            fastest <= bound,
        )
    )
    return found


def _expansion_settings(quick: bool) -> dict[str, Any]:
    return {
        "beta": 5.0,
        "modes": 64,
        "deltas": [0.01, 0.03, 0.1] if quick else [0.003, 0.01, 0.03, 0.1, 0.3],
        "delta_of_times": 0.03,
        "gamma_t": [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0],
        "at": 1.0,
        "seeds": 2 if quick else 4,
    }


def _shape(beta: float, seed: int, modes: int, delta: float) -> Density:
    """`1 + delta (cos k theta + 1/2 cos((k - 1) theta + a) + 1/2 cos((k + 1) theta + b))`, random phases a and b."""
    k, (a, b) = k_max(beta), np.random.default_rng(seed).uniform(0, 2 * np.pi, 2)
    terms = {k: (delta, 0.0), k - 1: (delta / 2, float(a)), k + 1: (delta / 2, float(b))}
    return cosine_density(modes, terms)


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Root mean square over the circle of the difference of `2 pi rho`, from moments `(S, K + 1, 2)`."""
    return np.sqrt(2 * ((a - b) ** 2).sum(axis=(1, 2)))


def _expansion_data(settings: dict[str, Any], folder: Path) -> dict[str, Dataset]:
    beta, modes, deltas = settings["beta"], settings["modes"], settings["deltas"]
    drift, times = _attention(beta), np.array(settings["gamma_t"]) / rate(beta)
    errors = np.full((settings["seeds"], len(deltas), ORDERS + 1, len(times)), np.nan)
    for seed in range(settings["seeds"]):
        unit = deltas[0]
        expansion = grenier(drift, _shape(beta, seed, modes, unit), times, ORDERS)
        for i, delta in enumerate(deltas):
            truth = solve_pde(drift, _shape(beta, seed, modes, delta), times, direction="ascent").densities
            for order in range(ORDERS + 1):
                sum_of = expansion.density(order, delta / unit)
                errors[seed, i, order] = _distance(np.asarray(sum_of.moments), np.asarray(truth.moments))
    data = Dataset(
        {"error": (("seed", "delta", "order", "time"), errors)},
        coords={"delta": deltas, "order": np.arange(ORDERS + 1), "time": np.array(settings["gamma_t"])},
        attrs={"beta": beta, "at": settings["at"], "delta_of_times": settings["delta_of_times"]},
    )
    return {"expansion": data}


@styled
def _expansion_drawing(data: Mapping[str, Dataset]) -> Figure:
    ds = data["expansion"]
    figure = new_figure(PAGE, 2.9)
    left, right = figure.subplots(1, 2)
    at, delta = ds.attrs["at"], ds.attrs["delta_of_times"]
    for order, color in zip(ds["order"].values, (GREY, *COLORS), strict=True):
        for axes, x, along in (
            (left, ds["delta"].values, ds["error"].sel(order=order, time=at)),
            (right, ds["time"].values[1:], ds["error"].sel(order=order, delta=delta)[:, 1:]),
        ):
            mean = along.mean("seed").values
            axes.plot(x, mean, "o", color=color)
            low, high = along.min("seed").values, along.max("seed").values
            axes.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)
        values = ds["error"].sel(order=order, time=at).mean("seed").values
        middle = 1
        slope = (order + 1) * np.log(ds["delta"].values / ds["delta"].values[middle])
        left.plot(ds["delta"], values[middle] * np.exp(slope), color=color, linewidth=0.8, linestyle="--")
        values = ds["error"].sel(order=order, delta=delta).mean("seed").values
        one = int(np.flatnonzero(ds["time"].values == at)[0])
        right.plot(ds["time"], values[one] * np.exp((order + 1) * (ds["time"] - at)), color=color, linewidth=0.8,
                   linestyle="--")  # fmt: skip
    least = float(ds["error"].sel(delta=delta).isel(time=1).min())
    left.set(xscale="log", yscale="log", xlabel=r"Size $\delta$ of the perturbation", ylabel="Error (rms of density)")
    left.set_title(rf"$\gamma t$ = {at:g}, $\beta$ = {ds.attrs['beta']:g}")
    right.set(yscale="log", xlabel=r"$\gamma t$", ylabel="Error (rms of density)", ylim=(least / 3, 10))
    right.set_title(rf"$\delta$ = {delta:g}")
    names = ["uniform measure", "order 1 (linear)", *(f"order {n}" for n in range(2, ORDERS + 1))]
    dots = zip((GREY, *COLORS), names, strict=True)
    key_below(figure, [
        *(Line2D([], [], color=color, marker="o", linestyle="none", label=name) for color, name in dots),
        Line2D([], [], color=INK, linewidth=0.8, linestyle="--", label=r"$(\delta e^{\gamma t})^{n + 1}$"),
    ], columns=5)  # fmt: skip
    for axes in (left, right):
        tidy(axes, bare=True)
    return figure


def _expansion_findings(data: Mapping[str, Dataset]) -> list[Finding]:
    ds, found = data["expansion"], []
    small = ds["delta"].values <= 0.1
    for order in ds["order"].values:
        rows = ds["error"].sel(order=order, time=ds.attrs["at"]).values[:, small]
        slopes = np.array([fit_line(np.log(ds["delta"].values[small]), np.log(row)).slope for row in rows])
        mean, error = mean_and_error(slopes)
        found.append(
            compared(
                f"order {order}: exponent of delta in the error at gamma t = {ds.attrs['at']:g}",
                f"{order + 1} (Grenier's expansion: what is left out is of the next order)",
                f"{mean:.3f} +- {error:.3f}",
                abs(mean - order - 1) <= 0.1,
            )
        )
    return found


FIGURES = (
    PaperFigure(
        "B5", "Propagation of chaos: W_1 and W_2 between N particles and the density", _chaos_settings, _chaos_data,
        _chaos_drawing, _chaos_findings,
    ),
    PaperFigure(
        "B7", "Grenier's expansion against the true solution, order by order", _expansion_settings, _expansion_data,
        _expansion_drawing, _expansion_findings,
    ),
)  # fmt: skip
