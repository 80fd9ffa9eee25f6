"""Files that are whole or absent: atomic writes, checksums, sealed JSON, the lock of the one writer."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # not a POSIX system: runs are then written without a lock
    fcntl = None

PARTIAL = ".partial"


class StoreError(ValueError):
    """A run folder that cannot be written, is held by another writer, is damaged, or is not a run folder."""


@contextlib.contextmanager
def guard(what: str, advice: str) -> Iterator[None]:
    """Turn an operating-system error (full disk, no permission) in doing `what` into a `StoreError` with `advice`."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{what} failed: {error}; {advice}") from error


def write_atomic(path: Path, data: bytes, durable: bool = True) -> None:
    """Write `data` aside and rename it to `path`: a kill leaves the old file or the whole new one.

    `durable` also waits for the disk, so that a power cut cannot leave an empty file.
    """
    aside = path.with_name(path.name + PARTIAL)
    try:
        with open(aside, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        raise


def remove_partials(folder: Path) -> None:
    """Delete what a killed writer left half written below `folder`."""
    for path in folder.rglob("*" + PARTIAL):
        path.unlink(missing_ok=True)


def fingerprint(path: Path) -> list[int | str]:
    """Size in bytes and SHA-256 of a file."""
    with open(path, "rb") as file:
        return [os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()]


def altered(root: Path, prints: dict[str, list[int | str]], sizes_only: bool = False) -> list[str]:
    """Names in `prints` (name below `root` -> fingerprint) whose file is missing or differs, in size or by checksum."""
    wrong = []
    for name, expected in prints.items():
        try:
            same = (root / name).stat().st_size == expected[0] and (sizes_only or fingerprint(root / name) == expected)
        except OSError:
            same = False
        if not same:
            wrong.append(name)
    return wrong


def canonical(content: Any) -> str:
    """The JSON text by which two contents are compared (tuples are lists, keys are sorted)."""
    return json.dumps(content, sort_keys=True)


def write_sealed(path: Path, content: dict[str, Any]) -> None:
    """Write `content` as JSON together with its own SHA-256, atomically and durably."""
    content = json.loads(canonical(content))
    seal = hashlib.sha256(canonical(content).encode()).hexdigest()
    write_atomic(path, json.dumps({**content, "sha256": seal}, indent=1).encode())


def read_sealed(path: Path) -> dict[str, Any]:
    """Read what `write_sealed` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        StoreError: it is truncated, not JSON, or differs from its checksum.
    """
    data = path.read_bytes()
    try:
        content = json.loads(data)
        seal = content.pop("sha256")
        good = seal == hashlib.sha256(canonical(content).encode()).hexdigest()
    except (ValueError, KeyError, AttributeError, TypeError):
        good, content = False, {}
    if not good:
        raise StoreError(f"{path} is damaged (truncated or altered): it does not match its own checksum")
    return content


class Lock:
    """The exclusive lock of a run's one writer; the system drops it when the process dies, however it dies."""

    def __init__(self, path: Path, run: Path) -> None:
        self._file = None
        if fcntl is None:
            return
        file = open(path, "a+")  # noqa: SIM115 (held until close)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise StoreError(
                f"{run} is being written by process {holder}; a run has one writer at a time; "
                "wait for that process to end, or stop it, then use --resume"
            ) from None
        except OSError:  # a file system without locks
            file.close()
            return
        self._file = file
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()

    def close(self) -> None:
        """Release the lock."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
