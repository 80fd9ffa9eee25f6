"""The spectrum of the Wasserstein Hessian at a measure: all of it for few points, the lowest part for clouds."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .. import sphere
from .._numerics import safe_sqrt
from .._types import Direction
from ..drifts import AbstractDrift, AbstractEnergy, Attention, EnergySum, Perceptron, check, prepare
from ..gradient import hessian_vector_product, residual, sign
from ..measure import Measure
from .coordinates import ambient, components, wasserstein_hessian
from .null_space import NullSpace, explain

STATIONARY = 1e-6  # a residual up to this is called stationary
_DENSE = 2000  # unknowns up to which the whole matrix is taken: some seconds
_DENSE_GENERAL = 1000  # the same without symmetry, where it takes ten times as long
_AT_ONCE = 64  # columns of a matrix computed together
_FEW = 16  # eigenvalues that Lanczos looks for
_SHOWN = 6  # eigenvectors that are kept
_LANCZOS_TOL = 1e-11
_LANCZOS_TURNS = 100


class Pairs(NamedTuple):
    """Eigenvalues in increasing order, their eigenvectors as columns, and whether all of them converged."""

    values: np.ndarray
    vectors: np.ndarray
    converged: bool


class AbstractHessian(eqx.Module):
    """`H = -s W^{1/2} J W^{-1/2}` at points with mass, s = +1 for ascent: positive = stable. `n = N (d-1)` unknowns.

    `J` is the covariant derivative of the gradient field (`coordinates.jacobian`). Symmetric for an energy; else the
    eigenvalues are those of `(H + H^T)/2`.
    """

    @abc.abstractmethod
    def apply(self, z: Float[np.ndarray, "n c"]) -> Float[np.ndarray, "n c"]:
        """`H z`, column by column."""

    @abc.abstractmethod
    def smallest(self, count: int) -> Pairs:
        """The smallest eigenvalues of the symmetric part, `count` of them or all."""

    @abc.abstractmethod
    def plus(self, blocks: Float[Array, "N k k"]) -> "AbstractHessian":
        """The Hessian with a block added for each point, k = d - 1."""

    @abc.abstractmethod
    def size(self) -> float:
        """Largest absolute value of an eigenvalue of the symmetric part."""


class Spectrum(eqx.Module):
    """What `hessian_spectrum` found; an eigenvalue is stable if positive, for descent and ascent alike.

    Attributes:
        eigenvalues: in increasing order: all of them (dense), or the smallest ones (Lanczos).
        eigenvectors: `(V, N, d)`, tangent vectors of the smallest few, of length 1 in the metric `sum_i w_i |xi_i|^2`.
        scale: largest absolute value of an eigenvalue.
        cutoff: an eigenvalue of at most this absolute value counts as 0.
        residual: `max_i |P grad U(x_i)|` over points with mass.
        null: dimension of the null space, and what it consists of.
        method: `"dense"` or `"lanczos"`.
        converged: whether all eigenvalues that were asked for converged; those given have.
        symmetric: whether the Hessian is that of an energy.
        asymmetry: `|H - H^T| / |H|` in the Frobenius norm; nan if not dense.
        smallest_real_part: of the eigenvalues of `H` itself; nan if neither symmetric nor dense.
        massless: points without mass, left out.
    """

    eigenvalues: Float[Array, " K"]
    eigenvectors: Float[Array, "V N d"]
    scale: float
    cutoff: float
    residual: float
    null: NullSpace
    method: str = eqx.field(static=True)
    converged: bool
    symmetric: bool
    asymmetry: float
    smallest_real_part: float
    massless: int


def hessian_spectrum(
    drift: AbstractDrift,
    mu: Measure,
    *,
    direction: Direction = "descent",
    number: int | None = None,
    tol: float = 1e-9,
) -> Spectrum:
    """Spectrum of the Wasserstein Hessian of `E` (descent) or `-E` (ascent) in the metric `sum_i w_i |xi_i|^2`.

    Up to 2000 unknowns `N (d-1)` (1000 without an energy) all eigenvalues, O(n) velocities and O(n^3); above, or with
    `number` given, the smallest ones by Lanczos, some hundred velocities. Lanczos may miss copies of a multiple
    eigenvalue, so the null dimension it gives is a lower bound (`null.complete` is False). An eigenvalue counts as 0
    up to `tol` of the largest, or up to the residual (as long as that is below 1e-6 of the largest): closer to the
    critical point nothing can be told. [MATH, section 6]

    Softmax attention and free output vectors have no energy and no symmetric Hessian. The symmetric part tells how
    fast the length of a perturbation in this metric can change at first: all eigenvalues positive means that every
    perturbation shrinks from the start, a negative one that some grow for a while. Whether they grow for ever is told
    by `smallest_real_part` alone. Eigenvectors are those of the symmetric part, the null space that of `H`.

    Raises:
        ValueError: an unknown direction, points not finite or of a wrong dimension, `number` below 1, `tol` negative.
    """
    if not 0 <= tol < 1:
        raise ValueError(f"tol = {tol}: expected a share of the largest eigenvalue, 0 <= tol < 1")
    kept, nu = with_mass(mu)
    return spectrum(hessian(drift, nu, direction, number), drift, mu, kept, number=number, tol=tol)


def with_mass(mu: Measure) -> tuple[Bool[np.ndarray, " N"], Measure]:
    """Which points have mass, and the measure of these alone.

    Raises:
        ValueError: points not finite.
    """
    if not np.isfinite(np.asarray(mu.x)).all():
        raise ValueError("points that are not finite; expected a finite measure: look at the result code of the run")
    kept = np.asarray(mu.w) > 0
    return kept, Measure(jnp.asarray(np.asarray(mu.x)[kept]), jnp.asarray(np.asarray(mu.w)[kept]))


def hessian(
    drift: AbstractDrift, mu: Measure, direction: Direction = "descent", number: int | None = None
) -> AbstractHessian:
    """The Hessian at a measure whose points all have mass: a matrix, or a product if it is large or `number` is given.

    Raises:
        ValueError: an unknown direction, points of a dimension that the drift is not made for, `number` below 1.
    """
    if number is not None and number < 1:
        raise ValueError(f"number = {number}: expected at least one eigenvalue, or None for the default")
    check(drift, mu.d)
    s, symmetric, n = -sign(direction), isinstance(drift, AbstractEnergy), mu.n * (mu.d - 1)
    limit = _DENSE if symmetric else _DENSE_GENERAL
    if n <= limit and (number is None or number > n - 3):
        return DenseHessian(s * np.asarray(_matrix(drift, mu), np.float64), symmetric)
    blocks = jnp.zeros((mu.n, mu.d - 1, mu.d - 1), mu.x.dtype)
    return LanczosHessian(prepare(drift), mu, jnp.asarray(float(s), mu.x.dtype), blocks, symmetric)


def spectrum(
    operator: AbstractHessian,
    drift: AbstractDrift,
    mu: Measure,
    kept: Bool[np.ndarray, " N"],
    *,
    number: int | None = None,
    tol: float = 1e-9,
) -> Spectrum:
    """`hessian_spectrum` for the Hessian `operator` of the points of `mu` that are `kept`."""
    nu = mu if kept.all() else Measure(mu.x[kept], mu.w[kept])
    dense = isinstance(operator, DenseHessian)
    found = operator.smallest(number or _FEW)
    scale = float(np.max(np.abs(found.values))) if dense else operator.size()
    speed = float(_residual(drift, nu))
    least = max(tol, 64 * float(jnp.finfo(mu.x.dtype).eps)) * scale
    cutoff = max(least, min(speed, STATIONARY * scale))
    symmetric = isinstance(drift, AbstractEnergy)
    real = float(found.values[0]) if symmetric else float("nan")
    if dense and not symmetric:
        real = float(np.min(np.linalg.eigvals(operator.matrix).real))
    return Spectrum(
        jnp.asarray(found.values, mu.x.dtype),
        _tangent_vectors(mu, kept, found.vectors[:, :_SHOWN]),
        scale,
        cutoff,
        speed,
        explain(operator.apply, null_vectors(operator, found, cutoff), drift, nu, cutoff, complete=dense),
        "dense" if dense else "lanczos",
        found.converged,
        symmetric,
        operator.asymmetry() if isinstance(operator, DenseHessian) else float("nan"),
        real,
        int(np.sum(~kept)),
    )


def null_vectors(operator: AbstractHessian, found: Pairs, cutoff: float) -> Float[np.ndarray, "n K"]:
    """An orthonormal basis of what was found of the null space of `H`, as columns."""
    if isinstance(operator, DenseHessian) and not operator.symmetric:
        _, values, rows = np.linalg.svd(operator.matrix)
        return rows[values <= cutoff].T
    vectors = found.vectors[:, np.abs(found.values) <= cutoff]
    return vectors[:, np.linalg.norm(operator.apply(vectors), axis=0) <= 2 * cutoff]


class DenseHessian(AbstractHessian):
    """The matrix itself."""

    matrix: Float[np.ndarray, "n n"]
    symmetric: bool = eqx.field(static=True)

    def apply(self, z: Float[np.ndarray, "n c"]) -> Float[np.ndarray, "n c"]:
        """`H z`."""
        return self.matrix @ z

    def smallest(self, count: int) -> Pairs:
        """All eigenvalues of the symmetric part."""
        values, vectors = np.linalg.eigh((self.matrix + self.matrix.T) / 2)
        return Pairs(values, vectors, True)

    def plus(self, blocks: Float[Array, "N k k"]) -> "DenseHessian":
        """The matrix with the blocks added on its diagonal."""
        count, k, _ = blocks.shape
        matrix = self.matrix.reshape(count, k, count, k).copy()
        each = np.arange(count)
        matrix[each, :, each, :] += np.asarray(blocks, np.float64)
        return DenseHessian(matrix.reshape(self.matrix.shape), self.symmetric)

    def size(self) -> float:
        """Largest absolute value of an eigenvalue of the symmetric part."""
        return float(np.max(np.abs(self.smallest(1).values)))

    def asymmetry(self) -> float:
        """`|H - H^T| / |H|`, 0 for H = 0."""
        norm = float(np.linalg.norm(self.matrix))
        return float(np.linalg.norm(self.matrix - self.matrix.T)) / norm if norm > 0 else 0.0


class LanczosHessian(AbstractHessian):
    """The Hessian by its products, each a few velocities."""

    drift: AbstractDrift
    mu: Measure
    s: Float[Array, ""]
    blocks: Float[Array, "N k k"]
    symmetric: bool = eqx.field(static=True)

    def apply(self, z: Float[np.ndarray, "n c"]) -> Float[np.ndarray, "n c"]:
        """`H z`, one column after the other."""
        columns = [np.asarray(_product(self, jnp.asarray(v, self.mu.x.dtype))) for v in z.T]
        return np.stack(columns, axis=1).astype(np.float64) if columns else np.zeros_like(z)

    def smallest(self, count: int) -> Pairs:
        """By ARPACK on `size - H`, so that the tolerance is relative to the largest eigenvalue."""
        top = self.size()
        values, vectors, converged = self._lanczos(lambda z: top * z - self._symmetric(z), count, "LA", _LANCZOS_TOL)
        order = np.argsort(top - values)
        return Pairs((top - values)[order], vectors[:, order], converged)

    def plus(self, blocks: Float[Array, "N k k"]) -> "LanczosHessian":
        """The same products with the blocks' added."""
        return eqx.tree_at(lambda h: h.blocks, self, self.blocks + blocks)

    def size(self) -> float:
        """Largest absolute value of an eigenvalue, to 1e-4."""
        return float(np.max(np.abs(self._lanczos(self._symmetric, 1, "LM", 1e-4)[0])))

    def _symmetric(self, z: np.ndarray) -> np.ndarray:
        product = _product if self.symmetric else _symmetric_product
        return np.asarray(product(self, jnp.asarray(z.reshape(-1), self.mu.x.dtype)), np.float64)

    def _lanczos(self, product, count: int, which: str, tol: float) -> tuple[np.ndarray, np.ndarray, bool]:
        """What converged; if nothing did, the best vectors of a block method."""
        from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

        n = self.mu.n * (self.mu.d - 1)
        options: dict[str, Any] = {"k": count, "which": which, "tol": tol, "maxiter": _LANCZOS_TURNS}
        operator = LinearOperator((n, n), matvec=product, dtype=np.float64)  # pyright: ignore[reportCallIssue]
        start = np.random.default_rng(0).standard_normal(n)
        basis = min(n, max(2 * count + 1, 40))
        try:
            values, vectors = eigsh(operator, v0=start, ncv=basis, **options)
            return values, vectors, True
        except ArpackNoConvergence as error:
            if error.eigenvalues.size:
                return error.eigenvalues, error.eigenvectors, False
        # Rayleigh quotients of what a power of the operator leaves: never beyond the true extreme eigenvalues.
        block = np.random.default_rng(1).standard_normal((n, count))
        for _ in range(_LANCZOS_TURNS):
            block = np.linalg.qr(np.stack([product(v) for v in block.T], axis=1))[0]
        values, turn = np.linalg.eigh(block.T @ np.stack([product(v) for v in block.T], axis=1))
        return values, block @ turn, False


