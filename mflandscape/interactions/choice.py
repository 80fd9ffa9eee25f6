"""Which evaluator to take when the user does not say."""

import numpy as np
from jax.typing import DTypeLike

from .base import AbstractInteraction
from .circle_fourier import CircleFourier
from .dense import Blocked, Dense

_DENSE_LIMIT = 2048  # points above which all pairs at once would not fit the caches


def choose_interaction(
    d: int, n: int, beta: float, dtype: DTypeLike = np.float64, matrix: bool = False
) -> AbstractInteraction:
    """The fastest evaluator for `n` points of `S^{d-1}` and betas up to `beta`: Fourier modes on the circle, tiles
    of pairs elsewhere.
    """
    if d == 2 and not matrix:
        return CircleFourier.for_beta(beta, dtype)
    return Dense() if n <= _DENSE_LIMIT else Blocked()
