"""The flow's Jacobian in the form its structure allows: diagonal plus low rank on the circle, a matrix for few
particles.
"""

import abc
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import linalg
from jaxtyping import Array, Bool, Float

from .._numerics import dot, inner, matmul
from .._types import Scalar
from ..drifts import AbstractDrift, Attention, FreePerceptron, Perceptron, SoftmaxAttention
from ..gradient import sign
from ..interactions.circle import AbstractCircle
from ..interactions.sharded import ShardedSpectral
from ..measure import Measure
from ..sphere import tangent_basis
from ..stationary.second_order import field_derivative
from .dynamics import Dynamics

DENSE = 96  # particles up to which the circle's matrix is cheaper than its modes
UNKNOWNS = 512  # of a matrix: above, a step costs more than it saves
_LEAST_MASS = 1e-20  # of a particle in the matrix's metric: massless ones keep a place in it
_LEAST_SUM = 1e-12  # of a normaliser that the modes have lost
_MARGIN = 0.9  # of the step at which the diagonal would lose its sign


class AbstractFactor(eqx.Module):
    """`2/h - J`, factorised. `definite`: whether the step is shorter than twice the time of every instability."""

    definite: eqx.AbstractVar[Bool[Array, ""]]

    @abc.abstractmethod
    def solve(self, r: Array) -> Array:
        """`(2/h - J)^{-1} r`, in coordinates."""


class AbstractLinearised(eqx.Module):
    """The Jacobian `J` of the velocity in coordinates, at one state."""

    @abc.abstractmethod
    def longest(self) -> Scalar:
        """A step from which on `2/h - J` is surely not positive definite."""

    @abc.abstractmethod
    def factor(self, h: Scalar) -> AbstractFactor:
        """`2/h - J`, ready to be solved with."""


class Parts(eqx.Module):
    """A drift taken apart: heads of attention (several, or one of softmax attention), and what acts on each particle
    by itself.
    """

    heads: tuple[Attention | SoftmaxAttention, ...]
    local: tuple[Perceptron | FreePerceptron, ...]

    @property
    def normalised(self) -> bool:
        """Whether the head is of softmax attention."""
        return any(isinstance(head, SoftmaxAttention) for head in self.heads)


def take_apart(drift: AbstractDrift) -> Parts | None:
    """The parts of a drift whose Jacobian is known in closed form; None for matrices B, sums with softmax attention
    and drifts of the user's own.
    """
    terms = getattr(drift, "terms", (drift,))
    heads = tuple(term for term in terms if isinstance(term, Attention | SoftmaxAttention) and term.matrix is None)
    local = tuple(term for term in terms if isinstance(term, Perceptron | FreePerceptron))
    found = Parts(heads, local)
    if len(heads) + len(local) < len(terms) or (found.normalised and len(heads) > 1):
        return None
    return found


def linearise(
    dynamics: Dynamics, u: Array, du: Array, modes: int | None, live: Bool[Array, " N"] | None
) -> AbstractLinearised:
    """The Jacobian at `u`, where the velocity is `du`. Particles that are not `live` count for nothing.

    `modes` of the circle's kernel are taken where the evaluators do not say how many. For what `refuse` lets pass.
    """
    parts = take_apart(dynamics.drift)
    assert parts is not None
    if dynamics.d == 2 and u.shape[0] > DENSE:
        return _circle_modes(parts, dynamics, u, modes, live)
    return _matrix(parts, dynamics, u, du, live)


def refuse(drift: AbstractDrift, d: int, n: int, modes: int | None) -> None:
    """Refuses particles for which no Jacobian of the forms known here exists.

    Raises:
        ValueError: with the sentence of `unsuitable`.
    """
    reason = unsuitable(drift, d, n, modes)
    if reason is not None:
        raise ValueError(reason)


def unsuitable(drift: AbstractDrift, d: int, n: int, modes: int | None) -> str | None:
    """Why `n` particles of `S^{d-1}` have no Jacobian of the forms known here; None if they have."""
    parts = take_apart(drift)
    if parts is None:
        return (
            f"{type(drift).__name__}: expected a sum of attention heads without a matrix (or one softmax attention) "
            "and perceptrons, whose Jacobian is known; use Stabilised(), which needs velocities only"
        )
    if d > 2 and n * (d - 1) > UNKNOWNS:
        return (
            f"{n} particles of dimension {d}: expected at most {UNKNOWNS // (d - 1)}, or the circle, where the "
            "Jacobian is diagonal plus low rank; use Stabilised()"
        )
    known = modes is not None or all(_own_modes(head) is not None for head in parts.heads)
    if d == 2 and n > DENSE and not known:
        return (
            "the number of the circle's modes is not known: give the attention interaction=CircleFourier.for_beta(beta)"
            ", or the integrator modes=special.fourier_modes(beta, dtype)"
        )
    return None


