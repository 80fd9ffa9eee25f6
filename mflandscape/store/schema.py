"""What a run folder says of itself in `run.json`, and which of its members are whole."""

import dataclasses
import math
from pathlib import Path
from typing import Any

from .files import StoreError, altered, read_sealed
from .layout import Variable

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Schema:
    """What `run.json` says of a run."""

    spec: dict[str, Any]
    attrs: dict[str, Any]
    dims: dict[str, int]
    member_dims: tuple[str, ...]
    variables: dict[str, Variable]
    skeleton: dict[str, list[int | str]]

    @property
    def grid(self) -> tuple[int, ...]:
        """Length of each member dim."""
        return tuple(self.dims[dim] for dim in self.member_dims)

    @property
    def members(self) -> int:
        """Number of members."""
        return math.prod(self.grid)

    def to_json(self) -> dict[str, Any]:
        """The content of `run.json`."""
        return {"format": FORMAT, **dataclasses.asdict(self)}

    @classmethod
    def read(cls, path: Path) -> "Schema":
        """Read and check `run.json` and the skeleton of the dataset.

        Raises:
            StoreError: no such folder, not a run folder, of another format, or damaged.
        """
        try:
            content = read_sealed(path / "run.json")
        except OSError as error:
            state = "is a folder without a readable run.json" if path.is_dir() else "does not exist or is not a folder"
            raise StoreError(f"{path} {state}; the folder of a run expected; check the path") from error
        except StoreError as error:
            raise StoreError(f"{error}; the run cannot be trusted; start it again with another --out") from error
        if content.pop("format", None) != FORMAT:
            raise StoreError(f"{path} has another format; format {FORMAT} expected; use the version that wrote it")
        content["member_dims"] = tuple(content["member_dims"])
        content["variables"] = {
            name: Variable(**{**v, "dims": tuple(v["dims"]), "choices": tuple(v["choices"])})
            for name, v in content["variables"].items()
        }
        schema = cls(**content)
        wrong = altered(path / "dataset.zarr", schema.skeleton)
        if wrong:
            raise StoreError(
                f"{path}: {', '.join(wrong)} of its dataset missing or altered (coordinates, constants or metadata); "
                "the run cannot be trusted; start it again with another --out"
            )
        return schema

    def ledger_name(self, member: int) -> str:
        """Name of a member's ledger below the run folder."""
        return f"ledger/{member:05d}.json"

    def check_member(self, path: Path, member: int, sizes_only: bool = False) -> bool | None:
        """True for a complete member, False for a damaged one, None for one without a ledger."""
        try:
            ledger = read_sealed(path / self.ledger_name(member))
        except FileNotFoundError:
            return None
        except (OSError, StoreError):
            return False
        return ledger.get("member") == member and not altered(path / "dataset.zarr", ledger["files"], sizes_only)
