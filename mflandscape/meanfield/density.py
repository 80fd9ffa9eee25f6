"""Probability densities on the circle by their moments, and ways to build them."""

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ..interactions import CircleFourier
from ..kernels import Exponential
from ..measure import Measure, empirical
from ..sphere import from_angle
from ..transport import CELLS, AbstractCircleDensity
from . import fourier


class Density(AbstractCircleDensity):
    """`rho(theta) = (1/2 pi) (M_0 + 2 sum_{k=1}^{K} Re(M_k e^{-ik theta}))`, `M_k = ∫ e^{ik theta} drho`, `M_0 = 1`.

    `moments (K + 1, 2)` hold the real and imaginary parts, k = 0..K; a leading axis makes it many densities (`at` takes
    one out).
    """

    moments: Float[Array, "*batch K 2"]

    @property
    def modes(self) -> int:
        """The highest mode K."""
        return self.moments.shape[-2] - 1

    def at(self, i: int) -> "Density":
        """One of many."""
        return Density(self.moments[i])

    def amplitude(self, k: int) -> Float[Array, "*batch"]:
        """`|M_k|`."""
        return jnp.hypot(self.moments[..., k, 0], self.moments[..., k, 1])

    def values(self, points: int) -> Float[Array, "*batch {points}"]:
        """Values at the angles `2 pi i / points`, in mass per radian.

        Raises:
            ValueError: fewer than `2 K + 1` points, on which the highest modes cannot be told apart.
        """
        if points < 2 * self.modes + 1:
            raise ValueError(f"{points} points for {self.modes} modes: expected at least {2 * self.modes + 1}")
        return fourier.values(self.moments, points) / (2 * jnp.pi)

    def resized(self, modes: int) -> "Density":
        """With so many modes: the rest cut off, or zeros added."""
        kept = self.moments[..., : modes + 1, :]
        wide = [(0, 0)] * (kept.ndim - 2) + [(0, modes + 1 - kept.shape[-2]), (0, 0)]
        return Density(jnp.pad(kept, wide))

    def rotated(self, angle: float) -> "Density":
        """Turned by an angle: `M_k e^{ik angle}`."""
        turn = jnp.asarray(angle, self.moments.dtype) * jnp.arange(self.modes + 1, dtype=self.moments.dtype)
        c, s = jnp.cos(turn), jnp.sin(turn)
        re, im = self.moments[..., 0], self.moments[..., 1]
        shape = (*(1,) * (re.ndim - 1), -1)
        c, s = c.reshape(shape), s.reshape(shape)
        return Density(jnp.stack([c * re - s * im, s * re + c * im], axis=-1))

    def cell_masses(self, cells: int) -> Float[np.ndarray, " {cells}"]:
        """Masses of equal arcs, each by the exact distribution function of the series: arc i begins at `2 pi
        i/cells`.
        """
        k = np.arange(self.modes + 1)
        pairs = np.asarray(self.moments, float)
        # The mass of an arc of length h around c: h sinc(k h/2) times the k-th term at c.
        series = (pairs[:, 0] - 1j * pairs[:, 1]) * np.sinc(k / cells) * np.exp(1j * np.pi * k / cells)
        aliased = np.zeros(cells, complex)  # modes above the grid's fold back on it: the values are still exact
        np.add.at(aliased, k % cells, np.where(k > 0, 2.0, 1.0) * series)
        return np.fft.ifft(aliased).real

    def quantiles(self, levels: Float[np.ndarray, " N"], cells: int = 4 * CELLS) -> Float[np.ndarray, " N"]:
        """Angles where the distribution function, from angle 0 on, reaches the levels; straight within `cells` arcs."""
        rises = np.concatenate([[0.0], np.cumsum(np.maximum(self.cell_masses(cells), 0.0))])
        return np.interp(levels, rises / rises[-1], np.linspace(0, 2 * np.pi, cells + 1))

    def sample(self, seed: int, n: int) -> Measure:
        """`n` independent points, by the quantiles of `np.random.default_rng(seed)`."""
        return self._carried(self.quantiles(np.random.default_rng(seed).random(n)))

    def lattice(self, n: int) -> Measure:
        """The `n` quantiles at `(i + 1/2)/n`: the closest measure of equal weights, but for the first order in 1/n."""
        return self._carried(self.quantiles((np.arange(n) + 0.5) / n))

    def _carried(self, theta: np.ndarray) -> Measure:
        return empirical(from_angle(jnp.asarray(theta, self.moments.dtype)))


def uniform_density(modes: int, dtype: DTypeLike | None = None) -> Density:
    """The uniform density `1/2 pi`, with room for so many modes.

    Raises:
        ValueError: modes < 1.
    """
    if modes < 1:
        raise ValueError(f"modes = {modes}: expected at least 1")
    return Density(jnp.zeros((modes + 1, 2), dtype).at[0, 0].set(1))


