"""What paper B's figures share: many clouds of particles as one program, their Fourier modes, and their clusters."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float

from .._types import Angles, Scalar
from ..clusters import Clusters, cluster_threshold, find_clusters
from ..drifts import Attention
from ..flows import RK4, Dynamics
from ..interactions import CircleFourier
from ..meanfield import Density
from ..measure import from_angles
from ..special import fourier_modes
from ..theory import growth_rates, k_max
from .registry import Finding

STRAGGLERS = 0.01  # a group lighter than this share of the mass is not counted as a cluster
STEPS = 4  # Runge-Kutta steps of order 4 in the time 1/gamma; 8 give the same counts


def rate(beta: float) -> float:
    """`gamma` of the fastest mode on the circle."""
    return float(growth_rates(beta, 2, [k_max(beta)])[0])


def clouds(
    betas: Sequence[float],
    starts: Float[np.ndarray, "B S N"],
    until: float | int,
    looks_in_unit: int = 1,
    stretch: Sequence[float] | np.ndarray | None = None,
) -> tuple[Float[np.ndarray, "B S N"], np.ndarray]:
    """Ascent of `S` starts (angles) at each of `B` betas up to `gamma t = until`: angles at the end, and the modes
    `M_k = sum_i w_i e^{ik theta_i}`, complex `(B, S, T + 1, K + 1)`, `looks_in_unit` times (1, 2 or 4) in `1/gamma`.

    RK4 with the step `1/(4 gamma)`: in that time the fastest mode grows by 1.28, to 1e-5 of it. `stretch`, one factor a
    beta, makes its steps and times longer. One program; the starts are shared out to all devices.
    """
    count, members, n = starts.shape
    devices = jax.local_devices()
    rows = count * members
    padding = -rows % len(devices)
    theta = np.concatenate([starts.reshape(rows, n)] + [starts[0, :1]] * padding)
    beta = np.concatenate([np.repeat(np.asarray(betas, float), members), np.full(padding, betas[0])])
    longer = np.ones(count) if stretch is None else np.asarray(stretch, float)
    step = np.array([1 / (STEPS * rate(float(b))) for b in beta])
    step *= np.concatenate([np.repeat(longer, members), np.ones(padding)])
    shape = fourier_modes(max(betas), np.float64), round(until * looks_in_unit), STEPS // looks_in_unit
    mesh = Mesh(np.asarray(devices), ("members",))
    ends, pairs = _run(jnp.asarray(beta), jnp.asarray(step), jnp.asarray(theta), *shape, mesh)
    modes = np.asarray(pairs)[:rows, ..., 0] + 1j * np.asarray(pairs)[:rows, ..., 1]
    return np.asarray(ends)[:rows].reshape(starts.shape), modes.reshape(count, members, *modes.shape[1:])


@eqx.filter_jit
def _run(beta: Array, step: Array, theta: Array, modes: int, looks: int, every: int, mesh: Mesh) -> tuple[Array, Array]:
    def local(*members: Array) -> tuple[Array, Array]:
        return jax.lax.map(lambda one: _member(one[0], one[1], one[2], modes, looks, every), members)

    spec = PartitionSpec("members")
    return jax.shard_map(local, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(beta, step, theta)


def _member(
    beta: Scalar, step: Scalar, theta: Angles, modes: int, looks: int, every: int
) -> tuple[Angles, Float[Array, "T K 2"]]:
    evaluator = CircleFourier(modes)
    drift = Attention(beta, interaction=evaluator).prepare()
    weight = jnp.full_like(theta, 1 / theta.size)
    dynamics, integrator = Dynamics(drift, weight, "ascent", 2), RK4(step)

    def observed(u: Angles) -> Float[Array, "K 2"]:
        return evaluator.source(dynamics.chart.points(u), weight[:, None])[..., 0]

    def advance(u: Angles, _: None) -> tuple[Angles, None]:
        return dynamics.chart.wrap(integrator.move(dynamics, u, dynamics.velocity(u), step)), None

    def look(u: Angles, _: None) -> tuple[Angles, Array]:
        u, _ = jax.lax.scan(advance, u, None, length=every)
        return u, observed(u)

    end, series = jax.lax.scan(look, theta, None, length=looks)
    return end, jnp.concatenate([observed(theta)[None], series])


def random_angles(seed: int, n: int, density: Density | None = None) -> Float[np.ndarray, " {n}"]:
    """Independent angles of `np.random.default_rng(seed)`: uniform ones, or those of a density."""
    levels = np.random.default_rng(seed).random(n)
    return 2 * np.pi * levels if density is None else density.quantiles(levels)


def lattice_angles(density: Density, n: int) -> Float[np.ndarray, " {n}"]:
    """The `n` quantiles of a density at `(i + 1/2)/n`."""
    return density.quantiles((np.arange(n) + 0.5) / n)


def clusters(theta: Float[np.ndarray, " N"], beta: float) -> Clusters:
    """Clusters of angles: greedy arcs of the published width, heaviest first, stragglers (1%) left out."""
    return find_clusters(from_angles(theta), cluster_threshold(beta, 2), mass_threshold=STRAGGLERS)


def compared(what: str, expected: str, measured: str, agrees: bool | np.bool_) -> Finding:
    """A finding that agrees or differs."""
    return Finding(what, expected, measured, "agrees" if agrees else "differs")


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Mean over seeds and its standard error, nan values left out; nan where there are too few."""
    known = values[np.isfinite(values)]
    mean = float(known.mean()) if known.size else float("nan")
    return mean, float(known.std(ddof=1) / np.sqrt(known.size)) if known.size > 1 else float("nan")


def fitted_slope(x: np.ndarray, y: np.ndarray, error: np.ndarray) -> tuple[float, float]:
    """Slope of the weighted least-squares line through `y +- error`, and its standard error."""
    weight = 1 / error**2
    centre = (weight * x).sum() / weight.sum()
    square = (weight * (x - centre) ** 2).sum()
    return float((weight * (x - centre) * y).sum() / square), float(1 / np.sqrt(square))
