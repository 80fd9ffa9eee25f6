"""One Euler step of the paper's circle experiment against NumPy, `flow` against a bare scan, memory, compilation, N
= 10^6.

    python benchmarks/against_numpy.py [--skip-large]

NumPy as published: cosines and sines of all N^2 differences. Best dense NumPy: matrix products instead of them. Best
NumPy: Fourier modes, the same mathematics as ours. Ratios are medians of calls taken in turn within one run.
"""

import argparse
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from common import seconds, table, write

import mflandscape as mfl
from mflandscape.drifts import prepare
from mflandscape.special import fourier_modes, scaled_bessel_host
from mflandscape.sphere import AngleChart

jax.config.update("jax_enable_x64", True)
DT = 0.1
STEPS = 1000


def problem(n: int):
    """The paper's weights in form, not in numbers: two ReLU units, uniform start."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(2, 2))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    return rng.uniform(0, 2 * np.pi, n), a, rng.normal(size=2)


def perceptron(theta, a, omega):
    cos, sin = np.cos(theta), np.sin(theta)
    s = np.maximum(a[:, :1] * cos + a[:, 1:] * sin, 0)
    return (omega[:, None] * s * (a[:, 1:] * cos - a[:, :1] * sin)).sum(axis=0)


def as_published(theta, a, omega, beta):
    difference = theta[None, :] - theta[:, None]
    weight = np.exp(np.clip(beta * (np.cos(difference) - 1), -80, 0))
    drift = (weight * np.sin(difference)).sum(axis=1) / len(theta)
    return np.mod(theta - DT * (drift + perceptron(theta, a, omega)), 2 * np.pi)


def best_dense(theta, a, omega, beta):
    x = np.stack([np.cos(theta), np.sin(theta)], axis=1)
    pull = np.exp(beta * (x @ x.T - 1)) @ x / len(theta)
    drift = pull[:, 1] * x[:, 0] - pull[:, 0] * x[:, 1]
    return np.mod(theta - DT * (drift + perceptron(theta, a, omega)), 2 * np.pi)


def best_fourier(theta, a, omega, series):
    powers = np.empty((len(series), len(theta)), complex)
    powers[0] = 1
    powers[1:] = np.exp(1j * theta)
    np.multiply.accumulate(powers[1:], axis=0, out=powers[1:])
    moments = powers.mean(axis=1) * series
    drift = (moments.conj() @ powers).imag
    return np.mod(theta + DT * (drift - perceptron(theta, a, omega)), 2 * np.pi)


def ours(n: int, beta: float):
    theta, a, omega = problem(n)
    drift = mfl.Attention(beta, interaction=mfl.CircleFourier.for_beta(beta)) + mfl.Perceptron(a, omega)
    return drift, mfl.from_angles(theta), (theta, a, omega)


@eqx.filter_jit
def bare_scan(drift, mu):
    """The loop one would write by hand around the same evaluator."""
    chart, drift = AngleChart(), prepare(drift)

    def step(u, _):
        at = mu.at(chart.points(u))
        return chart.wrap(u + DT * chart.components(at.x, mfl.velocity(drift, at))), None

    return jax.lax.scan(step, chart.coordinates(mu.x), None, length=STEPS)[0]


def whole_flow(drift, mu):
    return mfl.flow(
        drift, mu, stop=mfl.MaxSteps(STEPS), integrator=mfl.Euler(DT), observe=mfl.Observe(every=10), throw=False
    )


def step_times() -> list[dict]:
    rows = []
    for n in (1000, 4000):
        for beta in (5.0, 50.0):
            drift, mu, (theta, a, omega) = ours(n, beta)
            k = np.arange(fourier_modes(beta, np.dtype(float)) + 1)
            series = 2 * k / beta * scaled_bessel_host(beta, len(k) - 1)
            numpy_steps = [
                lambda t=theta, a=a, o=omega, b=beta: as_published(t, a, o, b),
                lambda t=theta, a=a, o=omega, b=beta: best_dense(t, a, o, b),
                lambda t=theta, a=a, o=omega, s=series: best_fourier(t, a, o, s),
            ]
            same = [np.abs(np.exp(1j * f()) - np.exp(1j * numpy_steps[0]())).max() for f in numpy_steps]
            mine = mfl.flow(drift, mu, stop=mfl.MaxSteps(1), integrator=mfl.Euler(DT)).mu.x
            error = float(np.abs(np.asarray(mine) @ [1, 1j] - np.exp(1j * numpy_steps[0]())).max())
            assert max(same) < 1e-12 and error < 1e-12
            loops = [lambda d=drift, m=mu: whole_flow(d, m), lambda d=drift, m=mu: bare_scan(d, m)]
            published, dense, fourier, flow, scan = seconds(*numpy_steps, *loops)
            flow, scan = flow / STEPS, scan / STEPS
            rows.append(
                {
                    "N": n, "beta": beta, "published_ms": 1e3 * published, "dense_ms": 1e3 * dense,
                    "fourier_ms": 1e3 * fourier, "flow_ms": 1e3 * flow,
                    "published/flow": published / flow, "best dense/flow": dense / flow,
                    "best/flow": min(dense, fourier) / flow, "flow/scan": flow / scan, "error": error,
                }
            )  # fmt: skip
    return rows


def memory() -> list[dict]:
    """Temporary bytes a particle of a compiled velocity, its JVP and its VJP, beta = 50."""
    rows = []
    for name, evaluator in {"circle-fourier": mfl.CircleFourier.for_beta(50.0), "blocked": mfl.Blocked()}.items():
        drift = mfl.Attention(50.0, interaction=evaluator)
        for n in (100_000, 200_000):
            x = jnp.zeros((n, 2)).at[:, 0].set(1.0)

            def velocity(x, drift=drift):
                return mfl.velocity(drift, mfl.Measure(x, jnp.full(x.shape[0], 1 / x.shape[0])))

            programs = {
                "velocity": (velocity, (x,)),
                "jvp": (lambda x, t, f=velocity: jax.jvp(f, (x,), (t,))[1], (x, x)),
                "vjp": (lambda x, t, f=velocity: jax.vjp(f, x)[1](t), (x, x)),
            }
            row = {"interaction": name, "N": n}
            for label, (program, arguments) in programs.items():
                size = jax.jit(program).lower(*arguments).compile().memory_analysis().temp_size_in_bytes
                row[f"{label}_bytes_a_particle"] = size / n
            rows.append(row)
    return rows


def large() -> dict:
    """Seconds a step at N = 10^6, beta = 50."""
    drift, mu, _ = ours(1_000_000, 50.0)

    def run():
        observe = mfl.Observe(every=4)
        return mfl.flow(drift, mu, stop=mfl.MaxSteps(4), integrator=mfl.Euler(DT), observe=observe, throw=False)

    return {"N": 1_000_000, "beta": 50.0, "seconds_a_step": seconds(run, repeats=3)[0] / 5}


_COLD = """
import time; began = time.perf_counter()
import jax; jax.config.update("jax_enable_x64", True); jax.config.update("jax_num_cpu_devices", 2)
from mflandscape.experiment import Experiment
from mflandscape.ensemble import run_lanes
from mflandscape.presets import preset
from mflandscape.flows import loop
traces, step = [0], loop._step
def counted(problem, state):
    traces[0] += 1
    return step(problem, state)
