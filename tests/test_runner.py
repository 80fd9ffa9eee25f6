"""Runs on disk: what the dataset says, and that no kill, damage or interruption changes a bit of it."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from mflandscape import ensemble, runner
from mflandscape.ensemble import default_lanes
from mflandscape.runner import report, run
from mflandscape.spec import Spec
from mflandscape.store import RunStore, StoreError, open_run

SPEC = Spec(
    beta=(0.5, 1.0, 3.0, 5.0, 7.0, 10.0),
    start_seed=(42, 7),
    n_particles=64,
    stop="none",
    max_steps=3000,
    temperature=1e-3,
    save="log",
    save_count=12,
)
GRID = ("beta", "weight_seed", "start_seed", "scale")
CHILD = """
import os, signal, sys
import jax
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 2)
from mflandscape import ensemble, runner
from mflandscape.spec import Spec
import json
spec, out, writes = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
runner._CHECKPOINT_SECONDS = 0.02
ensemble._CHUNK_SECONDS = 0.02
replace, left = os.replace, writes

def counting(*args, **keywords):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*args, **keywords)

def progress(state):
    if state.steps:
        if writes:
            os.replace = counting
        print("running", flush=True)

print("begin", flush=True)
runner.run(Spec.from_dict(spec), out, resume=True, progress=progress)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The uninterrupted run."""
    path = tmp_path_factory.mktemp("whole") / "run"
    return run(SPEC, path), path


def same_dataset(one, other):
    assert report(one).notes == report(other).notes == []
    with open_run(one) as a, open_run(other) as b:
        assert set(a.variables) == set(b.variables) and a.complete.values.all() and b.complete.values.all()
        for name in set(a.variables) - {"seconds"}:
            np.testing.assert_array_equal(a[name].values, b[name].values, err_msg=name)
        assert a.attrs == b.attrs


def killed(out, stage, when):
    """Runs in another process, to be killed `when` seconds after a stage or before a rename; whether it was killed."""
    code = [sys.executable, "-c", CHILD, json.dumps(SPEC.to_dict()), str(out), str(when if stage == "write" else 0)]
    root = Path(__file__).parents[1]
    with subprocess.Popen(
        code, stdout=subprocess.PIPE, text=True, cwd=root, env=os.environ | {"JAX_PLATFORMS": "cpu"}
    ) as child:
        if stage != "write":
            for line in child.stdout:
                if line.strip() == stage:
                    break
            time.sleep(when)
            child.kill()
        child.stdout.read()
        return child.wait() == -signal.SIGKILL


def moments(count):
    """Random moments, in turn: of start and compilation, of the steps, of the writes."""
    chance = random.Random(2)
    for k in range(count):
        stages = (
            ("begin", chance.uniform(0.2, 4)),
            ("running", chance.uniform(0, 0.4)),
            ("write", chance.randint(1, 12)),
        )
        yield stages[k % 3]


@pytest.mark.parametrize("kills", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_a_run_killed_at_any_moment_resumes_to_the_same_bits(whole, kills, tmp_path):
    out = tmp_path / "run"
    survived = [not killed(out, stage, when) for stage, when in moments(kills)]
    assert survived.count(True) <= kills // 5
    again = run(SPEC, out, resume=True)
    assert not again.interrupted and len(again.members) == SPEC.members
    same_dataset(out, whole[1])
    assert not list((out / "checkpoint").glob("*")) and not list(out.rglob("*.partial"))


def test_the_dataset_is_labelled_and_complete(whole):
    told, path = whole
    assert told.total == 12 and [row["member"] for row in told.members] == list(range(12)) and not told.interrupted
    assert told.notes == [] and told.useful == told.executed == 12 * 3000
    with open_run(path) as dataset:
        ds = dataset.load()
    sizes = {
        "beta": 6,
        "weight_seed": 1,
        "start_seed": 2,
        "scale": 1,
        "particle": 64,
        "cluster": 64,
        "observation": 301,
    }
    assert sizes.items() <= dict(ds.sizes).items() and ds.sizes["neuron"] == ds.sizes["coordinate"] == 2
    assert ds.beta.values.tolist() == list(SPEC.beta) and ds.start_seed.values.tolist() == [42, 7]
    assert ds.angle.dims == (*GRID, "time", "particle") and ds.final_angle.dims == (*GRID, "particle")
    assert ds.a.dims == ("weight_seed", "neuron", "coordinate") and ds.omega.dims == ("weight_seed", "neuron")
    grid = "residual residual_l2 energy final_time steps work clusters heaviest_mass largest_diameter modes stop_reason"
    for name in (*grid.split(), "seconds", "snapshot_count"):
        assert ds[name].dims == GRID, name
    for name in ("time", "residual", "residual_l2", "energy", "clusters"):
        assert ds[f"observed_{name}"].dims == (*GRID, "observation")
    assert (
        ds.angle.attrs["units"] == "rad"
        and ds.final_angle.values.min() >= 0
        and ds.final_angle.values.max() < 2 * np.pi
    )
    assert (
        (ds.steps == 3000).all()
        and (ds.stop_reason == "max_steps").all()
        and (ds.snapshot_count == ds.sizes["time"]).all()
    )
    np.testing.assert_allclose(ds.final_time, 300.0, rtol=1e-12)
    np.testing.assert_allclose(ds.snapshot_time, ds.time.broadcast_like(ds.snapshot_time), rtol=1e-12)
    np.testing.assert_array_equal(ds.angle.values[..., -1, :], ds.final_angle.values)
    np.testing.assert_array_equal(ds.observed_energy.values[..., -1], ds.energy.values)
    np.testing.assert_allclose(ds.cluster_mass.sum("cluster"), 1.0, rtol=1e-12)
    assert json.loads(ds.attrs["spec"]) == SPEC.replace(lanes=default_lanes()).to_dict()
    assert json.loads(ds.attrs["versions"])["jax"] == jax.__version__ and ds.attrs["width"] == default_lanes()
    for name in ("device", "dtype", "kernel_convention", "energy_convention"):
        assert ds.attrs[name]


def test_rows_say_what_the_dataset_says(whole):
    told, path = whole
    with open_run(path) as ds:
        for row in told.members:
            one = ds.sel({name: row[name] for name in GRID})
            assert row["clusters"] == one.clusters and row["steps"] == one.steps and row["residual"] == one.residual
            assert row["masses"] == sorted(row["masses"], reverse=True) and len(row["masses"]) == row["clusters"]
            assert row["heaviest_mass"] == row["masses"][0] == one.cluster_mass[0] and not row["converged"]
            json.dumps(row)
    later = report(path)
    assert later.members == told.members and later.total == 12 and not later.interrupted and later.notes == []


def test_a_finished_run_returns_without_computing(whole, monkeypatch):
    monkeypatch.setattr(ensemble, "_Lanes", None)
    again = run(SPEC, whole[1], resume=True)
    assert again.members == whole[0].members and (again.useful, again.executed) == (0, 0)


@pytest.mark.parametrize("variable", ["final_angle", "angle", "steps"])
def test_a_damaged_chunk_is_found_and_computed_again(whole, variable, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole[1], out)
    chunk = next(f for f in sorted((out / "dataset.zarr" / variable / "c/3/0/1").rglob("*")) if f.is_file())
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(data)
    for _ in range(2):  # looking changes nothing
        assert report(out).notes == ["damaged members: 7"] and len(report(out).members) == 11
    again = run(SPEC, out, resume=True)
    assert again.notes == ["damaged members found by checksum and computed again: 7"] and again.useful == 3000
    same_dataset(out, whole[1])


def test_another_spec_is_refused(whole):
    before = {f: f.read_bytes() for f in whole[1].rglob("*") if f.is_file() and f.name != "lock"}
    with pytest.raises(StoreError, match="another spec: dt"):
        run(SPEC.replace(dt=0.05), whole[1], resume=True)
    with pytest.raises(StoreError, match="exists; a run never overwrites another's results"):
        run(SPEC, whole[1])
    assert all(f.read_bytes() == data for f, data in before.items())


def test_an_interrupted_run_keeps_its_states_and_goes_on(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(ensemble, "_CHUNK_SECONDS", 1e-9)
    seen = []
    first = run(SPEC, tmp_path / "run", progress=seen.append, interrupted=lambda: len(seen) >= 700)
    assert first.interrupted and 0 < len(first.members) < 12
    assert len(list((tmp_path / "run/checkpoint").glob("*.bin"))) == len(seen[-1].running) == 2
    assert seen[-1].done == len(first.members) and seen[-1].total == 12
    assert [s.steps for s in seen] == sorted(s.steps for s in seen) and np.isnan(seen[0].expected)
    assert seen[-1].expected == pytest.approx(12 * 3000 - seen[-1].steps)
    monkeypatch.undo()
    second = run(SPEC, tmp_path / "run", resume=True)
    assert not second.interrupted and second.useful == 12 * 3000 - seen[-1].steps
    same_dataset(tmp_path / "run", whole[1])


def test_bad_input_makes_no_folder(tmp_path):
    np.save(tmp_path / "points.npy", np.eye(2) * 1.5)
    with pytest.raises(ValueError, match="has length 1.5"):
        run(SPEC.replace(start=str(tmp_path / "points.npy"), start_seed=1), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_other_versions_are_named_on_resume(whole, tmp_path, monkeypatch):
    out = tmp_path / "run"
    shutil.copytree(whole[1], out)
    monkeypatch.setattr(runner, "versions", lambda: {"jax": "9.9"})
    (note,) = run(SPEC, out, resume=True).notes
    assert f"jax {jax.__version__} -> 9.9" in note


def test_a_run_has_one_writer(whole):
    with RunStore.open(whole[1]):
        with pytest.raises(StoreError, match="is being written by process"):
            run(SPEC, whole[1], resume=True)
        assert report(whole[1]).members == whole[0].members
