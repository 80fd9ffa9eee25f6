"""From a spec to problems and records: every choice runs, and reports what NumPy finds at the same points."""

import json
import math

import jax
import numpy as np
import pytest
from scipy.special import erf

from mflandscape.experiment import Experiment
from mflandscape.runner import run
from mflandscape.spec import Spec
from mflandscape.store import open_run

SIGMA = {
    "relu": lambda s: np.maximum(s, 0),
    "gelu": lambda s: s * (1 + erf(s / math.sqrt(2))) / 2,
    "leaky_relu": lambda s: np.where(s > 0, s, 0.01 * s),
    "tanh": np.tanh,
    "softplus": lambda s: np.log1p(np.exp(-np.abs(s))) + np.maximum(s, 0),
}


def stored(spec, tmp_path, name="run"):
    report = run(spec, tmp_path / name)
    with open_run(tmp_path / name) as dataset:
        return report, dataset.load()


def cell(dataset, **index):
    return dataset.isel(dict.fromkeys(("beta", "weight_seed", "start_seed", "scale"), 0) | index)


def points(one):
    if "final_position" in one:
        return one.final_position.values.astype(float)
    theta = one.final_angle.values.astype(float)
    return np.stack([np.cos(theta), np.sin(theta)], axis=1)


def drift(x, beta, vectors, a, bias, sigma, normalized=False):
    """The drift as the published code writes it: attention over N or over its sum, and the perceptron."""
    kernel = np.exp(beta * (x @ x.T - 1))
    attention = kernel @ x / (kernel.sum(axis=1, keepdims=True) if normalized else len(x))
    v = attention + SIGMA[sigma](x @ a.T + bias) @ vectors
    return v - np.sum(v * x, axis=1, keepdims=True) * x


def vectors(one):
    return one.w.values if "w" in one else one.omega.values[:, None] * one.a.values


SLOW = ("midpoint", "tsit5", "dopri8")  # tested as integrators elsewhere
COMMON = {"n_particles": 30, "max_steps": 20, "dt": 0.05, "observe_every": 5}
CHOICES = {
    "euler": {"beta": 5.0, "activation": "relu", "stop": "published", "save": "log", "interaction": "dense"},
    "midpoint": {"dim": 3, "activation": "gelu", "stop": "stationary", "save": "every", "interaction": "blocked"},
    "rk4": {"activation": "leaky_relu", "stop": "none", "save": "times", "save_times": (0.0, 0.12, 0.5)}
    | {"attention_mode": "normalized", "interaction": "circle-fourier"},
    "tsit5": {"dim": 5, "beta": 3.0, "activation": "tanh", "save": "ends", "mlp_units": 7},
    "dopri5": {"activation": "softplus", "stop": "stationary", "gradient_mlp": False, "mlp_scale_mode": "norm"},
    "dopri8": {"dim": 3, "activation": "relu", "stop": "none", "save": "every", "attention_mode": "normalized"},
}


@pytest.mark.parametrize(
    "integrator", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CHOICES]
)
def test_every_choice_runs_and_reports_the_speed_numpy_finds(integrator, tmp_path):
    spec = Spec(**COMMON | {"integrator": integrator, "save_every": 5, "start": "uniform"} | CHOICES[integrator])
    report, dataset = stored(spec, tmp_path)
    one = cell(dataset)
    x = points(one)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, atol=1e-14)
    normalized = spec.attention_mode == "normalized"
    v = drift(x, spec.beta[0], vectors(one), one.a.values, one.bias.values, spec.activation, normalized)
    speed = np.linalg.norm(v, axis=1)
    np.testing.assert_allclose(one.residual, speed.max(), rtol=1e-11)
    np.testing.assert_allclose(one.residual_l2, math.sqrt(np.mean(speed**2)), rtol=1e-11)
    assert (one.steps == 20) and report.members[0]["stop_reason"] == "max_steps"
    gradient = not normalized and spec.gradient_mlp
    energies = one.observed_energy.values
    assert (np.diff(energies) < 0).all() if gradient else np.isnan(energies).all()
    assert int(one.snapshot_count) >= 2
    if spec.save == "times":
        assert one.snapshot_time.values.tolist() == one.time.values.tolist() == [0.0, 0.12, 0.5]
    if spec.dim > 2:
        np.testing.assert_array_equal(one.position.values[0], one.start.values)


