"""One run on disk: created whole, written member by member, resumed by checksum.

    RUN/run.json       spec, attributes, schema and the fingerprints of the dataset's skeleton
    RUN/dataset.zarr   one labelled dataset; a member owns whole chunk files
    RUN/ledger/        one sealed file a completed member with the fingerprints of its chunks, written last
    RUN/checkpoint/    states of members in flight
    RUN/lock           held by the one writer, or by one of several processes for all

A member counts only if its ledger is whole and every chunk matches it, so a kill at any moment leaves a completed
member or one to compute again.
"""

import contextlib
import itertools
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import checkpoint
from .files import Lock, StoreError, canonical, fingerprint, guard, remove_partials, write_sealed
from .layout import Labelled, Variable, check_schema, create_skeleton
from .schema import Schema

_RESUME = (
    "the members completed earlier are intact; free some space or make the folder writable, then continue with --resume"
)


class RunStore:
    """The writer of one run; holds the run's lock until closed (`with RunStore.create(...) as store`)."""

    def __init__(self, path: Path, schema: Schema, lock: Lock | None) -> None:
        self.path = path
        self.schema = schema
        self.damaged: list[int] = []
        self._lock = lock
        self._arrays: dict[str, Any] = {}

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        spec: dict[str, Any],
        dims: Mapping[str, int],
        member_dims: tuple[str, ...],
        coords: Mapping[str, Labelled],
        variables: Mapping[str, Variable],
        attrs: Mapping[str, Any] | None = None,
        constants: Mapping[str, Labelled] | None = None,
    ) -> "RunStore":
        """Create the folder of a run, whole or not at all (it is made aside and renamed), and hold its lock.

        The spec also goes to the dataset's attributes, as JSON text. Chunks are one member each, split above 64 MiB.

        Raises:
            StoreError: the path exists, cannot be written, or is being created by another process.
            ValueError: a schema that does not fit together.
        """
        path, attrs, constants = Path(path), dict(attrs or {}), dict(constants or {})
        check_schema(dims, member_dims, variables, {**coords, **constants}, {**attrs, "spec": spec})
        _refuse_existing(path)
        aside = path.parent / f".{path.name}.creating"
        with guard(f"creating {path}", "choose an --out on a disk with space and in a folder you may write"):
            aside.mkdir(parents=True, exist_ok=True)
            lock = Lock(aside / "lock", path)
            try:
                _clear(aside)
                attributes = {**attrs, "spec": canonical(spec)}
                skeleton = create_skeleton(
                    aside / "dataset.zarr", dims, member_dims, variables, coords, constants, attributes
                )
                schema = Schema(json.loads(canonical(spec)), attrs, dict(dims), member_dims, dict(variables), skeleton)
                for folder in ("ledger", "checkpoint"):
                    (aside / folder).mkdir()
                write_sealed(aside / "run.json", schema.to_json())
                _refuse_existing(path)
                os.rename(aside, path)
            except BaseException:
                shutil.rmtree(aside, ignore_errors=True)
                lock.close()
                raise
        return cls(path, schema, lock)

    @classmethod
    def open(cls, path: str | os.PathLike[str], expect_spec: dict[str, Any] | None = None) -> "RunStore":
        """Open a run to continue it, and hold its lock.

        Raises:
            StoreError: not a run folder, damaged, held by another writer, or of another spec (the keys are named).
        """
        path = Path(path)
        schema = Schema.read(path)
        if expect_spec is not None:
            _same_spec(path, schema.spec, expect_spec)
        with guard(f"opening {path} for writing", _RESUME):
            lock = Lock(path / "lock", path)
            try:
                remove_partials(path)
            except BaseException:
                lock.close()
                raise
        return cls(path, schema, lock)

    @classmethod
    def join(cls, path: str | os.PathLike[str], expect_spec: dict[str, Any]) -> "RunStore":
        """Open a run beside the process that holds its lock, to write members that no other process writes.

        Members own whole files, so that several processes may write one run, each its own members.

        Raises:
            StoreError: not a run folder (one that this process cannot see), damaged, or of another spec.
        """
        path = Path(path)
        schema = Schema.read(path)
        _same_spec(path, schema.spec, expect_spec)
        return cls(path, schema, None)

    @property
    def spec(self) -> dict[str, Any]:
        """The spec the run was created with, as JSON gives it back."""
        return self.schema.spec

    @property
    def members(self) -> int:
        """Number of members of the run."""
        return self.schema.members

    def index_of(self, member: int) -> tuple[int, ...]:
        """Grid index of a member's number (the last member dim runs fastest)."""
        return tuple(int(i) for i in np.unravel_index(member, self.schema.grid))

    def member_of(self, index: tuple[int, ...]) -> int:
        """Number of the member at a grid index; raises `ValueError` outside the grid."""
        grid = self.schema.grid
        if len(index) != len(grid) or any(not 0 <= i < n for i, n in zip(index, grid, strict=True)):
            raise ValueError(f"member index {index}; one of the grid {grid} over {self.schema.member_dims} expected")
        return int(np.ravel_multi_index(index, grid))

    def write_member(self, index: tuple[int, ...], arrays: Mapping[str, "np.ndarray | np.generic | str"]) -> None:
        """Write all variables of one member: the chunks, then the ledger that makes it count; drops its checkpoint.

        Raises:
            ValueError: an index outside the grid; missing or unknown names; a wrong shape, dtype or choice.
            StoreError: the disk is full or the folder not writable; the other members stay as they were.
        """
        member, variables = self.member_of(index), self.schema.variables
        if set(arrays) != set(variables):
            missing, unknown = sorted(set(variables) - set(arrays)), sorted(set(arrays) - set(variables))
            raise ValueError(
                f"member {index}: missing variables {missing}, unknown variables {unknown}; pass exactly the schema's"
            )
        encoded = {name: v.encode(name, arrays[name], self._shape(v)) for name, v in variables.items()}
        ledger = self.path / self.schema.ledger_name(member)
        with guard(f"writing member {member} of {self.path}", _RESUME):
            ledger.unlink(missing_ok=True)
            prints = {}
            for name, array in encoded.items():
                if array.size:
                    self._array(name)[index] = array
                prints.update(
                    {file: fingerprint(self.path / "dataset.zarr" / file) for file in self._files(name, index)}
                )
            write_sealed(ledger, {"member": member, "index": list(index), "files": prints})
        self.drop_checkpoint(member)

    def read_member(self, index: tuple[int, ...]) -> dict[str, np.ndarray]:
        """All variables of one member as they were written (the fill if they were not); see `completed` first."""
        self.member_of(index)
        return {n: v.decode(np.asarray(self._array(n)[index])) for n, v in self.schema.variables.items()}

    def completed(self) -> set[int]:
        """Numbers of the members that are whole, by the checksum of every file they own.

        A damaged member loses its ledger and is listed in `damaged`; checkpoints of completed members are dropped.
        Cost: one reading of everything stored.
        """
        done = set()
        for member in range(self.members):
            state = self.schema.check_member(self.path, member)
            if state:
                done.add(member)
                self.drop_checkpoint(member)
            elif state is False:
                with guard(f"removing the ledger of the damaged member {member} of {self.path}", _RESUME):
                    (self.path / self.schema.ledger_name(member)).unlink()
                self.damaged = sorted({*self.damaged, member})
        return done

    def write_checkpoint(self, member: int, arrays: Sequence[np.ndarray], meta: dict[str, Any]) -> None:
        """Keep the state of a member in flight, in place of the last; raises `StoreError` if it cannot be written."""
        with guard(f"writing a checkpoint of member {member} of {self.path}", _RESUME):
            checkpoint.write_checkpoint(self._checkpoint(member), arrays, meta)

    def read_checkpoint(self, member: int) -> tuple[list[np.ndarray], dict[str, Any]] | None:
        """The last state kept of a member, bit for bit; `None` when there is none or it is damaged."""
        return checkpoint.read_checkpoint(self._checkpoint(member))

    def drop_checkpoint(self, member: int) -> None:
        """Delete the state kept of a member, if any."""
        with contextlib.suppress(OSError):
            self._checkpoint(member).unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock; the store must not be written to afterwards."""
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> "RunStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _checkpoint(self, member: int) -> Path:
        return self.path / "checkpoint" / f"{member:05d}.bin"

    def _shape(self, variable: Variable) -> tuple[int, ...]:
        return tuple(self.schema.dims[dim] for dim in variable.dims)

    def _array(self, name: str) -> Any:
        if name not in self._arrays:
            import zarr

            # Empty chunks are written too: a file that is not there is then always a damage.
            with zarr.config.set({"array.write_empty_chunks": True}):
                self._arrays[name] = zarr.open_array(self.path / "dataset.zarr" / name, mode="r+", zarr_format=3)
        return self._arrays[name]

    def _files(self, name: str, index: tuple[int, ...]) -> list[str]:
        array = self._array(name)
        blocks = itertools.product(*(range(n) for n in array.cdata_shape[len(index) :]))
        return [f"{name}/{array.metadata.encode_chunk_key((*index, *block))}" for block in blocks]


def _same_spec(path: Path, stored: dict[str, Any], expected: dict[str, Any]) -> None:
    differ = [
        f"{key} ({canonical(stored.get(key))} stored, {canonical(expected.get(key))} asked)"
        for key in sorted({*stored, *expected})
        if key not in stored or key not in expected or canonical(stored[key]) != canonical(expected[key])
    ]
    if differ:
        raise StoreError(
            f"{path} was made with another spec: {'; '.join(differ)}; resume with the same one, or choose another --out"
        )


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise StoreError(
            f"{path} exists; a run never overwrites another's results; choose another --out, "
            "or continue it with --resume"
        )


def _clear(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != "lock":
            entry.unlink()
