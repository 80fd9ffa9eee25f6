"""Runs a `Spec` into a folder, member by member, and goes on from wherever a killed run left off."""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .distributed import first_devices, largest, leads, particle_mesh, run_divided, step_of_all
from .ensemble import Chunk, default_lanes, run_lanes
from .experiment import Experiment
from .records import ROW, layout, record, row, versions
from .spec import Spec
from .store import RunStore, describe, open_run, verify

SHARED = ("members", "particles")  # what devices may share
_CHECKPOINT_SECONDS = 5.0


@dataclass(frozen=True)
class Progress:
    """How far a run is: members finished, steps taken in this session, steps of the members in the lanes.

    Of several processes that share the members out, one counts its own share.
    `expected` steps remain, judged by the members that have finished (nan while there is none).
    """

    done: int
    total: int
    steps: int
    running: dict[int, int]
    seconds: float
    expected: float


@dataclass(frozen=True)
class Report:
    """What a run gave: a row of plain numbers for each finished member, and what a reader should know besides."""

    path: Path
    members: list[dict[str, Any]]
    total: int
    interrupted: bool
    notes: list[str]
    useful: int = 0
    executed: int = 0


def run(
    spec: Spec,
    out: str | Path,
    *,
    resume: bool = False,
    progress: Callable[[Progress], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    devices: int | None = None,
    shard: str | None = None,
) -> Report:
    """Runs all members of a spec's grid and stores them in the new folder `out`.

    To be called in each of several processes that `jax.distributed.initialize` connected, on one file system.

    Args:
        spec: what to run. lanes = 0 takes the device's default; the width taken is part of the stored spec.
        out: the run's folder; must not exist, unless to resume.
        resume: go on with the run in `out` (or begin it): finished members are verified by checksum, members in
            flight go on from their last checkpoint, to the bits of an uninterrupted run on the same machine and
            versions (with "particles": on as many devices).
        progress: called after every chunk.
        interrupted: asked after every chunk; once true, states are saved and the run ends.
        devices: how many of each process's devices; all by default.
        shard: what is divided among devices and processes: "members", each whole on one device (the bits do not
            depend on how many there are), or "particles", one member after another on all devices (to rounding).
            By default what a resumed run was begun with, else "members".

    Raises:
        ValueError: bad input; an existing folder; another spec in the folder; a folder that cannot be written; more
            devices than there are; lanes with "particles". Members already stored stay.
    """
    out = Path(out)
    with step_of_all("check"):
        going_on = resume and out.exists()
        stored = describe(out) if going_on else None
        before = stored["attrs"].get("shard") if stored else None
        shard = _checked(shard or before or "members", spec.lanes, devices)
        experiment = Experiment(spec)
        experiment.problem(0)  # what it refuses, it refuses before a folder is made
        if not spec.lanes:
            chosen = 1 if shard == "particles" else default_lanes(lambda: experiment.problem(0))
            spec = spec.replace(lanes=stored["spec"]["lanes"] if stored else chosen)
            experiment.spec = spec
    placement = {"shard": shard, "devices": len(first_devices(devices)) * jax.process_count()}
    store, done, notes = _opened(experiment, out, going_on, placement)
    with store, step_of_all("run"):
        chunk = _drive(experiment, store, done, progress, interrupted, devices, shard)
    work = (chunk.useful, chunk.executed) if chunk else (0, 0)
    rows = _rows(experiment, out, [])
    return Report(out, rows, spec.members, len(rows) < spec.members, notes, *work)


def _checked(shard: str, lanes: int, devices: int | None) -> str:
    """What to divide, if it can be done."""
    first_devices(devices)
    if shard == "particles" and lanes > 1:
        raise ValueError(f"lanes = {lanes} with shard = particles, which runs one member at a time: leave lanes out")
    if shard not in SHARED:
        raise ValueError(f"shard = {shard!r}: expected one of {', '.join(SHARED)}")
    return shard


def _opened(
    experiment: Experiment, out: Path, going_on: bool, placement: dict[str, str | int]
) -> tuple[RunStore, set[int], list[str]]:
    """The store, its finished members, and notes: by the first process, which locks it for all; then the others."""
    spec, store, notes = experiment.spec.to_dict(), None, []
    done: set[int] = set()
    with contextlib.ExitStack() as undo:
        with step_of_all("open"):
            if leads():
                if going_on:
                    store = RunStore.open(out, spec)
                else:
                    store = RunStore.create(out, spec=spec, **layout(experiment, placement))
                undo.enter_context(store)
                notes = _differences(store) if going_on else []
                done = store.completed()
                if store.damaged:
                    damaged = ", ".join(map(str, store.damaged))
                    notes.append(f"damaged members found by checksum and computed again: {damaged}")
        with step_of_all("join"):
            if store is None:
                store = undo.enter_context(RunStore.join(out, spec))
                done = store.completed()
        undo.pop_all()
    return store, done, notes


def report(path: str | Path) -> Report:
    """The report of a run on disk, finished or not; changes nothing.

    Raises:
        ValueError: not the folder of a run.
    """
    experiment, damaged = Experiment(Spec.from_dict(describe(path)["spec"])), verify(path)
    notes = [f"damaged members: {', '.join(map(str, damaged))}"] if damaged else []
    return Report(Path(path), _rows(experiment, path, damaged), experiment.spec.members, False, notes)


def _rows(experiment: Experiment, path: str | Path, damaged: list[int]) -> list[dict[str, Any]]:
    with open_run(path) as dataset:
        whole = dataset["complete"].values
        return [
            row(experiment, member, {name: dataset[name][index].values for name in ROW})
            for member, index in enumerate(np.ndindex(whole.shape))
            if whole[index] and member not in damaged
        ]


def _drive(
    experiment: Experiment, store: RunStore, done: set[int], progress, interrupted, devices: int | None, shard: str
) -> Chunk | None:
    """Runs what is missing, or this process's share of it, up to the end or an interruption; the last chunk."""
    missing = [member for member in range(experiment.spec.members) if member not in done]
    together = shard == "particles"
    mine = missing if together else missing[jax.process_index() :: jax.process_count()]
    writes = leads() or not together
    began = saved = time.monotonic()
    lengths: list[int] = []
    chunk = None
    for chunk in _chunks(experiment, store, mine, devices, shard):
        for finished in chunk.finished:
            if writes:
                arrays = record(experiment, finished.member, finished.solution, finished.seconds)
                store.write_member(store.index_of(finished.member), arrays)
            lengths.append(int(finished.solution.steps))
        stop, late = bool(interrupted()), time.monotonic() - saved > _CHECKPOINT_SECONDS
        if together:  # all do the same
            stop, late = map(bool, largest(stop, late))
        if stop or late:
            for member, leaves in chunk.states().items():
                if writes:
                    store.write_checkpoint(member, leaves, {})
            saved = time.monotonic()
        if progress is not None:
            left = len(mine) - len(lengths)
            expected = left * float(np.mean(lengths)) - sum(chunk.running.values()) if lengths else math.nan
            progress(
                Progress(
                    len(done) + len(lengths),
                    len(done) + len(mine),
                    chunk.useful,
                    chunk.running,
                    time.monotonic() - began,
                    max(expected, 0.0),
                )
            )
        if stop:
            break
    return chunk


def _chunks(
    experiment: Experiment, store: RunStore, members: list[int], devices: int | None, shard: str
) -> Iterator[Chunk]:
    def restore(member: int) -> list[np.ndarray] | None:
        return (store.read_checkpoint(member) or (None,))[0]

    if shard == "particles":
        return run_divided(experiment.problem, members, particle_mesh(devices), restore=restore)
    return run_lanes(
        experiment.problem,
        members,
        lanes=experiment.spec.lanes,
        devices=first_devices(devices),
        restore=restore,
        siblings=experiment.siblings,
    )


def _differences(store: RunStore) -> list[str]:
    written, here = json.loads(store.schema.attrs["versions"]), versions()
    other = ", ".join(f"{name} {written[name]} -> {here[name]}" for name in here if written.get(name) != here[name])
    return (
        [f"versions differ from those the run began with ({other}): new members may differ in the last bits"]
        if other
        else []
    )
