"""Starting points on the host: published draws to the bit, JAX draws, lattices, files of the user's points."""

import math
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Float

from . import sphere
from ._options import read_json

SUFFIXES = (".npy", ".npz", ".csv", ".txt", ".json")
POINT_KEYS = ("x", "points", "theta")
WEIGHT_KEYS = ("w", "weights")
TURN = 2.0 * math.pi
ON_SPHERE = 1e-6


@dataclass(frozen=True, eq=False)
class Start:
    """Points `x (N, d)` of the sphere, weights `w (N,)` (None: equal ones), on the circle also angles `theta (N,)`.

    `theta` lies in `[0, 2 pi)` and is as drawn or read where the points came as angles, so that a published start is
    reproduced to the bit; `x` is then `(cos theta, sin theta)`.
    """

    x: Float[np.ndarray, "N d"]
    w: Float[np.ndarray, " N"] | None = None
    theta: Float[np.ndarray, " N"] | None = None
    __no_type_check__: ClassVar[bool] = True

    @property
    def n(self) -> int:
        """Number of points."""
        return self.x.shape[0]


def expand_seeds(seed: int, count: int) -> tuple[int, ...]:
    """The published code's seeds: the given one, then `np.random.default_rng(seed).integers(0, 2**31 - 1)` in turn."""
    if count < 1:
        raise ValueError(f"number of seeds = {count}: expected at least 1")
    rng = np.random.default_rng(seed)
    return (seed, *(int(rng.integers(0, 2**31 - 1)) for _ in range(count - 1)))


def numpy_start(seed: int, n: int, d: int) -> Start:
    """The published code's start to the bit: uniform angles for d = 2, normalised Gaussian vectors above.

    `rng = np.random.default_rng(seed)`; `rng.uniform(0, 2 pi, N)`, or `rng.normal(size=(N, d))` with rows normalised.
    """
    _check_size(n, d)
    rng = np.random.default_rng(seed)
    if d == 2:
        return _from_angles(rng.uniform(0.0, TURN, size=n))
    x = rng.normal(size=(n, d))
    return Start(x / np.linalg.norm(x, axis=1, keepdims=True))


def sampled_start(seed: int, n: int, d: int) -> Start:
    """Independent uniform points drawn from `jax.random.key(seed)` (threefry, always in float64)."""
    _check_size(n, d)
    with jax.enable_x64(True):
        x = sphere.uniform(jax.random.key(seed, impl="threefry2x32"), n, d, np.dtype(np.float64))
        return _from_points(np.asarray(x))


def equispaced_start(n: int) -> Start:
    """The `n` angles `2 pi k / n` of the circle."""
    _check_size(n, 2)
    return _from_angles(np.arange(n) * (TURN / n))


def fibonacci_start(n: int) -> Start:
    """The Fibonacci lattice of `S^2`: `n` quasi-uniform points."""
    _check_size(n, 3)
    with jax.enable_x64(True):
        return _from_points(np.asarray(sphere.fibonacci(n, np.dtype(np.float64))))


def load_points(path: str | Path, d: int) -> Start:
    """The user's own points, with weights where the file has them.

    `.npy`: an array `(N, d)`, or angles `(N,)` for d = 2. `.npz`: the array under `x`, `points` or `theta`, weights
    under `w` or `weights`. `.csv`, `.txt`: one point a line, columns separated by commas or blanks, one column of
    angles for d = 2; a heading line may name a column `w` or `weights`. `.json`: rows or angles, or an object with the
    keys of `.npz`.

    Points may be off the sphere by 1e-6: rows that are not of length 1 to rounding are divided by their length. Angles
    are brought into `[0, 2 pi)`; those in it stay as they are. Weights may miss sum 1 by 1e-6: they are then divided
    by it.

    Raises:
        ValueError: unreadable, truncated or unknown file; nan or inf; wrong d; points off the sphere; weights negative,
            not of sum 1 or not one a point. The message names the file and the first point at fault.
    """
    points, weights = _read(Path(path))
    if points.size == 0:
        raise ValueError(f"{path}: no points; expected (N, {d}) with N >= 1")
    bad = ~np.isfinite(points.reshape(len(points), -1)).all(axis=1)
    if bad.any():
        raise ValueError(
            f"{path}: point {int(bad.argmax())} is nan or inf; expected finite coordinates; remove or repair it"
        )
    if weights is not None:
        weights = _check_weights(path, weights, len(points))
    if d == 2 and (points.ndim == 1 or points.shape[1:] == (1,)):
        return _from_angles(points.reshape(-1), weights)
    if points.ndim != 2 or points.shape[1] != d:
        angles = " or angles (N,)" if d == 2 else ""
        raise ValueError(
            f"{path}: points have shape {points.shape}; expected (N, {d}){angles}; set dim to match the file"
        )
    length = np.linalg.norm(points, axis=1)
    off = np.abs(length - 1)
    if off.max() > ON_SPHERE:
        worst = int(off.argmax())
        raise ValueError(
            f"{path}: point {worst} has length {length[worst]:.9g}; expected points of the unit sphere within "
            f"{ON_SPHERE:g}; divide each by its length"
        )
    repair = off > 4 * np.finfo(np.float64).eps
    return _from_points(np.where(repair[:, None], points / length[:, None], points), weights)


