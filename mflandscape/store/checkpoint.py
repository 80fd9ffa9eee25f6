"""Checkpoints of members in flight: one file each, arrays bit for bit, never trusted without their checksum."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .files import write_atomic

_MAGIC = b"mfl-checkpoint-1\n"
_DIGEST = 32
_LENGTH = 8


def write_checkpoint(path: Path, arrays: Sequence[np.ndarray], meta: dict[str, Any]) -> None:
    """Write arrays and a JSON-able `meta` to one file, atomically: magic, SHA-256 of the rest, header, raw buffers.

    It does not wait for the disk: a power cut may lose the checkpoint, which the checksum then tells.

    Raises:
        ValueError: an array of objects, records or of a dtype foreign to numpy; a `meta` that JSON cannot hold.
    """
    for array in arrays:
        if array.dtype.kind not in "biufcSU":
            raise ValueError(
                f"a checkpoint array has dtype {array.dtype}; plain numbers, booleans or text expected; "
                "view it as an integer dtype of the same size"
            )
    try:
        header = json.dumps({"meta": meta, "arrays": [[a.dtype.str, list(a.shape)] for a in arrays]}).encode()
    except TypeError as error:
        raise ValueError(
            f"the checkpoint's meta is not JSON-able ({error}); pass numbers, text, lists and dicts"
        ) from error
    body = b"".join([len(header).to_bytes(_LENGTH, "little"), header, *(a.tobytes() for a in arrays)])
    write_atomic(path, _MAGIC + hashlib.sha256(body).digest() + body, durable=False)


def read_checkpoint(path: Path) -> tuple[list[np.ndarray], dict[str, Any]] | None:
    """Read `(arrays, meta)` back, bit for bit; `None` when the file is missing, truncated or damaged."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    start = len(_MAGIC) + _DIGEST
    body = memoryview(data)[start:]
    if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != data[len(_MAGIC) : start]:
        return None
    size = int.from_bytes(body[:_LENGTH], "little")
    header = json.loads(bytes(body[_LENGTH : _LENGTH + size]))
    offset, arrays = _LENGTH + size, []
    for name, shape in header["arrays"]:
        dtype = np.dtype(name)
        count = int(np.prod(shape, dtype=np.int64))
        length = count * dtype.itemsize
        arrays.append(np.frombuffer(body[offset : offset + length], dtype).reshape(shape).copy())
        offset += length
    return arrays, header["meta"]
