"""Reading a run's dataset for drawing: its members, their names, paths and final states."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from xarray import Dataset

from .._results import CONVERGED

GRID = ("beta", "weight_seed", "start_seed", "scale")


class Member(NamedTuple):
    """One point of the grid, by its indices along beta, weight_seed, start_seed and scale."""

    beta: int = 0
    weight_seed: int = 0
    start_seed: int = 0
    scale: int = 0


Members = Member | tuple[int, int, int, int] | Sequence[Member] | Sequence[tuple[int, int, int, int]] | None


def dimension(ds: Dataset) -> int:
    """The ambient dimension d of the run."""
    if "angle" in ds or "final_angle" in ds:
        return 2
    for name in ("position", "final_position"):
        if name in ds:
            return ds[name].sizes["coordinate"]
    return int(option(ds, "dim", 0))


def option(ds: Dataset, name: str, default: Any) -> Any:
    """One key of the specification stored with the run, or `default` where it is not written."""
    return json.loads(ds.attrs.get("spec", "{}")).get(name, default)


def readable(ds: Dataset, count: int = 4) -> list[Member]:
    """At most `count` members for panels: lowest to highest beta, at the first seeds and the first scale."""
    total = ds.sizes["beta"]
    order = np.argsort(ds["beta"].values, kind="stable")
    chosen = np.unique(np.round(np.linspace(0, total - 1, min(count, total))).astype(int))
    return [Member(beta=int(order[i])) for i in chosen]


def as_members(ds: Dataset, members: Members) -> list[Member]:
    """One member, several, or none given (then a readable selection), as a list checked against the grid.

    Raises `ValueError` for an index outside the grid or an empty selection.
    """
    if members is None:
        return readable(ds)
    rows = np.atleast_2d(np.asarray(members, dtype=int))
    if rows.size == 0 or rows.shape[1:] != (len(GRID),):
        raise ValueError(f"members of shape {rows.shape}; expected indices along {', '.join(GRID)} for each member")
    sizes = [ds.sizes[name] for name in GRID]
    for name, size, indices in zip(GRID, sizes, rows.T, strict=True):
        if indices.min() < -size or indices.max() >= size:
            raise ValueError(f"member index {indices.tolist()} along {name}; the run has {size}; choose one of these")
    return [Member(*row) for row in (rows % sizes).tolist()]


def pick(ds: Dataset, name: str, member: Member) -> np.ndarray:
    """The values of a variable at one member (its other dimensions kept)."""
    at = {dim: index for dim, index in zip(GRID, member, strict=True) if dim in ds[name].dims}
    return ds[name].isel(at).values


def path(
    ds: Dataset, member: Member, every: int = 1
) -> tuple[Float[np.ndarray, " S"], Float[np.ndarray, "S N *coordinate"]]:
    """Times and finite states of a member's snapshots, and its final state where later; each `every`-th particle."""
    moving, final = ("angle", "final_angle") if dimension(ds) == 2 else ("position", "final_position")
    count = int(pick(ds, "snapshot_count", member))
    times = pick(ds, "snapshot_time", member)[:count]
    states = pick(ds, moving, member)[:count, ::every]
    ended = float(pick(ds, "final_time", member))
    if count == 0 or ended > times[-1]:
        times = np.append(times, ended)
        states = np.concatenate([states, pick(ds, final, member)[None, ::every]])
    finite = np.isfinite(states).reshape(len(times), -1).all(axis=1)
    if not finite.any():
        raise ValueError(f"member {tuple(member)} has no finite state; expected at least one; leave it out")
    return times[finite], states[finite]


def state(ds: Dataset, member: Member, when: int = -1) -> tuple[float, Float[np.ndarray, "N *coordinate"]]:
    """Time and state of one snapshot of a member (`-1`: the final state).

    Raises `ValueError` where the member has no such snapshot.
    """
    times, states = path(ds, member)
    if not -len(times) <= when < len(times):
        raise ValueError(f"snapshot {when}; the member has {len(times)}; choose one of them")
    return float(times[when]), states[when]


def converged(ds: Dataset) -> Bool[np.ndarray, "B W S C"]:
    """Which members stopped because they had converged (and not at a limit of steps or time)."""
    return np.isin(ds["stop_reason"].transpose(*GRID).values.astype(str), CONVERGED)


def name_of(ds: Dataset, member: Member, among: Sequence[Member]) -> str:
    """A member's title: its beta, and those of its seeds and scale in which the members drawn together differ."""
    words = [rf"$\beta = {ds['beta'].values[member.beta]:g}$"]
    for i, dim in enumerate(GRID[1:], start=1):
        if len({other[i] for other in among}) > 1:
            words.append(f"{dim.replace('_', ' ')} {ds[dim].values[member[i]]:g}")
    return ", ".join(words)


def shared_by(ds: Dataset, among: Sequence[Member]) -> list[str]:
    """The seeds and the scale that the members drawn together share, where the run has several to choose from."""
    return [
        f"{dim.replace('_', ' ')} {ds[dim].values[among[0][i]]:g}"
        for i, dim in enumerate(GRID[1:], start=1)
        if ds.sizes[dim] > 1 and len({member[i] for member in among}) == 1
    ]


def ending_of(ds: Dataset, member: Member) -> str:
    """How a member ended, in a few words: its clusters and whether it converged."""
    count = int(pick(ds, "clusters", member))
    settled = str(pick(ds, "stop_reason", member)) in CONVERGED
    return f"{count} cluster{'s' * (count != 1)}{'' if settled else ', not converged'}"