@eqx.filter_jit
def _matrix(drift: AbstractDrift, mu: Measure) -> Array:
    """`W^{1/2} J W^{-1/2}`; by pairs where the field is linear in the measure, O(N^2 d^2) instead of O(N^3 d)."""
    ready = prepare(drift)
    terms = drift.terms if isinstance(drift, EnergySum) else (drift,)
    if not all(isinstance(term, Attention | Perceptron) for term in terms):
        return wasserstein_hessian(ready, mu)
    n, k, root = mu.n, mu.d - 1, jnp.repeat(safe_sqrt(mu.w), mu.d - 1)
    pairs = _pair_derivatives(ready, mu.x) * root[:, None] * root[None, :]
    each = jnp.arange(n)
    return pairs.reshape(n, k, n, k).at[each, :, each, :].add(field_derivative(ready, mu)).reshape(n * k, n * k)


def _pair_derivatives(drift: AbstractDrift, x: Array) -> Array:
    """How the field at every point changes as one source of mass 1 moves, in coordinates: column (j, k)."""
    n, k = x.shape[0], x.shape[1] - 1

    def column(source: tuple[Array, Array]) -> Array:
        def field(y: Array) -> Array:
            return drift.field(x, Measure(y[None, :], jnp.ones(1, x.dtype)))

        return components(x, jax.jvp(field, (source[0],), (source[1],))[1]).reshape(-1)

    sources = jnp.repeat(x, k, axis=0), sphere.tangent_basis(x).reshape(n * k, -1)
    return jax.lax.map(column, sources, batch_size=min(_AT_ONCE, n * k)).T


