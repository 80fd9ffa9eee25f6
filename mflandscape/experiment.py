"""From a `Spec` to the problems of its members."""

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .clusters import cluster_threshold
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
    Rosenbrock,
    SaveAt,
    SaveEvery,
    SaveLog,
    Stabilised,
    Stationary,
    published_rule,
)
from .interactions import AbstractInteraction, choose_interaction, named_interaction
from .kernels import KernelConvention
from .measure import Measure, empirical
from .spec import Spec
from .special import fourier_modes

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

    @property
    def save(self) -> AbstractSave:
        """The schedule of snapshots."""
        return _save(self.spec)

    def point(self, member: int) -> dict[str, float | int]:
        """Coordinates of a member in the grid."""
        index = np.unravel_index(member, self.shape)
        return {name: axis[i] for (name, axis), i in zip(self.spec.grid.items(), index, strict=True)}

    def siblings(self, member: int) -> Iterator[int]:
        """Members that differ in the start only: they take about as long."""
        beta, weight, _, scale = np.unravel_index(member, self.shape)
        for start in range(self.shape[2]):
            yield int(np.ravel_multi_index((beta, weight, start, scale), self.shape))

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
            direction="ascent" if spec.direction == "ascent" else "descent",
            integrator=_integrator(spec),
            save=self.save,
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
        a, bias = jnp.asarray(w.a, self.dtype), None if w.bias is None else jnp.asarray(w.bias, self.dtype)
        if w.omega is not None:
            return attention + Perceptron(a, jnp.asarray(w.omega * factor, self.dtype), bias, w.activation)
        return attention + FreePerceptron(a, jnp.asarray(w.vectors * factor, self.dtype), bias, w.activation)

    def start(self, member: int) -> tuple[Measure, Any]:
        """A member's start, and its angles on the circle to the bit."""
        start = self.starts[np.unravel_index(member, self.shape)[2]]
        mu = empirical(jnp.asarray(start.x, self.dtype), None if start.w is None else jnp.asarray(start.w, self.dtype))
        return mu, None if start.theta is None else jnp.asarray(start.theta, self.dtype)


def _interaction(spec: Spec, dtype: np.dtype) -> AbstractInteraction:
    largest = max(spec.beta)
    if spec.interaction == "auto":
        return choose_interaction(spec.dim, spec.n_particles, largest, dtype)
    return named_interaction(spec.interaction, largest, dtype)


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
    if spec.integrator == "rosenbrock":
        modes = fourier_modes(max(spec.beta), np.dtype(spec.dtype)) if spec.dim == 2 else None
        return Rosenbrock(spec.rtol, spec.dt, modes)
    if spec.integrator == "stabilised":
        return Stabilised(spec.rtol, spec.dt)
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