loop._step = counted
spec = preset("paper-s1-ascent").replace(n_particles=1000, max_steps=300)
experiment, first_chunk, first_member = Experiment(spec), None, None
for chunk in run_lanes(experiment.problem, range(spec.members)):
    now = time.perf_counter() - began
    first_chunk = first_chunk or now
    if chunk.finished and first_member is None:
        first_member = now
print(traces[0], first_chunk, first_member, time.perf_counter() - began)
"""


def cold_start() -> dict:
    """A fresh process: traces of the step over the paper's 13 betas, and seconds from its start to the first chunk
    and first member.
    """
    out = subprocess.run([sys.executable, "-c", _COLD], capture_output=True, text=True, check=True).stdout.split()
    names = ("traces", "first_chunk_seconds", "first_member_seconds", "whole_seconds")
    return dict(zip(names, (int(out[0]), *map(float, out[1:])), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--skip-large", action="store_true", help="leave out N = 10^6")
    arguments = parser.parse_args()
    figures: dict = {"step": step_times()}
    table("One Euler step on the circle (medians)", figures["step"])
    figures["memory"] = memory()
    table("Temporary memory, compiled, beta = 50", figures["memory"])
    figures["cold_start"] = cold_start()
    table("Cold start: 13 betas, N = 1000, ascent ReLU", [figures["cold_start"]])
    if not arguments.skip_large:
        figures["large"] = large()
        table("A million particles", [figures["large"]])
    write("against_numpy", figures)


if __name__ == "__main__":
    main()
