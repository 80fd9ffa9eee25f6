"""The schema of a run and its skeleton on disk: a zarr group with every array described and no member written."""

import dataclasses
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .files import canonical, fingerprint

Labelled = tuple[tuple[str, ...], np.ndarray, dict[str, Any]]
MAX_CHUNK_BYTES = 64 * 2**20
COMPLETE = "complete"  # the variable that `open_run` adds


@dataclasses.dataclass(frozen=True)
class Variable:
    """What one member stores under a name: the dims after the member dims, the dtype, the fill of what is not written.

    `dtype="str"` holds one of `choices`, kept on disk as a code with CF `flag_values` and `flag_meanings` (-1: not
    written), which plain xarray reads and `open_run` turns into text. The default fill is nan, -1, False, or the
    largest unsigned integer. Give times as `units="s"`: the word "seconds" makes xarray decode a duration.
    """

    dims: tuple[str, ...] = ()
    dtype: str = "float64"
    fill: float | int | bool | None = None
    attrs: dict[str, Any] = dataclasses.field(default_factory=dict)
    choices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.dtype == "str") != bool(self.choices):
            raise ValueError(
                f"a variable of dtype {self.dtype!r} has choices {self.choices}; text, and only text, needs them"
            )
        if any(not word or word.split() != [word] for word in self.choices) or len(set(self.choices)) < len(
            self.choices
        ):
            raise ValueError(f"choices {self.choices}: distinct words without blanks expected (write '_' for a blank)")
        if self.dtype != "str" and np.dtype(self.dtype).kind not in "biuf":
            raise ValueError(f"a variable of dtype {self.dtype!r}; bool, int, uint, float or 'str' expected")

    @property
    def stored(self) -> np.dtype:
        """The dtype on disk."""
        return np.dtype("int32" if self.dtype == "str" else self.dtype)

    @property
    def stored_fill(self) -> float | int | bool:
        """The value on disk of a member that is not written."""
        if self.fill is not None:
            return self.fill
        if self.stored.kind == "u":
            return int(np.iinfo(self.stored).max)
        return {"f": math.nan, "i": -1, "b": False}[self.stored.kind]

    @property
    def stored_attrs(self) -> dict[str, Any]:
        """The attributes on disk."""
        if self.dtype != "str":
            return self.attrs
        return {**self.attrs, "flag_values": list(range(len(self.choices))), "flag_meanings": " ".join(self.choices)}

    def encode(self, name: str, value: "np.ndarray | np.generic | str", shape: tuple[int, ...]) -> np.ndarray:
        """The array to write for `value`; raises `ValueError` on another shape, dtype or choice."""
        array = np.asarray(value)
        if array.shape != shape:
            raise ValueError(f"variable {name!r} has shape {array.shape}; {shape} expected")
        if self.dtype != "str":
            if array.dtype != self.stored:
                raise ValueError(
                    f"variable {name!r} has dtype {array.dtype}; {self.stored} expected; convert it explicitly"
                )
            return array
        codes = {word: code for code, word in enumerate(self.choices)}
        unknown = sorted(set(array.ravel().tolist()) - set(codes), key=str)
        if unknown:
            raise ValueError(f"variable {name!r} holds {unknown[0]!r}; one of {', '.join(self.choices)} expected")
        return np.array([codes[word] for word in array.ravel().tolist()], self.stored).reshape(shape)

    def decode(self, array: np.ndarray) -> np.ndarray:
        """Inverse of `encode`; text that is not written becomes the empty string."""
        return decode_flags(array, self.choices) if self.dtype == "str" else array


def decode_flags(codes: np.ndarray, words: "tuple[str, ...] | list[str]") -> np.ndarray:
    """Text of CF flag codes; what is no code becomes the empty string."""
    table = np.array([*words, ""])
    return np.asarray(table[np.where((codes >= 0) & (codes < len(words)), codes, len(words))])


def chunk_shape(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Whole axes, the largest halved until a chunk stays below 64 MiB."""
    chunks = [max(1, n) for n in shape]
    while math.prod(chunks) * itemsize > MAX_CHUNK_BYTES:
        largest = chunks.index(max(chunks))
        chunks[largest] = -(-chunks[largest] // 2)
    return tuple(chunks)


def check_schema(
    dims: Mapping[str, int],
    member_dims: tuple[str, ...],
    variables: Mapping[str, Variable],
    arrays: Mapping[str, Labelled],
    attrs: Mapping[str, Any],
) -> None:
    """Raise `ValueError` at the first name, dim, shape, dtype or attribute of a schema that cannot be stored."""
    used = {**{n: member_dims + v.dims for n, v in variables.items()}, **{n: a[0] for n, a in arrays.items()}}
    for name, names in used.items():
        unknown = [dim for dim in names if dim not in dims]
        if unknown or len(set(names)) < len(names):
            raise ValueError(f"{name!r} has dims {names}; distinct dims among {tuple(dims)} expected")
    clash = sorted((set(variables) & set(arrays)) | ({COMPLETE} & set(used)))
    if clash:
        raise ValueError(f"the name {clash[0]!r} is used twice or reserved; rename one")
    for name, (names, array, _) in arrays.items():
        expected = tuple(dims[dim] for dim in names)
        if array.shape != expected or array.dtype.kind not in "biuf":
            raise ValueError(
                f"{name!r} has shape {array.shape}, dtype {array.dtype}; numbers of shape {expected} expected"
            )
    try:
        canonical([dict(attrs), [v.attrs for v in variables.values()], [a[2] for a in arrays.values()]])
    except TypeError as error:
        raise ValueError(f"an attribute is not JSON-able ({error}); pass numbers, text, lists and dicts") from error


def create_skeleton(
    path: Path,
    dims: Mapping[str, int],
    member_dims: tuple[str, ...],
    variables: Mapping[str, Variable],
    coords: Mapping[str, Labelled],
    constants: Mapping[str, Labelled],
    attrs: Mapping[str, Any],
) -> dict[str, list[int | str]]:
    """Create the zarr group that xarray opens, coordinates and constants written; returns its files' fingerprints."""
    import zarr

    auxiliary = [name for name in coords if name not in dims]
    extra = {"coordinates": " ".join(auxiliary)} if auxiliary else {}
    group = zarr.create_group(path, zarr_format=3, attributes={**attrs, **extra, "member_dims": list(member_dims)})
    for name, (names, array, notes) in {**coords, **constants}.items():
        made = group.create_array(
            name,
            shape=array.shape,
            chunks=chunk_shape(array.shape, array.itemsize),
            dtype=array.dtype,
            fill_value=Variable(dtype=array.dtype.name).stored_fill,
            dimension_names=names,
            attributes=notes,
            config={"write_empty_chunks": True},
        )
        if array.size:
            made[...] = array
    for name, variable in variables.items():
        own = tuple(dims[dim] for dim in variable.dims)
        group.create_array(
            name,
            shape=tuple(dims[dim] for dim in member_dims) + own,
            chunks=(1,) * len(member_dims) + chunk_shape(own, variable.stored.itemsize),
            dtype=variable.stored,
            fill_value=variable.stored_fill,
            dimension_names=member_dims + variable.dims,
            attributes=variable.stored_attrs,
        )
    with warnings.catch_warnings():  # xarray warns where consolidated metadata is missing, zarr where it is made
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(path)
    return {file.relative_to(path).as_posix(): fingerprint(file) for file in sorted(path.rglob("*")) if file.is_file()}
