"""Runs a `Spec` into a folder, member by member, and goes on from wherever a killed run left off."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .ensemble import Chunk, default_lanes, run_lanes
from .experiment import Experiment
from .records import ROW, layout, record, row, versions
from .spec import Spec
from .store import RunStore, describe, open_run, verify

_CHECKPOINT_SECONDS = 5.0


@dataclass(frozen=True)
class Progress:
    """How far a run is: members finished, steps taken in this session, steps of the members in the lanes.

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
) -> Report:
    """Runs all members of a spec's grid and stores them in the new folder `out`.

    Args:
        spec: what to run. lanes = 0 takes the device's default; the width taken is part of the stored spec.
        out: the run's folder; must not exist, unless to resume.
        resume: go on with the run in `out` (or begin it): finished members are verified by checksum, members in
            flight go on from their last checkpoint, to the bits of an uninterrupted run on the same machine and
            versions.
        progress: called after every chunk.
        interrupted: asked after every chunk; once true, states are saved and the run ends.

    Raises:
        ValueError: bad input; an existing folder; another spec in the folder; a folder that cannot be written.
            Members already stored stay.
    """
    out = Path(out)
    going_on = resume and out.exists()
    if not spec.lanes:
        spec = spec.replace(lanes=describe(out)["spec"]["lanes"] if going_on else default_lanes())
    experiment = Experiment(spec)
    experiment.problem(0)  # what it refuses, it refuses before a folder is made
    if going_on:
        store = RunStore.open(out, spec.to_dict())
        notes = _differences(store)
    else:
        store, notes = RunStore.create(out, spec=spec.to_dict(), **layout(experiment)), []
    with store:
        done = store.completed()
        if store.damaged:
            notes.append(f"damaged members found by checksum and computed again: {', '.join(map(str, store.damaged))}")
        ended, chunk = _drive(experiment, store, done, progress, interrupted)
    work = (chunk.useful, chunk.executed) if chunk else (0, 0)
    return Report(out, _rows(experiment, out, []), spec.members, not ended, notes, *work)


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


def _drive(experiment: Experiment, store: RunStore, done: set[int], progress, interrupted) -> tuple[bool, Chunk | None]:
    """Runs what is missing; whether it came to the end, and the last chunk."""
    missing = [member for member in range(experiment.spec.members) if member not in done]
    began = saved = time.monotonic()
    lengths: list[int] = []
    chunk = None
    chunks = run_lanes(
        experiment.problem,
        missing,
        lanes=experiment.spec.lanes,
        restore=lambda member: (store.read_checkpoint(member) or (None,))[0],
        siblings=experiment.siblings,
    )
    for chunk in chunks:
        for finished in chunk.finished:
            arrays = record(experiment, finished.member, finished.solution, finished.seconds)
            store.write_member(store.index_of(finished.member), arrays)
            lengths.append(int(finished.solution.steps))
        now, stop = time.monotonic(), interrupted()
        if stop or now - saved > _CHECKPOINT_SECONDS:
            for member, leaves in chunk.states().items():
                store.write_checkpoint(member, leaves, {})
            saved = time.monotonic()
        if progress is not None:
            left = len(missing) - len(lengths)
            expected = left * float(np.mean(lengths)) - sum(chunk.running.values()) if lengths else math.nan
            progress(
                Progress(
                    len(done) + len(lengths),
                    experiment.spec.members,
                    chunk.useful,
                    chunk.running,
                    now - began,
                    max(expected, 0.0),
                )
            )
        if stop and len(lengths) < len(missing):
            return False, chunk
    return True, chunk


def _differences(store: RunStore) -> list[str]:
    written, here = json.loads(store.schema.attrs["versions"]), versions()
    other = ", ".join(f"{name} {written[name]} -> {here[name]}" for name in here if written.get(name) != here[name])
    return (
        [f"versions differ from those the run began with ({other}): new members may differ in the last bits"]
        if other
        else []
    )
