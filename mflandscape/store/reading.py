"""Reading a run without writing to it: the labelled dataset, a description, a check of every checksum."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .layout import COMPLETE, decode_flags
from .schema import Schema

if TYPE_CHECKING:
    import xarray


def open_run(path: str | os.PathLike[str]) -> "xarray.Dataset":
    """The dataset of a run, read lazily, with text decoded and `complete` telling which members are whole.

    `complete` compares the sizes of a member's files with its ledger; `verify` compares the checksums too.

    Raises:
        StoreError: not a run folder, or one whose metadata, coordinates or constants are damaged.
    """
    import xarray

    path = Path(path)
    schema = Schema.read(path)
    dataset = xarray.open_zarr(
        path / "dataset.zarr", consolidated=True, chunks=None, decode_times=False, decode_timedelta=False
    )
    for name, variable in schema.variables.items():
        if variable.dtype == "str":
            text = decode_flags(dataset[name].values, variable.choices)
            dataset[name] = (dataset[name].dims, text, variable.attrs)
    complete = np.array([bool(schema.check_member(path, m, sizes_only=True)) for m in range(schema.members)])
    notes = {"long_name": "member is computed and whole"}
    dataset[COMPLETE] = (schema.member_dims, complete.reshape(schema.grid), notes)
    return dataset


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a run holds: members done, in flight and in all, bytes on disk, dims, spec, attributes and versions.

    Members are counted by the sizes of their files; `verify` reads them.

    Raises:
        StoreError: not a run folder, or a damaged one.
    """
    path = Path(path)
    schema = Schema.read(path)
    states = [schema.check_member(path, member, sizes_only=True) for member in range(schema.members)]
    versions = schema.attrs.get("versions", {})
    return {
        "path": str(path),
        "members": schema.members,
        "done": sum(state is True for state in states),
        "damaged": [member for member, state in enumerate(states) if state is False],
        "in_flight": sum(1 for _ in (path / "checkpoint").glob("*.bin")),
        "bytes": sum(_size(file) for file in path.rglob("*")),
        "dims": schema.dims,
        "member_dims": schema.member_dims,
        "spec": schema.spec,
        "versions": json.loads(versions) if isinstance(versions, str) else versions,
        "attrs": schema.attrs,
    }


def _size(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:  # renamed by the run's writer in the meantime
        return 0


def verify(path: str | os.PathLike[str]) -> list[int]:
    """Numbers of the members that have a ledger and do not match it, by checksum; changes nothing.

    Raises:
        StoreError: not a run folder, or one whose metadata, coordinates or constants are damaged.
    """
    path = Path(path)
    schema = Schema.read(path)
    return [member for member in range(schema.members) if schema.check_member(path, member) is False]
