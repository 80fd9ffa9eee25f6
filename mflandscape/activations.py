"""Activations `sigma` and the primitives of their potentials: `phi' = 2 sigma`, `phi(0) = 0`. [paper A, section 2]"""

import abc
import difflib
import functools
import math
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ._types import Scalar, ScalarFunction

_PANELS = 24  # dyadic panels [2^-k-1, 2^-k] of the quadrature from 0 to s
_TAYLOR_TERMS = 16  # of the GeLU's primitive on |s| < 1: 2^-16 / 16! < 1e-18
_DILOGARITHM_TERMS = 20  # e^{-2 * 20} / 20^2 < 1e-19: the series of `Softplus` from |s| = 2 on


class AbstractActivation(eqx.Module):
    """An activation `sigma`, applied element by element in the dtype of its argument.

    `name` is what specs and pictures call it, `kinks` the places where `sigma'` jumps, and `dead` says whether `sigma`
    vanishes identically on `s < 0`. `steepness` bounds `|sigma'|` and `bend` bounds `|sigma''|` away from the kinks:
    certificates rest on them (inf: not known).
    """

    name: eqx.AbstractVar[str]
    kinks: eqx.AbstractVar[tuple[float, ...]]
    dead: eqx.AbstractVar[bool]
    steepness: eqx.AbstractVar[float | Scalar]
    bend: eqx.AbstractVar[float]

    @abc.abstractmethod
    def __call__(self, s: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """`sigma(s)`."""

    @abc.abstractmethod
    def primitive(self, s: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """`phi(s) = 2 int_0^s sigma(t) dt`."""


class ReLU(AbstractActivation):
    """`sigma(s) = max(s, 0)`, `phi(s) = max(s, 0)^2`; derivatives at the kink are those of the dead side."""

    name: ClassVar[str] = "relu"
    kinks: ClassVar[tuple[float, ...]] = (0.0,)
    dead: ClassVar[bool] = True
    steepness: ClassVar[float] = 1.0
    bend: ClassVar[float] = 0.0

    def __call__(self, s: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """`max(s, 0)`."""
        return jnp.where(s <= 0, jnp.zeros_like(s), s)

    def primitive(self, s: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """`max(s, 0)^2`."""
        return jnp.where(s <= 0, jnp.zeros_like(s), s * s)


class LeakyReLU(AbstractActivation):
    """`sigma(s) = s` above 0 and `slope s` below, `phi(s) = s sigma(s)`; `slope` may be differentiated and batched."""

    name: ClassVar[str] = "leaky_relu"
    kinks: ClassVar[tuple[float, ...]] = (0.0,)
    dead: ClassVar[bool] = False
    bend: ClassVar[float] = 0.0
    slope: Scalar

    def __init__(self, slope: ArrayLike = 0.01):
        self.slope = jnp.asarray(slope, slope.dtype if isinstance(slope, jax.Array) else float)
        if self.slope.ndim != 0:
            raise ValueError(f"slope of shape {self.slope.shape}: expected a scalar; batch the activation with vmap")

    @property
    def steepness(self) -> Scalar:
        """`max(1, |slope|)`."""
        return jnp.maximum(jnp.abs(self.slope), 1.0)

    def __call__(self, s: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """`s` above 0, `slope s` below."""
        return jnp.where(s <= 0, self.slope.astype(s.dtype) * s, s)

    def primitive(self, s: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """`s^2` above 0, `slope s^2` below."""
        return jnp.where(s <= 0, self.slope.astype(s.dtype) * (s * s), s * s)


class GeLU(AbstractActivation):
    """`sigma(s) = s Phi(s)` with the exact normal distribution function, `phi(s) = (s^2 - 1) Phi(s) + s n(s) + 1/2`."""

    name: ClassVar[str] = "gelu"
    kinks: ClassVar[tuple[float, ...]] = ()
    dead: ClassVar[bool] = False
    steepness: ClassVar[float] = 1.1289042  # at s = sqrt 2
    bend: ClassVar[float] = 0.7978846  # 2 n(0)

    def __call__(self, s: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """`s Phi(s)`."""
        return _gelu(s)

    def primitive(self, s: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """`(s^2 - 1) Phi(s) + s n(s) + 1/2`."""
        return _with_derivative(_gelu_primitive, _gelu)(s)


class Tanh(AbstractActivation):
    """`sigma(s) = tanh s`, `phi(s) = 2 log cosh s`."""

    name: ClassVar[str] = "tanh"
    kinks: ClassVar[tuple[float, ...]] = ()
    dead: ClassVar[bool] = False
    steepness: ClassVar[float] = 1.0
    bend: ClassVar[float] = 0.7698004  # 4 / 3^{3/2}

    def __call__(self, s: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """`tanh s`."""
        return jnp.tanh(s)

    def primitive(self, s: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """`2 log cosh s`."""
        return _with_derivative(_tanh_primitive, jnp.tanh)(s)


class Softplus(AbstractActivation):
    """`sigma(s) = log(1 + e^s)`, `phi(s) = 2 (Li_2(-1) - Li_2(-e^s))`."""

    name: ClassVar[str] = "softplus"
    kinks: ClassVar[tuple[float, ...]] = ()
    dead: ClassVar[bool] = False
    steepness: ClassVar[float] = 1.0
    bend: ClassVar[float] = 0.25

    def __call__(self, s: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """`log(1 + e^s)`."""
        return jax.nn.softplus(s)

    def primitive(self, s: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """`2 (Li_2(-1) - Li_2(-e^s))`."""
        return _with_derivative(_softplus_primitive, jax.nn.softplus)(s)


class Custom(AbstractActivation):
    """Any elementwise `fn` written with `jax.numpy`; `phi` by quadrature, its derivative exactly `2 fn`.

    The quadrature has 16 Gauss-Legendre nodes on each of 24 panels that halve towards 0 (384 evaluations of `fn`):
    rounding level for a smooth `fn` whose features sit near 0 at scale 1, at any `s`; a kink at 0 costs nothing, one
    elsewhere costs about 1e-3 times its jump in slope times `s^2`; an oscillation needs two nodes a period.

    Raises:
        ValueError: `fn` is not callable, not traceable, or changes shape or dtype.
    """

    kinks: ClassVar[tuple[float, ...]] = ()
    dead: ClassVar[bool] = False
    steepness: ClassVar[float] = math.inf
    bend: ClassVar[float] = math.inf
    fn: ScalarFunction = eqx.field(static=True)
    name: str = eqx.field(static=True)

    def __init__(self, fn: ScalarFunction, name: str | None = None):
        if not callable(fn):
            raise ValueError(f"fn of type {type(fn).__name__}: expected a callable that maps an array to an array")
        for dtype in (jnp.float32, jnp.result_type(float)):
            _check_elementwise(fn, jax.ShapeDtypeStruct((2, 3), dtype))
        self.fn = fn
        self.name = getattr(fn, "__name__", type(fn).__name__) if name is None else name

    def __call__(self, s: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """`fn(s)`."""
        return self.fn(s)

    def primitive(self, s: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """`2 int_0^s fn(t) dt` by quadrature; 384 evaluations of `fn`, no more memory than `s`."""
        return _with_derivative(lambda t: _quadrature(self.fn, t), self.fn)(s)


_BUILT_IN: dict[str, Callable[[], AbstractActivation]] = {
    "relu": ReLU,
    "gelu": GeLU,
    "leaky_relu": LeakyReLU,
    "tanh": Tanh,
    "softplus": Softplus,
}


def activation(choice: str | ScalarFunction | AbstractActivation) -> AbstractActivation:
    """The activation called `choice`; a callable becomes `Custom`, an activation stays itself.

    Raises:
        ValueError: unknown name (the nearest known one is named), or a callable that is not elementwise.
    """
    if isinstance(choice, AbstractActivation):
        return choice
    if not isinstance(choice, str):
        return Custom(choice)
    name = choice.lower().replace("-", "_")
    if name not in _BUILT_IN:
        near = difflib.get_close_matches(name, _BUILT_IN, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"activation {choice!r}; expected one of {', '.join(_BUILT_IN)} or a callable; did you mean {near!r}?"
        )
    return _BUILT_IN[name]()


def _with_derivative(phi: ScalarFunction, sigma: ScalarFunction) -> ScalarFunction:
    """`phi` with the derivative `2 sigma` put in by hand: exact, whatever the rounding or cancellation inside `phi`."""
    function = jax.custom_jvp(phi)

    @function.defjvp
    def derivative(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
        s = jnp.asarray(primals[0])
        return function(s), 2 * sigma(s) * tangents[0]

    return function


def _gelu(s: Array) -> Array:
    return s * (jax.scipy.special.erfc(s * -math.sqrt(0.5)) / 2)


def _gelu_primitive(s: Array) -> Array:
    """`s^2/2 + D`, `D = s^2 E + s n - E` odd, `E = erf(s / sqrt 2)/2`: by Taylor for |s| < 1, where `D` cancels."""
    small = jnp.abs(s) < 1
    near = jnp.where(small, s, jnp.zeros_like(s))
    square = near * near
    series = jnp.zeros_like(s)
    for n in range(_TAYLOR_TERMS - 1, -1, -1):
        series = 2 * (-0.5) ** n / (math.factorial(n) * (2 * n + 1) * (2 * n + 3)) + square * series
    density = jnp.exp(-(s * s) / 2) / math.sqrt(2 * math.pi)
    far = s * _gelu(s) + s * density - jax.scipy.special.erf(s * math.sqrt(0.5)) / 2
    return jnp.where(small, square / 2 + near * square * series / math.sqrt(2 * math.pi), far)


def _tanh_primitive(s: Array) -> Array:
    r = jnp.abs(s)
    small = r < 1
    far = 2 * (r + jnp.log1p(jnp.exp(-2 * r)) - math.log(2))
    return jnp.where(small, jnp.log1p(jnp.sinh(jnp.where(small, r, jnp.zeros_like(r))) ** 2), far)


def _softplus_primitive(s: Array) -> Array:
    """`max(s, 0)^2 + 2 sign(s) G(|s|)` with `G(r) = int_0^r log(1 + e^-t) dt`.

    `G` by 16 nodes for r < 2 (nearest singularity i pi: error 1e-25), by `pi^2/12 + Li_2(-e^-r)` beyond.
    """
    r = jnp.abs(s)
    small = (
        r < 2
    )  # G by 16 nodes on [0, 2] (nearest singularity i pi: error 1e-25), beyond by G = pi^2/12 + Li_2(-e^-r)
    near = jnp.where(small, r, jnp.ones_like(r))
    inside = sum(w / 2 * jnp.log1p(jnp.exp(-near * ((1 + u) / 2))) for u, w in zip(*_gauss(), strict=True))
    y = -jnp.exp(-jnp.where(small, jnp.full_like(r, 2), r))
    series = jnp.zeros_like(r)
    for n in range(_DILOGARITHM_TERMS, 0, -1):
        series = y * (1 / n**2 + series)
    g = jnp.where(small, near * inside, math.pi**2 / 12 + series)
    return jnp.where(s <= 0, jnp.zeros_like(s), s * s) + 2 * jnp.sign(s) * g


@functools.cache
def _gauss() -> tuple[list[float], list[float]]:
    """Nodes and weights of Gauss's rule of 16 points on [-1, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    return nodes.tolist(), weights.tolist()


def _quadrature(fn: ScalarFunction, s: Array) -> Array:
    edges = np.concatenate([[0.0], 0.5 ** np.arange(_PANELS - 1, -1, -1)])
    half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
    at, share = map(np.asarray, _gauss())
    nodes = (middle[:, None] + half[:, None] * at).ravel()
    weights = (half[:, None] * share).ravel()
    table = jnp.asarray(np.stack([nodes, weights], axis=1), s.dtype)
    add = lambda total, row: (total + row[1] * fn(s * row[0]), None)  # noqa: E731
    return 2 * s * jax.lax.scan(add, jnp.zeros_like(s), table)[0]


def _check_elementwise(fn: ScalarFunction, example: jax.ShapeDtypeStruct) -> None:
    name = getattr(fn, "__name__", type(fn).__name__)
    try:
        out = jax.eval_shape(lambda s: fn(s), example)
    except Exception as error:
        raise ValueError(
            f"activation {name} cannot be traced on {example.dtype}: {error}; expected an elementwise function written "
            "with jax.numpy that follows the dtype of its argument"
        ) from error
    if jax.tree.structure(out).num_leaves != 1 or (out.shape, out.dtype) != (example.shape, example.dtype):
        raise ValueError(
            f"activation {name} maps {example.dtype}{list(example.shape)} to {out}; expected the same shape and dtype"
        )
