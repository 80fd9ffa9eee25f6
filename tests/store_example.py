"""A small run with every kind of variable, and what each of its members must hold."""

import hashlib
import json
from pathlib import Path

import numpy as np

from mflandscape.store import RunStore, Variable

ROOT = Path(__file__).resolve().parents[1]
GRID = ("beta", "weight_seed", "start_seed", "scale")
TIMES, PARTICLES, CLUSTERS, NEURONS = 4, 5, 3, 2
REASONS = ("running", "stationary", "clusters_settled", "max_steps")
SPEC = {"beta": (0.1, 5.0), "n_particles": PARTICLES, "total_time": float("inf"), "width": 8}
VARIABLES = {
    "angle": Variable(("time", "particle"), attrs={"units": "rad", "long_name": "angle of each particle"}),
    "final_position": Variable(("particle", "coordinate"), "float32"),
    "snapshot_time": Variable(("time",)),
    "snapshot_count": Variable((), "int32"),
    "residual": Variable(),
    "steps": Variable((), "int64"),
    "work": Variable((), "uint32"),
    "converged": Variable((), "bool"),
    "stop_reason": Variable((), "str", choices=REASONS, attrs={"long_name": "why the member stopped"}),
    "cluster_mass": Variable(("cluster",)),
}


def make(path, *, starts=3, spec=SPEC):
    dims = dict(zip(GRID, (2, 1, starts, 1), strict=True))
    dims |= {"time": TIMES, "particle": PARTICLES, "coordinate": 2, "neuron": NEURONS, "cluster": CLUSTERS}
    coords = {
        "beta": (("beta",), np.array([0.1, 5.0]), {"units": "1"}),
        "weight_seed": (("weight_seed",), np.array([7]), {}),
        "start_seed": (("start_seed",), np.arange(starts), {}),
        "scale": (("scale",), np.array([1.0]), {"units": "1"}),
        "time": (("time",), np.array([0.0, 0.1, 0.2, 0.4]), {"units": "time of the shifted kernel"}),
        "step": (("time",), np.array([0, 1, 2, 4]), {}),
    }
    constants = {
        "a": (("weight_seed", "neuron", "coordinate"), np.arange(4.0).reshape(1, 2, 2), {}),
        "bias": (("weight_seed", "neuron"), np.full((1, 2), np.nan), {}),
    }
    attrs = {"versions": json.dumps({"jax": "0.10.1"}), "kernel_convention": "exp(beta (t - 1))"}
    return RunStore.create(
        path,
        spec=spec,
        dims=dims,
        member_dims=GRID,
        coords=coords,
        variables=VARIABLES,
        attrs=attrs,
        constants=constants,
    )


def member(number):
    rng = np.random.default_rng(number)
    angle = rng.uniform(0, 2 * np.pi, (TIMES, PARTICLES))
    count = number % TIMES + 1
    angle[count:] = np.nan
    mass = np.full(CLUSTERS, np.nan)
    mass[: number % 2] = 1.0
    return {
        "angle": angle,
        "final_position": rng.standard_normal((PARTICLES, 2)).astype(np.float32),
        "snapshot_time": np.where(np.arange(TIMES) < count, rng.random(TIMES), np.nan),
        "snapshot_count": np.int32(count),
        "residual": np.float64(rng.random() * 1e-7),
        "steps": np.int64(2**40 + number),
        "work": np.uint32(2**32 - 2 - number),
        "converged": np.bool_(number % 2),
        "stop_reason": REASONS[number % len(REASONS)],
        "cluster_mass": mass,
    }


def same_bits(got, expected):
    assert set(got) == set(expected)
    for name, value in expected.items():
        value = np.asarray(value)
        if value.dtype.kind == "U":
            assert str(got[name]) == str(value)
        else:
            assert got[name].dtype == value.dtype and got[name].tobytes() == value.tobytes(), name


def fill(store, numbers=None):
    for number in range(store.members) if numbers is None else numbers:
        store.write_member(store.index_of(number), member(number))


def tree(path):
    """Checksums of everything a finished run must hold."""
    files = [f for part in ("dataset.zarr", "ledger") for f in (path / part).rglob("*") if f.is_file()]
    return {f.relative_to(path).as_posix(): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