class _ModesFactor(AbstractFactor):
    """By Woodbury, `A = diag(a) - s B E diag(w)`: `A^{-1} r = (r + s B (1 - s E diag(w/a) B)^{-1} E (w r/a)) / a`."""

    modes: "CircleModes"
    diagonal: Float[Array, " N"]
    small: tuple[Array, Array]
    definite: Bool[Array, ""]

    def solve(self, r: Array) -> Array:
        """Cost O(N K)."""
        modes = self.modes
        seen = modes.root * matmul(modes.features, modes.w * r / self.diagonal)
        if modes.softmax is None:
            found = linalg.cho_solve((self.small[0], True), seen)
        else:
            found = linalg.lu_solve(self.small, seen)
        return (r + modes.s * modes.spread(modes.root * found)) / self.diagonal


class CircleModes(AbstractLinearised):
    """`J = s (diag(slope) + B E diag(w))`, rows of `E` being `{cos, sin}(k theta)`, `B = E^T diag(c_k k^2)`.

    For softmax attention `B_ik = c_k k (k cos(k theta_i) - q_i sin(k theta_i), k sin + q_i cos)/Z_i`, `q = Z'/Z`: then
    `J` is symmetric in the metric `w Z` but for what `q` adds, which the solves have and the test of stability has
    not. Sums `E diag(a) E^T` follow from the moments of `a` up to twice the order: cost O(N K), memory O(N K).
    """

    slope: Float[Array, " N"]
    features: Float[Array, "K2 N"]
    root: Float[Array, " K2"]  # sqrt(c_k) k
    w: Float[Array, " N"]
    softmax: tuple[Array, Array] | None  # Z and q
    s: int = eqx.field(static=True)

    def longest(self) -> Scalar:
        """Where the diagonal loses its sign."""
        rate = jnp.max(self.s * self.slope)
        return jnp.where(rate > 0, _MARGIN * 2 / jnp.where(rate > 0, rate, jnp.ones_like(rate)), jnp.inf)

    def spread(self, y: Float[Array, " K2"]) -> Float[Array, " N"]:
        """`B diag(c_k k^2)^{-1} y` at the particles."""
        if self.softmax is None:
            return matmul(y, self.features)
        total, q = self.softmax
        along, across = matmul(jnp.stack([y, _turned(y / self._k)]), self.features)
        return (along - q * across) / total

    def factor(self, h: Scalar) -> AbstractFactor:
        """Cholesky (softmax: LU) of a matrix of twice the number of modes."""
        diagonal = 2 / h - self.s * self.slope
        weight = self.w / diagonal
        if self.softmax is not None:
            total, q = self.softmax
            weight = weight / total
        low = linalg.cho_factor(self._known(self._gram(weight)), lower=True)[0]
        definite = jnp.all(diagonal > 0) & jnp.all(jnp.isfinite(low))
        if self.softmax is None:
            return _ModesFactor(modes=self, diagonal=diagonal, small=(low, weight), definite=definite)
        k, across = self._k, self._gram(weight * self.softmax[1])
        half = across.shape[0] // 2
        across = jnp.concatenate([across[:, half:], -across[:, :half]], axis=1) / k[None, :]
        small = linalg.lu_factor(self._known(self._gram(weight) - across))
        return _ModesFactor(modes=self, diagonal=diagonal, small=small, definite=definite)

    @property
    def _k(self) -> Float[Array, " K2"]:
        k = jnp.arange(1, self.root.shape[0] // 2 + 1, dtype=self.root.dtype)
        return jnp.concatenate([k, k])

    def _known(self, gram: Array) -> Array:
        scaled = self.root[:, None] * gram * self.root[None, :]
        return jnp.eye(self.root.shape[0], dtype=self.root.dtype) - self.s * scaled

    def _gram(self, a: Float[Array, " N"]) -> Float[Array, "K2 K2"]:
        """`E diag(a) E^T`: Toeplitz and Hankel matrices of the moments of `a`."""
        most = self.root.shape[0] // 2
        top = self.features[most - 1], self.features[-1]
        moments = matmul(self.features, jnp.stack([a, a * top[0], a * top[1]]).T)
        (c, ct, cs), (s, st, ss) = moments[:most].T, moments[most:].T
        cos = jnp.concatenate([jnp.sum(a)[None], c, ct - ss])
        sin = jnp.concatenate([jnp.zeros(1, a.dtype), s, cs + st])
        k = np.arange(1, most + 1)
        apart, together = np.abs(k[:, None] - k[None, :]), k[:, None] + k[None, :]
        ahead = jnp.asarray(np.sign(k[:, None] - k[None, :]), a.dtype) * sin[apart]
        mixed = sin[together] - ahead
        return jnp.block([[cos[apart] + cos[together], mixed], [mixed.T, cos[apart] - cos[together]]]) / 2


def _turned(y: Float[Array, " K2"]) -> Float[Array, " K2"]:
    """Coefficients of cosines and sines of the series with sines for cosines, and minus cosines for sines."""
    half = y.shape[0] // 2
    return jnp.concatenate([-y[half:], y[:half]])


def _circle_modes(
    parts: Parts, dynamics: Dynamics, u: Array, modes: int | None, live: Bool[Array, " N"] | None
) -> CircleModes:
    mu = dynamics.measure(u)
    series = _series(parts, modes).astype(u.dtype)
    k = jnp.arange(1, series.shape[0] + 1, dtype=u.dtype)
    features = jnp.concatenate(_multiples(u, series.shape[0]))
    root = jnp.sqrt(jnp.maximum(series, jnp.zeros_like(series))) * k
    root, k = jnp.concatenate([root, root]), jnp.concatenate([k, k])
    bent = root * root * matmul(features, mu.w)
    softmax = None
    if parts.normalised:
        kernel = parts.heads[0].kernel
        beta, constant = kernel.beta.astype(u.dtype), kernel.cosine_series(series.shape[0], 1)[0].astype(u.dtype)
        first, sums, slope = matmul(jnp.stack([-_turned(bent / k), bent / (k * k), -bent]), features)
        total = constant + beta * sums
        total = jnp.maximum(total, jnp.full_like(total, _LEAST_SUM))
        speed = first / total
        slope, softmax = slope / total - beta * speed * speed, (total, beta * speed)
    else:
        slope = -matmul(bent, features)
    slope = slope + _local_slope(parts, mu)[:, 0, 0]
    if live is not None:
        slope = jnp.where(live, slope, jnp.zeros_like(slope))
    return CircleModes(slope, features, root, mu.w, softmax, sign(dynamics.direction))


def _own_modes(head: Attention | SoftmaxAttention) -> int | None:
    """The number of modes with which a head's evaluator sums the circle's kernel, on one device or several."""
    how = head.interaction.inner if isinstance(head.interaction, ShardedSpectral) else head.interaction
    return how.modes if isinstance(how, AbstractCircle) else None


def _series(parts: Parts, modes: int | None) -> Array:
    """`c_1, c_2, ...` of the sum of the heads' kernels."""
    counts = [_own_modes(head) or modes for head in parts.heads]
    most = max((count for count in counts if count is not None), default=1)
    total = jnp.zeros(most)
    for head, count in zip(parts.heads, counts, strict=True):
        assert count is not None
        series = head.kernel.cosine_series(count)[1:]
        total = total.astype(series.dtype) + jnp.pad(series, (0, most - count))
    return total


def _local_slope(parts: Parts, mu: Measure) -> Float[Array, "N k k"]:
    """Covariant derivative of what acts on each particle by itself."""
    if not parts.local:
        return jnp.zeros((mu.n, mu.d - 1, mu.d - 1), mu.x.dtype)
    terms: tuple[AbstractDrift, ...] = parts.local
    return field_derivative(functools.reduce(lambda one, other: one + other, terms), mu)


def _multiples(theta: Float[Array, " N"], modes: int) -> tuple[Array, Array]:
    """`cos(k theta)` and `sin(k theta)`, k = 1..modes, by recurrence."""
    cos, sin = jnp.cos(theta), jnp.sin(theta)
    turn = lambda z, _: ((z[0] * cos - z[1] * sin, z[0] * sin + z[1] * cos), z)  # noqa: E731
    return jax.lax.scan(turn, (cos, sin), None, length=modes, unroll=4)[1]


class _MatrixFactor(AbstractFactor):
    """`root (2/h - J) / root`; what is normal to the sphere goes by itself."""

    jacobian: "TangentMatrix"
    factors: tuple[Array, Array]
    h: Scalar
    definite: Bool[Array, ""]

    def solve(self, r: Array) -> Array:
        """Cost O(n^2)."""
        x, basis, v = self.jacobian.x, self.jacobian.basis, self.jacobian.v
        if v is None:
            return self._tangential(r)
        n, k, _ = basis.shape
        seen = jnp.sum(basis * r[:, None, :], axis=2)
        along = jnp.sum(self._tangential(seen.reshape(-1)).reshape(n, k, 1) * basis, axis=1)
        return along + (self.h / 2 * (dot(x, r) - dot(v, along)))[:, None] * x

    def _tangential(self, r: Array) -> Array:
        root = self.jacobian.root
        if self.jacobian.symmetric:
            return linalg.cho_solve((self.factors[0], True), root * r) / root
        return linalg.lu_solve(self.factors, root * r) / root


class TangentMatrix(AbstractLinearised):
    """`J` as a matrix in tangent frames, `n = N (d-1)`: symmetric in the metric `root^2` for plain attention.

    In ambient coordinates `J` also turns velocities with the tangent space: `xi -> J xi - <v, xi> x`.
    """

    matrix: Float[Array, "n n"]
    root: Float[Array, " n"]
    x: Float[Array, "N d"]
    basis: Float[Array, "N k d"]
    v: Float[Array, "N d"] | None
    symmetric: bool = eqx.field(static=True)

    def longest(self) -> Scalar:
        """Not known before the factorisation."""
        return jnp.full((), jnp.inf, self.matrix.dtype)

    def factor(self, h: Scalar) -> AbstractFactor:
        """Cholesky (softmax: LU) in the metric in which `J` is symmetric; the test is exact where it is."""
        n = self.matrix.shape[0]
        a = 2 / h * jnp.eye(n, dtype=self.matrix.dtype) - self.matrix
        low = linalg.cho_factor((a + a.T) / 2, lower=True)[0]
        factors = (low, self.root) if self.symmetric else linalg.lu_factor(a)
        return _MatrixFactor(jacobian=self, factors=factors, h=h, definite=jnp.all(jnp.isfinite(low)))


def _matrix(parts: Parts, dynamics: Dynamics, u: Array, du: Array, live: Bool[Array, " N"] | None) -> TangentMatrix:
    mu = dynamics.measure(u)
    (n, d), k, s = mu.x.shape, mu.d - 1, sign(dynamics.direction)
    basis = tangent_basis(mu.x)
    w = jnp.maximum(mu.w, jnp.full_like(mu.w, _LEAST_MASS))
    t = inner(mu.x, mu.x)
    flat = basis.reshape(n * k, d)
    seen = inner(flat, mu.x).reshape(n, k, n)  # <e_ip, x_j>
    frames = inner(flat, flat).reshape(n, k, n, k)
    metric = w
    pairs, own = jnp.zeros_like(frames), _local_slope(parts, mu)
    for head in parts.heads:
        first, second = head.kernel.profile(t, 1), head.kernel.profile(t, 2)
        bent = second[:, None, :] * seen
        pair = first[:, None, :, None] * frames + bent[..., None] * jnp.transpose(seen, (2, 0, 1))[:, None]
        each = matmul(bent * w[None, None, :], jnp.swapaxes(seen, 1, 2))
        each = each - matmul(first * t, w)[:, None, None] * jnp.eye(k, dtype=u.dtype)[None]
        if parts.normalised:
            total = matmul(first, w)
            metric = w * total
            speed = matmul(seen * first[:, None, :], w) / total[:, None]
            pair = pair - speed[:, :, None, None] * (second[:, :, None] * jnp.transpose(seen, (2, 0, 1)))[:, None]
            pair = pair / total[:, None, None, None]
            turning = head.kernel.beta.astype(u.dtype) * speed[:, :, None] * speed[:, None, :]
            each = each / total[:, None, None] - turning
        pairs, own = pairs + pair, own + each
    if live is not None:
        own = jnp.where(live[:, None, None], own, jnp.zeros_like(own))
    index = jnp.arange(n)
    whole = (pairs * w[None, None, :, None]).at[index, :, index, :].add(own).reshape(n * k, n * k)
    root = jnp.repeat(jnp.sqrt(metric), k)
    matrix = s * root[:, None] * whole / root[None, :]
    return TangentMatrix(matrix, root, mu.x, basis, None if d == 2 else du, not parts.normalised)
