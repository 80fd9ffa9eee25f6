"""The published code's trajectories (126 cases), by every evaluator: velocities, positions and energies in float64.

Cases that share attention mode, direction and integrator share one compiled program: perceptrons that a case lacks
have weights 0.
"""

import json
import math
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

from mflandscape import sphere
from mflandscape.drifts import Attention, FreePerceptron, Perceptron, SoftmaxAttention
from mflandscape.flows import RK4, Euler, MaxSteps, Midpoint, Observe, Problem, SaveEvery, Unrolled
from mflandscape.flows.solve import solve
from mflandscape.gradient import velocity
from mflandscape.interactions import Blocked, CircleFourier, Dense
from mflandscape.measure import empirical, from_angles

DATA = Path(__file__).parent / "data"
INDEX = json.loads((DATA / "trajectories.json").read_text())
REFERENCE = {d: dict(np.load(DATA / f"trajectories_d{d}.npz")) for d in (2, 3)}
INTEGRATORS = {"euler": Euler, "rk2": Midpoint, "rk4": RK4}
EVALUATORS = {2: ("dense", "blocked", "circle"), 3: ("dense", "blocked")}
ACTIVATIONS = ("relu", "gelu")
NOUNS = {"unnormalized": Attention, "normalized": SoftmaxAttention}


def group_of(case):
    return case["d"], case["attention_mode"], case["ascending"], case["mlp"] == "nongradient", case["integrator"]


GROUPS = sorted({group_of(case) for case in INDEX["cases"]})


def is_slow(group, evaluator):
    """Dense sums run the whole circle every time; the rest runs Euler with potentials only."""
    d, _, _, free, integrator = group
    plain = integrator == "euler" and not free
    return not plain and (evaluator != "dense" or d == 3)


PROGRAMS = [
    pytest.param(group, evaluator, marks=[pytest.mark.slow] if is_slow(group, evaluator) else [])
    for group in GROUPS
    for evaluator in EVALUATORS[group[0]]
]


def name_group(value):
    if isinstance(value, str):
        return value
    d, mode, ascending, free, integrator = value
    return f"d{d}-{mode}-{'ascent' if ascending else 'descent'}-{'free' if free else 'gradient'}-{integrator}"


def evaluator_for(name, betas):
    return {"dense": Dense(), "blocked": Blocked(16), "circle": CircleFourier.for_beta(np.asarray(betas))}[name]


def perceptrons(case):
    """One of each activation; those that the case lacks have weights 0."""
    ref, free, parts = REFERENCE[case["d"]], case["mlp"] == "nongradient", []
    for name in ACTIVATIONS:
        present = 1.0 if case["mlp"] and case["activation"] == name else 0.0
        if free:
            parts.append(FreePerceptron(ref[f"aN_{name}"], present * ref[f"omegaN_{name}"], activation=name))
        else:
            a, w = ref[f"a_{name}"], ref[f"omega_{name}"]  # w_j = omega_j a_j
            parts.append(Perceptron(a, present * (w * a).sum(1) / (a * a).sum(1), activation=name))
    return parts[0] + parts[1]


def starts(d):
    return from_angles(REFERENCE[d]["x0"]) if d == 2 else empirical(REFERENCE[d]["x0"])


# Half of the time goes into compiling; the compiler's optimisations would double it.
fast_jit = eqx.filter_jit(compiler_options={"xla_backend_optimization_level": 0})


@fast_jit
def run(drift, mu, integrator, direction):
    angles = jnp.asarray(REFERENCE[2]["x0"]) if mu.d == 2 else None  # to the bit: one case magnifies an ulp 2000-fold
    stop, save, observe = MaxSteps(INDEX["steps"]), SaveEvery(1), Observe(every=10)
    problem = Problem(
        drift, mu, direction=direction, integrator=integrator, stop=stop, save=save, observe=observe, angles=angles
    )
    return solve(problem, Unrolled())


@fast_jit
def fields(attention, perceptron, mu):
    """Both fields before they are added, and the velocity of descent after."""
    pairs = (attention, "ascent"), (perceptron, "ascent"), (attention + perceptron, "descent")
    return [sphere.chart(mu.d).components(mu.x, velocity(drift, mu, direction)) for drift, direction in pairs]


