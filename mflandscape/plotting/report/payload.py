"""What the page draws of a run: snapshots thinned and packed in 16 bits, curves, masses, the perceptron's landscape."""

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib.colors import to_hex
from xarray import Dataset

from ..circle import histogram
from ..landscape import TWO_PI, Landscape, landscape, on_circle
from ..members import GRID, Member, dimension, ending_of, option, path, pick
from ..sphere import equal_area
from ..statistics import MASS_BOUND, every_member, observed
from ..style import region_shade

MOST_MEMBERS = 16
_SNAPSHOTS = 40
_PARTICLES = 2000
_POINT_BYTES = 1_600_000  # of all members' particles together, before base64
_OBSERVATIONS = 400
_RANKS = 40  # cluster masses, heaviest first
_PAIRED = 400  # particles whose inner products are counted
_INNER_BINS = 100
_CURVES = 32  # hyperplanes drawn on the sphere
_GRID = (61, 121)  # colatitudes and azimuths of the shaded sphere


def chosen_members(ds: Dataset, numbers: Sequence[int] = ()) -> list[int]:
    """The numbers given, or all finished members; of more than 16 as many, evenly taken.

    Raises:
        ValueError: no finished member among them.
    """
    whole = ds["complete"].values.reshape(-1) if "complete" in ds else np.ones(len(every_member(ds)), bool)
    done = [m for m in (numbers or range(len(whole))) if whole[m]]
    if not done:
        raise ValueError("no finished member to show; expected at least one; go on with mflandscape run --resume")
    if numbers or len(done) <= MOST_MEMBERS:
        return done
    return [done[i] for i in np.unique(np.round(np.linspace(0, len(done) - 1, MOST_MEMBERS)).astype(int))]


def run_data(ds: Dataset, numbers: Sequence[int]) -> dict[str, Any]:
    """All that the page's script reads, as JSON takes it: members in the order of `numbers`.

    Cost O(members * snapshots * N).
    """
    grid = every_member(ds)
    chosen = [grid[number] for number in numbers]
    scenes: dict[tuple[int, int], dict[str, Any] | None] = {}
    members = []
    for number, member in zip(numbers, chosen, strict=True):
        key = member.weight_seed, member.scale
        if key not in scenes:
            scenes[key] = _scene(landscape(ds, member), dimension(ds))
        budget = _POINT_BYTES // len(chosen)
        members.append(_member(ds, member, budget) | {"number": number, "scene": list(scenes).index(key)})
    return {
        "dim": dimension(ds),
        "particles": ds.sizes["particle"],
        "bound": MASS_BOUND if option(ds, "direction", "descent") == "descent" else None,
        "tolerance": None if option(ds, "stop", "none") == "none" else _numbers(option(ds, "drift_tol", None)),
        "grid": _GRID,
        "paired": len(range(0, ds.sizes["particle"], _every(ds.sizes["particle"], _PAIRED))),
        "members": members,
        "scenes": list(scenes.values()),
    }


def member_title(ds: Dataset, member: Member) -> str:
    """Beta, and the seeds and the scale where the run has several."""
    words = [f"β = {ds['beta'].values[member.beta]:g}"]
    for i, dim in enumerate(GRID[1:], start=1):
        if ds.sizes[dim] > 1:
            words.append(f"{dim.replace('_', ' ')} {ds[dim].values[member[i]]:g}")
    return ", ".join(words)


