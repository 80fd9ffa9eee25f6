"""`mflandscape refine RUN`: what it prints and writes, what it leaves alone, what it refuses."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from mflandscape import runner
from mflandscape.cli.refine import command
from mflandscape.cli.teaching import Commands
from mflandscape.experiment import Experiment
from mflandscape.gradient import residual
from mflandscape.measure import from_angles
from mflandscape.spec import Spec

KEYS = {
    "member", "beta", "weight_seed", "start_seed", "scale", "particles", "atom_count", "residual_before", "residual",
    "converged", "steps", "moved_max", "displacement", "merge_tolerance", "massless", "unresolved_mass", "unsettled",
    "clarke", "kinks", "energy_before", "energy", "growth", "against_flow", "other_basin", "atoms",
}  # fmt: skip
SPEC = Spec.from_dict(
    {
        "beta": [1.0, 5.0], "dim": 2, "n_particles": 40, "activation": "gelu", "weights": "numpy", "weight_seed": 777,
        "stop": "stationary", "drift_tol": 1e-4, "max_steps": 6000, "save": "ends",
    }
)  # fmt: skip


def call(*words):
    main = Commands("mflandscape", commands={"refine": command})
    return CliRunner().invoke(main, ["refine", *map(str, words)])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refine") / "run"
    report = runner.run(SPEC, folder)
    return folder, report


def test_json_has_an_object_for_each_member(run, tmp_path):
    folder, report = run
    out = call(folder, "--json", "--out", tmp_path / "atoms.json")
    assert out.exit_code == 0, out.output
    found = json.loads(out.output)
    assert found == json.loads((tmp_path / "atoms.json").read_text()) and found["unfinished"] == []
    experiment = Experiment(SPEC.replace(interaction="dense"))
    for m, member in enumerate(found["members"]):
        assert set(member) == KEYS and member["beta"] == SPEC.beta[m]
        assert member["converged"] and member["residual"] <= 1e-12 < member["residual_before"] <= 1e-4
        assert member["residual_before"] == pytest.approx(report.members[m]["residual"], rel=1e-6)
        atoms = from_angles(*(np.array([a[name] for a in member["atoms"]]) for name in ("angle", "mass")))
        np.testing.assert_allclose(atoms.x, [a["point"] for a in member["atoms"]], atol=1e-14)
        assert float(residual(experiment.drift(m), atoms)[0]) < 1e-12
        assert sum(a["particles"] for a in member["atoms"]) == 40


def test_text_and_one_member(run):
    folder, _ = run
    out = call(folder, "--member", 1, "--merge-tolerance", 0.01, "--tol", 1e-10)
    assert out.exit_code == 0, out.output
    assert "member 1" in out.output and "member 0" not in out.output and "merged at 0.01" in out.output


@pytest.mark.parametrize(
    "words, message",
    [
        (("--member", 2), "expected a whole number from 0 to 1"),
        (("--tol", "tiny"), "tol = 'tiny': expected a number > 0 and <= 1"),
        (("--merge-tolerance", 4), "merge_tolerance = 4: expected merge_tolerance > 0 and <= 3.14159"),
    ],
)
def test_bad_input_is_named(run, words, message):
    out = call(run[0], *words)
    assert out.exit_code == 2 and message in out.stderr


def test_members_not_finished_are_named(run, tmp_path):
    import shutil

    folder = tmp_path / "half"
    shutil.copytree(run[0], folder)
    (folder / "ledger" / "00001.json").unlink()
    found = json.loads(call(folder, "--json").output)
    assert found["unfinished"] == [1] and [m["member"] for m in found["members"]] == [0]
    out = call(folder, "--member", 1)
    assert out.exit_code == 2 and "no finished member among 1" in out.stderr
    assert call(tmp_path).exit_code == 2
