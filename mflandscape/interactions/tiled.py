"""The direct sum on a GPU: one kernel over tiles of pairs (`Tiled`), or what the compiler fuses by itself (`Fused`)."""

import abc
import functools
import operator
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics import inner
from ..kernels import AbstractKernel, Exponential
from .accumulate import accumulate, added, equal_block, rows, wide
from .dense import AbstractDirect, log_weights, tiles
from .transposable import pair_sum

_MASSLESS = -1e12  # logarithm of a massless source's weight: its square and cube are finite in float32 too
_CHARGES = 16  # columns of q in one pass over the sources: their sums stay in registers
_WRITTEN_OUT = 32  # coordinates up to which the inner product is unrolled
_PROGRAMS = 1024  # what fills a large GPU: with fewer targets than that many tiles, sources are divided too

Columns = tuple[Array, ...]


class AbstractFused(AbstractDirect):
    """Direct sums that keep no matrix of pairs: inner products coordinate by coordinate (no TF32), derivatives by
    closed rules, no residuals.
    """

    @abc.abstractmethod
    def total(
        self, kernel: AbstractKernel, x: Float[Array, "M d"], y: Float[Array, "N d"], q: Float[Array, "N c"], order: int
    ) -> Float[Array, "M c"]:
        """`sum_j k^(order)(<x_i, y_j>) q_j`."""

    @abc.abstractmethod
    def log_total(
        self, kernel: Exponential, x: Float[Array, "M d"], y: Float[Array, "N d"], log_w: Float[Array, " N"]
    ) -> Float[Array, " M"]:
        """`log sum_j e^{beta (t_ij - shift) + log_w_j}`."""

    def evaluate(
        self, kernel: AbstractKernel, x: Float[Array, "M d"], y: Float[Array, "N d"], q: Float[Array, "N c"], order: int
    ) -> Float[Array, "M c"]:
        """`total`, with a transpose in `q`: the sum the other way."""
        return pair_sum(self, kernel, x, y, q, order)

    def log_sum(
        self, kernel: Exponential, x: Float[Array, "M d"], y: Float[Array, "N d"], w: Float[Array, " N"]
    ) -> Float[Array, " M"]:
        """Log-sum-exp; its derivatives are averages with the softmax's shares, sums of this kind again."""
        return _log_total(kernel, x, y, jnp.maximum(log_weights(w), _MASSLESS), interaction=self)


@eqx.filter_custom_jvp
def _log_total(kernel, x, y, log_w, *, interaction):
    return interaction.log_total(kernel, x, y, log_w)


@_log_total.def_jvp
def _log_total_jvp(primals, tangents, *, interaction):
    """The change of `sum_j e^{beta (t_ij - shift) + log_w_j - L_i}`, which is 1, with the logarithm `L` held fixed.

    `L` and `log_w` enter as two more coordinates of targets and sources, so that this is a sum with the kernel's slope.
    """
    value = _log_total(*primals, interaction=interaction)

    def shares(kernel, x, y, log_w):
        beta = kernel.beta.astype(x.dtype)
        targets = jnp.concatenate([x, -value[:, None] / beta, jnp.ones_like(x[:, :1])], axis=1)
        sources = jnp.concatenate([y, jnp.ones_like(y[:, :1]), log_w[:, None] / beta], axis=1)
        return interaction.apply(kernel, targets, sources, jnp.ones_like(y[:, :1]), order=1)[:, 0]

    return value, eqx.filter_jvp(shares, primals, tangents)[1]


