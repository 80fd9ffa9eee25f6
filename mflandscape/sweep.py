"""The verb `sweep`: a grid of flows over any named axes, run as one program, its solutions stacked along the grid."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .ensemble import run_lanes
from .flows import Problem, Solution


class Sweep(eqx.Module):
    """What a sweep gave.

    Attributes:
        axes: names and values, in the order of the grid.
        solutions: one `Solution` whose arrays (NumPy) have the grid's shape in front.
        seconds: wall seconds each member spent in a lane, of the grid's shape.
        useful, executed: the members' own steps, and lanes times steps executed, padding included.
    """

    axes: dict[str, tuple] = eqx.field(static=True)
    solutions: Solution
    seconds: np.ndarray
    useful: int = eqx.field(static=True)
    executed: int = eqx.field(static=True)


def sweep(
    build: Callable[..., Problem],
    axes: Mapping[str, Sequence[Any]],
    *,
    lanes: int | None = None,
    devices: Sequence[jax.Device] | None = None,  # pyright: ignore[reportInvalidTypeForm]
) -> Sweep:
    """Runs `build(**point)` for every point of the grid `axes`, as one compiled program with lanes refilled as
    members end.

    Args:
        build: makes the `Problem` of a point; called on the host, once a member. Members may differ in numbers, not
            in shapes: choose the modes once, `CircleFourier.for_beta(max(betas))`.
        axes: values of each keyword of `build`, for example `dict(beta=[1.0, 5.0], seed=range(8))`.
        lanes: members side by side on each device; 1 on a CPU and 64 on an accelerator by default.
        devices: all local devices by default.

    Raises:
        ValueError: an empty axis; members that differ in structure or shapes; lanes < 1.
    """
    values = {name: tuple(axis) for name, axis in axes.items()}
    shape = tuple(len(axis) for axis in values.values())
    if 0 in shape or not shape:
        raise ValueError(
            f"axes of lengths {dict(zip(values, shape, strict=True))}: expected at least one value on each"
        )

    def member(number: int) -> Problem:
        index = np.unravel_index(number, shape)
        return build(**{name: axis[i] for (name, axis), i in zip(values.items(), index, strict=True)})

    found: list[Any] = [None] * int(np.prod(shape))
    seconds = np.zeros(len(found))
    useful = executed = 0
    for chunk in run_lanes(member, range(len(found)), lanes=lanes, devices=devices):
        for done in chunk.finished:
            found[done.member], seconds[done.member] = done.solution, done.seconds
        useful, executed = chunk.useful, chunk.executed
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves).reshape(*shape, *leaves[0].shape), *found)
    return Sweep(values, stacked, seconds.reshape(shape), useful, executed)
