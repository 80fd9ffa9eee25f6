"""Functions on the sphere `S^2` in double Fourier series: `sum_{m,k} f_k(theta) (a_mk cos m phi + b_mk sin m phi)`,
`f_k = cos k theta` for even m and `sin k theta` for odd m.

Coefficients have axes `2 J 2 K`: parity of m, `j` with `m = 2 j + parity`, cosine and sine of `m phi`, and `k < K = 2
J`. A derivative turns cosines of theta into sines, and so does a division by `sin theta`, which is done on the
coefficients: nothing is ever divided at the poles.
"""

import abc
import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._numerics import matmul, safe_norm

Rows = Float[Array, "K n"]
Points = Float[Array, "n 3"]


class AbstractPoints(eqx.Module):
    """`n` points at which double Fourier series are summed, and their frames: `radius (n,)`, unit vectors `along (2, n,
    3)` (`e_theta`, `e_phi`).
    """

    radius: eqx.AbstractVar[Float[Array, " n"]]
    along: eqx.AbstractVar[Float[Array, "2 n 3"]]

    @abc.abstractmethod
    def synthesis(self, a: Float[Array, "h 2 J 2 K"], swap: bool = False) -> Float[Array, "h n"]:
        """Values of `h` series; with `swap` those of sines in theta for even m and cosines for odd m."""

    @abc.abstractmethod
    def analysis(self, q: Float[Array, "h n"], swap: bool = False) -> Float[Array, "h 2 J 2 K"]:
        """The transpose of `synthesis`: sums over the points of charges times functions."""