@fast_jit
def energies(energy, mu, x):
    return jnp.stack([energy(mu.at(points)) for points in x])


def points_of(case, name):
    value = REFERENCE[case["d"]][f"{case['id']}/{name}" if name != "x0" else "x0"]
    return np.stack([np.cos(value), np.sin(value)], axis=-1) if case["d"] == 2 else value


def reference_energy(case, x):
    """The published energy with the GeLU's right primitive (theirs is off by the normal density)."""
    ref, beta, total = REFERENCE[case["d"]], case["beta"], 0.0
    if case["mlp"]:
        s = x @ ref[f"a_{case['activation']}"].T
        normal = np.exp(-s * s / 2) / math.sqrt(2 * math.pi)
        gelu = (s * s - 1) * (1 + erf(s / math.sqrt(2))) / 2 + s * normal + 0.5
        phi = {"relu": np.maximum(s, 0) ** 2, "gelu": gelu}[case["activation"]]
        a, w = ref[f"a_{case['activation']}"], ref[f"omega_{case['activation']}"]
        total = (phi @ (w * a).sum(1)).mean() / 2
    return total + np.exp(beta * (x @ x.T - 1)).mean() / (2 * beta)


def check_energies(case, energy, mu, x):
    ours = np.asarray(energies(energy, mu, x))
    expected = np.array([reference_energy(case, points_of(case, name)) for name in ("x0", "x10", "x50")])
    scale = np.maximum(1, np.abs(expected))
    assert np.max(np.abs(ours - expected) / scale) <= 1e-13, case
    if case["activation"] != "gelu":
        published = REFERENCE[case["d"]][f"{case['id']}/E"]
        assert np.max(np.abs(ours - published) / scale) <= 1e-13, case


@pytest.mark.parametrize(("group", "evaluator"), PROGRAMS, ids=name_group)
def test_reference_trajectories(group, evaluator):
    d, mode, ascending, free, integrator = group
    cases = [case for case in INDEX["cases"] if group_of(case) == group]
    interaction = evaluator_for(evaluator, [case["beta"] for case in cases])
    mu, runs = starts(d), {}
    for case in cases:
        same = (
            case["beta"],
            case["mlp"],
            case["activation"],
        )  # the self term moves nothing: with and without is one run
        if same not in runs:
            drift = NOUNS[mode](case["beta"], interaction=interaction) + perceptrons(case)
            runs[same] = run(drift, mu, INTEGRATORS[integrator](INDEX["dt"]), "ascent" if ascending else "descent")
        sol = runs[same]
        assert (int(sol.steps), float(sol.time)) == (50, 5.0)
        x = np.asarray(sol.x)
        for step in (1, 10, 50):
            assert np.max(np.abs(x[step] - points_of(case, f"x{step}"))) <= 1e-12, (case, step)
        assert np.array_equal(np.asarray(sol.mu.x), x[50])
        if not free:
            energy = Attention(case["beta"], interaction=interaction) + perceptrons(case)
            check_energies(case, energy, mu, sol.x[jnp.array([0, 10, 50])])


@pytest.mark.parametrize("mode", NOUNS)
@pytest.mark.parametrize(("d", "evaluator"), [(d, e) for d in EVALUATORS for e in EVALUATORS[d]])
def test_reference_velocities(d, evaluator, mode):
    """`att0`, `mlp0` and the signed sum `drift0`, in all cases."""
    cases = [case for case in INDEX["cases"] if (case["d"], case["attention_mode"]) == (d, mode)]
    interaction, mu, ref = evaluator_for(evaluator, [case["beta"] for case in cases]), starts(d), REFERENCE[d]
    for case in cases:
        ours = fields(NOUNS[mode](case["beta"], interaction=interaction), perceptrons(case), mu)
        for name, field in zip(("att0", "mlp0", "drift0"), ours, strict=True):
            sign = -1 if name == "drift0" and case["ascending"] else 1
            if name != "mlp0" or case["mlp"]:
                assert np.max(np.abs(sign * np.asarray(field) - ref[f"{case['id']}/{name}"])) <= 1e-13, (case, name)


def test_all_cases_are_there():
    assert [sum(case["d"] == d for case in INDEX["cases"]) for d in (2, 3)] == [63, 63]
    assert len(GROUPS) == 28
