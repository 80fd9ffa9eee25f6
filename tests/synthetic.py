"""Small runs of the published protocol in plain NumPy, as datasets of the stored schema."""

import json
import math

import numpy as np
import xarray as xr

GRID = ("beta", "weight_seed", "start_seed", "scale")
TWO_PI = 2.0 * np.pi


def erf(s):
    return np.vectorize(math.erf, otypes=[float])(s)


SIGMA = {"relu": lambda s: np.maximum(s, 0.0), "gelu": lambda s: s * (1.0 + erf(s / math.sqrt(2.0))) / 2.0}
PHI = {
    "relu": lambda s: np.maximum(s, 0.0) ** 2,
    "gelu": lambda s: (
        (s**2 - 1.0) * (1.0 + erf(s / math.sqrt(2.0))) / 2.0 + s * np.exp(-(s**2) / 2.0) / math.sqrt(TWO_PI) + 0.5
    ),
}


def log_steps(last, count):
    return np.unique(np.concatenate([[0], np.round(np.geomspace(1, last, count - 1)).astype(int)]))


def perceptron(seed, d, units):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(units, d))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    return a, rng.normal(size=units)


def start(seed, n, d):
    rng = np.random.default_rng(seed)
    if d == 2:
        angle = rng.uniform(0.0, TWO_PI, n)
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    x = rng.normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def drift(x, beta, a, omega, bias, sign, activation):
    """Velocity and energy of the shifted kernel with the perceptron, for equal masses."""
    kernel = np.exp(beta * (x @ x.T - 1.0))
    level = x @ a.T + bias
    force = kernel @ x / len(x) + (omega * SIGMA[activation](level)) @ a
    velocity = sign * (force - np.sum(force * x, axis=1, keepdims=True) * x)
    energy = kernel.mean() / beta / 2.0 + np.sum(omega * PHI[activation](level)) / len(x) / 2.0
    return velocity, energy


def groups(x, threshold):
    """Masses of the published clusters, descending: greedy arcs on the circle, single linkage above."""
    n, d = x.shape
    if d > 2:
        near = x @ x.T >= math.cos(threshold) - 1e-12
        label = np.arange(n)
        for _ in range(n):
            least = np.where(near, label[None, :], n).min(axis=1)
            if np.array_equal(least, label):
                break
            label = least
        return np.sort(np.unique(label, return_counts=True)[1] / n)[::-1]
    angle = np.sort(np.arctan2(x[:, 1], x[:, 0]) % TWO_PI)
    cut = np.argmax(np.diff(np.append(angle, angle[0] + TWO_PI))) + 1
    angle = np.append(angle[cut:], angle[:cut] + TWO_PI)
    sizes, first = [0], angle[0]
    for value in angle:
        if value - first > threshold:
            sizes, first = sizes + [0], value
        sizes[-1] += 1
    return np.sort(np.array(sizes) / n)[::-1]


def member(x, beta, a, omega, bias, options):
    """One run with the published stop: snapshots, observations every 10 steps, final state."""
    n, d = x.shape
    dt, last = 0.1, options["max_steps"]
    threshold = min(0.5 / math.sqrt(beta), math.pi / (2 * d))
    sign = 1.0 if options["direction"] == "ascent" else -1.0
    kept, observed, reason = [], [], "max_steps"
    wanted = set(log_steps(last, options["save_count"]).tolist())
    for step in range(last + 1):
        velocity, energy = drift(x, beta, a, omega, bias, sign, options["activation"])
        speed = np.linalg.norm(velocity, axis=1)
        if step in wanted:
            kept.append((step, x))
        if step % 10 == 0 or step == last:
            observed.append((step, speed.max(), math.sqrt((speed**2).mean()), energy, len(groups(x, threshold))))
            counts = [row[4] for row in observed[-5:]]
            if step >= 50 and len(set(counts)) == 1 and speed.max() <= 1e-4:
                reason = "converged"
                break
        if step < last:
            x = x + dt * velocity
            x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return kept, np.array(observed), x, reason, groups(x, threshold), step


