"""From the solutions of an experiment's members to the labelled arrays that are stored."""

import json
import math
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._results import CONVERGED, NAMES, name_of
from .clusters import cluster_threshold, find_clusters
from .experiment import Experiment
from .flows import Solution
from .modes import density_modes
from .spec import ADAPTIVE
from .store import Variable

GRID = ("beta", "weight_seed", "start_seed", "scale")
ROW = ("clusters", "cluster_mass", "heaviest_mass", "residual", "energy", "stop_reason", "steps", "seconds")


def record(experiment: Experiment, member: int, solution: Solution, seconds: float) -> dict[str, np.ndarray | str]:
    """A member's solution as the arrays that the store keeps."""
    beta = float(experiment.point(member)["beta"])
    solution = jax.tree.map(jnp.asarray, solution)
    threshold = cluster_threshold(
        jnp.asarray(beta, experiment.dtype), experiment.spec.dim, experiment.spec.cluster_scale
    )
    clusters = find_clusters(solution.mu, threshold, mass_threshold=experiment.spec.mass_threshold)
    masses = np.full(solution.mu.n, np.nan)
    masses[: clusters.count] = np.asarray(clusters.masses)
    heaviest = masses[0] if clusters.count else np.nan
    scalars = {
        "residual": solution.residual,
        "residual_l2": solution.residual_l2,
        "energy": solution.energy,
        "defect": solution.defect,
        "final_time": solution.time,
    }
    series = solution.series
    looks = {f"observed_{name}": getattr(series, name) for name in ("time", "residual", "residual_l2", "energy")}
    return {
        **{name: np.asarray(value, np.float64) for name, value in {**scalars, **looks}.items()},
        **_exponential(experiment, beta, scalars),
        **_positions(experiment, solution),
        "snapshot_time": np.asarray(solution.times, np.float64),
        "snapshot_count": np.asarray(solution.saved, np.int32),
        "observed_step": np.asarray(series.step, np.int32),
        "observed_clusters": np.asarray(series.clusters, np.int32),
        "steps": np.asarray(solution.steps, np.int32),
        "work": np.asarray(solution.evaluations, np.int32),
        "clusters": np.asarray(clusters.count, np.int32),
        "modes": np.asarray(density_modes(solution.mu, beta).count, np.int32),
        "heaviest_mass": np.asarray(heaviest, np.float64),
        "largest_diameter": np.asarray(clusters.spread, np.float64),
        "cluster_mass": masses,
        "stop_reason": name_of(solution.result),
        "seconds": np.asarray(seconds, np.float64),
    }


def _positions(experiment: Experiment, solution: Solution) -> dict[str, np.ndarray]:
    if experiment.spec.dim > 2:
        return {"position": np.asarray(solution.saved_u), "final_position": np.asarray(solution.u)}
    return {"angle": np.asarray(solution.saved_u), "final_angle": np.asarray(solution.u)}


def _exponential(experiment: Experiment, beta: float, scalars: Mapping[str, Any]) -> dict[str, np.ndarray]:
    if experiment.spec.kernel == "shifted":
        return {}
    factor = experiment.convention.energy_factor(beta)
    powers = {"residual": 1, "residual_l2": 1, "energy": 1, "final_time": -1}
    return {f"{v}_exponential": np.asarray(np.float64(scalars[v]) * factor**power) for v, power in powers.items()}


def row(experiment: Experiment, member: int, record: Mapping[str, Any]) -> dict[str, Any]:
    """A member as scripts read it: plain numbers."""
    masses = np.asarray(record["cluster_mass"], float)
    energy, reason = float(record["energy"]), str(record["stop_reason"])
    return {
        "member": member,
        **experiment.point(member),
        "clusters": int(record["clusters"]),
        "masses": [float(m) for m in masses[np.isfinite(masses)]],
        "heaviest_mass": float(record["heaviest_mass"]),
        "residual": float(record["residual"]),
        "energy": None if math.isnan(energy) else energy,
        "stop_reason": reason,
        "converged": reason in CONVERGED,
        "steps": int(record["steps"]),
        "seconds": float(record["seconds"]),
    }


