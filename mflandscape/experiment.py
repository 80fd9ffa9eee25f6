"""From a `Spec` to the problems of its members, and from their solutions to labelled arrays."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._results import CONVERGED, NAMES, name_of
from .clusters import cluster_threshold, find_clusters
from .drifts import AbstractDrift, AbstractEnergy, Attention, FreePerceptron, Perceptron, SoftmaxAttention
from .flows import (
    RK4,
    AbstractIntegrator,
    AbstractSave,
    AbstractStop,
    Brownian,
    Euler,
    MaxSteps,
    MaxTime,
    Midpoint,
    Observe,
    Problem,
    SaveAt,
    SaveEvery,
    SaveLog,
    Solution,
    Stationary,
    published_rule,
)
from .interactions import AbstractInteraction, Blocked, CircleFourier, Dense, choose_interaction
from .kernels import KernelConvention
from .measure import Measure, empirical
from .modes import density_modes
from .spec import ADAPTIVE, Spec
from .store import Variable

GRID = ("beta", "weight_seed", "start_seed", "scale")
ROW = ("clusters", "cluster_mass", "heaviest_mass", "residual", "energy", "stop_reason", "steps", "seconds")
_FIXED_STEP = {"euler": Euler, "midpoint": Midpoint, "rk4": RK4}


class Experiment:
    """The members of a spec's grid: member `m` is the point `numpy.unravel_index(m, shape)` of beta x weight_seed x
    start_seed x scale.

    Raises:
        ValueError: files that cannot be used, a beta too large for the kernel convention, an evaluator that cannot
            take the model.
    """

    def __init__(self, spec: Spec):
        self.spec = spec
        self.dtype = np.dtype(spec.dtype)
        self.convention = KernelConvention(spec.kernel)
        for beta in spec.beta:
            self.convention.check(beta, self.dtype)
        self.shape = tuple(len(axis) for axis in spec.grid.values())
        self.perceptrons = spec.perceptrons()
        self.starts = spec.starts()
        self.interaction = _interaction(spec, self.dtype)

    def point(self, member: int) -> dict[str, float | int]:
        """Coordinates of a member in the grid."""
        index = np.unravel_index(member, self.shape)
        return {name: axis[i] for (name, axis), i in zip(self.spec.grid.items(), index, strict=True)}

    def siblings(self, member: int) -> Iterator[int]:
        """Members that differ in the start only: they take about as long."""
        index = list(np.unravel_index(member, self.shape))
        for other in range(self.shape[2]):
            index[2] = other
            yield int(np.ravel_multi_index(index, self.shape))

    def problem(self, member: int) -> Problem:
        """What a member is asked to do."""
        spec, point = self.spec, self.point(member)
        drift, (mu, angles) = self.drift(member), self.start(member)
        threshold = cluster_threshold(jnp.asarray(point["beta"], self.dtype), spec.dim, spec.cluster_scale)
        seed = jax.random.key(int(point["start_seed"]))
        return Problem(
            drift,
            mu,
            stop=_stop(spec),
            direction=spec.direction,
            integrator=_integrator(spec),
            save=_save(spec),
            observe=Observe(spec.observe_every, energy=isinstance(drift, AbstractEnergy), threshold=threshold),
            key=jax.random.fold_in(seed, member) if spec.temperature > 0 else None,
            angles=angles,
        )

    def drift(self, member: int) -> AbstractDrift:
        """A member's attention and perceptron, in the shifted kernel's units."""
        beta, weight, _, scale = np.unravel_index(member, self.shape)
        beta = jnp.asarray(self.spec.beta[beta], self.dtype)
        if self.spec.attention_mode == "normalized":
            attention = SoftmaxAttention(beta, interaction=self.interaction)
        else:
            attention = Attention(beta, interaction=self.interaction, self_interaction=self.spec.self_attention)
        if not self.perceptrons:
            return attention
        w = self.perceptrons[weight]
        factor = np.asarray(self.spec.mlp_scale[scale] * self.convention.perceptron_factor(beta))
        arrays = [None if v is None else jnp.asarray(v, self.dtype) for v in (w.a, w.bias)]
        if w.gradient:
            return attention + Perceptron(arrays[0], jnp.asarray(w.omega * factor, self.dtype), arrays[1], w.activation)
        return attention + FreePerceptron(arrays[0], jnp.asarray(w.w * factor, self.dtype), arrays[1], w.activation)

    def start(self, member: int) -> tuple[Measure, Any]:
        """A member's start, and its angles on the circle to the bit."""
        start = self.starts[np.unravel_index(member, self.shape)[2]]
        mu = empirical(jnp.asarray(start.x, self.dtype), None if start.w is None else jnp.asarray(start.w, self.dtype))
        return mu, None if start.theta is None else jnp.asarray(start.theta, self.dtype)

    def record(self, member: int, solution: Solution, seconds: float) -> dict[str, np.ndarray | str]:
        """A member's solution as the arrays that the store keeps."""
        beta = float(self.point(member)["beta"])
        solution = jax.tree.map(jnp.asarray, solution)
        threshold = cluster_threshold(jnp.asarray(beta, self.dtype), self.spec.dim, self.spec.cluster_scale)
        clusters = find_clusters(solution.mu, threshold, mass_threshold=self.spec.mass_threshold)
        masses = np.full(solution.mu.n, np.nan)
        masses[: clusters.count] = np.asarray(clusters.masses)
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
            **self._exponential(beta, scalars),
            **self._positions(solution),
            "snapshot_time": np.asarray(solution.times, np.float64),
            "snapshot_count": np.asarray(solution.saved, np.int32),
            "observed_step": np.asarray(series.step, np.int32),
            "observed_clusters": np.asarray(series.clusters, np.int32),
            "steps": np.asarray(solution.steps, np.int32),
            "work": np.asarray(solution.evaluations, np.int32),
            "clusters": np.asarray(clusters.count, np.int32),
            "modes": np.asarray(density_modes(solution.mu, beta).count, np.int32),
            "heaviest_mass": np.asarray(clusters.masses[0] if clusters.count else np.nan, np.float64),
            "largest_diameter": np.asarray(clusters.spread, np.float64),
            "cluster_mass": masses,
            "stop_reason": name_of(solution.result),
            "seconds": np.asarray(seconds, np.float64),
        }

    def _positions(self, solution: Solution) -> dict[str, np.ndarray]:
        if self.spec.dim > 2:
            return {"position": np.asarray(solution.saved_u), "final_position": np.asarray(solution.u)}
        return {"angle": np.asarray(solution.saved_u), "final_angle": np.asarray(solution.u)}

    def _exponential(self, beta: float, scalars: Mapping[str, Any]) -> dict[str, np.ndarray]:
        if self.spec.kernel == "shifted":
            return {}
        factor = self.convention.energy_factor(beta)
        powers = {"residual": 1, "residual_l2": 1, "energy": 1, "final_time": -1}
        return {f"{v}_exponential": np.asarray(np.float64(scalars[v]) * factor**power) for v, power in powers.items()}

    def row(self, member: int, record: Mapping[str, Any]) -> dict[str, Any]:
        """A member as scripts read it: plain numbers."""
        masses = np.asarray(record["cluster_mass"], float)
        energy, reason = float(record["energy"]), str(record["stop_reason"])
        return {
            "member": member,
            **self.point(member),
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

    def layout(self) -> dict[str, Any]:
        """Dims, coordinates, variables and constants of the dataset, for `RunStore.create`."""
        marks = np.asarray(_save(self.spec).marks(self.spec.step_limit))
        looks = -(-self.spec.step_limit // self.spec.observe_every) + 1
        n, d, circle = self.starts[0].n, self.spec.dim, self.spec.dim == 2
        dims = dict(zip(GRID, self.shape, strict=True)) | {
            "time": len(marks),
            "observation": looks,
            "particle": n,
            "cluster": n,
        }
        constants = self._constants()
        for dim_names, values, _ in constants.values():
            dims |= dict(zip(dim_names, values.shape, strict=True))
        if not circle:
            dims["coordinate"] = d
        return {
            "dims": dims,
            "member_dims": GRID,
            "coords": self._coords(marks),
            "variables": _variables(circle, self.dtype.name, self.spec.kernel),
            "constants": constants,
            "attrs": self._attrs(),
        }

    def _coords(self, marks: np.ndarray) -> dict[str, Any]:
        grid = {name: ((name,), np.asarray(axis), {}) for name, axis in self.spec.grid.items()}
        grid["beta"][2].update(long_name="inverse temperature")
        at_times = marks.dtype.kind == "f"
        time = marks if at_times else marks * self.spec.dt
        note = (
            "scheduled"
            if at_times or self.spec.integrator not in ADAPTIVE
            else "nominal (step times dt); see snapshot_time"
        )
        grid["time"] = (
            ("time",),
            time.astype(float),
            {"long_name": f"{note} time of the snapshots, shifted kernel's units"},
        )
        return grid

    def _constants(self) -> dict[str, Any]:
        starts = np.stack([s.x for s in self.starts])
        found: dict[str, Any] = {"start": (("start_seed", "particle", "coordinate"), starts, {})}
        if self.starts[0].w is not None:
            found["weight"] = (("start_seed", "particle"), np.stack([s.w for s in self.starts]), {"long_name": "mass"})
        if not self.perceptrons:
            return found
        seed, neuron = "weight_seed", "neuron"
        found["a"] = (
            (seed, neuron, "coordinate"),
            np.stack([p.a for p in self.perceptrons]),
            {"long_name": "input vectors"},
        )
        note = {"long_name": "output weights at scale 1, as given (before any factor of the kernel convention)"}
        if self.perceptrons[0].gradient:
            found["omega"] = ((seed, neuron), np.stack([p.omega for p in self.perceptrons]), note)
        else:
            found["w"] = ((seed, neuron, "coordinate"), np.stack([p.w for p in self.perceptrons]), note)
        zero = np.zeros(self.perceptrons[0].a.shape[0])
        biases = [zero if p.bias is None else p.bias for p in self.perceptrons]
        found["bias"] = ((seed, neuron), np.stack(biases), {})
        return found

    def _attrs(self) -> dict[str, Any]:
        device = jax.devices()[0]
        return {
            "kernel_convention": self.convention.sentence,
            "energy_convention": (
                "energy = 1/2 sum_ij w_i w_j exp(beta (x_i.x_j - 1)) / beta + 1/2 sum_i w_i v(x_i), "
                "v = sum_j omega_j phi(a_j.x + b_j), phi' = 2 sigma; "
                + ("terms i = j included" if self.spec.self_attention else "terms i = j left out")
                + "; without its infinite constant 1/(2 beta) at beta = 0; nan for drifts without an energy"
            ),
            "interaction": repr(self.interaction),
            "device": f"{device.platform} ({device.device_kind})",
            "devices": len(jax.local_devices()),
            "dtype": self.dtype.name,
            "width": self.spec.lanes,
            "versions": json.dumps(versions()),
        }


def versions() -> dict[str, str]:
    """Versions of what fixes the bits of a run."""
    from importlib.metadata import version

    return {name: version(name) for name in ("mflandscape", "jax", "jaxlib", "equinox", "numpy")}


def _interaction(spec: Spec, dtype: np.dtype) -> AbstractInteraction:
    largest = max(spec.beta)
    if spec.interaction == "auto":
        return choose_interaction(spec.dim, spec.n_particles, largest, dtype)
    if spec.interaction == "circle-fourier":
        return CircleFourier.for_beta(largest, dtype)
    return Dense() if spec.interaction == "dense" else Blocked()


def _stop(spec: Spec) -> AbstractStop:
    limits = MaxSteps(spec.step_limit)
    if math.isfinite(spec.total_time):
        limits = MaxTime(spec.total_time) | limits
    if spec.stop == "none":
        return limits
    if spec.stop == "stationary":
        return Stationary(spec.drift_tol) | limits
    return published_rule(spec.window, spec.drift_tol or math.inf, spec.spread_factor or math.inf) | limits


def _integrator(spec: Spec) -> AbstractIntegrator:
    if spec.integrator in _FIXED_STEP:
        fixed = _FIXED_STEP[spec.integrator](spec.dt)
        return Brownian(fixed, spec.temperature) if spec.temperature > 0 else fixed
    import diffrax

    from .flows.adaptive import Adaptive

    solver = {"tsit5": diffrax.Tsit5, "dopri5": diffrax.Dopri5, "dopri8": diffrax.Dopri8}[spec.integrator]
    return Adaptive(solver(scan_kind="bounded"), spec.rtol, spec.atol)


def _save(spec: Spec) -> AbstractSave:
    if spec.save == "times":
        return SaveAt(spec.save_times)
    if spec.save == "log":
        return SaveLog(spec.save_count)
    return SaveEvery(spec.save_every if spec.save == "every" else spec.step_limit)


def _variables(circle: bool, dtype: str, kernel: str) -> dict[str, Variable]:
    """What the dataset holds for each member."""
    time = {"long_name": "time in the shifted kernel's units"}
    speed = {"long_name": "speed in the shifted kernel's units"}
    point = ("particle",) if circle else ("particle", "coordinate")
    name, units = ("angle", {"units": "rad"}) if circle else ("position", {})
    count = {"dtype": "int32"}
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
