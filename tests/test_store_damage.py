"""The results store when things go wrong: damage is found, kills and full disks are survived, one writer at a time."""

import errno
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import xarray
from store_example import ROOT, SPEC, VARIABLES, fill, make, member, same_bits, tree

from mflandscape.store import RunStore, StoreError, describe, open_run, verify


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run"
    with make(path) as store:
        fill(store)
    return path


@pytest.mark.parametrize("damage", ["truncate", "flip", "delete", "empty"])
@pytest.mark.parametrize(
    "name", ["dataset.zarr/angle/c/0/0/2/0/0/0", "dataset.zarr/converged/c/0/0/2/0", "ledger/00002.json"]
)
def test_damaged_member_is_found_and_recomputed(run, name, damage):
    before, file = tree(run), run / name
    data = bytearray(file.read_bytes())
    if damage == "truncate":
        file.write_bytes(data[:-1])
    elif damage == "flip":
        data[len(data) // 2] ^= 4
        file.write_bytes(data)
    elif damage == "delete":
        file.unlink()
    else:
        file.write_bytes(b"")
    lost_ledger = name.startswith("ledger") and damage == "delete"
    assert verify(run) == ([] if lost_ledger else [2])
    with RunStore.open(run, SPEC) as store:
        assert store.completed() == {0, 1, 3, 4, 5}
        assert store.damaged == ([] if lost_ledger else [2])
        assert store.completed() == {0, 1, 3, 4, 5}
        fill(store, [2])
        assert store.completed() == set(range(6))
    assert tree(run) == before and verify(run) == []


def test_ledger_of_another_member_is_not_trusted(run):
    (run / "ledger/00002.json").write_bytes((run / "ledger/00001.json").read_bytes())
    assert verify(run) == [2]


def checkpoint_arrays():
    rng = np.random.default_rng(0)
    special = np.array([0.0, -0.0, np.inf, -np.inf, 5e-324])
    return [
        special,
        rng.standard_normal((3, 1, 4)).astype(np.float32)[:, :, ::2],
        rng.integers(-9, 9, (2, 3), dtype=np.int32).T,
        np.array([True, False]),
        rng.integers(0, 2**32, 2, dtype=np.uint32),
        np.array(2**63 - 1),
        np.empty((0, 3)),
        np.frombuffer(np.uint64(0x7FF8000000000123).tobytes(), np.float64),
    ]


def test_checkpoint_round_trip(tmp_path):
    arrays, meta = checkpoint_arrays(), {"step": 30, "names": ["x"], "dt": 0.1}
    with make(tmp_path / "run") as store:
        assert store.read_checkpoint(1) is None
        store.write_checkpoint(1, [np.zeros(2)], {})
        store.write_checkpoint(1, arrays, meta)
    with RunStore.open(tmp_path / "run") as store:
        got, noted = store.read_checkpoint(1)
        assert noted == meta and len(got) == len(arrays)
        for a, b in zip(got, arrays, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() and a.flags.writeable
        store.write_member(store.index_of(1), member(1))
        assert store.read_checkpoint(1) is None
        with pytest.raises(ValueError, match="dtype object"):
            store.write_checkpoint(2, [np.array([object()])], {})
        with pytest.raises(ValueError, match="JSON-able"):
            store.write_checkpoint(2, [], {"x": np.zeros(2)})


def test_damaged_checkpoint_is_none(tmp_path):
    with make(tmp_path / "run") as store:
        store.write_checkpoint(3, checkpoint_arrays(), {"step": 1})
        (file,) = (tmp_path / "run/checkpoint").iterdir()
        data = file.read_bytes()
        for length in (0, 5, 30, 50, 60, len(data) - 1):
            file.write_bytes(data[:length])
            assert store.read_checkpoint(3) is None
        for place in range(0, len(data), 7):
            file.write_bytes(data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :])
            assert store.read_checkpoint(3) is None
        file.write_bytes(data + b"x")
        assert store.read_checkpoint(3) is None
        store.drop_checkpoint(3)
        store.drop_checkpoint(3)


WORKER = textwrap.dedent("""
    import sys, types
    package = types.ModuleType("mflandscape")  # the store alone: starts faster than the whole engine
    package.__path__ = [sys.argv[1] + "/mflandscape"]
    sys.modules["mflandscape"] = package
    sys.path.insert(0, sys.argv[1] + "/tests")
    import time, zarr, store_example as t
    from pathlib import Path
    path, action = Path(sys.argv[2]), sys.argv[3]
    print("ready", flush=True)
    with t.RunStore.open(path, t.SPEC) if path.exists() else t.make(path, starts=60) as store:
        done = store.completed()
        print("open", flush=True)
        while action == "hold":
            time.sleep(1)
        for number in sorted(set(range(store.members)) - done):
            print("member", number, flush=True)
            saved = store.read_checkpoint(number)
            assert saved is None or saved[0][0].tobytes() == t.member(number)["angle"].tobytes()
            store.write_checkpoint(number, [t.member(number)["angle"]], {"member": number})
            store.write_member(store.index_of(number), t.member(number))
    print("done", flush=True)
""")


def worker(path, action="write"):
    command = [sys.executable, "-c", WORKER, str(ROOT), str(path), action]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def wait_for(process, word):
    for line in process.stdout:
        if line.startswith(word):
            return
    raise AssertionError(f"the worker ended before {word!r}")


def finish(process):
    process.stdout.close()
    return process.wait(timeout=60)


def test_killed_at_ten_random_moments(tmp_path):
    whole, path, rng = tmp_path / "whole", tmp_path / "killed", random.Random(5)
    with make(whole, starts=60) as store:
        fill(store)
    previous, progress = set(), []
    for kill in range(10):
        process = worker(path)
        wait_for(process, "ready")
        for _ in range(0 if kill < 2 else rng.randint(1, 9)):
            wait_for(process, "member")
        time.sleep(rng.uniform(0, 0.05 if kill < 2 else 0.01))
        os.kill(process.pid, signal.SIGKILL)
        assert finish(process) == -signal.SIGKILL
        if path.exists():
            assert verify(path) == []
            with RunStore.open(path, SPEC) as store:
                done = store.completed()
                assert store.damaged == [] and done >= previous
                for number in done:
                    same_bits(store.read_member(store.index_of(number)), member(number))
            previous = done
            progress.append(len(done))
    assert 0 < progress[-1] < 120
    process = worker(path)
    wait_for(process, "done")
    assert finish(process) == 0
    assert tree(path) == tree(whole)
    assert sorted(p.name for p in path.iterdir()) == sorted(p.name for p in whole.iterdir())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["killed", "whole"]
    xarray.testing.assert_identical(open_run(path), open_run(whole))


def test_one_writer_at_a_time(tmp_path):
    path = tmp_path / "run"
    process = worker(path, "hold")
    wait_for(process, "open")
    with pytest.raises(StoreError, match=f"written by process {process.pid}.*--resume"):
        RunStore.open(path)
    assert describe(path)["done"] == 0
    os.kill(process.pid, signal.SIGKILL)
    finish(process)
    with RunStore.open(path) as store:
        assert store.completed() == set()
        with pytest.raises(StoreError, match=f"process {os.getpid()}"):
            RunStore.open(path)
    RunStore.open(path).close()


def test_full_disk_at_every_write_leaves_the_rest(tmp_path, monkeypatch):
    path, replace = tmp_path / "run", os.replace
    with make(path) as store:
        fill(store, [0, 1])
        for calls in range(len(VARIABLES) + 1):
            left = [calls]

            def full(source, target, left=left):
                if left[0] == 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                left[0] -= 1
                replace(source, target)

            monkeypatch.setattr(os, "replace", full)
            with pytest.raises(StoreError, match=r"member 2 .*No space left.*intact.*--resume"):
                store.write_member(store.index_of(2), member(2))
            if calls == 0:
                with pytest.raises(StoreError, match=r"checkpoint of member 3.*No space left"):
                    store.write_checkpoint(3, [np.zeros(2)], {})
            monkeypatch.setattr(os, "replace", replace)
            assert store.completed() == {0, 1} and store.damaged == []
            same_bits(store.read_member((0, 0, 1, 0)), member(1))
    with RunStore.open(path, SPEC) as store:
        fill(store, [2, 3, 4, 5])
        assert store.completed() == set(range(6))
    assert not list(path.rglob("*.partial"))


def test_interrupted_rewriting_is_not_called_damage(tmp_path, monkeypatch):
    with make(tmp_path / "run") as store:
        fill(store, [0, 1])
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("mflandscape.store.run.write_sealed", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
            store.write_member((0, 0, 1, 0), member(7))
        assert store.completed() == {0} and store.damaged == []


def test_full_disk_while_creating_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(StoreError, match=r"creating .*No space left.*--out"):
            make(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    make(tmp_path / "run").close()


def test_unwritable_folder(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreError, match=r"creating .*Not a directory.*--out"):
        make(tmp_path / "file" / "run")
    with make(tmp_path / "run") as store:
        fill(store, [0])
        (tmp_path / "run/ledger").rename(tmp_path / "run/kept")
        (tmp_path / "run/ledger").write_text("not a folder")
        with pytest.raises(StoreError, match=r"member 1 .*Not a directory.*intact"):
            fill(store, [1])
        (tmp_path / "run/ledger").unlink()
        (tmp_path / "run/kept").rename(tmp_path / "run/ledger")
        assert store.completed() == {0}
        fill(store, [1])
        assert store.completed() == {0, 1}


def test_half_created_run_is_cleared(tmp_path):
    (tmp_path / ".run.creating/dataset.zarr/beta").mkdir(parents=True)
    (tmp_path / ".run.creating/run.json").write_text("half")
    with make(tmp_path / "run") as store:
        fill(store)
        assert store.completed() == set(range(6))
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
