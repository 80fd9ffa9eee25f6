"""Paper B's spectrum: the coefficients of the kernel and the fastest mode against beta (B1), and the growth of the
modes next to it, measured (B2).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from xarray import Dataset

from ..drifts import Attention
from ..interactions import CircleFourier
from ..meanfield import Density, cosine_density, growth_rate, solve_pde
from ..plotting.style import BETAS, BLUE, FAINT, GREEN, INK, ORANGE, PAGE, key_below, new_figure, sampled, styled, tidy
from ..special import fourier_modes
from ..theory import eigenvalues, growth_rates, k_max
from .clouds import clouds, compared, lattice_angles, mean_and_error, random_angles, rate
from .registry import Finding, PaperFigure

TABLE = {1.0: 1, 5.0: 3, 25.0: 7, 50.0: 10, 100.0: 14}  # k_max on the circle


def _coefficient_settings(quick: bool) -> dict[str, Any]:
    return {"betas": list(TABLE), "dims": [2, 3, 8], "degrees": 30, "curve": 60 if quick else 400, "largest": 200.0}


def _coefficient_data(settings: dict[str, Any], folder: Path) -> dict[str, Dataset]:
    betas, dims, degrees = settings["betas"], settings["dims"], np.arange(settings["degrees"] + 1)
    curve, dims_of = np.geomspace(0.1, settings["largest"], settings["curve"]), ("d", "beta", "degree")
    data = Dataset(
        {
            "coefficient": (dims_of, np.array([[eigenvalues(b, d, degrees) for b in betas] for d in dims])),
            "rate": (dims_of, np.array([[growth_rates(b, d, degrees) for b in betas] for d in dims])),
            "quadrature": (("beta", "degree"), np.array([_circle_integrals(beta, degrees) for beta in betas])),
            "k_max": (("d", "curve"), np.array([[k_max(beta, d) for beta in curve] for d in dims])),
        },
        coords={"d": dims, "beta": betas, "degree": degrees, "curve": curve},
    )
    return {"coefficients": data}


def _circle_integrals(beta: float, degrees: np.ndarray) -> np.ndarray:
    """`1/2 pi ∫ e^{beta (cos t - 1)} cos(l t) dt` by the trapezoidal rule, whose error is below rounding here."""
    t = 2 * np.pi * np.arange(512) / 512
    return (np.exp(beta * (np.cos(t) - 1)) * np.cos(np.multiply.outer(degrees, t))).mean(axis=-1)


@styled
def _coefficient_drawing(data: Mapping[str, Dataset]) -> Figure:
    ds = data["coefficients"]
    figure = new_figure(PAGE, 2.8)
    left, middle, right = figure.subplots(1, 3)
    colors = sampled(BETAS, ds.sizes["beta"])
    degree = ds["degree"].values
    for beta, color in zip(ds["beta"].values, colors, strict=True):
        for d, style in ((2, "-"), (3, ":")):
            left.plot(degree, ds["coefficient"].sel(d=d, beta=beta), color=color, linestyle=style)
        rates = ds["rate"].sel(d=2, beta=beta).values
        middle.plot(degree[1:], rates[1:] / rates.max(), color=color, marker=".", markersize=3)
        peak = int(rates.argmax())
        middle.plot(peak, 1.0, marker="o", markerfacecolor="none", color=color)
        middle.annotate(f"{peak}", (peak, 1.0), xytext=(0, 5), textcoords="offset points", ha="center", fontsize=7.5)
    left.set(yscale="log", ylim=(1e-8, 2), xlabel="Degree $l$", ylabel=r"Coefficient $\Lambda_l$")
    middle.set(xlabel="Mode $k$", ylabel=r"$\gamma_k / \gamma_{k_{\max}}$, circle", ylim=(0, 1.15))
    for d, color in zip(ds["d"].values, (BLUE, GREEN, ORANGE), strict=False):
        right.plot(ds["curve"], ds["k_max"].sel(d=d), color=color, label=f"d = {d}", drawstyle="steps-post")
    right.plot(
        ds["curve"], np.sqrt(2 * ds["curve"]), color=INK, linewidth=0.8, linestyle="--", label=r"$\sqrt{2\beta}$"
    )
    right.set(xlabel=r"Inverse temperature $\beta$", ylabel=r"$k_{\max}$", ylim=(0, None), xlim=(0, None))
    right.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    right.legend(loc="upper left")
    key_below(figure, [
        *(Line2D([], [], color=c, label=rf"$\beta$ = {b:g}") for b, c in zip(ds["beta"].values, colors, strict=True)),
        Line2D([], [], color=INK, label="d = 2 (Bessel)"),
        Line2D([], [], color=INK, linestyle=":", label="d = 3 (Gegenbauer)"),
    ], columns=7)  # fmt: skip
    for axes in (left, middle, right):
        tidy(axes, bare=True)
    return figure


def _coefficient_findings(data: Mapping[str, Dataset]) -> list[Finding]:
    ds = data["coefficients"]
    circle = ds["rate"].sel(d=2)
    found = [
        compared(
            f"k_max at beta = {beta:g}, circle",
            f"{TABLE[float(beta)]} (paper B's argmax of gamma_k)",
            f"{rates.argmax()}; the next mode's rate is {np.sort(rates)[-2] / rates.max():.3f} of it",
            int(rates.argmax()) == TABLE[float(beta)],
        )
        for beta, rates in zip(ds["beta"].values, circle.values, strict=True)
    ]
    error = float(np.abs(ds["coefficient"].sel(d=2) - ds["quadrature"]).max())
    curve = ds["curve"].values
    far = float(np.abs(ds["k_max"].sel(d=2).values - np.sqrt(2 * curve))[curve >= 1].max())
    return found + [
        compared("coefficients on the circle", "integrals of the kernel", f"within {error:.1e}", error < 1e-14),
        compared("k_max on the circle, 1 <= beta <= 200", "sqrt(2 beta) within 1", f"within {far:.2f}", far <= 1),
    ]


def _growth_settings(quick: bool) -> dict[str, Any]:
    return {
        "betas": [5.0, 25.0] if quick else list(TABLE),
        "around": 2,
        "amplitude": 1e-4,
        "seeds": 2 if quick else 4,
        "random_seeds": 6 if quick else 16,
        "n": 2000 if quick else 50_000,
        "gamma_t": 1,
    }


def _modes_around(beta: float, around: int) -> list[int]:
    k = k_max(beta)
    return [mode for mode in range(k - around, k + around + 1) if mode >= 1]


def _start(beta: float, seed: int, settings: dict[str, Any], modes: int) -> Density:
    """All modes around k_max at one amplitude, of random phases."""
    around = _modes_around(beta, settings["around"])
    phases = np.random.default_rng(seed).uniform(0, 2 * np.pi, len(around))
    return cosine_density(modes, {k: (settings["amplitude"], p) for k, p in zip(around, phases, strict=True)})


def _fits(times: np.ndarray, amplitudes: np.ndarray) -> np.ndarray:
    """Rates of growth over `gamma` of amplitudes `(S, T)`."""
    return np.array([growth_rate(times, row, ceiling=1.0).slope for row in amplitudes])


def _growth_data(settings: dict[str, Any], folder: Path) -> dict[str, Dataset]:
    betas, n, around = settings["betas"], settings["n"], settings["around"]
    modes, looks = fourier_modes(max(betas), np.float64), 4
    starts = [[_start(beta, seed, settings, modes) for seed in range(settings["seeds"])] for beta in betas]
    random = [[random_angles(100 * i + s, n) for s in range(settings["random_seeds"])] for i in range(len(betas))]
    angles = [[lattice_angles(law, n) for law in laws] + drawn for laws, drawn in zip(starts, random, strict=True)]
    _, series = clouds(betas, np.array(angles), settings["gamma_t"], looks)
    times = np.arange(series.shape[2]) / looks
    seeds = {"particles": settings["seeds"], "random": settings["random_seeds"], "density": settings["seeds"]}
    measured = {name: np.full((len(betas), 2 * around + 1, count), np.nan) for name, count in seeds.items()}
    for i, beta in enumerate(betas):
        drift = Attention(beta, interaction=CircleFourier(modes))
        solved = [solve_pde(drift, law, times / rate(beta), direction="ascent").densities for law in starts[i]]
        for mode in _modes_around(beta, around):
            at = mode - k_max(beta) + around
            paths = np.abs(series[i, :, :, mode])
            measured["particles"][i, at] = _fits(times, paths[: settings["seeds"]])
            measured["random"][i, at] = _fits(times, paths[settings["seeds"] :])
            measured["density"][i, at] = _fits(times, np.array([np.asarray(law.amplitude(mode)) for law in solved]))
    offsets = np.arange(-around, around + 1)
    expected = np.array([[_relative(beta, k_max(beta) + int(offset)) for offset in offsets] for beta in betas])
    data = Dataset(
        {
            **{name: (("beta", "offset", f"{name}_seed"), values) for name, values in measured.items()},
            "expected": (("beta", "offset"), expected, {"unit": "gamma of the fastest mode"}),
        },
        coords={"beta": betas, "offset": offsets},
        attrs={"n": n, "amplitude": settings["amplitude"], "gamma_t": settings["gamma_t"]},
    )
    return {"growth": data}


def _relative(beta: float, mode: int) -> float:
    return float(growth_rates(beta, 2, [mode])[0]) / rate(beta) if mode >= 1 else float("nan")


@styled
def _growth_drawing(data: Mapping[str, Dataset]) -> Figure:
    ds = data["growth"]
    figure = new_figure(PAGE, 2.9)
    left, right = figure.subplots(1, 2)
    for beta, color in zip(ds["beta"].values, sampled(BETAS, ds.sizes["beta"]), strict=True):
        modes = list(range(1, k_max(beta) + 6))
        left.plot(modes, [_relative(beta, mode) for mode in modes], color=color, linewidth=0.9)
        at = k_max(beta) + ds["offset"].values
        row = ds.sel(beta=beta)
        left.plot(at, row["particles"].mean("particles_seed"), "o", color=color, markersize=3.6)
        left.plot(at, row["density"].mean("density_seed"), "s", color=color, markersize=6, markerfacecolor="none")
        peak = rf"$\beta$ = {beta:g}"
        left.annotate(peak, (k_max(beta), 1.0), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=7)
        ratio = row["random"].values / row["expected"].values[:, None]
        mean, error = np.array([mean_and_error(values) for values in ratio]).T
        shift = 0.07 * (list(ds["beta"].values).index(beta) - (ds.sizes["beta"] - 1) / 2)
        right.errorbar(
            ds["offset"] + shift, mean, 2 * error, fmt="o", color=color, capsize=2, elinewidth=0.8, markersize=3
        )
    left.set(xlabel="Mode $k$", ylabel=r"Growth rate over $\gamma_{k_{\max}}$", ylim=(0, 1.2), xlim=(0, None))
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.axhline(1, color=INK, linewidth=0.6)
    right.axhspan(0.99, 1.01, color=FAINT, alpha=0.4, linewidth=0)
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.set(xlabel=r"$k - k_{\max}$", ylabel=r"Measured rate over $\gamma_k$")
    right.set_title(f"Random starts, N = {ds.attrs['n']}, {ds.sizes['random_seed']} seeds; bars: 2 s.e., band: 1%")
    key_below(figure, [
        Line2D([], [], color=INK, linewidth=0.9, label=r"$\gamma_k$"),
        Line2D([], [], color=INK, marker="o", linestyle="none", label="particles, prepared start"),
        Line2D([], [], color=INK, marker="s", markerfacecolor="none", linestyle="none", label="mean-field equation"),
    ], columns=3)  # fmt: skip
    for axes in (left, right):
        tidy(axes, bare=True)
    return figure


def _growth_findings(data: Mapping[str, Dataset]) -> list[Finding]:
    ds, found = data["growth"], []
    for beta in ds["beta"].values:
        row = ds.sel(beta=beta)
        expected = row["expected"].values[:, None]
        modes = _modes_around(float(beta), int(ds["offset"].max()))
        for name, words in (("particles", f"{ds.attrs['n']} particles"), ("density", "mean-field equation")):
            worst = float(np.nanmax(np.abs(row[name].values / expected - 1)))
            found.append(
                compared(
                    f"growth of the modes {modes[0]} to {modes[-1]} at beta = {beta:g}, {words}",
                    "gamma_k within 1%",
                    f"worst of {row[name].shape[-1]} seeds {100 * worst:.3f}% off",
                    worst < 0.01,
                )
            )
        middle = row.sel(offset=0)
        mean, error = mean_and_error(middle["random"].values)
        found.append(
            compared(
                f"growth of the mode {k_max(beta)} at beta = {beta:g}, random starts, gamma t <= {ds.attrs['gamma_t']}",
                "1 gamma, but for the interaction of modes of size N^(-1/2)",
                f"{mean:.3f} +- {error:.3f} gamma",
                abs(mean - 1) <= 3 * error + 0.01,
            )
        )
    return found


FIGURES = (
    PaperFigure(
        "B1", "Gegenbauer and Bessel coefficients, growth rates and k_max against beta", _coefficient_settings,
        _coefficient_data, _coefficient_drawing, _coefficient_findings,
    ),
    PaperFigure(
        "B2", "Growth of the modes around k_max, measured, against gamma_k", _growth_settings, _growth_data,
        _growth_drawing, _growth_findings,
    ),
)  # fmt: skip
