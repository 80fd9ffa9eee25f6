import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape import Attention, Perceptron, SoftmaxAttention
from mflandscape.meanfield import Density, cosine_density, grenier, solve_pde, uniform_density
from mflandscape.theory import growth_rates, k_max

BETA, MODES, ORDER = 5.0, 64, 4
K = k_max(BETA)
DELTAS = (8e-3, 4e-3, 2e-3)


def waves(delta):
    """Two modes of different phase, the dominant one and its neighbour."""
    return cosine_density(MODES, {K: (delta, 0.4), K + 1: (delta / 2, 2.0)})


def test_two_orders_in_closed_form():
    gamma = growth_rates(BETA, 2, range(2 * K + 1))
    times = np.linspace(0, 4, 5) / gamma[K]
    start = cosine_density(MODES, {K: (1e-3, 0.0)})
    terms = np.asarray(grenier(Attention(BETA), start, times, ORDER).terms)
    first = 5e-4 * np.exp(gamma[K] * times)
    np.testing.assert_allclose(terms[0, :, K, 0], first, rtol=1e-10)
    # dm_2k/dt = gamma_2k m_2k + 2 gamma_k m_k^2
    forced = np.exp(2 * gamma[K] * times) - np.exp(gamma[2 * K] * times)
    second = 2 * gamma[K] * 5e-4**2 * forced / (2 * gamma[K] - gamma[2 * K])
    np.testing.assert_allclose(terms[1, :, 2 * K, 0], second, rtol=1e-9)
    # Order n has the modes 0, .., n K of the parity of n; the mass stays.
    for n in range(1, ORDER + 1):
        present = np.abs(terms[n - 1, -1]).max(axis=-1) > 1e-12 * np.abs(terms[n - 1, -1]).max()
        assert set(np.flatnonzero(present)) <= {q * K for q in range(1, n + 1) if (n - q) % 2 == 0}


@pytest.mark.parametrize("normalised", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_truncation_errors_are_of_the_next_order(normalised):
    gamma = growth_rates(BETA, 2, range(MODES + 1), normalised)
    drift = SoftmaxAttention(BETA) if normalised else Attention(BETA)
    times = np.linspace(0, 3.5, 5) / gamma[K]
    found = grenier(drift, waves(1.0 / 2), times, ORDER)
    errors = np.empty((len(DELTAS), ORDER, len(times)))
    for i, delta in enumerate(DELTAS):
        exact = solve_pde(drift, waves(delta), times, direction="ascent", rtol=1e-12, atol=1e-17).densities.moments
        for n in range(1, ORDER + 1):
            sums = found.density(n, 2 * delta).moments
            errors[i, n - 1] = jnp.abs(exact - sums).max(axis=(1, 2))
    slopes = np.log2(errors[:-1, :, -1] / errors[1:, :, -1])
    np.testing.assert_allclose(slopes[-1], np.arange(2, ORDER + 2), atol=0.1)
    # In time the error grows like (delta e^{gamma t})^{n + 1} once the slower modes are left behind.
    late = np.log(errors[-1, :, -1] / errors[-1, :, -2]) / (gamma[K] * (times[-1] - times[-2]))
    assert (late > 0.8 * np.arange(2, ORDER + 2)).all() and (late < 1.15 * np.arange(2, ORDER + 2)).all()


def test_wrong_requests_are_refused():
    start = cosine_density(8, {1: (0.1, 0.0)})
    refused = (
        (Attention(1.0) + Perceptron(np.ones((1, 2)), np.ones(1)), start, [1.0], 2),
        (Attention(1.0, matrix=np.diag([1.0, 0.5])), start, [1.0], 2),
        (Attention(1.0), start, [1.0, 0.5], 2),
        (Attention(1.0), start, [1.0], 0),
        (Attention(1.0), Density(jnp.ones((2, 9, 2))), [1.0], 2),
    )
    for drift, rho, times, order in refused:
        with pytest.raises(ValueError, match="expected"):
            grenier(drift, rho, times, order)
    with pytest.raises(ValueError, match="nothing to expand"):
        grenier(Attention(1.0), uniform_density(8), [1.0], 2)
