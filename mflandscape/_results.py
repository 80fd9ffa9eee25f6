"""How a run ended: one code, one sentence."""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Int


class RESULTS(eqx.Enumeration):
    """Result codes of flows and sweeps. `RESULTS[code]` is the sentence, `name_of(code)` the short name."""

    running = "The run has not ended."
    stationary = "The largest speed fell below its tolerance."
    clusters_settled = "The number of clusters stayed the same over the whole window."
    converged = "All conditions of a combined stopping rule were met."
    max_time = "The time limit was reached first."
    max_steps = "The step limit was reached first."
    nonfinite = "A position or velocity became infinite or not a number; the last finite state is returned."
    series_truncated = (
        "The evaluator's series is too short for this beta, or its normaliser too small: "
        "the result is less accurate than promised; "
        "choose the modes with CircleFourier.for_beta(largest beta), or take Dense or Blocked."
    )


NAMES = (
    "running",
    "stationary",
    "clusters_settled",
    "converged",
    "max_time",
    "max_steps",
    "nonfinite",
    "series_truncated",
)
CONVERGED = ("stationary", "clusters_settled", "converged")


def code_of(result: RESULTS) -> Int[Array | np.ndarray, "*batch"]:
    """The integer inside a result code."""
    return jax.tree.leaves(result)[0]


def name_of(result: RESULTS) -> str:
    """Short name of one result code, such as `"max_steps"`."""
    return NAMES[int(code_of(result))]
