"""Runs behind paper A's figures: made once in a folder that all figures share; and where their end states go on to."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr

from .._results import name_of
from ..clusters import cluster_threshold, find_clusters
from ..drifts import AbstractEnergy
from ..experiment import Experiment
from ..flows import MaxSteps, Rosenbrock, Stabilised, Stationary, flow
from ..measure import empirical, from_angles
from ..plotting.members import GRID, Member, converged, pick
from ..presets import preset
from ..runner import run
from ..spec import Spec
from ..special import fourier_modes
from ..sphere import distance
from ..stationary import minimise
from ..store import open_run

QUICK_BETAS = (0.1, 0.5, 1.0, 5.0, 25.0, 50.0)
QUICK_STEPS = 5000
# quick or not: implicit steps from an end state to the flow's own end, at most
OWN_STEPS = {True: {"ascent": 150, "descent": 40}, False: {"ascent": 1500, "descent": 1500}}
_OWN_TOL = 1e-8  # speed at which a flow has come to its own end
_STAYED = 0.1  # radians that no particle of a stationary state travels on its way to it


def sized(name: str, quick: bool, **changes: Any) -> Spec:
    """A preset at the paper's N = 1000 and 13 betas, or quick: the published code's N = 500, six betas, fewer steps."""
    small = {"n_particles": 500, "beta": QUICK_BETAS, "max_steps": QUICK_STEPS} if quick else {}
    return preset(name).replace(**(small | changes))


def stored_run(spec: Spec, folder: Path) -> xr.Dataset:
    """The dataset of a spec's run in `folder`, run or finished first where it is not there."""
    run(spec, folder / spec.hash, resume=True)
    return open_run(folder / spec.hash)


def chosen(ds: xr.Dataset, **at: Sequence[Any]) -> xr.Dataset:
    """Some coordinates of the grid, all variables, in memory."""
    return ds.sel({name: list(values) for name, values in at.items()}).load()


def with_own_end(spec: Spec, ds: xr.Dataset, steps: Mapping[str, int]) -> xr.Dataset:
    """The dataset of a run of `spec` (or a part of its grid), and where the flow goes on to from each end state.

    The flow is followed, by implicit steps on the circle and stabilised ones above, until no particle is faster than
    1e-8, `steps[direction]` steps at most. Adds `own_end_NAME` for `clusters, heaviest_mass, residual, time` (after the
    stored end), `steps, reason, moved` (the largest angle that a particle travelled) and the points' stored name.
    """
    experiment = Experiment(spec)
    final = "final_angle" if spec.dim == 2 else "final_position"
    ds = ds.transpose(*GRID, ...)
    rows = [
        _own_end(experiment, ds, Member(*at), final, steps[spec.direction])
        for at in np.ndindex(*(ds.sizes[name] for name in GRID))
    ]
    added = {}
    for name in rows[0]:
        values = np.stack([row[name] for row in rows])
        dims = ds[final].dims if name == final else GRID
        added[f"own_end_{name}"] = (dims, values.reshape([ds.sizes[dim] for dim in dims]))
    return ds.assign(added)


def _own_end(experiment: Experiment, ds: xr.Dataset, member: Member, final: str, steps: int) -> dict[str, np.ndarray]:
    spec, number = experiment.spec, _number(experiment, ds, member)
    before = np.asarray(pick(ds, final, member), np.float64)
    mu = from_angles(jnp.asarray(before)) if spec.dim == 2 else empirical(jnp.asarray(before))
    modes = fourier_modes(max(spec.beta), np.dtype(np.float64))
    problem = experiment.problem(number)
    solution = flow(
        problem.drift,
        mu,
        stop=Stationary(_OWN_TOL) | MaxSteps(steps),
        direction=problem.direction,
        integrator=Rosenbrock(modes=modes) if spec.dim == 2 else Stabilised(),
        throw=False,
    )
    beta = float(experiment.point(number)["beta"])
    clusters = find_clusters(solution.mu, cluster_threshold(jnp.asarray(beta), spec.dim, spec.cluster_scale))
    return {
        "clusters": np.asarray(clusters.count),
        "heaviest_mass": np.asarray(clusters.masses)[0],
        "residual": np.asarray(solution.residual),
        "time": np.asarray(solution.time),
        "steps": np.asarray(solution.steps),
        "reason": np.asarray(name_of(solution.result)),
        "moved": np.asarray(jnp.max(distance(mu.x, solution.mu.x))),
        final: np.asarray(solution.u),
    }


def _number(experiment: Experiment, ds: xr.Dataset, at: Member) -> int:
    """The member of the experiment at a place of the dataset, which may be a part of its grid."""
    axes = [list(axis) for axis in experiment.spec.grid.values()]
    index = [axis.index(ds[name].values[i]) for axis, name, i in zip(axes, GRID, at, strict=True)]
    return int(np.ravel_multi_index(index, experiment.shape))


def own_kind(ds: xr.Dataset, member: Member) -> str:
    """What an end state was: "at rest" (it stays, to speed 1e-8), "metastable" (the flow leaves it) or "unfinished"
    (it had not stopped); "undecided" where the flow from it did not come to rest.
    """
    if not converged(ds)[member]:
        return "unfinished"
    if str(pick(ds, "own_end_reason", member)) != "stationary":
        return "undecided"
    same = int(pick(ds, "own_end_clusters", member)) == int(pick(ds, "clusters", member))
    return "at rest" if same and float(pick(ds, "own_end_moved", member)) < _STAYED else "metastable"


def own_ending(ds: xr.Dataset, member: Member) -> str:
    """How a member ended and went on, in a few words for a title."""
    count, later = (int(pick(ds, name, member)) for name in ("clusters", "own_end_clusters"))
    kind = own_kind(ds, member)
    words = f"{count} cluster{'s' * (count != 1)}, {kind}"
    return words if count == later else f"{words}: {later} later"


def minimisers(spec: Spec, scale: int = 0) -> xr.Dataset:
    """Angles and masses of the global minimiser's atoms at each beta of a spec on the circle, with the proved gap."""
    experiment, start, found = Experiment(spec.replace(interaction="dense")), None, []
    for i in range(len(spec.beta)):
        energy = experiment.drift(int(np.ravel_multi_index((i, 0, 0, scale), experiment.shape)))
        assert isinstance(energy, AbstractEnergy)
        minimum = minimise(energy, d=2, start=start)
        start = minimum.mu
        found.append(minimum)
    most = max(each.mu.n for each in found)
    angle, mass = np.full((len(found), most), np.nan), np.full((len(found), most), np.nan)
    for i, each in enumerate(found):
        x = np.asarray(each.mu.x)
        angle[i, : each.mu.n], mass[i, : each.mu.n] = np.arctan2(x[:, 1], x[:, 0]) % (2.0 * np.pi), each.mu.w
    return xr.Dataset(
        {
            "angle": (("beta", "atom"), angle, {"units": "rad"}),
            "mass": (("beta", "atom"), mass),
            "atoms": (("beta",), np.array([each.mu.n for each in found])),
            "gap": (("beta",), np.array([each.gap / each.scale for each in found]), {"long_name": "over the scale"}),
            "rigorous": (("beta",), np.array([each.rigorous for each in found])),
        },
        coords={"beta": np.array(spec.beta)},
    )