def test_draws_are_the_published_ones_to_the_bit(tmp_path):
    seeds = (42, 3)
    _, circle = stored(Spec(**COMMON | {"start_seed": seeds, "weight_seed": (777, 9)}), tmp_path)
    assert dict(circle.sizes)["start_seed"] == 2 and circle.angle.shape[:4] == (1, 2, 2, 1)
    for k, seed in enumerate(seeds):
        drawn = np.random.default_rng(seed).uniform(0, 2 * np.pi, 30)
        for weight in range(2):
            np.testing.assert_array_equal(circle.angle.values[0, weight, k, 0, 0], drawn)
    for k, seed in enumerate((777, 9)):
        rng = np.random.default_rng(seed)
        a = rng.normal(size=(2, 2))
        np.testing.assert_array_equal(circle.a.values[k], a / np.linalg.norm(a, axis=1, keepdims=True))
        np.testing.assert_array_equal(circle.omega.values[k], rng.normal(scale=1.0, size=(2, 1))[:, 0])
    _, sphere = stored(Spec(**COMMON | {"dim": 5, "start_seed": 7}), tmp_path, "sphere")
    x = np.random.default_rng(7).normal(size=(30, 5))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    np.testing.assert_array_equal(sphere.start.values[0], x)
    np.testing.assert_array_equal(cell(sphere).position.values[0], x)


def weights_file(path, a, omega, **more):
    path.write_text(json.dumps({"activation": "gelu", "a": a, "omega": omega} | more))
    return str(path)


A = [[0.6, 0.8], [1.0, -1.0], [0.3, 0.1]]


@pytest.mark.parametrize("free", [False, True])
def test_weights_of_a_file_with_biases(free, tmp_path):
    omega = [[0.5, -0.2], [0.1, 0.9], [1.0, 0.0]] if free else (np.asarray(A) * [[2.0], [-1.0], [0.5]]).tolist()
    bias = [0.2, -0.4, 0.1]
    file = weights_file(tmp_path / "w.json", A, omega, bias=bias)
    _, dataset = stored(Spec(**COMMON | {"weights": file, "mlp_scale": (1.0, 0.5), "beta": 4.0}), tmp_path)
    assert ("w" in dataset) == free and dataset.bias.values[0].tolist() == bias
    for k, scale in enumerate((1.0, 0.5)):
        one = cell(dataset, scale=k)
        v = drift(points(one), 4.0, scale * np.asarray(omega), np.asarray(A), bias, "gelu")
        np.testing.assert_allclose(one.residual, np.linalg.norm(v, axis=1).max(), rtol=1e-12)


def test_the_exponential_convention_is_the_shifted_one_with_smaller_weights(tmp_path):
    beta, factor = 3.0, math.exp(-3.0)
    omega = np.asarray([2.0, -1.0, 0.5])
    files = [weights_file(tmp_path / f"{k}.json", A, (np.asarray(A) * (omega * c)[:, None]).tolist())
             for k, c in enumerate((1.0, factor))]  # fmt: skip
    common = COMMON | {"beta": beta, "activation": "gelu"}
    _, exponential = stored(Spec(**common, weights=files[0], kernel="exponential"), tmp_path, "e")
    _, shifted = stored(Spec(**common, weights=files[1]), tmp_path, "s")
    e, s = cell(exponential), cell(shifted)
    np.testing.assert_allclose(e.angle.values, s.angle.values, atol=1e-12)
    for name, power in (("residual", -1), ("residual_l2", -1), ("energy", -1), ("final_time", 1)):
        assert float(e[name]) == pytest.approx(float(s[name]), rel=1e-12)
        assert float(e[f"{name}_exponential"]) == pytest.approx(float(s[name]) * factor**power, rel=1e-12)
    x = points(e)
    inputs = x @ np.asarray(A).T
    cdf, pdf = (1 + erf(inputs / math.sqrt(2))) / 2, np.exp(-(inputs**2) / 2) / math.sqrt(2 * math.pi)
    potential = ((inputs**2 - 1) * cdf + inputs * pdf + 0.5) @ omega
    energy = np.exp(beta * x @ x.T).mean() / (2 * beta) + potential.mean() / 2
    assert float(e.energy_exponential) == pytest.approx(energy, rel=1e-12)
    assert "exponential" in exponential.attrs["kernel_convention"] and "energy_exponential" not in shifted
    assert "shifted" in shifted.attrs["kernel_convention"]