def cosine_density(modes: int, terms: Mapping[int, tuple[float, float]], dtype: DTypeLike | None = None) -> Density:
    """`(1 + sum_k eps_k cos(k theta + phi_k)) / 2 pi`, `terms = {k: (eps_k, phi_k)}`.

    Raises:
        ValueError: a k outside 1..modes, amplitudes of sum above 1 (the density might be negative).
    """
    pairs = np.zeros((modes + 1, 2))
    pairs[0, 0] = 1
    for k, (size, phase) in terms.items():
        if not 1 <= k <= modes:
            raise ValueError(f"k = {k}: expected a mode from 1 to modes = {modes}")
        pairs[k] = size / 2 * np.cos(phase), -size / 2 * np.sin(phase)
    if sum(abs(size) for size, _ in terms.values()) > 1:
        raise ValueError(f"amplitudes {[size for size, _ in terms.values()]}: expected a sum of at most 1")
    return density_of_moments(pairs, dtype)


def prepared_density(k: int, amplitude: float, noise: float, seed: int) -> Density:
    """`1 + amplitude cos(k theta)` plus relative noise, over `2 pi`: a random trigonometric polynomial of the modes
    1 to `2 k + 2`, all of one size and of random phases, whose root mean square is `noise`.

    Raises:
        ValueError: as `cosine_density`.
    """
    phases = np.random.default_rng(seed).uniform(0, 2 * np.pi, 2 * k + 2)
    size = noise * np.sqrt(2 / len(phases))
    waves = np.zeros(len(phases) + 1, complex)
    waves[1:] = size * np.exp(1j * phases)
    waves[k] += amplitude
    terms = {j: (float(np.abs(waves[j])), float(np.angle(waves[j]))) for j in range(1, len(waves))}
    return cosine_density(len(phases), terms)


def von_mises_density(modes: int, concentration: float, mean: float = 0.0, dtype: DTypeLike | None = None) -> Density:
    """`e^{kappa cos(theta - mean)} / (2 pi I_0(kappa))`: `M_k = e^{ik mean} I_k(kappa)/I_0(kappa)`.

    Raises:
        ValueError: a concentration that is negative or not finite.
    """
    if not 0 <= concentration < np.inf:
        raise ValueError(f"concentration = {concentration}: expected a finite number >= 0")
    kernel = Exponential(jnp.asarray(concentration, jnp.result_type(float) if dtype is None else dtype))
    series = kernel.cosine_series(modes, order=1)
    real = (series / series[0] / 2).at[0].set(1)
    return Density(jnp.stack([real, jnp.zeros_like(real)], axis=-1)).rotated(mean)


def density_of_moments(pairs: Float[np.ndarray, "K 2"], dtype: DTypeLike | None = None) -> Density:
    """The density of the moments `M_k`, real and imaginary parts, k = 0..K.

    Raises:
        ValueError: shape, entries that are not finite, `M_0` other than 1.
    """
    if pairs.ndim != 2 or pairs.shape[0] < 2 or pairs.shape[1] != 2 or not np.isfinite(pairs).all():
        raise ValueError(f"moments of shape {pairs.shape}: expected finite pairs (K + 1, 2), K >= 1")
    if abs(pairs[0, 0] - 1) > 1e-12 or pairs[0, 1] != 0:
        raise ValueError(f"M_0 = {pairs[0, 0]} + {pairs[0, 1]} i: expected 1, the mass")
    return Density(jnp.asarray(pairs, dtype).at[0, 0].set(1))


def density_of_measure(mu: Measure, modes: int, width: float = 0.0) -> Density:
    """The moments of particles up to a cutoff, damped by `e^{-k^2 width^2/2}`: the measure convolved with a Gaussian of
    that width in radians, which is what makes it a density.

    Raises:
        ValueError: points that are not on the circle, a negative width.
    """
    if mu.d != 2 or not width >= 0:
        raise ValueError(f"d = {mu.d}, width = {width}: expected points of the circle, d = 2, and a width >= 0")
    damping = np.exp(-((np.arange(modes + 1) * width) ** 2) / 2)
    return Density(measure_moments(mu, modes) * jnp.asarray(damping, mu.x.dtype)[:, None])


@eqx.filter_jit
def measure_moments(mu: Measure, modes: int) -> Float[Array, "K 2"]:
    """`M_k = sum_i w_i e^{ik theta_i}` of a measure on the circle, k = 0..modes, real and imaginary parts. O(N K)."""
    pairs = CircleFourier(modes).source(mu.x, mu.w[:, None])[..., 0]
    return pairs.at[0].set(jnp.asarray([1, 0], pairs.dtype))
