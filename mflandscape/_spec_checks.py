"""What the fields of a `Spec` must have in common, and the defaults that depend on other fields."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ._options import looks_like_file
from .interactions import DIMENSIONS
from .starts import load_points
from .weights import declared_activation, load_weights

if TYPE_CHECKING:
    from .spec import Spec

FIXED_STEP = ("euler", "midpoint", "rk4")
TOLERANCES = {"rosenbrock": 1e-3, "stabilised": 5e-4}  # of a step, in radians
_RELATIVE = 1e-6  # of the other adaptive integrators
_UNKNOWNS = 512  # above the circle: largest matrix that a linearly implicit step takes
PAPER_SEEDS = {2: 777}
PAPER_SEED_ABOVE = 111


def automatic(spec: "Spec") -> dict[str, Any]:
    """Values for the fields left at `None`; files are read only where a default depends on them."""
    filled: dict[str, Any] = {}
    weights_file, start_file = looks_like_file(spec.weights), looks_like_file(spec.start)
    if spec.activation is None:
        filled["activation"] = (declared_activation(spec.weights) if weights_file else None) or "relu"
    if spec.weight_seed is None and weights_file:
        entries = load_weights(spec.weights, spec.dim, filled.get("activation", spec.activation))
        filled["weight_seed"] = tuple(range(len(entries)))
    elif spec.weights == "none" and (spec.weight_seed is None or len(spec.weight_seed) == 1):
        filled["weight_seed"] = (0,)
    elif spec.weight_seed is None:
        filled["weight_seed"] = (PAPER_SEEDS.get(spec.dim, PAPER_SEED_ABOVE),)
    if spec.n_particles is None:
        filled["n_particles"] = load_points(spec.start, spec.dim).n if start_file else 1000
    if spec.rtol is None:
        filled["rtol"] = TOLERANCES.get(spec.integrator, _RELATIVE)
    return filled


def check(spec: "Spec") -> None:
    """All checks between fields.

    Raises:
        ValueError: the first contradiction found.
    """
    for one in (_check_beta, _check_attention, _check_perceptron, _check_start, _check_flow, _check_saves):
        one(spec)


def _check_beta(spec: "Spec") -> None:
    largest, precision = max(spec.beta), np.finfo(spec.dtype)
    overflow = math.log(float(precision.max))
    if spec.kernel == "exponential" and largest > overflow:
        raise ValueError(
            f"beta = {largest:g}: exp(beta) overflows {spec.dtype} in the exponential convention (largest beta "
            f"{overflow:.1f}); use kernel = shifted" + (", or dtype = float64" if spec.dtype == "float32" else "")
        )
    limit = 0.01 / float(precision.eps)
    if largest > limit:
        raise ValueError(
            f"beta = {largest:g}: exp(beta (t - 1)) would have no two correct digits in {spec.dtype} (largest beta "
            f"{limit:.2g}); use a smaller beta" + (", or dtype = float64" if spec.dtype == "float32" else "")
        )


def _check_attention(spec: "Spec") -> None:
    if spec.attention_mode == "normalized" and not spec.self_attention:
        raise ValueError(
            "self_attention = false: expected true with attention_mode = normalized, whose sum always contains the "
            "particle itself; leave self_attention out"
        )
    dim = DIMENSIONS.get(spec.interaction, spec.dim)
    if spec.dim != dim:
        raise ValueError(
            f"interaction = {spec.interaction}: expected dim = {dim}, got dim = {spec.dim}; use auto, dense or blocked"
        )


def _check_perceptron(spec: "Spec") -> None:
    if spec.weights != "none":
        return
    if len(spec.weight_seed) > 1:
        raise ValueError(
            f"weight_seed has {len(spec.weight_seed)} values with weights = none: the runs would be the same; "
            "leave weight_seed out"
        )
    if spec.mlp_scale != (1.0,):
        raise ValueError(
            f"mlp_scale = {', '.join(f'{c:g}' for c in spec.mlp_scale)} with weights = none: "
            "there is nothing to scale; leave mlp_scale out"
        )


def _check_start(spec: "Spec") -> None:
    for name, dim in (("equispaced", 2), ("fibonacci", 3)):
        if spec.start == name and spec.dim != dim:
            raise ValueError(f"start = {name}: expected dim = {dim}, got dim = {spec.dim}; use numpy or uniform")
    drawn = spec.start in ("numpy", "uniform") or spec.temperature > 0
    if len(spec.start_seed) > 1 and not drawn:
        raise ValueError(
            f"start_seed has {len(spec.start_seed)} values with start = {spec.start}, which draws nothing: "
            "the runs would be the same; give one seed, or start = numpy or uniform"
        )


def _check_flow(spec: "Spec") -> None:
    fixed = spec.integrator in FIXED_STEP
    if spec.temperature > 0 and not fixed:
        raise ValueError(
            f"temperature = {spec.temperature:g} with integrator = {spec.integrator}: noise needs fixed steps; "
            "use euler, midpoint or rk4"
        )
    if spec.integrator == "rosenbrock" and spec.dim > 2 and spec.n_particles * (spec.dim - 1) > _UNKNOWNS:
        raise ValueError(
            f"integrator = rosenbrock with dim = {spec.dim} and n_particles = {spec.n_particles}: expected the circle, "
            f"or at most {_UNKNOWNS // (spec.dim - 1)} particles; use stabilised"
        )
    if spec.stop == "stationary" and spec.drift_tol == 0:
        raise ValueError(
            "drift_tol = 0 with stop = stationary: expected drift_tol > 0; use stop = none to run to the limits"
        )
    if fixed and spec.total_time < spec.dt / 2:
        raise ValueError(
            f"total_time = {spec.total_time:g}: expected at least one step of dt = {spec.dt:g}; "
            "lengthen it or shorten dt"
        )


def _check_saves(spec: "Spec") -> None:
    if (spec.save == "times") != bool(spec.save_times):
        raise ValueError(
            f"save = {spec.save} with {len(spec.save_times)} save_times: "
            "expected save_times with save = times, and only then; add or remove them"
        )
    if list(spec.save_times) != sorted(spec.save_times):
        raise ValueError("save_times are not ascending: expected each later than the one before; sort them")
    if spec.save_times and spec.save_times[-1] > spec.total_time:
        raise ValueError(
            f"save_times end at {spec.save_times[-1]:g}, after total_time = {spec.total_time:g}; lengthen total_time"
        )
