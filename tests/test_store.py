"""The results store: labelled round trips, tables, clear refusals."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
import xarray
from store_example import GRID, PARTICLES, ROOT, SPEC, TIMES, fill, make, member, same_bits, tree

from mflandscape.store import RunStore, StoreError, Variable, describe, export_csv, open_run, verify


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run"
    with make(path) as store:
        fill(store)
    return path


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_members_come_back_bit_for_bit(run):
    with RunStore.open(run, SPEC) as store:
        assert store.completed() == set(range(6)) and store.damaged == []
        assert store.spec == {**SPEC, "beta": [0.1, 5.0]}
        for number in range(6):
            assert store.member_of(store.index_of(number)) == number
            same_bits(store.read_member(store.index_of(number)), member(number))


def test_plain_xarray_sees_labels_and_values(run):
    with xarray.open_zarr(run / "dataset.zarr") as ds:
        assert ds.angle.dims == (*GRID, "time", "particle") and ds.angle.shape == (2, 1, 3, 1, TIMES, PARTICLES)
        assert set(ds.coords) == {*GRID, "time", "step"} and ds.step.dims == ("time",)
        assert ds.angle.attrs["units"] == "rad" and ds.time.attrs["units"] == "time of the shifted kernel"
        assert ds.a.dims == ("weight_seed", "neuron", "coordinate") and np.isnan(ds.bias.values).all()
        assert ds.steps.dtype == np.int64 and ds.work.dtype == np.uint32 and ds.converged.dtype == bool
        np.testing.assert_array_equal(ds.angle.sel(beta=5.0, start_seed=1).values[0, 0], member(4)["angle"])
        words = ds.stop_reason.attrs["flag_meanings"].split()
        assert words[int(ds.stop_reason.sel(beta=5.0, start_seed=1).item())] == member(4)["stop_reason"]


def test_open_run_decodes_text_and_marks_what_is_complete(tmp_path):
    path = tmp_path / "run"
    with make(path) as store:
        fill(store, [0, 4])
    ds = open_run(path)
    flat = ds.complete.values.ravel()
    assert flat.tolist() == [True, False, False, False, True, False]
    assert ds.stop_reason.values.ravel().tolist() == ["running", "", "", "", "running", ""]
    assert ds.steps.values.ravel().tolist() == [2**40, -1, -1, -1, 2**40 + 4, -1]
    assert np.isnan(ds.angle.values[0, 0, 1]).all() and np.isfinite(ds.angle.values[0, 0, 0, 0, 0]).all()
    assert json.loads(ds.attrs["spec"]) == {**SPEC, "beta": [0.1, 5.0]}
    assert ds.attrs["kernel_convention"] == "exp(beta (t - 1))"


def test_describe(run):
    (run / "ledger" / "00002.json").unlink()
    told = describe(run)
    assert (told["members"], told["done"], told["damaged"], told["in_flight"]) == (6, 5, [], 0)
    assert told["versions"] == {"jax": "0.10.1"} and told["spec"]["n_particles"] == PARTICLES
    assert told["bytes"] == sum(f.stat().st_size for f in run.rglob("*") if f.is_file())


def test_large_chunks_are_split_and_all_checked(tmp_path, monkeypatch):
    monkeypatch.setattr("mflandscape.store.layout.MAX_CHUNK_BYTES", 100)
    with make(tmp_path / "run") as store:
        fill(store)
        same_bits(store.read_member((1, 0, 2, 0)), member(5))
        parts = sorted((tmp_path / "run/dataset.zarr/angle/c/1/0/2/0").rglob("*/*"))
        assert len(parts) > 1 and all(8 < f.stat().st_size for f in parts)
        parts[-1].unlink()
        assert store.completed() == set(range(5)) and store.damaged == [5]


def test_scalars_exported_with_all_digits(run, tmp_path):
    summary, trajectory = export_csv(run, tmp_path / "tables", full=True)
    rows = table(summary)
    assert len(rows) == 6 and [r["member"] for r in rows] == [str(i) for i in range(6)]
    for number, row in enumerate(rows):
        expected = member(number)
        assert float(row["residual"]) == expected["residual"] and int(row["steps"]) == expected["steps"]
        assert row["stop_reason"] == expected["stop_reason"] and row["complete"] == "True"
        assert (float(row["beta"]), int(row["start_seed"])) == ((0.1, 5.0)[number // 3], number % 3)
    rows = table(trajectory)
    assert len(rows) == PARTICLES * sum(int(member(i)["snapshot_count"]) for i in range(6))
    for row in rows[:: len(rows) // 20]:
        expected = member(int(row["member"]))["angle"][int(row["snapshot"]), int(row["particle"])]
        assert float(row["angle"]) == expected
        assert float(row["time"]) == (0.0, 0.1, 0.2, 0.4)[int(row["snapshot"])]


def test_export_leaves_incomplete_members_empty(tmp_path):
    with make(tmp_path / "run") as store:
        fill(store, [1])
    ds = open_run(tmp_path / "run").sel(beta=0.1)
    (summary,) = export_csv(ds, tmp_path / "tables")
    rows = table(summary)
    assert [r["complete"] for r in rows] == ["False", "True", "False"] and {r["beta"] for r in rows} == {"0.1"}
    assert rows[0]["residual"] == "" and float(rows[1]["residual"]) == member(1)["residual"]


def test_exported_components(tmp_path):
    positions = np.arange(24.0).reshape(2, 2, 2, 3) / 7
    positions[1, 1] = np.nan
    with RunStore.create(
        tmp_path / "run",
        spec={},
        dims={"beta": 2, "time": 2, "particle": 2, "coordinate": 3},
        member_dims=("beta",),
        coords={"beta": (("beta",), np.array([1.0, 2.0]), {})},
        variables={"position": Variable(("time", "particle", "coordinate"))},
    ) as store:
        for i in range(2):
            store.write_member((i,), {"position": positions[i]})
    _, trajectory = export_csv(tmp_path / "run", tmp_path / "tables", full=True)
    got = np.array([[float(v) for v in row.values()] for row in table(trajectory)])
    grid = np.array([[m, m + 1.0, t, p] for m, t, p in np.ndindex(2, 2, 2)])
    expected = np.hstack([grid, positions.reshape(8, 3)])[:6]
    assert list(table(trajectory)[0]) == [
        "member",
        "beta",
        "snapshot",
        "particle",
        *(f"position_{i}" for i in range(3)),
    ]
    np.testing.assert_array_equal(got, expected)


def test_existing_path_is_refused_and_untouched(run, tmp_path):
    before = tree(run)
    with pytest.raises(StoreError, match=r"exists.*--out.*--resume"):
        make(run)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match="exists"):
        make(tmp_path / "file")
    assert tree(run) == before and (tmp_path / "file").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "run"]


def test_other_spec_names_the_keys(run):
    other = {**SPEC, "width": 4, "extra": 1}
    with pytest.raises(StoreError, match=r"extra .*width \(8 stored, 4 asked\)") as error:
        RunStore.open(run, other)
    assert "n_particles" not in str(error.value) and "total_time" not in str(error.value)


@pytest.mark.parametrize("damage", ["missing", "truncated", "altered", "no folder"])
def test_damaged_description_is_told(run, damage):
    file = run / "run.json"
    text = file.read_text()
    if damage == "missing":
        file.unlink()
    elif damage == "truncated":
        file.write_text(text[: len(text) // 2])
    elif damage == "altered":
        file.write_text(text.replace('"n_particles": 5', '"n_particles": 6'))
    path = run / "nothing" if damage == "no folder" else run
    sentence = {"missing": "without a readable run.json", "no folder": "does not exist"}.get(damage, "is damaged")
    for opener in (RunStore.open, open_run, describe, verify):
        with pytest.raises(StoreError, match=sentence):
            opener(path)


@pytest.mark.parametrize("name", ["beta/c/0", "a/c/0/0/0", "angle/zarr.json", "zarr.json"])
def test_damaged_skeleton_is_told(run, name):
    file = run / "dataset.zarr" / name
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    for opener in (RunStore.open, open_run, verify):
        with pytest.raises(StoreError, match=f"{name}.*missing or altered"):
            opener(run)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"angle": np.zeros((TIMES, PARTICLES + 1))}, r"'angle' has shape \(4, 6\); \(4, 5\) expected"),
        ({"angle": np.zeros((TIMES, PARTICLES), np.float32)}, "'angle' has dtype float32; float64 expected"),
        ({"stop_reason": "tired"}, "holds 'tired'; one of running"),
        ({"angel": np.zeros(3)}, r"unknown variables \['angel'\]"),
        ({"angle": None}, r"missing variables \['angle'\]"),
    ],
)
def test_wrong_member_arrays(tmp_path, change, sentence):
    with make(tmp_path / "run") as store:
        fill(store, [0])
        arrays = {n: v for n, v in {**member(1), **change}.items() if v is not None}
        with pytest.raises(ValueError, match=sentence):
            store.write_member((0, 0, 1, 0), arrays)
        with pytest.raises(ValueError, match="member index"):
            store.write_member((0, 0, 3, 0), member(1))
        assert store.completed() == {0}


def test_schema_that_does_not_fit(tmp_path):
    def create(**change):
        coords = {"beta": (("beta",), np.zeros(2), {})}
        given = {"dims": {"beta": 2}, "coords": coords, "variables": {"x": Variable()}, "attrs": {}, **change}
        RunStore.create(tmp_path / "run", spec={}, member_dims=("beta",), **given)

    for change, sentence in [
        ({"dims": {"beta": 3}}, r"'beta' has shape \(2,\).*\(3,\) expected"),
        ({"variables": {"x": Variable(("time",))}}, "'x' has dims"),
        ({"variables": {"complete": Variable()}}, "'complete' is used twice or reserved"),
        ({"attrs": {"when": object()}}, "not JSON-able"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            create(**change)
    with pytest.raises(ValueError, match="blanks"):
        Variable((), "str", choices=("too many words",))
    with pytest.raises(ValueError, match="choices"):
        Variable((), "str")
    assert list(tmp_path.iterdir()) == []


def test_reading_needs_no_array_library_until_used():
    code = "import sys, mflandscape.store; assert not {'zarr', 'xarray', 'pandas'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