def field_derivative(drift: AbstractDrift, mu: Measure) -> Float[Array, "N k k"]:
    """Covariant derivative of the field at the points, the measure held fixed; of a potential its Hessian; k = d-1."""

    def slope(x: Array) -> Array:
        return sphere.tangent(x, drift.field(x, mu))

    def column(e: Array) -> Array:
        return components(mu.x, sphere.tangent(mu.x, jax.jvp(slope, (mu.x,), (e,))[1]))

    columns = jax.lax.map(column, jnp.moveaxis(sphere.tangent_basis(mu.x), 1, 0))
    return jnp.moveaxis(columns, 0, 2)


@eqx.filter_jit
def _residual(drift: AbstractDrift, mu: Measure) -> Array:
    return residual(drift, mu)[0]


@eqx.filter_jit
def _product(operator: LanczosHessian, z: Array) -> Array:
    return _raw_product(operator, z)


@eqx.filter_jit
def _symmetric_product(operator: LanczosHessian, z: Array) -> Array:
    transposed = jax.vjp(lambda v: _raw_product(operator, v), jnp.zeros_like(z))[1]
    return (_raw_product(operator, z) + transposed(z)[0]) / 2


def _raw_product(operator: LanczosHessian, z: Array) -> Array:
    mu = operator.mu
    root = safe_sqrt(mu.w)[:, None]
    z = z.reshape(mu.n, mu.d - 1)
    moved = hessian_vector_product(operator.drift, mu, ambient(mu.x, z / root))
    blocks = jnp.sum(operator.blocks * z[:, None, :], axis=2)
    return (operator.s * root * components(mu.x, moved) + blocks).reshape(-1)


def _tangent_vectors(mu: Measure, kept: np.ndarray, columns: np.ndarray) -> Array:
    """Eigenvectors as tangent vectors at all points, 0 at those without mass."""
    count = columns.shape[1]
    basis = np.asarray(sphere.tangent_basis(mu.x), np.float64)[kept]
    root = np.sqrt(np.asarray(mu.w, np.float64)[kept])
    inside = columns.T.reshape(count, len(root), mu.d - 1) / root[:, None]
    out = np.zeros((count, mu.n, mu.d))
    out[:, kept] = np.einsum("vnk,nkd->vnd", inside, basis)
    return jnp.asarray(out, mu.x.dtype)
