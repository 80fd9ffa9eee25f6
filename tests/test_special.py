import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ive

from mflandscape.special import fourier_modes, scaled_bessel, scaled_bessel_host, series_tails, series_tolerance

BETAS = [0.0, 1e-6, 0.1, 1.0, 5.0, 50.0, 1e3, 1e4, 1e5]
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
# MATH.md, section 4: beta -> terms for a tail below 1e-16 and 1e-8 of the largest
TABLE = {
    0.1: (9, 6),
    1.0: (16, 10),
    5.0: (26, 17),
    10.0: (34, 23),
    50.0: (67, 47),
    100.0: (92, 66),
    1e3: (286, 211),
    1e4: (912, 680),
}
betas = pytest.mark.parametrize("beta", BETAS)
both = pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])


@functools.cache
def computed(beta, dtype):
    """Values, values over beta, and the first and second derivatives of the values in beta."""
    f = functools.partial(scaled_bessel, orders=fourier_modes(beta, dtype))
    slope = lambda b: jax.jvp(lambda c: f(c)[0], (b,), (jnp.ones_like(b),))[1]  # noqa: E731
    curvature = lambda b: jax.jvp(slope, (b,), (jnp.ones_like(b),))[1]  # noqa: E731
    return jax.jit(lambda b: (*f(b), slope(b), curvature(b)))(jnp.asarray(beta, dtype))


def coefficients(beta, fn, count):
    """`1/2pi int fn(beta, u) cos(k t) dt`, `u = cos t - 1`, by the trapezoidal rule (exact to rounding here)."""
    t = np.arange(16384) * (2 * np.pi / 16384)
    return np.fft.rfft(fn(beta, -2 * np.sin(t / 2) ** 2)).real[:count] / len(t)


INTEGRANDS = [
    lambda beta, u: np.exp(beta * u),
    lambda beta, u: np.expm1(beta * u) / beta if beta > 0 else u,
    lambda beta, u: u * np.exp(beta * u),
    lambda beta, u: u * u * np.exp(beta * u),
]


@betas
@both
@pytest.mark.parametrize("which", range(4), ids=["value", "over_beta", "derivative", "second_derivative"])
def test_all_are_fourier_coefficients_of_the_kernel(beta, dtype, which):
    got = computed(beta, dtype)[which]
    expected = coefficients(beta, INTEGRANDS[which], len(got))
    assert got.dtype == dtype
    tolerance = (3e-14 if dtype == F64 else 3e-6) * max(1, beta / 1e4)  # K rounded ratios multiply
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * abs(expected).max())


@betas
def test_values_are_scipys(beta):
    values = computed(beta, F64)[0]
    atol = 1e-14 if beta <= 1e4 else 1e-13  # SciPy itself is noisy at 1e5
    np.testing.assert_allclose(values, ive(np.arange(len(values)), beta), rtol=0, atol=atol * ive(0, beta))


@pytest.mark.parametrize("beta", BETAS[1:])
def test_small_values_keep_their_relative_accuracy(beta):
    values = computed(beta, F64)[0]
    np.testing.assert_allclose(values, ive(np.arange(len(values)), beta), rtol=1e-10)


@betas
def test_derivative_in_beta_is_the_recurrence(beta):
    """`ive'_k = (ive_{k-1} + ive_{k+1})/2 - ive_k`."""
    slope = computed(beta, F64)[2]
    k = np.arange(len(slope))
    expected = (ive(np.abs(k - 1), beta) + ive(k + 1, beta)) / 2 - ive(k, beta)
    np.testing.assert_allclose(slope, expected, rtol=0, atol=(1e-14 if beta < 1e4 else 2e-13) * ive(0, beta))


@pytest.mark.parametrize("beta", [0.0, 5.0, 1e3])
def test_reverse_mode_is_forward_mode(beta):
    f = lambda b: jnp.sum(scaled_bessel(b, 30)[0] * jnp.cos(jnp.arange(31.0)))  # noqa: E731
    b = jnp.asarray(beta)
    np.testing.assert_allclose(jax.grad(f)(b), jax.jacfwd(f)(b), rtol=1e-12, atol=1e-16)


@betas
def test_the_host_computes_the_same(beta):
    count = int(12 * np.sqrt(beta) + 41)
    expected = coefficients(beta, INTEGRANDS[0], count)
    np.testing.assert_allclose(
        scaled_bessel_host(beta, count - 1), expected, rtol=0, atol=3e-14 * max(1, beta / 1e4) * expected.max()
    )


@pytest.mark.parametrize("beta", TABLE)
@both
def test_number_of_modes_is_the_table_of_the_mathematics(beta, dtype):
    """The table counts the kernel's terms; velocities weigh mode k by k, which takes at most two or 1.1% more."""
    listed = TABLE[beta][0 if dtype == F64 else 1]
    assert listed <= fourier_modes(beta, dtype) <= 1.011 * listed + 1


@betas
@both
def test_modes_are_the_fewest_that_make_the_tail_rounding(beta, dtype):
    """One more than the tail asks for is kept, for derivatives in beta."""
    modes, tails = fourier_modes(beta, dtype), series_tails(beta, int(12 * np.sqrt(beta) + 40))
    assert tails[modes - 1] < series_tolerance(dtype)
    assert modes == 1 or tails[modes - 2] >= series_tolerance(dtype)


def test_more_orders_do_not_change_the_first():
    few, many = scaled_bessel(jnp.asarray(50.0), 67)[0], scaled_bessel(jnp.asarray(50.0), 300)[0]
    np.testing.assert_allclose(few, many[:68], rtol=1e-13)