def _member(ds: Dataset, member: Member, budget: int) -> dict[str, Any]:
    times, states = path(ds, member)
    kept = _evenly(len(times), _SNAPSHOTS)
    d, mass = dimension(ds), _mass(ds, member)
    shown, total = states[kept], len(states)
    masses = pick(ds, "cluster_mass", member)
    found = {
        "title": member_title(ds, member),
        "ending": ending_of(ds, member),
        "times": _numbers(times[kept]),
        "left_out": total - len(kept),
        "masses": _numbers(masses[np.isfinite(masses)][:_RANKS]),
        "observed": _observed(ds, member),
        "inner": _packed(np.stack([_inner(x) for x in (on_circle(s) if d == 2 else s for s in shown)])),
    }
    if d > 3:
        return found
    room = max(1, budget // (2 * (1 if d == 2 else 3) * len(kept)))
    every = _every(shown.shape[1], min(_PARTICLES, room))
    if d == 2:
        bins = np.stack([histogram(x, mass)[0] for x in shown])
        return found | {"points": _packed(shown[:, ::every] % TWO_PI, 0.0, TWO_PI), "histogram": _packed(bins)}
    cells = np.stack([equal_area(x, mass) for x in shown])
    return found | {"points": _packed(shown[:, ::every], -1.0, 1.0), "histogram": _packed(cells)}


def _mass(ds: Dataset, member: Member) -> np.ndarray | None:
    """Masses of the particles, where they differ."""
    return pick(ds, "weight", member) if "weight" in ds else None


def _evenly(count: int, most: int) -> Int[np.ndarray, " K"]:
    """At most so many indices of a series, its first and last among them."""
    return np.unique(np.round(np.linspace(0, count - 1, min(count, most))).astype(int))


def _every(count: int, most: int) -> int:
    """Of so many, each which one to take for at most `most`."""
    return -(-count // most)


def _observed(ds: Dataset, member: Member) -> dict[str, Any]:
    """Residual, energy and cluster count against time, thinned so that early times keep their detail."""
    if "observed_time" not in ds:
        return {}
    found: dict[str, Any] = {}
    for name in ("residual", "energy", "clusters"):
        times, values = observed(ds, member, name)
        if not len(times):
            continue
        last = len(times) - 1
        near = np.round(np.geomspace(1, last + 1, _OBSERVATIONS // 2)).astype(int) - 1
        at = np.union1d(near, _evenly(len(times), _OBSERVATIONS // 2))
        found[name] = {"time": _numbers(times[at]), "value": _numbers(values[at], 12)}
    return found


def _inner(x: Float[np.ndarray, "N d"]) -> Float[np.ndarray, " K"]:
    """Share of pairs of distinct particles in equal bins of their inner product, -1 to 1; of 400 particles at most."""
    some = x[:: _every(len(x), _PAIRED)]
    above = np.triu_indices(len(some), 1)
    count, _ = np.histogram(np.clip((some @ some.T)[above], -1.0, 1.0), _INNER_BINS, (-1.0, 1.0))
    return count / max(1, len(above[0]))


def _scene(perceptron: Landscape | None, d: int) -> dict[str, Any] | None:
    """The perceptron as the page draws it; `half_v` is missing for one without a potential, `active` counts neurons."""
    if perceptron is None or d > 3:
        return None
    units = len(perceptron.a)
    shades = [to_hex(str(region_shade(active, units))) for active in range(units + 1)]
    found: dict[str, Any] = {"units": units, "dead": bool(perceptron.activation.dead), "shades": shades}
    if d == 2:
        angle = np.linspace(0.0, TWO_PI, 721)
        x = on_circle(angle)
        found |= {"angle": _numbers(angle), "regions": perceptron.regions(), "chords": _chords(perceptron)}
    else:
        colatitude, azimuth = np.linspace(0.0, math.pi, _GRID[0]), np.linspace(0.0, TWO_PI, _GRID[1])
        around = on_circle(azimuth)[None] * np.sin(colatitude)[:, None, None]
        x = np.concatenate([around, np.broadcast_to(np.cos(colatitude)[:, None, None], (*_GRID, 1))], axis=2)
        x = x.reshape(-1, 3)
        curves = [perceptron.hyperplane_curve(j, 181) for j in range(min(units, _CURVES))]
        found |= {"curves": [_numbers(curve) for curve in curves if curve is not None]}
    shape = _GRID if d == 3 else (len(x),)
    found["active"] = perceptron.active(x).reshape(shape).tolist()
    if perceptron.strength is not None:
        found["half_v"] = _numbers(perceptron.value(x).reshape(shape) / 2.0)
    return found


def _chords(perceptron: Landscape) -> list[Any]:
    """Ends of the chords `a_j . x + b_j = 0` of the circle, drawn a fifth of its radius beyond it."""
    chords = []
    for a, bias in zip(perceptron.a, perceptron.bias, strict=True):
        length = float(np.hypot(*a))
        if length > 0.0 and abs(bias) < length:
            height, along = -bias / length, np.array([-a[1], a[0]]) / length
            reach = math.sqrt(1.44 - height**2) * along
            chords.append(_numbers(np.stack([height * a / length - reach, height * a / length + reach])))
    return chords


def _packed(values: np.ndarray, low: float = 0.0, high: float = 0.0) -> dict[str, Any]:
    """An array in 16 bits between two bounds (by default 0 and its largest value), rounded to the nearest step."""
    high = high if high > low else float(values.max(initial=0.0)) or 1.0
    steps = np.round((np.clip(values, low, high) - low) / (high - low) * 65535.0).astype("<u2")
    return {"low": low, "high": high, "shape": steps.shape, "data": base64.b64encode(steps.tobytes()).decode()}


def _numbers(values: np.ndarray | float | None, digits: int = 6) -> Any:
    """Numbers, or nested lists of them, of so many digits; null where not finite."""
    values = np.asarray(np.nan if values is None else values, float)
    if values.ndim:
        return [_numbers(value, digits) for value in values]
    return float(f"{values:.{digits}g}") if np.isfinite(values) else None
