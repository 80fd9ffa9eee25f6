"""The same velocity by others: NumPy as published, the best NumPy, compiled PyTorch, KeOps. Attention alone, float64.

`pip install 'mflandscape[peers]'` brings PyTorch and KeOps (which compiles with g++). Each is given the points and
returns velocities along the sphere, as our evaluators do; what can be prepared beforehand is not in the timed part.
"""

import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from mflandscape.special import fourier_modes, scaled_bessel_host

Velocity = Callable[[], np.ndarray]
_ENTRIES = 100_000_000  # of a block of the matrix of all pairs: 800 MB
_CACHED = 1_000_000  # the same, where a block is to stay in cache


@dataclass(frozen=True)
class Peer:
    """Another implementation: the velocity it makes of points `x (N, d)`, equal weights and beta, the dimensions it
    takes (all, if none), the most particles that benchmarks give it unasked, and the packages it needs.
    """

    make: Callable[[np.ndarray, float], Velocity]
    dimensions: tuple[int, ...] = ()
    largest: int = 4096
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> str | None:
        """What to install first, if anything."""
        absent = [name for name in self.needs if importlib.util.find_spec(name) is None]
        return ", ".join(absent) or None

    def takes(self, d: int) -> bool:
        """Whether it works in dimension d."""
        return not self.dimensions or d in self.dimensions


def tangent(x: np.ndarray, v: np.ndarray) -> np.ndarray:
    """`v - <v, x> x`, row by row."""
    return v - (v * x).sum(axis=1, keepdims=True) * x


def published(x: np.ndarray, beta: float) -> Velocity:
    """As in the published code on the circle: cosines and sines of all N^2 differences of angles."""
    theta = np.arctan2(x[:, 1], x[:, 0])

    def run() -> np.ndarray:
        difference = theta[None, :] - theta[:, None]
        weight = np.exp(np.clip(beta * (np.cos(difference) - 1), -80, 0))
        speed = -(weight * np.sin(difference)).sum(axis=1) / len(theta)
        return speed[:, None] * np.stack([-np.sin(theta), np.cos(theta)], axis=1)

    return run


def products(x: np.ndarray, beta: float) -> Velocity:
    """Matrix products for inner products and sums, in blocks that fit the cache."""
    rows = max(1, _CACHED // len(x))

    def run() -> np.ndarray:
        pull = [np.exp(beta * (x[i : i + rows] @ x.T - 1)) @ x for i in range(0, len(x), rows)]
        return -tangent(x, np.concatenate(pull) / len(x))

    return run


def fourier_circle(x: np.ndarray, beta: float) -> Velocity:
    """Fourier modes, the same mathematics as ours."""
    modes = fourier_modes(beta, np.float64)
    bessel = scaled_bessel_host(beta, modes + 1)
    series = np.concatenate([[0], bessel[:-2] - bessel[2:]])  # 2 k/beta ive(k, beta)
    z = x[:, 0] + 1j * x[:, 1]

    def run() -> np.ndarray:
        powers = np.empty((len(series), len(z)), complex)
        powers[0] = 1
        powers[1:] = z
        np.multiply.accumulate(powers[1:], axis=0, out=powers[1:])
        moments = powers.mean(axis=1) * series
        speed = (moments.conj() @ powers).imag
        return speed[:, None] * np.stack([-x[:, 1], x[:, 0]], axis=1)

    return run


def torch_dense(x: np.ndarray, beta: float) -> Velocity:
    """PyTorch with `torch.compile`: the whole matrix at once, or blocks of 800 MB where it would be larger; two
    threads, or as many as OMP_NUM_THREADS says.
    """
    torch = importlib.import_module("torch")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 2)))
    points = torch.from_numpy(x)
    parts = points.split(max(1, _ENTRIES // len(x)))

    @torch.compile
    def pull(part, points):
        sums = torch.exp(beta * (part @ points.T - 1)) @ points
        return sums - (sums * part).sum(dim=1, keepdim=True) * part

    return lambda: torch.cat([pull(part, points) for part in parts]).numpy() / -len(x)


def keops(x: np.ndarray, beta: float) -> Velocity:
    """KeOps: a formula compiled to a loop over pairs, nothing stored."""
    genred = importlib.import_module("pykeops.numpy").Genred
    d, scale = x.shape[1], np.array([beta])
    aliases = ["b=Pm(1)", f"x=Vi({d})", f"y=Vj({d})"]
    pull = genred("Exp(b*((x|y)-IntCst(1)))*y", aliases, reduction_op="Sum", axis=1)
    return lambda: -tangent(x, pull(scale, x, x, backend="CPU") / len(x))


PEERS: Mapping[str, Peer] = {
    "numpy-published": Peer(published, (2,)),
    "numpy-dense": Peer(products),
    "numpy-fourier": Peer(fourier_circle, (2,), largest=65_536),
    "torch": Peer(torch_dense, needs=("torch",)),
    "keops": Peer(keops, needs=("pykeops",)),
}