def _check_size(n: int, d: int) -> None:
    if n < 1 or d < 2:
        raise ValueError(f"n = {n}, d = {d}: expected n >= 1 points in dimension d >= 2")


def _from_angles(theta: np.ndarray, w: np.ndarray | None = None) -> Start:
    theta = np.mod(theta, TURN)
    theta = np.where(theta >= TURN, 0.0, theta)
    return Start(np.stack([np.cos(theta), np.sin(theta)], axis=1), w, theta)


def _from_points(x: np.ndarray, w: np.ndarray | None = None) -> Start:
    if x.shape[1] != 2:
        return Start(x, w)
    return Start(x, w, _from_angles(np.arctan2(x[:, 1], x[:, 0])).theta)


def _check_weights(path: str | Path, w: np.ndarray, n: int) -> np.ndarray:
    if w.shape != (n,):
        raise ValueError(f"{path}: weights have shape {w.shape}; expected ({n},), one a point")
    if not np.isfinite(w).all() or (w < 0).any():
        bad = int((~np.isfinite(w) | (w < 0)).argmax())
        raise ValueError(f"{path}: weight {bad} is {w[bad]}; expected finite weights >= 0")
    total = float(w.sum())
    if abs(total - 1) > 1e-6:
        raise ValueError(f"{path}: weights have sum {total:.9g}; expected sum 1; divide them by their sum")
    return w if abs(total - 1) < 1e-12 else w / total


def _read(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: unknown kind of file '{suffix}'; expected one of {', '.join(SUFFIXES)}")
    if suffix == ".json":
        data = read_json(path, "points file")
        return _named(path, data) if isinstance(data, dict) else (_floats(path, data), None)
    try:
        if suffix in (".csv", ".txt"):
            return _table(path, path.read_text(encoding="utf-8"))
        with path.open("rb") as file:  # opened here, so that it is closed when its contents are damaged
            loaded = np.load(file, allow_pickle=False)
            if suffix == ".npy":
                return _floats(path, loaded), None
            return _named(path, {key: loaded[key] for key in loaded.files})
    except OSError as error:
        raise ValueError(f"{path}: cannot read the points ({error.strerror or error}); check the path") from error
    except (zipfile.BadZipFile, EOFError, UnicodeDecodeError, AttributeError) as error:
        raise ValueError(f"{path}: damaged, or not a {suffix} file ({error}); write it again") from error
    except ValueError as error:
        if str(error).startswith(str(path)):
            raise
        raise ValueError(f"{path}: damaged, or not a {suffix} file ({error}); write it again") from error


def _named(path: Path, data: dict[str, Any]) -> tuple[np.ndarray, np.ndarray | None]:
    known = POINT_KEYS + WEIGHT_KEYS
    for key in data:
        if key not in known:
            raise ValueError(f"{path}: unknown key '{key}'; known: {', '.join(known)}")
    points = [key for key in POINT_KEYS if key in data]
    weights = [key for key in WEIGHT_KEYS if key in data and data[key] is not None]
    if len(points) != 1 or len(weights) > 1:
        raise ValueError(f"{path}: expected one of the keys {', '.join(POINT_KEYS)}, and at most one of w, weights")
    w = _floats(path, data[weights[0]]) if weights else None
    values = _floats(path, data[points[0]])
    if points == ["theta"] and values.ndim != 1:
        raise ValueError(f"{path}: theta has shape {values.shape}; expected angles (N,), and dim = 2")
    return values, w


def _floats(path: Path, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
        array = array.astype(np.float64, casting="unsafe" if array.dtype.kind in "OU" else "same_kind")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: not an array of real numbers ({error}); expected rows of equal length") from error
    if array.ndim not in (1, 2):
        raise ValueError(f"{path}: got an array of {array.ndim} axes; expected points (N, d), or angles (N,)")
    return array


def _table(path: Path, text: str) -> tuple[np.ndarray, np.ndarray | None]:
    lines = [(k, line.split("#")[0].strip()) for k, line in enumerate(text.splitlines(), start=1)]
    cells = [(k, [cell for cell in re.split(r"[,;\s]+", line) if cell]) for k, line in lines if line]
    names: list[str] = []
    if cells and not any(_is_number(cell) for cell in cells[0][1]):
        names = [cell.strip("\"'").lower() for cell in cells[0][1]]
        cells = cells[1:]
    if not cells:
        return np.zeros((0, 0)), None
    width = len(names or cells[0][1])
    for k, row in cells:
        if len(row) != width or not all(_is_number(cell) for cell in row):
            raise ValueError(f"{path}, line {k}: got {row}; expected {width} numbers, like the lines above")
    values = np.array([[float(cell) for cell in row] for _, row in cells])
    column = next((k for k, name in enumerate(names) if name in WEIGHT_KEYS), None)
    if column is None:
        return values, None
    return np.delete(values, column, axis=1), values[:, column]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
