"""Paper B's figures: their clouds against `flow`, their starts and measurements against closed forms, findings that can
fail; all of them at the quick sizes (slow).
"""

import numpy as np
import pytest
import xarray as xr

from mflandscape import RK4, Attention, MaxTime, flow, from_angles
from mflandscape.meanfield import prepared_density
from mflandscape.paper import FIGURES, b_counts, b_expansion, b_phases, b_spectrum
from mflandscape.paper.clouds import (
    clouds,
    clusters,
    fitted_slope,
    lattice_angles,
    mean_and_error,
    random_angles,
    rate,
)
from mflandscape.paper.make import make_figure
from mflandscape.theory import growth_rates

OURS = ["B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8"]


def test_all_figures_are_there_and_their_settings_are_json():
    import json

    assert [name for name in FIGURES if name.startswith("B")] == OURS
    for name in OURS:
        quick, whole = FIGURES[name].settings(True), FIGURES[name].settings(False)
        assert json.loads(json.dumps(whole)) == whole and quick != whole


def test_clouds_follow_the_flow():
    """Two betas, three starts, an odd number of members on two devices, against dense sums with small steps."""
    betas, until, stretch, n = [5.0, 20.0, 1.0], 4, [1.0, 1.0, 1.25], 60
    starts = np.array([[random_angles(10 * i, n)] for i in range(3)])
    ends, modes = clouds(betas, starts, until, 2, stretch)
    assert modes.shape[:3] == (3, 1, 9)
    np.testing.assert_allclose(modes[..., 0], 1, rtol=1e-13)
    for i in (0, 1):
        np.testing.assert_allclose(modes[i, 0, 0, 1:9], np.exp(1j * np.outer(np.arange(1, 9), starts[i, 0])).mean(1))
    for i, beta in enumerate(betas):
        stop = MaxTime(until * stretch[i] / rate(beta))
        solution = flow(
            Attention(beta), from_angles(starts[i, 0]), stop=stop, direction="ascent",
            integrator=RK4(float(stop.t) / 400),
        )  # fmt: skip
        apart = np.angle(np.exp(1j * (np.asarray(solution.u) - ends[i, 0])))
        assert np.abs(apart).max() < 2e-3
        np.testing.assert_allclose(modes[i, 0, -1, 1:9], np.exp(1j * np.outer(np.arange(1, 9), ends[i, 0])).mean(1))


def test_prepared_starts_have_their_amplitude_and_noise():
    density = prepared_density(4, 0.01, 1e-3, seed=3)
    noise = np.asarray(density.moments) * 2
    noise[4, 0] -= 0.01
    assert np.sqrt((noise[1:] ** 2).sum() / 2) == pytest.approx(1e-3, rel=1e-12)
    np.testing.assert_allclose(np.hypot(*noise[1:].T), 1e-3 * np.sqrt(2 / 10), rtol=1e-10)
    theta = lattice_angles(density, 4000)
    for k in (1, 4, 10):
        expected = np.asarray(density.moments)[k]
        assert np.mean(np.exp(1j * k * theta)) == pytest.approx(complex(*expected), abs=1e-8)
    assert (prepared_density(4, 0.01, 1e-3, seed=4).moments != density.moments).any()


def test_clusters_leave_stragglers_out():
    theta = np.concatenate([np.full(60, 1.0), np.full(39, 3.0), [5.0]])
    np.testing.assert_allclose(clusters(np.concatenate([theta, theta]), 25.0).masses, [0.6, 0.39, 0.01])
    np.testing.assert_allclose(clusters(np.append(theta, 3.0), 25.0).masses, [60 / 101, 40 / 101])
    assert b_counts._gap(np.repeat([0.1, 1.1, 2.1, 5.0], 20), 25.0) == pytest.approx(
        np.median([1, 1, 2.9, 2 * np.pi - 4.9]) * 7 / (2 * np.pi)
    )


def test_slopes_and_errors():
    rng = np.random.default_rng(0)
    x, error = rng.normal(size=6), rng.uniform(0.5, 2, 6)
    y = 3 * x - 1 + error * rng.normal(size=6)
    line, covariance = np.polyfit(x, y, 1, w=1 / error, cov="unscaled")
    np.testing.assert_allclose(fitted_slope(x, y, error), [line[0], np.sqrt(covariance[0, 0])])
    assert mean_and_error(np.array([1.0, np.nan, 4.0])) == pytest.approx((2.5, 1.5))
    assert np.isnan(mean_and_error(np.array([np.nan]))).all() and np.isnan(mean_and_error(np.array([2.0]))[1])


def test_crossings():
    rows = np.array([[0.0, 0.5, 2.0, 1.0], [3.0, 3.0, 3.0, 3.0], [0.0, 0.0, 0.0, 0.9]])
    np.testing.assert_allclose(b_phases.crossing(rows, 1.0), [1 + 1 / 3, 0, np.nan])


