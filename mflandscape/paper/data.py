"""A figure's data on disk: labelled datasets in one folder, which is there whole or not at all."""

import json
import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ..store.files import StoreError, read_sealed, write_sealed

_WORDS = "words"  # attribute of a variable of codes: the text that each code stands for


def write_data(folder: Path, data: Mapping[str, xr.Dataset], notes: Mapping[str, Any]) -> None:
    """Write each dataset as `folder/KEY.zarr` and the notes beside them; made aside and renamed.

    Text is stored as codes, which every version of zarr reads.
    """
    aside = folder.with_name(f".{folder.name}.creating")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    for key, dataset in data.items():
        with warnings.catch_warnings():  # zarr and xarray warn of each other's defaults
            warnings.simplefilter("ignore")
            _coded(dataset).to_zarr(aside / f"{key}.zarr", zarr_format=3, consolidated=False)
    write_sealed(aside / "notes.json", {**notes, "keys": list(data)})
    os.rename(aside, folder)


def read_data(folder: Path) -> tuple[dict[str, xr.Dataset], dict[str, Any]]:
    """The datasets of a folder, in memory, and the notes.

    Raises:
        StoreError: damaged.
    """
    try:
        notes = read_sealed(folder / "notes.json")
        data = {
            key: _spelt(xr.open_zarr(folder / f"{key}.zarr", consolidated=False, chunks=None, **_AS_STORED).load())
            for key in notes.pop("keys")
        }
    except (OSError, KeyError, ValueError) as error:
        raise StoreError(f"{folder}: damaged data ({error}); delete the folder and make the figure again") from error
    return data, notes


_AS_STORED: dict[str, Any] = {"decode_times": False, "decode_timedelta": False}


def _coded(dataset: xr.Dataset) -> xr.Dataset:
    dataset = dataset.load().drop_encoding()
    texts = {name: v for name, v in dataset.variables.items() if v.dtype.kind in "UO"}
    coded = {}
    for name, variable in texts.items():
        words, codes = np.unique(variable.values.astype(str), return_inverse=True)
        attrs = {**variable.attrs, _WORDS: json.dumps(words.tolist())}
        coded[name] = (variable.dims, codes.reshape(variable.shape).astype(np.int64), attrs)
    return dataset.assign_coords({n: v for n, v in coded.items() if n in dataset.coords}).assign(
        {n: v for n, v in coded.items() if n not in dataset.coords}
    )


def _spelt(dataset: xr.Dataset) -> xr.Dataset:
    for name, variable in list(dataset.variables.items()):
        if _WORDS in variable.attrs:
            words = np.asarray(json.loads(variable.attrs[_WORDS]))
            attrs = {key: value for key, value in variable.attrs.items() if key != _WORDS}
            dataset[name] = (variable.dims, words[variable.values.astype(int)], attrs)
    return dataset
