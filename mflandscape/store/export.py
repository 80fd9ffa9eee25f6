"""A run as comma-separated tables; floats are written with the digits that read back to the same number."""

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .files import PARTIAL, guard
from .layout import COMPLETE
from .reading import open_run

if TYPE_CHECKING:
    import xarray

_TIME, _PARTICLE = "time", "particle"


def export_csv(
    source: "str | os.PathLike[str] | xarray.Dataset", out: str | os.PathLike[str], *, full: bool = False
) -> list[Path]:
    """Write `summary.csv` to the folder `out`: a row a member, grid coordinates and scalars (empty if not complete).

    With `full` also `trajectory.csv`: a row a member, snapshot and particle, with every variable over particles, its
    components in columns `name_0, name_1, ...`; snapshots after a member's stop (all nan) are left out. Files of these
    names are replaced.

    Raises:
        StoreError: not a run folder, or `out` cannot be written.
        ValueError: a dataset that no run made.
    """
    dataset = open_run(source) if isinstance(source, str | os.PathLike) else source
    if "member_dims" not in dataset.attrs:
        raise ValueError(
            "a dataset without the attribute member_dims; the dataset of a run expected; open it with mfl.open"
        )
    tables = {"summary.csv": _summary(dataset)}
    if full:
        tables["trajectory.csv"] = _trajectory(dataset)
    out = Path(out)
    with guard(f"writing tables to {out}", "choose a folder you may write, on a disk with space"):
        out.mkdir(parents=True, exist_ok=True)
        for name, rows in tables.items():
            aside = out / (name + PARTIAL)
            with open(aside, "w", newline="") as file:
                csv.writer(file).writerows(rows)
            os.replace(aside, out / name)
    return [out / name for name in tables]


def _member_dims(dataset: "xarray.Dataset") -> tuple[str, ...]:
    return tuple(dim for dim in dataset.attrs["member_dims"] if dim in dataset.dims)


def _members(dataset: "xarray.Dataset") -> Iterator[tuple[int, dict[str, int], list[Any]]]:
    """Number, index by dim and coordinate values of each member."""
    dims = _member_dims(dataset)
    columns = [dataset[name] for name in _coordinates(dataset)]
    for number, index in enumerate(np.ndindex(*(dataset.sizes[dim] for dim in dims))):
        at = dict(zip(dims, index, strict=True))
        yield number, at, [c.values[tuple(at[str(d)] for d in c.dims)].item() for c in columns]


def _coordinates(dataset: "xarray.Dataset") -> list[str]:
    dims = set(_member_dims(dataset))
    return [str(name) for name, coord in dataset.coords.items() if set(coord.dims) <= dims]


def _complete(dataset: "xarray.Dataset") -> "xarray.DataArray":
    import xarray

    dims = _member_dims(dataset)
    whole = np.ones([dataset.sizes[dim] for dim in dims], bool)
    return dataset[COMPLETE] if COMPLETE in dataset else xarray.DataArray(whole, dims=dims)


def _summary(dataset: "xarray.Dataset") -> Iterator[list[Any]]:
    dims = _member_dims(dataset)
    scalars = {str(n): v.values for n, v in dataset.data_vars.items() if v.dims == dims and n != COMPLETE}
    complete = _complete(dataset).values
    yield ["member", *_coordinates(dataset), COMPLETE, *scalars]
    for number, at, labels in _members(dataset):
        index = tuple(at.values())
        done = bool(complete[index])
        yield [number, *labels, done, *(values[index].item() if done else "" for values in scalars.values())]


def _trajectory(dataset: "xarray.Dataset") -> Iterator[list[Any]]:
    dims = _member_dims(dataset)
    clocks = [str(n) for n, c in dataset.coords.items() if c.dims == (_TIME,)]
    clocks += [str(n) for n, v in dataset.data_vars.items() if v.dims == (*dims, _TIME)]
    paths = [str(n) for n, v in dataset.data_vars.items() if v.dims[: len(dims) + 2] == (*dims, _TIME, _PARTICLE)]
    widths = {name: dataset[name].shape[len(dims) + 2 :] for name in paths}
    columns = [name + "".join(f"_{i}" for i in index) for name in paths for index in np.ndindex(*widths[name])]
    complete = _complete(dataset)
    yield ["member", *_coordinates(dataset), "snapshot", *clocks, _PARTICLE, *columns]
    for number, at, labels in _members(dataset):
        if not bool(complete.isel(at)) or not paths:
            continue
        member = dataset[[*clocks, *paths]].isel(at).load()
        times = [member[name].values.tolist() for name in clocks]
        table = np.concatenate([_flat(member[name].values) for name in paths], axis=-1)
        for snapshot, rows in enumerate(table):
            if not np.isnan(rows).all():
                head = [number, *labels, snapshot, *(time[snapshot] for time in times)]
                yield from ([*head, particle, *row] for particle, row in enumerate(rows.tolist()))


def _flat(values: np.ndarray) -> np.ndarray:
    return values.reshape(*values.shape[:2], -1)
