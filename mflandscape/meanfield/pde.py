"""The mean-field equation for the density on the circle, pseudo-spectral in space and adaptive in time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from .._types import Count, Direction, Scalar
from ..drifts import AbstractDrift, AbstractEnergy, FreePerceptron, Perceptron, check
from ..gradient import sign
from . import fourier
from .density import Density
from .field import GridField, energy, grid_field

if TYPE_CHECKING:
    import diffrax


class ENDINGS(eqx.Enumeration):
    """How a solution of the mean-field equation ended. `ENDINGS[code]` is the sentence."""

    reached = "The last time was reached."
    under_resolved = (
        "The highest modes rose above their tolerance: a forming atom is about to be under-resolved. The solution ends "
        "there; take more modes to go on for longer."
    )
    max_steps = "The step limit was reached first."
    failed = "The time step became too small or a mode not finite; the last times are missing."


class DensitySolution(eqx.Module):
    """The density at the requested times (nan where they were not reached) and at the end.

    Attributes:
        times, densities: `(S,)`, and one density for each.
        energy, dissipation: `E[rho]` (nan for a drift without one), and `∫ |v|^2 drho >= 0`, of which `dE/dt` is +1
            (ascent) or -1 times.
        mass: by the trapezoidal rule; the moment `M_0 = 1` is no unknown, so only rounding can move it.
        least: the smallest value of the density on the grid; below 0 by no more than the truncation.
        tail: largest `|M_k|` of the upper quarter of the modes: what the truncation neglects is of that size.
        time, end: when and with which density it ended. steps: attempted steps in time. result: an `ENDINGS` code.
    """

    times: Float[Array, " S"]
    densities: Density
    energy: Float[Array, " S"]
    dissipation: Float[Array, " S"]
    mass: Float[Array, " S"]
    least: Float[Array, " S"]
    tail: Float[Array, " S"]
    time: Scalar
    end: Density
    steps: Count
    result: ENDINGS

    @property
    def reached(self) -> Bool[Array, " S"]:
        """Which of the times were reached."""
        return jnp.isfinite(self.tail)


def solve_pde(
    drift: AbstractDrift,
    start: Density,
    times: ArrayLike | Sequence[float],
    *,
    direction: Direction = "descent",
    rtol: float = 1e-9,
    atol: float = 1e-13,
    tail: float | None = None,
    max_steps: int = 100_000,
    solver: "diffrax.AbstractERK | None" = None,
    throw: bool = True,
) -> DensitySolution:
    """Solves `d_t rho + d_theta (rho s d_theta U[rho]) = 0` on the circle from time 0. [paper B, (2); MATH, section 5]

    Unknown are the moments of `start`, as many as it has: `dM_k/dt = i k ∫ e^{ik theta} v drho`. Products are taken on
    a grid of 3/2 as many points, so that attention is free of aliasing; what else a drift has is evaluated there. The
    error falls faster than any power of the modes while the density is smooth and so is the drift (attention, softmax
    attention, GeLU). ReLU leaves kinks in the density, steep ones where a particle crosses slowly: `|M_k|` falls like
    `k^-1` to `k^-2`, the error like `K^-2` in W_1 and `K^-1` in the largest value.

    Steps are adaptive (Dopri8, `rtol` and `atol` for a moment) and end on the requested times. Where the upper quarter
    of the modes exceeds `tail` (1e-6; 1e-2 where the drift has kinks) the solution stops: the result is
    `under_resolved` and later times are nan. O(K log K) a step for attention and perceptrons; drifts of other kinds
    cost what their field does for 3 K particles.

    Args:
        drift: as for particles; `+` adds. start: the density at time 0, with the modes to compute with.
        times: increasing, at least 0. direction: `"descent"` or `"ascent"`. solver: any explicit Diffrax solver.
        throw: raise when the solution failed or met the step limit.

    Raises:
        ValueError: times that are not increasing from 0 on, a batch of starts, tolerances that are not positive, a
            drift that is not made for the circle.
        RuntimeError: with `throw`, see there.
    """
    check(drift, 2)
    sign(direction)
    at = checked_times(times)
    if start.moments.ndim != 2:
        raise ValueError(f"moments of shape {start.moments.shape}: expected one density (K + 1, 2); use Density.at")
    tail = _default_tail(drift) if tail is None else tail
    if not (rtol > 0 and atol > 0 and tail > 0):
        raise ValueError(f"rtol = {rtol}, atol = {atol}, tail = {tail}: expected positive tolerances")
    dtype = start.moments.dtype
    numbers = tuple(jnp.asarray(v, dtype) for v in (at, rtol, atol, tail))
    solution = _solve(drift, start, numbers, direction, max_steps, solver)
    if not throw:
        return solution
    bad = (solution.result == ENDINGS.failed) | (solution.result == ENDINGS.max_steps)
    return solution.result.error_if(solution, bad)


def checked_times(times: ArrayLike | Sequence[float]) -> Float[np.ndarray, " S"]:
    """The times as an array.

    Raises:
        ValueError: none, negative or not finite ones, or not increasing.
    """
    at = np.atleast_1d(np.asarray(times, float))
    if at.ndim != 1 or at.size == 0 or not (np.isfinite(at).all() and at[0] >= 0 and (np.diff(at) > 0).all()):
        raise ValueError(f"times {at}: expected at least one, finite, increasing, from 0 on")
    return at


def _default_tail(drift: AbstractDrift) -> float:
    terms = getattr(drift, "terms", (drift,))
    rough = any(isinstance(term, Perceptron | FreePerceptron) and term.activation.kinks for term in terms)
    return 1e-2 if rough else 1e-6


@eqx.filter_jit
def _solve(drift, start, numbers, direction, max_steps, solver) -> DensitySolution:
    import diffrax

    times, rtol, atol, tail = numbers
    pairs = start.moments
    count, dtype = pairs.shape[0], pairs.dtype
    size = fourier.grid_size(count - 1)
    field = grid_field(drift, count - 1, size, direction, dtype)
    stepping = diffrax.ClipStepSizeController(diffrax.PIDController(rtol=rtol, atol=atol), step_ts=times)
    found = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, field: _rate(field, y)),
        diffrax.Dopri8() if solver is None else solver,
        t0=jnp.zeros((), dtype),
        t1=jnp.maximum(times[-1], jnp.finfo(dtype).tiny),
        dt0=None,
        y0=pairs[1:],
        args=field,
        saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=times), diffrax.SubSaveAt(t1=True)]),
        stepsize_controller=stepping,
        event=diffrax.Event(lambda t, y, args, **_: _tail(_whole(y)) > tail),
        max_steps=max_steps,
        throw=False,
    )
    assert found.ys is not None and found.ts is not None
    saved, last = (_whole(y) for y in found.ys)
    reached = jnp.isfinite(found.ts[0]) & (jax.vmap(_tail)(saved) <= tail)
    saved = jnp.where(reached[:, None, None], saved, jnp.nan)
    codes = (diffrax.RESULTS.successful, diffrax.RESULTS.event_occurred, diffrax.RESULTS.max_steps_reached)
    result = ENDINGS.failed
    for code, name in zip(codes, (ENDINGS.reached, ENDINGS.under_resolved, ENDINGS.max_steps), strict=True):
        result = ENDINGS.where(found.result == code, name, result)
    return DensitySolution(
        times=times,
        densities=Density(saved),
        **jax.lax.map(lambda y: _measured(drift, field, y), saved),
        time=found.ts[1][0],
        end=Density(last[0]),
        steps=jnp.asarray(found.stats["num_steps"]),
        result=result,
    )


def _rate(field: GridField, y: Float[Array, "L 2"]) -> Float[Array, "L 2"]:
    """`dM_k/dt = i k ∫ e^{ik theta} v drho`, k = 1..K."""
    whole = _whole(y)
    flux = fourier.values(whole, field.points.shape[0]) * field.velocity(whole)
    return fourier.times_ik(fourier.moments(flux, whole.shape[0]))[1:]


def _whole(y: Float[Array, "*batch L 2"]) -> Float[Array, "*batch K 2"]:
    """With the mass `M_0 = 1` in front."""
    first = jnp.zeros((*y.shape[:-2], 1, 2), y.dtype).at[..., 0].set(1)
    return jnp.concatenate([first, y], axis=-2)


def _tail(moments: Float[Array, "K 2"]) -> Scalar:
    upper = moments[-(moments.shape[0] // 4) :]
    return jnp.max(jnp.hypot(upper[:, 0], upper[:, 1]))


def _measured(drift: AbstractDrift, field: GridField, moments: Float[Array, "K 2"]) -> dict[str, Scalar]:
    size = field.points.shape[0]
    on_grid = fourier.values(moments, size)
    speed = field.velocity(moments)
    has_energy = isinstance(drift, AbstractEnergy)
    return {
        "energy": energy(drift, moments, size) if has_energy else jnp.full((), jnp.nan, moments.dtype),
        "dissipation": jnp.mean(on_grid * speed * speed),
        "mass": jnp.mean(on_grid),
        "least": jnp.min(on_grid) / (2 * jnp.pi),
        "tail": _tail(moments),
    }
