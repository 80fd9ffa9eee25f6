"""`mflandscape classify`: its JSON beside the library, its table, what it refuses."""

import json
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

from mflandscape import runner
from mflandscape.cli.classify import command
from mflandscape.cli.teaching import Commands
from mflandscape.experiment import Experiment
from mflandscape.measure import from_angles
from mflandscape.spec import Spec
from mflandscape.stationary.classify import classify
from mflandscape.store import open_run

KEYS = {"residual", "smallest_eigenvalue", "class", "null_dimension", "splitting_stable", "gap"}
SPEC = Spec(
    beta=(1.0, 3.0), n_particles=6, stop="stationary", drift_tol=1e-9, max_steps=20_000, save="log", save_count=4
)


def call(*words):
    return CliRunner().invoke(Commands(commands={"classify": command}), ["classify", *map(str, words)])


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classify") / "demo"
    runner.run(SPEC, folder)
    return folder


def members(*words):
    result = call(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["members"]


def test_json_is_what_the_library_says(demo):
    rows = members(demo)
    assert [row["member"] for row in rows] == [0, 1] and [row["beta"] for row in rows] == [1, 3]
    assert all(set(row) >= KEYS for row in rows)
    experiment = Experiment(SPEC)
    for row in rows:
        at = np.unravel_index(row["member"], experiment.shape)
        mu = from_angles(jnp.asarray(open_run(demo)["final_angle"][at].values))
        found = classify(experiment.drift(row["member"]), mu)
        assert row["class"] == found.kind != "not stationary" and row["null_dimension"] == found.spectrum.null.dimension
        assert row["splitting_stable"] == found.splitting_stable and row["residual"] == found.residual < 1e-9
        np.testing.assert_allclose(row["smallest_eigenvalue"], found.spectrum.eigenvalues[0], atol=1e-15)
        np.testing.assert_allclose(row["gap"], found.gap.value, rtol=1e-9, atol=1e-12)
        assert row["gap_rigorous"] and row["stationary"] and row["particles"] == 6


def test_options(demo):
    (row,) = members(demo, "--member", 1, "--no-gap", "--reach", 10, "--stationary-tol", 0)
    assert row["member"] == 1 and row["gap"] is None and row["kinks"] > 0
    assert row["class"] == "not stationary" and row["hessian_class"] in ("strictly SOPD", "degenerate", "saddle")
    assert row["lower_side"] <= row["smallest_eigenvalue"] <= row["upper_side"]


def test_table_names_what_matters(demo):
    out = call(demo, "--no-gap", "--stationary-tol", 0).output
    assert "not stationary" in out and "members 0, 1: bring them closer" in out
    assert max(map(len, out.splitlines())) <= 110
    assert "--reach" in call("--help").output and max(map(len, call("--help").output.splitlines())) <= 80


def test_members_not_finished_are_named(demo, tmp_path):
    partial = tmp_path / "partial"
    shutil.copytree(demo, partial)
    (partial / "ledger" / "00001.json").unlink()
    assert json.loads(call(partial, "--no-gap", "--json").stdout)["unfinished"] == [1]
    assert "not finished" in call(partial, "--no-gap").output
    last = call(partial, "--member", 1)
    assert last.exit_code == 2 and "no finished member among 1" in last.stderr


@pytest.mark.parametrize(
    "words, message",
    [
        (("--member", "2"), "--member 2: expected a whole number from 0 to 1"),
        (("--member", "x"), "--member x: expected"),
        (("--reach", "-1"), "reach = -1: expected reach >= 0"),
        (("--stationary-tol", "nan"), "stationary_tol = nan: expected a finite number >= 0"),
    ],
)
def test_bad_input_is_one_sentence(demo, words, message):
    result = call(demo, *words)
    assert result.exit_code == 2 and message in result.stderr and "Traceback" not in result.output


def test_no_run(tmp_path):
    result = call(tmp_path / "nothing")
    assert result.exit_code == 2 and "does not exist" in result.stderr