class Basis(AbstractPoints):
    """Points with a table of their trigonometric functions; `out (n, 3)` are the unit vectors to them.

    Points are turned first, so that no coordinate axis is a pole; at a pole itself `phi = 0`.
    """

    colatitude: tuple[Rows, Rows]  # cos k theta, sin k theta
    longitude: tuple[Rows, Rows]  # rows cos m phi, sin m phi in turn: even m, odd m
    radius: Float[Array, " n"]
    out: Points
    along: Float[Array, "2 n 3"]

    def synthesis(self, a: Float[Array, "h 2 J 2 K"], swap: bool = False) -> Float[Array, "h n"]:
        """Values of `h` series, in matrix products. Cost O(h n K^2)."""
        h, _, _, _, k = a.shape
        tables = self.colatitude[::-1] if swap else self.colatitude
        total = jnp.zeros((), a.dtype)
        for part, theta, phi in zip((0, 1), tables, self.longitude, strict=True):
            rows = matmul(a[:, part].reshape(-1, k), theta).reshape(h, k, -1)
            total = total + jnp.sum(rows * phi[None], axis=1)
        return total

    def analysis(self, q: Float[Array, "h n"], swap: bool = False) -> Float[Array, "h 2 J 2 K"]:
        """Sums over the points, in matrix products. Cost O(h n K^2)."""
        tables = self.colatitude[::-1] if swap else self.colatitude
        k = tables[0].shape[0]
        parts = []
        for theta, phi in zip(tables, self.longitude, strict=True):
            rows = (q[:, None] * phi[None]).reshape(-1, phi.shape[1])
            parts.append(matmul(rows, theta.T).reshape(-1, k // 2, 2, k))
        return jnp.stack(parts, axis=1)


def basis(x: Points, size: int) -> Basis:
    """The basis at the directions of points `x`, with `J = size`. Cost and memory O(n size)."""
    radius = safe_norm(x)
    radius = jnp.where(radius > 0, radius, jnp.ones_like(radius))
    out = x / radius[:, None]
    turn = jnp.asarray(_TURN, x.dtype)
    u, v, cos_t = matmul(turn, out.T)
    sin_t = safe_norm(jnp.stack([u, v], axis=-1))
    pole = sin_t == 0
    safe = jnp.where(pole, jnp.ones_like(sin_t), sin_t)
    cos_p, sin_p = jnp.where(pole, jnp.ones_like(u), u / safe), v / safe
    e_theta = jnp.stack([cos_t * cos_p, cos_t * sin_p, -sin_t], axis=-1)
    e_phi = jnp.stack([-sin_p, cos_p, jnp.zeros_like(u)], axis=-1)
    longitudes = _powers(cos_p, sin_p, size)
    colatitudes = jnp.swapaxes(_powers(cos_t, sin_t, size), 0, 2)
    along = jnp.stack([matmul(e_theta, turn), matmul(e_phi, turn)])
    (cosines, sines), (evens, odds) = (part.reshape(2, 2 * size, -1) for part in (colatitudes, longitudes))
    return Basis(colatitude=(cosines, sines), longitude=(evens, odds), radius=radius, out=out, along=along)


def gradient(a: Float[Array, "c 2 J 2 K"]) -> Float[Array, "c 2 2 J 2 K"]:
    """Coefficients (swapped) of the components along `e_theta` and `e_phi` of the gradient: `df/dtheta`, `df/dphi / sin
    theta`.
    """
    k = a.shape[-1]
    rise = jnp.asarray(np.arange(k) * np.array([[-1], [1]]), a.dtype)[None, :, None, None]
    over = _per_parity(*(_over_sine(k, odd)[:, :k] for odd in (False, True)), dtype=a.dtype)
    return jnp.stack([rise * a, _contract(_turned(a), over)], axis=1)


def hessian(a: Float[Array, "c 2 J 2 K"]) -> Float[Array, "c 3 2 J 2 K"]:
    """Coefficients of the components theta theta, theta phi, phi phi of the covariant second derivative: those of
    `d2f/dtheta2`, `d/dtheta (df/dphi / sin theta)`, `(d2f/dphi2 / sin theta + cos theta df/dtheta) / sin theta`.
    """
    k = a.shape[-1]
    first = gradient(a)
    fall = jnp.asarray(np.arange(k) * np.array([[1], [-1]]), a.dtype)[None, :, None, None]
    swapped = _over_sine(k + 1, True)[:, :k], _over_sine(k + 1, False)[:, :k]  # a gradient's series are the other kind
    over = _per_parity(*(m[:k] for m in swapped), dtype=a.dtype)
    cosine_over = _per_parity(*(_times_cosine(k) @ m for m in swapped), dtype=a.dtype)
    last = _contract(_turned(first[:, 1]), over) + _contract(first[:, 0], cosine_over)
    return jnp.stack([fall * first[:, 0], fall * first[:, 1], last], axis=1)


def legendre_table(size: int, dtype: np.dtype) -> Float[Array, "2 J 2 J J"]:
    """Coefficients of `((l - m)!/(l + m)!)^{1/2} P_l^m(cos theta)`, l < 2 size: parity of m, j, parity of l, l, k (of
    l's parity, which is that of the function under `theta -> pi - theta`).

    Values at `theta_i` by the recurrence upwards in l, which keeps relative accuracy at each angle, then a discrete
    transform, exact for these degrees. Cost O(size^4), memory O(size^3): at degrees 64 and 273, 1.2 and 82 MB.
    """
    k = 2 * size
    theta = jnp.asarray((np.arange(size) + 0.5) * (np.pi / k), dtype)
    m = np.arange(k)
    halves = jnp.asarray(np.sqrt((2 * m[1:] - 1) / (2 * m[1:])), dtype)[:, None] * jnp.sin(theta)[None]
    diagonal = jnp.cumprod(jnp.concatenate([jnp.ones_like(halves[:1]), halves]), axis=0)
    cosine, orders = jnp.cos(theta)[None], jnp.asarray(m, dtype)[:, None]

    def rise(carry: tuple[Array, Array], degree: Array):
        one, two = carry
        square = degree * degree - orders * orders
        scale = jax.lax.rsqrt(jnp.where(square > 0, square, jnp.ones_like(square)))
        back = jnp.sqrt(jnp.maximum((degree - 1) ** 2 - orders * orders, jnp.zeros_like(square)))
        up = ((2 * degree - 1) * cosine * one - back * two) * scale
        values = jnp.where(square > 0, up, jnp.where(square == 0, diagonal, jnp.zeros_like(up)))
        return (values, one), values

    nothing = jnp.zeros_like(diagonal)
    values = jax.lax.scan(rise, (nothing, nothing), orders[:, 0])[1]  # l, m, i
    values = values.reshape(size, 2, size, 2, size)
    weights = np.where(np.arange(k) == 0, 2, 4)[:, None] / k
    angles = np.arange(k)[:, None] * (np.arange(size) + 0.5) * (np.pi / k)
    waves = np.stack([np.cos(angles) * weights, np.sin(angles) * weights]).reshape(2, size, 2, size)
    table = jnp.einsum("lpjai,akpi->ajplk", values, jnp.asarray(waves, dtype), precision="highest")
    return jnp.tril(table)  # k <= l: rounding there would be noise that derivatives multiply by k


def zonal(
    table: Float[Array, "2 J 2 J J"], series: Float[Array, " K"], moments: Float[Array, "c 2 J 2 K"]
) -> Float[Array, "c 2 J 2 K"]:
    """Coefficients in x of `sum_l series_l P_l(<x, y>)` from moments in y, by the addition theorem. Cost O(c J K^2)."""
    j = table.shape[1]
    twice = jnp.asarray(np.where(np.arange(2 * j) == 0, 1, 2).reshape(j, 2).T, moments.dtype)
    factor = jnp.einsum("aj,lp->ajpl", twice, series.reshape(j, 2))
    split = moments.reshape(*moments.shape[:-1], j, 2)
    degrees = jnp.einsum("ajplk,cajskp->cajspl", table, split, precision="highest")
    degrees = degrees * factor[None, :, :, None]
    return jnp.einsum("ajplk,cajspl->cajskp", table, degrees, precision="highest").reshape(moments.shape)


def _turn() -> np.ndarray:
    """A rotation by angles of no meaning: points that somebody wrote down are then not at a pole."""
    (c, e), (s, f) = np.cos([0.7390851, 1.9021605]), np.sin([0.7390851, 1.9021605])
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ np.array([[1, 0, 0], [0, e, -f], [0, f, e]])


_TURN = _turn()


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _powers(cosine: Float[Array, " n"], sine: Float[Array, " n"], size: int) -> Float[Array, "2 J 2 n"]:
    """Powers of `z = cosine + i sine`: even and odd, `J = size` of each, real and imaginary parts.

    As products of two short lists, `z^(2a + p)` and `z^(2ab)`: every entry is one multiplication away from them, which
    a compiler makes where it is needed.
    """
    near = _divisor(size)
    square = _times((cosine, sine), (cosine, sine))
    low, top = _chain(square, near)
    high = _chain(top, -(-size // near))[0]
    odd = _times(low, (cosine[None], sine[None]))
    real, imaginary = (jnp.stack(parts) for parts in zip(low, odd, strict=True))  # p, a, n
    one, two = jnp.stack([real, imaginary], axis=2), jnp.stack([-imaginary, real], axis=2)
    steps = (part[None, :, None, None] for part in high)
    found = next(steps) * one[:, None] + next(steps) * two[:, None]  # p, b, a, s, n
    return found.reshape(2, -1, 2, found.shape[-1])[:, :size]


@_powers.defjvp
def _powers_jvp(size, primals, tangents):
    """`i k z^k` times the change of the angle."""
    (cosine, sine), (dcosine, dsine) = primals, tangents
    angle = cosine * dsine - sine * dcosine
    powers = _powers(cosine, sine, size)
    k = jnp.asarray(np.arange(2 * size).reshape(size, 2).T, angle.dtype)[:, :, None, None]
    return powers, jnp.stack([-powers[:, :, 1], powers[:, :, 0]], axis=2) * (k * angle[None, None, None])


def _chain(z: tuple[Array, Array], count: int) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Powers 0 to `count - 1`, each the product of two of half its order, as rows `(count, n)`; and the next."""
    powers = [(jnp.ones_like(z[0]), jnp.zeros_like(z[0])), z]
    for k in range(2, count + 1):
        powers.append(_times(powers[k // 2], powers[k - k // 2]))
    real, imaginary = zip(*powers[:count], strict=True)
    return (jnp.stack(real), jnp.stack(imaginary)), powers[count]


def _divisor(size: int) -> int:
    """The largest divisor up to the square root rounded up; the latter itself where only small ones divide."""
    most = math.isqrt(size - 1) + 1
    return next((b for b in range(most, most // 2, -1) if size % b == 0), most)


def _times(z: tuple[Array, Array], w: tuple[Array, Array]) -> tuple[Array, Array]:
    return z[0] * w[0] - z[1] * w[1], z[0] * w[1] + z[1] * w[0]


def _turned(a: Float[Array, "c 2 J 2 K"]) -> Float[Array, "c 2 J 2 K"]:
    """Coefficients of `d/dphi`: `m b cos m phi - m a sin m phi`."""
    m = jnp.asarray(np.arange(2 * a.shape[2]).reshape(-1, 2).T, a.dtype)[None, :, :, None]
    return jnp.stack([m * a[..., 1, :], -m * a[..., 0, :]], axis=-2)


def _contract(a: Float[Array, "c 2 J 2 K"], matrices: Float[Array, "2 K K"]) -> Float[Array, "c 2 J 2 K"]:
    return jnp.einsum("cajsk,akl->cajsl", a, matrices, precision="highest")


def _per_parity(even: np.ndarray, odd: np.ndarray, dtype: np.dtype) -> Float[Array, "2 K K"]:
    return jnp.asarray(np.stack([even, odd]), dtype)


@functools.cache
def _over_sine(k: int, sines: bool) -> np.ndarray:
    """Matrix (old k, new k) that divides by `sin theta`: sums of `sin k theta` become sums of cosines, sums of `cos k
    theta` that vanish at the poles become sums of sines.

    From `2 sin t sin jt = cos (j-1)t - cos (j+1)t`, `2 sin t cos jt = sin (j+1)t - sin (j-1)t`, from the top downwards.
    """
    old, kept = np.arange(k)[:, None], np.arange(k)[None, :]
    later = np.where((old > kept) & ((old - kept) % 2 == 1), 2.0, 0.0)
    later[:, 0] *= 0.5 if sines else 0.0
    return later if sines else -later


def _times_cosine(k: int) -> np.ndarray:
    """Matrix (old k, new k) that multiplies a sum of cosines, or of sines, by `cos theta`."""
    product = np.zeros((k, k + 1))
    product[np.arange(k), np.arange(k) + 1] += 0.5
    product[np.arange(k), np.abs(np.arange(k) - 1)] += 0.5
    return product