def layout(experiment: Experiment, placement: Mapping[str, str | int]) -> dict[str, Any]:
    """Dims, coordinates, variables, constants and attributes of the dataset, for `RunStore.create`.

    `placement` says in the attributes how many devices there were, and what they shared.
    """
    marks = np.asarray(experiment.save.marks(experiment.spec.step_limit))
    looks = -(-experiment.spec.step_limit // experiment.spec.observe_every) + 1
    n, d, circle = experiment.starts[0].n, experiment.spec.dim, experiment.spec.dim == 2
    dims = dict(zip(GRID, experiment.shape, strict=True)) | {
        "time": len(marks),
        "observation": looks,
        "particle": n,
        "cluster": n,
    }
    constants = _constants(experiment)
    for dim_names, values, _ in constants.values():
        dims |= dict(zip(dim_names, values.shape, strict=True))
    if not circle:
        dims["coordinate"] = d
    return {
        "dims": dims,
        "member_dims": GRID,
        "coords": _coords(experiment, marks),
        "variables": _variables(circle, experiment.dtype.name, experiment.spec.kernel),
        "constants": constants,
        "attrs": {**_attrs(experiment), **placement},
    }


def _coords(experiment: Experiment, marks: np.ndarray) -> dict[str, Any]:
    grid = {name: ((name,), np.asarray(axis), {}) for name, axis in experiment.spec.grid.items()}
    grid["beta"][2].update(long_name="inverse temperature", units="1")
    at_times = marks.dtype.kind == "f"
    time = marks if at_times else marks * experiment.spec.dt
    note = (
        "scheduled"
        if at_times or experiment.spec.integrator not in ADAPTIVE
        else "nominal (step times dt); see snapshot_time"
    )
    grid["time"] = (
        ("time",),
        time.astype(float),
        {"long_name": f"{note} time of the snapshots, shifted kernel's units", "units": "1"},
    )
    return grid


def _constants(experiment: Experiment) -> dict[str, Any]:
    """Starts and weights: what is the same for all members with the same seed."""
    at = ("start_seed", "particle")
    found: dict[str, Any] = {"start": ((*at, "coordinate"), np.stack([s.x for s in experiment.starts]), {})}
    masses = [s.w for s in experiment.starts if s.w is not None]
    if masses:
        found["weight"] = (at, np.stack(masses), {"long_name": "mass"})
    if not experiment.perceptrons:
        return found
    of, all_of = ("weight_seed", "neuron"), experiment.perceptrons
    found["a"] = ((*of, "coordinate"), np.stack([p.a for p in all_of]), {"long_name": "input vectors"})
    note = {"long_name": "output weights at scale 1, as given (before any factor of the kernel convention)"}
    omegas = [p.omega for p in all_of if p.omega is not None]
    if omegas:
        found["omega"] = (of, np.stack(omegas), note)
    else:
        found["w"] = ((*of, "coordinate"), np.stack([p.vectors for p in all_of]), note)
    found["bias"] = (of, np.stack([np.zeros(p.units) if p.bias is None else p.bias for p in all_of]), {})
    return found


def _attrs(experiment: Experiment) -> dict[str, Any]:
    device = jax.devices()[0]
    return {
        "kernel_convention": experiment.convention.sentence,
        "energy_convention": (
            "energy = 1/2 sum_ij w_i w_j exp(beta (x_i.x_j - 1)) / beta + 1/2 sum_i w_i v(x_i), "
            "v = sum_j omega_j phi(a_j.x + b_j), phi' = 2 sigma; "
            + ("terms i = j included" if experiment.spec.self_attention else "terms i = j left out")
            + "; without its infinite constant 1/(2 beta) at beta = 0; nan for drifts without an energy"
        ),
        "interaction": repr(experiment.interaction),
        "device": f"{device.platform} ({device.device_kind})",
        "dtype": experiment.dtype.name,
        "width": experiment.spec.lanes,
        "versions": json.dumps(versions()),
    }


def versions() -> dict[str, str]:
    """Versions of what fixes the bits of a run."""
    return {name: version(name) for name in ("mflandscape", "jax", "jaxlib", "equinox", "numpy")}


def _variables(circle: bool, dtype: str, kernel: str) -> dict[str, Variable]:
    """What the dataset holds for each member."""
    time = {"long_name": "time in the shifted kernel's units", "units": "1"}
    speed = {"units": "rad per unit of time, shifted kernel"}
    point = ("particle",) if circle else ("particle", "coordinate")
    name, units = ("angle", {"units": "rad"}) if circle else ("position", {})
    count: dict[str, Any] = {"dtype": "int32"}
    found = {
        name: Variable(("time", *point), dtype, attrs=units),
        f"final_{name}": Variable(point, dtype, attrs=units),
        "snapshot_time": Variable(("time",), attrs=time),
        "snapshot_count": Variable(**count),
        "residual": Variable(attrs={**speed, "long_name": "largest speed at the end"}),
        "residual_l2": Variable(attrs={**speed, "long_name": "mass-weighted speed at the end"}),
        "energy": Variable(),
        "defect": Variable(attrs={"long_name": "evaluator's error over what it promises"}),
        "final_time": Variable(attrs=time),
        "steps": Variable(**count),
        "work": Variable(**count, attrs={"long_name": "velocity evaluations"}),
        "clusters": Variable(**count),
        "modes": Variable(**count, attrs={"long_name": "modes of the density, independent of N"}),
        "heaviest_mass": Variable(),
        "largest_diameter": Variable(attrs={"units": "rad"}),
        "cluster_mass": Variable(("cluster",)),
        "stop_reason": Variable(dtype="str", choices=NAMES),
        "seconds": Variable(attrs={"units": "s", "long_name": "wall time in a lane"}),
        "observed_step": Variable(("observation",), "int32"),
        "observed_clusters": Variable(("observation",), "int32"),
        "observed_time": Variable(("observation",), attrs=time),
        **{f"observed_{v}": Variable(("observation",)) for v in ("residual", "residual_l2", "energy")},
    }
    if kernel == "exponential":
        note = {"long_name": "in the exponential kernel's units"}
        found |= {f"{v}_exponential": Variable(attrs=note) for v in ("residual", "residual_l2", "energy", "final_time")}
    return found