class Fused(AbstractFused):
    """The sum as a reduction over pairs that the compiler is left to fuse, `block` sources at a time: on a GPU no pair
    is written to memory.

    Cost O(M N (d + c)). Memory O((M + N) (d + c)) where the compiler fuses (d <= 32), and O(M block) more where it does
    not. Blocks of float32 points are added in float64, or compensated.

    Raises:
        ValueError: block < 1.
    """

    block: int = eqx.field(static=True, default=4096)

    def __check_init__(self):
        if self.block < 1:
            raise ValueError(f"block = {self.block}: expected at least 1 source at a time")

    def total(
        self, kernel: AbstractKernel, x: Float[Array, "M d"], y: Float[Array, "N d"], q: Float[Array, "N c"], order: int
    ) -> Float[Array, "M c"]:
        """All charges in one reduction of several values."""
        x, y, q = jax.lax.optimization_barrier((x, y, q))  # else what made them is computed again for each pair
        block = equal_block(y.shape[0], self.block)
        add = lambda a, b: tuple(u + v for u, v in zip(a, b, strict=True))  # noqa: E731

        def part(i: Array) -> Array:
            weights = kernel.profile(self._pairs(x, rows(y, i, block)), order)
            columns = tuple(weights * charge[:, None] for charge in rows(q, i, block, mask=True).T)
            zeros = (jnp.zeros((), q.dtype),) * len(columns)
            return jnp.stack(jax.lax.reduce(columns, zeros, add, (0,)), axis=1)

        return accumulate(part, -(-y.shape[0] // block))

    def log_total(
        self, kernel: Exponential, x: Float[Array, "M d"], y: Float[Array, "N d"], log_w: Float[Array, " N"]
    ) -> Float[Array, " M"]:
        """Two reductions: the largest term, then the sum; merged block by block."""

        def add(total: Array, source: tuple[Array, Array]) -> tuple[Array, None]:
            terms = kernel.log_slope(self._pairs(x, source[0])) + source[1][:, None]
            return jnp.logaddexp(total, jax.nn.logsumexp(terms, axis=0)), None

        size = min(self.block, y.shape[0])
        start = jnp.full(x.shape[0], 2 * _MASSLESS, x.dtype)
        return jax.lax.scan(add, start, (tiles(y, size), tiles(log_w, size, 2 * _MASSLESS)))[0]

    def _pairs(self, x: Array, y: Array) -> Array:
        d = x.shape[1]
        return inner(y, x) if d > _WRITTEN_OUT else _by_coordinates(d, lambda k: y[:, k], lambda k: x[:, k])


class Tiled(AbstractFused):
    """The sum as one Pallas kernel (Triton): a program holds `targets` targets and walks over the sources in tiles.

    Cost O(M N (d + c)), memory O((M + N) (d + c)). For kernels whose parameters are scalars. Whichever device a
    computation is lowered for: compiled by Triton on a GPU; elsewhere Pallas interprets the same programs as a loop.

    Raises:
        ValueError: a tile or a number of warps that is not a power of two.
    """

    targets: int = eqx.field(static=True, default=256)
    sources: int = eqx.field(static=True, default=16)
    warps: int = eqx.field(static=True, default=4)

    def __check_init__(self):
        for name in ("targets", "sources", "warps"):
            size = getattr(self, name)
            if size < 1 or size & (size - 1):
                raise ValueError(f"{name} = {size}: expected a power of two, as Triton's tiles are; take 256, 16 and 4")

    def total(
        self, kernel: AbstractKernel, x: Float[Array, "M d"], y: Float[Array, "N d"], q: Float[Array, "N c"], order: int
    ) -> Float[Array, "M c"]:
        """Up to 16 charges in one pass over the sources; in float32 with what the additions lose carried along."""
        kept = 1 if x.dtype == jnp.float64 else 2

        def add(kernel: AbstractKernel, pairs: Array, charges: Columns, sums: Columns) -> Columns:
            weights = kernel.profile(pairs, order)
            terms = [jnp.sum(weights * charge[:, None], axis=0) for charge in charges]
            running = [added(sums[i :: len(terms)], term) for i, term in enumerate(terms)]
            return tuple(column for columns in zip(*running, strict=True) for column in columns)

        def columns(q: Array) -> Array:
            found = self._sweep(add, (0.0,) * (kept * q.shape[1]), kernel, x, y, q).astype(wide())
            return jnp.sum(found.reshape(-1, q.shape[1], found.shape[-1]), axis=0).astype(q.dtype)

        some = [columns(q[:, first : first + _CHARGES]) for first in range(0, q.shape[1], _CHARGES)]
        return jnp.concatenate(some)[:, : x.shape[0]].T

    def log_total(
        self, kernel: Exponential, x: Float[Array, "M d"], y: Float[Array, "N d"], log_w: Float[Array, " N"]
    ) -> Float[Array, " M"]:
        """The running largest term and the sum relative to it, merged over parts of the sources."""

        def add(kernel: Exponential, pairs: Array, charges: Columns, sums: Columns) -> Columns:
            terms = kernel.log_slope(pairs) + charges[0][:, None]
            top = jnp.maximum(sums[0], jnp.max(terms, axis=0))
            return top, sums[1] * jnp.exp(sums[0] - top) + jnp.sum(jnp.exp(terms - top[None, :]), axis=0)

        sums = self._sweep(add, (2 * _MASSLESS, 0.0), kernel, x, y, log_w[:, None], fill=2 * _MASSLESS)
        return jax.nn.logsumexp(sums[:, 0] + jnp.log(sums[:, 1]), axis=0)[: x.shape[0]]

    def _sweep(self, add: Callable, start: tuple[float, ...], kernel, x, y, q, fill: float = 0.0) -> Array:
        """`add` folded over the sources of each part: `(parts, columns, M)`, M filled up to whole tiles."""
        from jax.experimental import pallas as pl
        from jax.experimental.pallas import triton

        parts = self._parts(x.shape[0], y.shape[0])
        scalars, form = jax.tree.flatten(eqx.filter(kernel, lambda leaf: eqx.is_array(leaf) and leaf.ndim == 0))
        x, y, q = (
            _columns(x, self.targets),
            _columns(y, parts * self.sources),
            _columns(q, parts * self.sources, fill),
        )
        part = y.shape[1] // parts
        call = functools.partial(
            pl.pallas_call,
            functools.partial(self._program, add, start, form),
            jax.ShapeDtypeStruct((parts, len(start), x.shape[1]), x.dtype),
            grid=(x.shape[1] // self.targets, parts),
            in_specs=[
                pl.BlockSpec((len(scalars),), lambda i, j: (0,)),
                pl.BlockSpec((x.shape[0], self.targets), lambda i, j: (0, i)),
                pl.BlockSpec((y.shape[0], part), lambda i, j: (0, j)),
                pl.BlockSpec((q.shape[0], part), lambda i, j: (0, j)),
            ],
            out_specs=pl.BlockSpec((None, len(start), self.targets), lambda i, j: (j, 0, i)),
        )
        compiled = call(compiler_params=triton.CompilerParams(num_warps=self.warps))
        scalars = jnp.stack([scalar.astype(x.dtype) for scalar in scalars])
        return jax.lax.platform_dependent(scalars, x, y, q, cuda=compiled, rocm=compiled, default=call(interpret=True))

    def _parts(self, m: int, n: int) -> int:
        """Into how many parts the sources are divided: of four tiles at least, and no more than fill the device."""
        tiles, most = -(-n // self.sources), max(1, _PROGRAMS * self.targets // m)
        return -(-tiles // max(4, -(-tiles // most)))

    def _program(self, add: Callable, start: tuple[float, ...], form, scalars, x, y, q, out) -> None:
        """What one program does, given references to its scalars, targets, sources, charges and results."""
        from jax.experimental import pallas as pl

        kernel = jax.tree.unflatten(form, [scalars[i] for i in range(scalars.shape[0])])
        d = x.shape[0]
        held = [x[k, :] for k in range(d)] if d <= _WRITTEN_OUT else []  # read once, not for every tile

        def tile(number: Array, sums: Columns) -> Columns:
            rows = pl.ds(number * self.sources, self.sources)
            pairs = _by_coordinates(d, lambda k: y[k, rows], lambda k: held[k] if held else x[k, :])
            return add(kernel, pairs, tuple(q[i, rows] for i in range(q.shape[0])), sums)

        sums = tuple(jnp.full(self.targets, value, x.dtype) for value in start)
        for i, column in enumerate(jax.lax.fori_loop(0, y.shape[1] // self.sources, tile, sums)):
            out[i, :] = column


def _columns(v: Array, multiple: int, fill: float = 0.0) -> Array:
    """Transposed, and filled up to a multiple of columns."""
    return jnp.pad(v.T, ((0, 0), (0, -v.shape[0] % multiple)), constant_values=fill)


def _by_coordinates(d: int, y: Callable, x: Callable) -> Array:
    """`sum_k y_k x_k` over all pairs, sources along the first axis."""

    def term(k) -> Array:
        return y(k)[:, None] * x(k)[None, :]

    if d > _WRITTEN_OUT:
        return jax.lax.fori_loop(1, d, lambda k, total: total + term(k), term(0))
    return functools.reduce(operator.add, map(term, range(d)))
