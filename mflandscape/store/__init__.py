"""The results store: one run is one folder, written member by member, checksummed, resumable after any kill."""

from .checkpoint import read_checkpoint, write_checkpoint
from .export import export_csv
from .files import StoreError
from .layout import Variable
from .reading import describe, open_run, verify
from .run import RunStore

__all__ = [
    "RunStore",
    "StoreError",
    "Variable",
    "describe",
    "export_csv",
    "open_run",
    "read_checkpoint",
    "verify",
    "write_checkpoint",
]
