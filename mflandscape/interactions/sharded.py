"""Sums over particles that are divided among devices: one rule for sums by moments, one for direct ones."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, PyTree

from .._types import Scalar
from ..kernels import AbstractKernel, Exponential
from .base import AbstractInteraction
from .dense import NOTHING, AbstractDirect
from .spectral import AbstractSpectral

AXIS = "particles"
_ROWS, _WHOLE = PartitionSpec(AXIS), PartitionSpec()


class ShardedSpectral(AbstractSpectral):
    """`inner` over the axis "particles" of `mesh`: each device takes the moments of its own sources, these are added
    over the devices (all that travels: O(K c) numbers), and each evaluates at its own targets.

    Cost and memory of `inner` divided by the devices; any number of points (a last part that is short is filled up).
    """

    inner: AbstractSpectral
    mesh: Mesh = eqx.field(static=True)

    def source(self, y: Float[Array, "N d"], q: Float[Array, "N c"]) -> Array:
        """Moments of each part, added over the devices."""

        def part(inner: AbstractSpectral, y: Array, q: Array) -> Array:
            return jax.lax.psum(inner.source(y, q), AXIS)

        return _divided(self.mesh, part, self.inner, _even(self.mesh, y), _even(self.mesh, q, 0.0), out=_WHOLE)

    def at(self, kernel: AbstractKernel, x: Float[Array, "M d"], moments: Array, order: int) -> Float[Array, "M c"]:
        """The sum at each part of the targets."""

        def part(whole: tuple[AbstractSpectral, AbstractKernel, Array], x: Array) -> Array:
            inner, kernel, moments = whole
            return inner.at(kernel, x, moments, order)

        return _divided(self.mesh, part, (self.inner, kernel, moments), _even(self.mesh, x))[: x.shape[0]]

    def prepare(self, kernel: AbstractKernel) -> AbstractKernel:
        """As `inner`."""
        return self.inner.prepare(kernel)

    def series_tail(self, kernel: AbstractKernel) -> Scalar:
        """As `inner`."""
        return self.inner.series_tail(kernel)

    def check(self, d: int, matrix: bool) -> None:
        """As `inner`."""
        self.inner.check(d, matrix)


class ShardedDirect(AbstractDirect):
    """`inner` over the axis "particles" of `mesh`: targets stay, the parts of the sources go once around the ring of
    devices, each sent on while it is summed.

    Cost of `inner` divided by the devices, O(N (d + c)) numbers sent by each; memory of `inner` for its part.
    """

    inner: AbstractDirect
    mesh: Mesh = eqx.field(static=True)

    def evaluate(
        self, kernel: AbstractKernel, x: Float[Array, "M d"], y: Float[Array, "N d"], q: Float[Array, "N c"], order: int
    ) -> Float[Array, "M c"]:
        """One sum added a hop."""

        def add(whole: tuple[AbstractDirect, AbstractKernel], total: Array, x: Array, y: Array, q: Array) -> Array:
            inner, kernel = whole
            return total + inner.evaluate(kernel, x, y, q, order)

        return self._around(add, lambda x, q: jnp.zeros((x.shape[0], q.shape[1]), q.dtype), kernel, x, y, q)

    def log_sum(
        self, kernel: Exponential, x: Float[Array, "M d"], y: Float[Array, "N d"], w: Float[Array, " N"]
    ) -> Float[Array, " M"]:
        """One log-sum-exp merged a hop."""

        def add(whole: tuple[AbstractDirect, Exponential], total: Array, x: Array, y: Array, w: Array) -> Array:
            inner, kernel = whole
            return jnp.logaddexp(total, inner.log_sum(kernel, x, y, w))

        return self._around(add, lambda x, w: jnp.full(x.shape[0], NOTHING, x.dtype), kernel, x, y, w)

    def _around(self, add: Callable, start: Callable, kernel: AbstractKernel, x: Array, y: Array, q: Array) -> Array:
        devices = self.mesh.shape[AXIS]
        onward = [(i, (i + 1) % devices) for i in range(devices)]

        def part(whole: PyTree, x: Array, y: Array, q: Array) -> Array:
            # Reverse mode keeps the sources of each hop, not the pairs.
            added = jax.checkpoint(add)

            def hop(carry: tuple[Array, Array, Array], _: None):
                total, y, q = carry
                return (added(whole, total, x, y, q), *jax.lax.ppermute((y, q), AXIS, onward)), None

            return jax.lax.scan(hop, (start(x, q), y, q), None, length=devices)[0][0]

        points = _even(self.mesh, x), _even(self.mesh, y), _even(self.mesh, q, 0.0)
        return _divided(self.mesh, part, (self.inner, kernel), *points)[: x.shape[0]]

    def check(self, d: int, matrix: bool) -> None:
        """As `inner`."""
        self.inner.check(d, matrix)


def sharded(inner: AbstractInteraction, mesh: Mesh) -> AbstractInteraction:
    """The evaluator with its sums divided over the axis "particles" of a mesh; differentiable as before.

    Raises:
        ValueError: a mesh without that axis, an evaluator that is neither spectral nor direct.
    """
    if AXIS not in mesh.axis_names:
        raise ValueError(f'a mesh with axes {mesh.axis_names}: expected one named "{AXIS}"; use particle_mesh()')
    if isinstance(inner, ShardedSpectral | ShardedDirect):
        return sharded(inner.inner, mesh)
    if isinstance(inner, AbstractSpectral):
        return ShardedSpectral(inner, mesh)
    if isinstance(inner, AbstractDirect):
        return ShardedDirect(inner, mesh)
    raise ValueError(
        f"{type(inner).__name__} cannot be divided among devices: expected an evaluator by moments (AbstractSpectral) "
        "or by pairs (AbstractDirect)"
    )


def _divided(mesh: Mesh, fn: Callable, whole: PyTree, *rows: Array, out: PartitionSpec = _ROWS) -> Array:
    """`fn(whole, *rows)` on each device, with its part of the rows and all of the rest."""
    arrays, static = eqx.partition(whole, eqx.is_array)

    def local(arrays: PyTree, *rows: Array) -> Array:
        return fn(eqx.combine(arrays, static), *rows)

    specs = (_WHOLE, *[_ROWS] * len(rows))
    return jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)(arrays, *rows)


def _even(mesh: Mesh, v: Array, fill: float | None = None) -> Array:
    """Rows filled up to a multiple of the devices: by copies of the last one (a point stays a point), or by `fill`."""
    short = -v.shape[0] % mesh.shape[AXIS]
    if not short:
        return v
    widths = [(0, short)] + [(0, 0)] * (v.ndim - 1)
    return jnp.pad(v, widths, mode="edge") if fill is None else jnp.pad(v, widths, constant_values=fill)
