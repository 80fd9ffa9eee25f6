"""The published code's converged runs, from its own `config.json`: count, masses and stop step exactly.

The numbers in data/experiments.json were made once by the published code (N = 500, Euler, dt = 0.1, seeds 42 and 777 or
111); energies are those of the right GeLU primitive. The shorter runs are the fast set, the others the slow one.
"""

import json
from pathlib import Path

import pytest

from mflandscape import published, runner

SETUPS = json.loads((Path(__file__).parent / "data" / "experiments.json").read_text())["setups"]
SHORT = {2: 1000, 3: 300}  # steps, by dimension
FAST = ("s1_desc_gelu", "s1_asc_relu", "s2_asc_relu")
COMMON = {
    "n_particles": 500,
    "dt": 0.1,
    "total_time": "inf",
    "max_steps": 20_000,
    "save_every": 10,
    "integrator": "euler",
    "attention_mode": "unnormalized",
    "self_attention": True,
    "mlp_scale_mode": "std",
    "particle_seed": 42,
    "cluster_scale": 0.5,
    "convergence_window": 5,
    "convergence_drift_tol": 1e-4,
    "convergence_spread_factor": 1.0,
}


def rows_of(setup, slow):
    return {row[0]: row[1:] for row in SETUPS[setup]["rows"] if (row[1] > SHORT[SETUPS[setup]["dimension"]]) == slow}


CASES = [
    pytest.param(
        setup, slow, marks=[pytest.mark.slow] * (slow or setup not in FAST), id=f"{setup}-{'long' if slow else 'short'}"
    )
    for setup in SETUPS
    for slow in (False, True)
    if rows_of(setup, slow)
]


def config(setup, betas):
    """The file its users would write; without a perceptron, its weights are scaled to nothing."""
    how = SETUPS[setup]
    return COMMON | {
        "betas": betas,
        "dimension": how["dimension"],
        "ascending": how["ascending"],
        "activation": how["activation"] or "relu",
        "mlp_seed": 777 if how["dimension"] == 2 else 111,
        "mlp_scale": [1.0 if how["activation"] else 0.0],
    }


def test_all_converged_runs_are_there():
    assert sum(len(how["rows"]) for how in SETUPS.values()) == 71
    assert sum(len(rows_of(setup, False)) for setup in SETUPS) == 25


@pytest.mark.parametrize("setup, slow", CASES)
def test_runs_end_where_the_published_code_ended(setup, slow, tmp_path):
    expected = rows_of(setup, slow)
    (tmp_path / "config.json").write_text(json.dumps(config(setup, list(expected))))
    (spec,) = published.load_config(tmp_path / "config.json").specs
    report = runner.run(spec, tmp_path / "run")
    found = {row["beta"]: row for row in report.members}
    assert {beta: [row["steps"], row["clusters"]] for beta, row in found.items()} == {
        beta: row[:2] for beta, row in expected.items()
    }
    for beta, (_, _, heaviest, drift, energy) in expected.items():
        assert found[beta]["stop_reason"] == "converged" and found[beta]["converged"]
        assert found[beta]["heaviest_mass"] == pytest.approx(heaviest, rel=1e-12)
        assert found[beta]["residual"] == pytest.approx(drift, abs=1e-9)
        assert found[beta]["energy"] == pytest.approx(energy, rel=1e-9, abs=1e-9)