def test_phases_of_a_path_in_closed_form():
    """One wave `a e^t` with the harmonic `b e^{rt} + a^2 (e^{2t} - e^{rt})`, whose parts are equal at
    `log(1 + b/a^2)/(2 - r)`; all stops where the wave is 0.6.
    """
    beta, a, b, count = 5.0, 1e-3, 1e-4, 60
    r = float(growth_rates(beta, 2, [6])[0]) / rate(beta)
    t = np.minimum(np.arange(count) / b_phases.LOOKS, np.log(0.6 / a))
    modes = np.zeros((2, count, 12), complex)
    modes[..., 0], modes[..., 3] = 1, a * np.exp(t + 0.4j)
    modes[..., 6] = b * np.exp(r * t) + a * a * (np.exp(2 * t) - np.exp(r * t))
    left, formed, still = b_phases.phase_ends(modes, beta).T
    np.testing.assert_allclose(left, np.log(1 + b / a**2) / (2 - r), atol=0.02)
    np.testing.assert_allclose(formed, np.log(0.5 / a), atol=0.02)
    assert (np.abs(still - np.log(0.6 / a)) < 2 / b_phases.LOOKS).all() and (still > formed).all()


def verdicts(findings):
    return [finding.verdict for finding in findings]


def test_counts_that_are_off_differ():
    def data(prepared, random):
        return {
            "counts": xr.Dataset(
                {
                    "prepared": (("beta", "prepared_seed"), np.array([prepared], float)),
                    "random": (("beta", "seed"), np.array([random], float)),
                    "predicted": (("beta",), [7.0]),
                },
                coords={"beta": [25.0]},
                attrs={"n_prepared": 10, "n_random": 10},
            )
        }

    assert verdicts(b_counts._count_findings(data([7, 7], [6, 6, 7]))) == ["agrees", "agrees"]
    assert verdicts(b_counts._count_findings(data([7, 6], [5, 5, 7]))) == ["differs", "differs"]


def test_rates_that_are_off_differ():
    expected = np.array([[np.nan, 0.9, 1.0, 0.95, 0.8]])
    near = expected[..., None] * np.array([1.001, 0.999])
    far = near.copy()
    far[0, 4] *= 1.02

    def data(particles, random):
        dims = ("beta", "offset")
        return {
            "growth": xr.Dataset(
                {
                    "particles": ((*dims, "particles_seed"), particles),
                    "density": ((*dims, "density_seed"), near),
                    "random": ((*dims, "random_seed"), random),
                    "expected": (dims, expected),
                },
                coords={"beta": [2.0], "offset": np.arange(-2, 3)},
                attrs={"n": 10, "gamma_t": 1},
            )
        }

    assert verdicts(b_spectrum._growth_findings(data(near, near))) == ["agrees"] * 3
    assert verdicts(b_spectrum._growth_findings(data(far, 1.1 * near))) == ["differs", "agrees", "differs"]


def test_distances_that_are_off_differ():
    sizes, times = np.array([100.0, 1000.0, 10_000.0]), np.array([0.0, 1.0])

    def data(power, growth):
        seeds = np.array([1.0, 1.1, 1.3])
        w = sizes[:, None, None] ** power * seeds[None, :, None] * np.exp(growth * times)
        dims = ("n", "seed", "time")
        return {
            "chaos": xr.Dataset({"w1": (dims, w), "w2": (dims, 1.5 * w)}, coords={"n": sizes, "time": times},
                                attrs={"gamma": 0.1, "dobrushin": 2.0})
        }  # fmt: skip

    assert verdicts(b_expansion._chaos_findings(data(-0.5, 0.1))) == ["agrees"] * 5
    assert verdicts(b_expansion._chaos_findings(data(-0.3, 2.5))) == ["differs"] * 5


def test_orders_that_are_off_differ():
    deltas = np.array([0.01, 0.03, 0.1, 0.3])
    powers = np.array([1.0, 2.0, 3.2, 4.0])
    error = np.array([1.0, 2.0])[:, None, None, None] * (deltas[:, None] ** powers)[None, :, :, None]
    coords = {"delta": deltas, "order": np.arange(4), "time": [1.0]}
    dims = ("seed", "delta", "order", "time")
    data = {"expansion": xr.Dataset({"error": (dims, error)}, coords=coords, attrs={"at": 1.0})}
    assert verdicts(b_expansion._expansion_findings(data)) == ["agrees", "agrees", "differs", "agrees"]


def test_coefficients_are_the_kernels(tmp_path):
    """The figure without a simulation, whole."""
    made = make_figure("B1", tmp_path)
    assert verdicts(made.findings) == ["agrees"] * 7
    assert [path.suffix for path in made.pictures] == [".png", ".pdf"]


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS[1:])
def test_quick_figures(name, tmp_path):
    made = make_figure(name, tmp_path, quick=True)
    assert made.pictures and all(path.stat().st_size > 5000 for path in made.pictures)
    assert len(made.findings) > 1
    assert "differs" not in verdicts(made.findings)
    again = make_figure(name, tmp_path, quick=True)
    assert again.cached and again.findings == made.findings
