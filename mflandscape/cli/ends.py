"""The end states of a stored run, in float64, as commands that look at them closer want them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from ..experiment import Experiment
from ..measure import Measure, empirical, from_angles
from ..spec import Spec
from ..sphere import retract
from ..store import describe, open_run


def stored_experiment(folder: Path) -> Experiment:
    """The experiment of a run, in float64 and with the dense evaluator.

    Raises:
        StoreError: not a run folder, or a damaged one.
    """
    spec = Spec.from_dict(describe(folder)["spec"])
    return Experiment(spec.replace(dtype="float64", interaction="dense"))


def member_numbers(words: Sequence[str], total: int) -> list[int]:
    """Numbers of members, all of them where none is named.

    Raises:
        ValueError: not the number of a member.
    """
    for word in words:
        if not (word.isdecimal() and int(word) < total):
            raise ValueError(f"--member {word}: expected a whole number from 0 to {total - 1}")
    return sorted({int(word) for word in words}) or list(range(total))


def end_states(
    folder: Path, experiment: Experiment, wanted: Sequence[int]
) -> tuple[Iterator[tuple[int, Measure]], list[int]]:
    """The end states of the members that are finished, one at a time, and the numbers of those that are not.

    Raises:
        ValueError: none of them is finished; points that are not finite.
    """
    dataset = open_run(folder)
    whole = dataset["complete"].values
    done = [m for m in wanted if whole.reshape(-1)[m]]
    if not done:
        numbers = ", ".join(map(str, wanted[:20]))
        raise ValueError(f"{folder}: no finished member among {numbers}; go on with mflandscape run --resume")
    name = "final_angle" if experiment.spec.dim == 2 else "final_position"

    def read() -> Iterator[tuple[int, Measure]]:
        for m in done:
            values = np.asarray(dataset[name][np.unravel_index(m, whole.shape)].values, np.float64)
            yield m, _measure(experiment, m, values)

    return read(), [m for m in wanted if not whole.reshape(-1)[m]]


def _measure(experiment: Experiment, member: int, values: np.ndarray) -> Measure:
    """The points with the masses of the member's start."""
    if not np.isfinite(values).all():
        raise ValueError(f"member {member} ended in points that are not finite; leave it out with --member")
    w = experiment.start(member)[0].w
    return from_angles(values, w) if values.ndim == 1 else empirical(retract(jnp.asarray(values)), w)