def dataset(
    d=2,
    beta=(0.5, 5.0, 25.0),
    weight_seed=(777,),
    start_seed=(42, 43),
    scale=(1.0,),
    n=200,
    units=None,
    max_steps=300,
    save_count=24,
    direction="descent",
    activation="relu",
    bias=0.0,
):
    """A dataset of the stored schema with every variable of the schema, from NumPy runs of the published protocol."""
    options = dict(max_steps=max_steps, save_count=save_count, direction=direction, activation=activation)
    units = d if units is None else units
    shape = (len(beta), len(weight_seed), len(start_seed), len(scale))
    schedule, looks = log_steps(max_steps, save_count), max_steps // 10 + 1 + (max_steps % 10 > 0)
    state = np.full((*shape, len(schedule), n, d), np.nan)
    final = np.full((*shape, n, d), np.nan)
    seen = np.full((5, *shape, looks), np.nan)
    mass = np.full((*shape, n), np.nan)
    times = np.full((*shape, len(schedule)), np.nan)
    count, steps, clusters = (np.zeros(shape, int) for _ in range(3))
    reasons = np.full(shape, "", dtype="U16")
    layers = [perceptron(seed, d, units) for seed in weight_seed]
    offsets = np.full((len(weight_seed), units), bias)
    for at in np.ndindex(*shape):
        a, omega = layers[at[1]]
        x = start(start_seed[at[2]], n, d)
        kept, observed, x, reasons[at], sizes, steps[at] = member(
            x, beta[at[0]], a, omega * scale[at[3]], offsets[at[1]], options
        )
        count[at], clusters[at] = len(kept), len(sizes)
        for i, (step, points) in enumerate(kept):
            state[(*at, i)], times[(*at, i)] = points, 0.1 * step
        final[at], mass[(*at, slice(len(sizes)))] = x, sizes
        seen[(slice(None), *at, slice(len(observed)))] = observed.T * np.array([0.1, 1, 1, 1, 1])[:, None]
    names = ("time", "residual", "residual_l2", "energy", "clusters")
    seen_by_name = {f"observed_{name}": ((*GRID, "observation"), seen[i]) for i, name in enumerate(names)}
    ending = [np.nanmax(np.where(np.arange(looks) == looks_at(seen[0]), values, np.nan), axis=-1) for values in seen]
    if d == 2:
        angle, end = (np.arctan2(z[..., 1], z[..., 0]) % TWO_PI for z in (state, final))
        states = {"angle": ((*GRID, "time", "particle"), angle), "final_angle": ((*GRID, "particle"), end)}
    else:
        states = {
            "position": ((*GRID, "time", "particle", "coordinate"), state),
            "final_position": ((*GRID, "particle", "coordinate"), final),
        }
    spec = dict(beta=beta, dim=d, n_particles=n, direction=direction, activation=activation, drift_tol=1e-4, dt=0.1)
    spec |= dict(
        weights="numpy" if units else "none", kernel="shifted", attention_mode="unnormalized", stop="published"
    )
    values = dict(residual=ending[1], residual_l2=ending[2], energy=ending[3], final_time=0.1 * steps, steps=steps)
    values |= dict(clusters=clusters, heaviest_mass=mass[..., 0], stop_reason=reasons)
    values |= dict(result=np.where(reasons == "converged", 3, 5), snapshot_count=count)
    coords = dict(beta=list(beta), weight_seed=list(weight_seed), start_seed=list(start_seed), scale=list(scale))
    return xr.Dataset(
        {
            **states,
            **{name: (GRID, value) for name, value in values.items()},
            **seen_by_name,
            "snapshot_time": ((*GRID, "time"), times),
            "cluster_mass": ((*GRID, "cluster"), mass),
            "a": (("weight_seed", "neuron", "coordinate"), np.array([layer[0] for layer in layers])),
            "omega": (("weight_seed", "neuron"), np.array([layer[1] for layer in layers])),
            "bias": (("weight_seed", "neuron"), offsets),
        },
        coords=coords | dict(time=0.1 * schedule, step=("time", schedule), observation=10 * np.arange(looks)),
        attrs=dict(spec=json.dumps(spec), energy_convention="shifted kernel, self term included"),
    )


def looks_at(observed_time):
    """Index of each member's last observation, as a trailing axis of length one."""
    return np.isfinite(observed_time).sum(axis=-1, keepdims=True) - 1