def test_beta_zero_runs_with_a_finite_energy(tmp_path):
    _, dataset = stored(Spec(**COMMON | {"beta": (0.0, 5.0), "weights": "none"}), tmp_path)
    x = points(cell(dataset))
    assert float(cell(dataset).energy) == pytest.approx((x @ x.T - 1).mean() / 2, abs=1e-14)
    v = x.mean(axis=0) - (x @ x.mean(axis=0))[:, None] * x
    assert float(cell(dataset).residual) == pytest.approx(np.linalg.norm(v, axis=1).max(), rel=1e-11)
    assert "a" not in dataset and dataset.weight_seed.values.tolist() == [0]


def test_float32_is_followed_and_close_to_float64(tmp_path):
    runs = [stored(Spec(**COMMON | {"dtype": t, "beta": 5.0}), tmp_path, t)[1] for t in ("float32", "float64")]
    assert [str(run.angle.dtype) for run in runs] == ["float32", "float64"]
    assert [run.attrs["dtype"] for run in runs] == ["float32", "float64"]
    gap = np.abs(cell(runs[0]).final_angle.values.astype(float) - cell(runs[1]).final_angle.values)
    assert 0 < np.minimum(gap, 2 * np.pi - gap).max() < 1e-4


def test_noise_depends_on_the_seed_and_the_member_alone(tmp_path):
    common = COMMON | {"temperature": 0.1, "weights": "none", "start": "equispaced", "stop": "none"}
    experiment = Experiment(Spec(**common, beta=(0.5, 1.0), start_seed=(7, 8)))
    for m, seed in enumerate((7, 8, 7, 8)):
        expected = jax.random.fold_in(jax.random.key(seed), m)
        np.testing.assert_array_equal(jax.random.key_data(experiment.problem(m).key), jax.random.key_data(expected))
    _, pair = stored(Spec(**common, beta=(0.5, 1.0), start_seed=(7, 8)), tmp_path, "pair")
    _, other = stored(Spec(**common, beta=(0.5, 1.0), start_seed=(7, 9)), tmp_path, "other")
    np.testing.assert_array_equal(cell(pair).final_angle, cell(other).final_angle)
    ends = {cell(pair, beta=b, start_seed=s).final_angle.values.tobytes() for b in (0, 1) for s in (0, 1)}
    ends.add(cell(other, start_seed=1).final_angle.values.tobytes())
    assert len(ends) == 5


def test_the_grid_is_numbered_with_the_scale_running_fastest():
    experiment = Experiment(Spec(beta=(1.0, 2.0), weight_seed=(5, 6), start_seed=(1, 2, 3), mlp_scale=(0.5, 2.0)))
    assert experiment.point(0) == {"beta": 1.0, "weight_seed": 5, "start_seed": 1, "scale": 0.5}
    assert experiment.point(23) == {"beta": 2.0, "weight_seed": 6, "start_seed": 3, "scale": 2.0}
    assert experiment.point(9) == {"beta": 1.0, "weight_seed": 6, "start_seed": 2, "scale": 2.0}
    assert list(experiment.siblings(9)) == [7, 9, 11]


def test_a_points_file_keeps_its_weights(tmp_path):
    theta, w = np.linspace(0.1, 6.0, 12), np.arange(1, 13) / 78
    np.savez(tmp_path / "p.npz", theta=theta, w=w)
    _, dataset = stored(Spec(start=str(tmp_path / "p.npz"), max_steps=20, weights="none", beta=2.0), tmp_path)
    one = cell(dataset)
    np.testing.assert_array_equal(one.angle.values[0], theta)
    np.testing.assert_array_equal(one.weight.values, w)
    x = points(one)
    v = np.exp(2 * (x @ x.T - 1)) @ (w[:, None] * x)
    v -= np.sum(v * x, axis=1, keepdims=True) * x
    assert float(one.residual) == pytest.approx(np.linalg.norm(v, axis=1).max(), rel=1e-11)
