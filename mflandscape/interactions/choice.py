"""Which evaluator to take when the user does not say: one table, read from above."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jax.typing import DTypeLike

from .base import AbstractInteraction
from .circle_fourier import CircleFourier
from .dense import Blocked, Dense
from .nufft import NonuniformFFT
from .sphere_fourier import SphereFourier
from .sphere_nufft import SphereNonuniformFFT
from .tiled import Fused, Tiled

_DIRECT = {"dense": Dense, "blocked": Blocked, "tiled": Tiled, "fused": Fused}
_SERIES = {
    "circle-fourier": CircleFourier, "circle-nufft": NonuniformFFT,
    "sphere-fourier": SphereFourier, "sphere-nufft": SphereNonuniformFFT,
}  # fmt: skip
EVALUATORS = (*_DIRECT, *_SERIES)
DIMENSIONS = {name: kind.dimension for name, kind in _SERIES.items()}  # of those that exist in one alone
_GPU = ("gpu", "cuda", "rocm")


@dataclass(frozen=True)
class Choice:
    """One line of the table: take `evaluator` where all of this holds, the particles being `n >= least[0] + least[1]
    sqrt(beta) + least[2] beta` and at most `most`.

    Raises:
        ValueError: an unknown evaluator.
    """

    evaluator: str
    why: str
    device: str = "any"  # cpu, gpu
    d: int | None = None
    least: tuple[float, float, float] = (0.0, 0.0, 0.0)
    most: float = math.inf
    most_beta: float = math.inf
    matrix: bool = True  # whether it takes a matrix in the inner product

    def __post_init__(self):
        if self.evaluator not in EVALUATORS:
            raise ValueError(f"evaluator {self.evaluator!r}: expected one of {', '.join(EVALUATORS)}")

    def holds(self, d: int, n: int, beta: float, device: str, matrix: bool) -> bool:
        """Whether this line is for `n` points of `S^{d-1}`, betas up to `beta`, on a device (cpu, gpu)."""
        start, root, linear = self.least
        enough = start + root * math.sqrt(beta) + linear * beta <= n <= self.most
        place = self.device in ("any", device) and self.d in (None, d)
        return place and enough and beta <= self.most_beta and (self.matrix or not matrix)

    @property
    def where(self) -> str:
        """The conditions in words."""
        start, root, linear = self.least
        terms = (
            [f"{start:g}"] * (start > 0) + [f"{root:g} sqrt(beta)"] * (root > 0) + [f"{linear:g} beta"] * (linear > 0)
        )
        parts = [self.device] * (self.device != "any") + [f"d = {self.d}"] * (self.d is not None)
        parts += [f"N >= {' + '.join(terms)}"] * bool(terms) + [f"N <= {self.most:g}"] * math.isfinite(self.most)
        parts += [f"beta <= {self.most_beta:g}"] * math.isfinite(self.most_beta) + ["no matrix"] * (not self.matrix)
        return ", ".join(parts) or "always"


# CPU: measured on two cores in float64, velocities (direct: 2.3 ns a pair while it fits the caches, 5 beyond; circle:
# 10 sqrt(beta) modes; sphere: degree 10 sqrt(beta), work N degree^2 and degree^3). float32 crosses at the same places.
# GPU: from counts of operations and launches; benchmarks/step.py measures.
_TABLE = (
    Choice("circle-fourier", "linear in N; the modes grow as sqrt(beta)", d=2, least=(0.0, 1.5, 0.0), matrix=False),
    Choice("sphere-fourier", "linear in N; its tables grow as beta^1.5", "cpu", d=3, least=(200.0, 0.0, 14.0),
           most_beta=1500.0, matrix=False),
    Choice("sphere-fourier", "linear in N, but many small launches", "gpu", d=3, least=(20_000.0, 0.0, 200.0),
           most_beta=1500.0, matrix=False),
    Choice("tiled", "all pairs in one kernel, none written to memory", "gpu"),
    Choice("dense", "all pairs at once, while they fit the caches", "cpu", most=1536.0),
    Choice("blocked", "all pairs in tiles that fit the caches"),
)  # fmt: skip


def choice_table() -> tuple[Choice, ...]:
    """The table `choose_interaction` reads; change a copy of it and hand that over as `table`."""
    return _TABLE


def choose(
    d: int,
    n: int,
    beta: float,
    matrix: bool = False,
    device: str | None = None,
    table: Sequence[Choice] | None = None,
) -> Choice:
    """The first line of the table that holds.

    Args:
        d, n, beta: dimension, number of particles, largest inverse temperature.
        device: cpu or gpu; by default where JAX computes.
        table: other lines than `choice_table()`.

    Raises:
        ValueError: no line holds.
    """
    device = jax.default_backend() if device is None else device
    place = "gpu" if device in _GPU else "cpu"
    for line in _TABLE if table is None else table:
        if line.holds(d, n, beta, place, matrix):
            return line
    raise ValueError(
        f"no line of the table holds for d = {d}, n = {n}, beta = {beta:g}, device {device}, matrix {matrix}: "
        "end it with one that always does, Choice('blocked', 'otherwise')"
    )


def choose_interaction(
    d: int,
    n: int,
    beta: float,
    dtype: DTypeLike = np.float64,
    matrix: bool = False,
    device: str | None = None,
    table: Sequence[Choice] | None = None,
) -> AbstractInteraction:
    """The fastest evaluator for `n` points of `S^{d-1}` and betas up to `beta`. Arguments and errors as `choose`."""
    return named_interaction(choose(d, n, beta, matrix, device, table).evaluator, beta, dtype)


def named_interaction(name: str, beta: float, dtype: DTypeLike = np.float64) -> AbstractInteraction:
    """The evaluator of a name, its modes enough for betas up to `beta`.

    Raises:
        ValueError: unknown name; an invalid beta; a nonuniform FFT where jax-finufft is not installed.
    """
    if name in _SERIES:
        return _SERIES[name].for_beta(beta, dtype)
    if name not in _DIRECT:
        raise ValueError(f"interaction {name!r}: expected one of {', '.join(EVALUATORS)}")
    return _DIRECT[name]()
