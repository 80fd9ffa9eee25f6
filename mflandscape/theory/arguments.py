"""What the functions of this package accept: numbers are checked before anything is computed. Host only."""

import math
import operator

import numpy as np
from jaxtyping import ArrayLike

MAX_BETA = 1e8  # recurrences take 8 sqrt(beta) steps
MAX_DEGREE = 10**6  # and one step a degree


def real(name: str, value: ArrayLike, least: float, most: float = math.inf, advice: str = "") -> float:
    """A finite real number of `[least, most]` as a Python float.

    Raises:
        ValueError: not one number, not finite, or out of range.
    """
    array = np.asarray(value)
    if array.ndim != 0 or array.dtype.kind not in "iuf":
        raise ValueError(f"{name} of shape {array.shape} and dtype {array.dtype}: expected one real number")
    number = float(array)
    if not (math.isfinite(number) and least <= number <= most):
        bounds = f">= {least:g}" + (f" and <= {most:g}" if most < math.inf else "")
        raise ValueError(f"{name} = {number}: expected a finite {name} {bounds}" + (f"; {advice}" if advice else ""))
    return number


def inverse_temperature(beta: ArrayLike, most: float = math.inf) -> float:
    """`beta >= 0` as a Python float.

    Raises:
        ValueError: not one number, negative, not finite, or above `most`.
    """
    return real("beta", beta, 0.0, most, "give one beta at a time, in that range")


def whole(name: str, value: int, least: int) -> int:
    """A whole number of at least `least`.

    Raises:
        ValueError: anything else.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool | np.bool_) or number < least:
        raise ValueError(f"{name} = {value!r}: expected a whole number {name} >= {least}; give one in that range")
    return number


def whole_degrees(degrees: object) -> np.ndarray:
    """Degrees `l >= 0`, one or an array of them, as an array of integers of the same shape.

    Raises:
        ValueError: none, not whole numbers, negative, or above 10^6.
    """
    given = np.asarray(degrees)
    if given.size == 0 or given.dtype.kind not in "iu":
        raise ValueError(
            f"degrees of shape {given.shape} and dtype {given.dtype}: expected whole numbers >= 0, such as range(41)"
        )
    if given.min() < 0 or given.max() > MAX_DEGREE:
        raise ValueError(
            f"degrees from {given.min()} to {given.max()}: expected 0 <= degree <= {MAX_DEGREE}; leave out the others"
        )
    return given.astype(np.int64)
