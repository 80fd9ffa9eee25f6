"""Pictures of a run's dataset: the same look everywhere, PNG and PDF; this package draws and never computes a flow."""

import difflib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure
from xarray import Dataset

from .circle import histograms, trajectories
from .members import Member, dimension, readable
from .sphere import particles, spherical_histogram
from .statistics import cluster_counts, cluster_masses, energy_and_residual, stop_times
from .style import save

__all__ = [
    "PICTURES",
    "Member",
    "cluster_counts",
    "cluster_masses",
    "draw",
    "energy_and_residual",
    "histograms",
    "particles",
    "pictures",
    "readable",
    "save",
    "spherical_histogram",
    "stop_times",
    "trajectories",
]

PICTURES: dict[str, Callable[[Dataset], Figure]] = {
    "trajectories": trajectories,
    "trajectories-log": partial(trajectories, log_time=True),
    "histograms": histograms,
    "particles": particles,
    "spherical-histogram": spherical_histogram,
    "energy-and-residual": energy_and_residual,
    "cluster-counts": cluster_counts,
    "cluster-masses": cluster_masses,
    "stop-times": stop_times,
}
_CIRCLE = ("trajectories", "trajectories-log", "histograms")
_SPHERE = ("particles", "spherical-histogram")


def pictures(ds: Dataset) -> list[str]:
    """The names of the pictures that fit a dataset, by its d, its snapshots and the size of its grid."""
    d = dimension(ds)
    between = "snapshot_count" in ds and int(ds["snapshot_count"].max()) > 2
    names = [name for name in _CIRCLE if d == 2 and (between or name == "histograms")]
    names += [name for name in _SPHERE if d == 3]
    if "observed_time" in ds and ds.sizes["observation"] > 1:
        names.append("energy-and-residual")
    if ds.sizes["beta"] > 1:
        names += ["cluster-counts", "cluster-masses"]
    return names + ["stop-times"] * (ds.sizes["beta"] > 1 or ds.sizes["scale"] > 1)


def draw(
    ds: Dataset,
    out_dir: str | Path,
    formats: Sequence[str] = ("png", "pdf"),
    names: Sequence[str] | None = None,
) -> list[Path]:
    """Draw the named pictures (all that fit, if none is named) as `out_dir/NAME.FORMAT` and return the files' paths.

    Trajectories, histograms and spheres show up to four members, from the lowest to the highest beta, in one figure.
    Raises `ValueError` for an unknown name, a picture that does not fit the dataset, or an unknown format.
    """
    fitting = pictures(ds)
    for name in names or ():
        if name not in PICTURES:
            near = difflib.get_close_matches(name, PICTURES, n=1, cutoff=0.0)[0]
            raise ValueError(f"picture {name!r}; expected one of {', '.join(PICTURES)}; did you mean {near!r}?")
        if name not in fitting:
            raise ValueError(
                f"picture {name!r} does not fit this run (d = {dimension(ds)}); fitting: {', '.join(fitting)}"
            )
    written: list[Path] = []
    for name in names or fitting:
        written += save(PICTURES[name](ds), Path(out_dir) / name, formats)
    return written
