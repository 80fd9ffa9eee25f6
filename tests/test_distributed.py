"""Several processes on this machine: members and particles shared, one store, the bits or the digits of one process."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from mflandscape.cli.devices import prepare
from mflandscape.distributed import largest, step_of_all
from mflandscape.runner import report, run
from mflandscape.spec import Spec
from mflandscape.store import RunStore, StoreError, open_run

ROOT = Path(__file__).parents[1]
SPEC = Spec(beta=(1.0, 5.0), n_particles=128, max_steps=200, lanes=1)
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def finished(*processes):
    """What processes print, once all have ended well."""
    told = [process.communicate(timeout=300) for process in processes]
    for process, (_, errors) in zip(processes, told, strict=True):
        assert process.returncode == 0, errors
    return [output for output, _ in told]


def started(words, **environment):
    return subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PATH": PATH, "JAX_PLATFORMS": "cpu"} | environment,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def both(folder):
    """The example of the documentation, and what two processes under SLURM told, run beside each other."""
    (example,) = re.findall(r"```bash\n(ARGS=.*?)```", (ROOT / "docs/clusters.md").read_text(), re.S)
    script = example.replace("9876", str(free_port())).replace("--out two", f"--out {folder / 'members'}")
    shell = started(["bash", "-e", "-c", script])
    slurm = {
        "SLURM_JOB_ID": str(free_port()),  # JAX takes the port from it
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": "2",
        "SLURM_STEP_NUM_TASKS": "2",
    }
    words = [
        sys.executable,
        str(ROOT / "tests/two_processes.py"),
        json.dumps(SPEC.to_dict()),
        str(folder / "particles"),
    ]
    pair = [started(words, **slurm, SLURM_PROCID=str(i), SLURM_LOCALID=str(i)) for i in range(2)]
    printed, *told = finished(shell, *pair)
    return printed, [json.loads(text) for text in told]


@pytest.fixture(scope="module")
def alone(folder):
    run(SPEC, folder / "alone")
    with open_run(folder / "alone") as dataset:
        return dataset.load()


def test_two_processes_share_members_to_the_bits_of_one(both, alone, folder):
    printed, _ = both
    assert printed.count("max_steps") >= 2 and printed.count("results") == 1  # one process prints
    assert report(folder / "members").notes == []
    with open_run(folder / "members") as shared:
        assert shared.complete.values.all() and Spec.from_dict(json.loads(shared.attrs["spec"])) == SPEC
        assert (shared.attrs["shard"], shared.attrs["devices"]) == ("members", 2)
        for name in set(alone.variables) - {"seconds"}:
            np.testing.assert_array_equal(shared[name].values, alone[name].values, err_msg=name)


def test_two_processes_share_particles_interrupted_and_resumed(both, alone, folder):
    _, (first, second) = both
    for told in (first, second):
        assert told["devices"] == [2, 1] and told["largest"] == [1.0, 2.0]
        assert told["chunks"] == 3 and told["interrupted"] == [True, False] and told["members"] == 2
        assert 0 < told["fresh steps"] < 400  # the rest was restored
    with open_run(folder / "particles") as shared:
        assert shared.complete.values.all() and (shared.attrs["shard"], shared.attrs["devices"]) == ("particles", 2)
        for name in set(alone.variables) - {"seconds"}:
            if alone[name].dtype.kind == "f":
                np.testing.assert_allclose(shared[name].values, alone[name].values, rtol=0, atol=1e-12, err_msg=name)
            else:
                np.testing.assert_array_equal(shared[name].values, alone[name].values, err_msg=name)


def test_what_fails_in_one_process_fails_in_all(both):
    _, (first, second) = both
    assert second["failure"] == "no disk" and first["failure"] == "process 1 stopped: no disk"
    assert "another spec: dt" in first["other spec"] and second["other spec"].startswith("process 0 stopped: ")


def test_one_process_needs_no_others():
    with step_of_all("here"):
        assert largest(1.0, 2.0) == (1.0, 2.0)
    with pytest.raises(StoreError, match="as it is"), step_of_all("here"):
        raise StoreError("as it is")


def test_a_store_that_is_joined_is_checked_and_not_locked(alone, folder):
    spec = SPEC.to_dict()
    with RunStore.open(folder / "alone") as leader, RunStore.join(folder / "alone", spec) as other:
        assert leader.completed() == other.completed() == {0, 1}
    with pytest.raises(StoreError, match="another spec: dt"):
        RunStore.join(folder / "alone", {**spec, "dt": 0.05})
    with pytest.raises(StoreError, match="does not exist"):
        RunStore.join(folder / "nowhere", spec)


@pytest.mark.parametrize(
    "wrong, match",
    [
        ({"shard": "both"}, "expected one of members, particles"),
        ({"shard": "particles", "lanes": 2}, "one member at a time"),
        ({"devices": len(jax.local_devices()) + 1}, "expected 1 to"),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else "",
)
def test_what_cannot_be_divided_is_refused_before_a_folder_is_made(wrong, match, tmp_path):
    spec = SPEC.replace(lanes=wrong.pop("lanes", 1))
    with pytest.raises(ValueError, match=match):
        run(spec, tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


def test_half_an_address_is_refused():
    with pytest.raises(ValueError, match="expected all three"):
        prepare(coordinator="localhost:1")
