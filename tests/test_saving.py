"""Snapshots: what each schedule keeps equals a loop written by hand; times are landed on; the looks are recorded."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape._results import name_of
from mflandscape.clusters import arc_clusters, cluster_threshold
from mflandscape.drifts import Attention, Perceptron
from mflandscape.flows import (
    Euler,
    MaxSteps,
    MaxTime,
    Observe,
    SaveAt,
    SaveEvery,
    SaveLog,
    SaveNothing,
    Stationary,
    flow,
)
from mflandscape.flows.adaptive import Adaptive
from mflandscape.gradient import residual
from mflandscape.measure import empirical

rng = np.random.default_rng(8)
X = {d: (v := rng.normal(size=(5, d))) / np.linalg.norm(v, axis=1, keepdims=True) for d in (2, 3)}
DRIFT = Attention(2.0)


def loop(d, lengths):
    """All states of Euler descent in NumPy with steps of these lengths: by the angle for d = 2, else normalised."""
    x, states = X[d], [X[d]]
    for h in lengths:
        v = np.exp(2.0 * (x @ x.T - 1)) @ x / len(x)
        v = -(v - (x * v).sum(1, keepdims=True) * x)
        if d == 2:
            angle = np.arctan2(x[:, 1], x[:, 0]) + h * (v[:, 1] * x[:, 0] - v[:, 0] * x[:, 1])
            x = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        else:
            x = x + h * v
            x = x / np.linalg.norm(x, axis=1, keepdims=True)
        states.append(x)
    return np.array(states)


def check(sol, states, times, steps):
    """Exactly these snapshots were taken, and nothing else was written."""
    k = len(times)
    assert int(sol.saved) == k
    np.testing.assert_allclose(np.asarray(sol.x)[:k], states, atol=1e-13)
    np.testing.assert_allclose(np.asarray(sol.times)[:k], times, rtol=1e-14)
    assert np.asarray(sol.steps_saved)[:k].tolist() == list(steps)
    assert np.isnan(np.asarray(sol.x)[k:]).all()
    assert np.isnan(np.asarray(sol.times)[k:]).all()
    assert (np.asarray(sol.steps_saved)[k:] == -1).all()


@pytest.mark.parametrize(
    ("d", "save", "every", "steps"),
    [
        (2, SaveEvery(3), 1, [0, 3, 6, 9, 12, 15, 18]),
        (3, SaveEvery(1), 4, list(range(21))),
        (2, SaveEvery(20), 7, [0, 20]),
        (3, SaveEvery(21), 1, [0]),
        (3, SaveLog(5), 1, [0, 1, 3, 7, 20]),
        (2, SaveNothing(), 1, []),
    ],
)  # fmt: skip
def test_snapshots_at_steps(d, save, every, steps):
    sol = flow(DRIFT, empirical(X[d]), stop=MaxSteps(20), save=save, observe=Observe(every=every))
    states = loop(d, [0.1] * 20)
    assert sol.times.shape == (len(steps),)
    check(sol, states[steps], 0.1 * np.array(steps), steps)
    np.testing.assert_allclose(sol.mu.x, states[20], atol=1e-13)


@pytest.mark.parametrize(("d", "every"), [(2, 1), (3, 3)])
def test_snapshots_at_times(d, every):
    """Steps are shortened to land on 0.25 and 0.3 and on the end at 0.97; 5 is never reached."""
    times = [0.0, 0.25, 0.3, 0.97, 5.0]
    lengths = [0.1, 0.1, 0.05, 0.05, *[0.1] * 6, 0.07]
    rule = MaxTime(0.97) | MaxSteps(50)
    sol = flow(DRIFT, empirical(X[d]), stop=rule, save=SaveAt(times), observe=Observe(every=every))
    assert (name_of(sol.result), int(sol.steps)) == ("max_time", 11)
    check(sol, loop(d, lengths)[[0, 3, 4, 11]], times[:4], [0, 3, 4, 11])
    np.testing.assert_array_less(np.abs(np.asarray(sol.times)[:4] - times[:4]), 1e-15)


def test_an_adaptive_run_lands_on_its_times_and_goes_on():
    """Small steps before a time do not shorten the steps after it."""
    times = [0.5, 0.5 + 1e-6, 1.0, np.pi]
    sols = [
        flow(
            DRIFT,
            empirical(X[3]),
            stop=MaxTime(4.0) | MaxSteps(200),
            integrator=Adaptive(rtol=1e-9, atol=1e-11),
            save=SaveAt(t),
        )
        for t in (times, [0.0, 1.0, 2.0, 3.0])
    ]
    assert [name_of(sol.result) for sol in sols] == ["max_time"] * 2
    np.testing.assert_array_less(np.abs(np.asarray(sols[0].times) - times), 1e-14)
    np.testing.assert_allclose(sols[0].x[2], sols[1].x[1], atol=1e-8)
    np.testing.assert_allclose(sols[0].mu.x, sols[1].mu.x, atol=1e-8)
    assert abs(int(sols[0].steps) - int(sols[1].steps)) < 8


def test_a_run_that_ends_early_leaves_the_rest_of_the_schedule():
    mu = empirical(X[2])
    sol = flow(DRIFT, mu, stop=Stationary(0.05) | MaxSteps(300), save=SaveEvery(2), observe=Observe(every=2))
    last = int(sol.steps)
    assert name_of(sol.result) == "stationary"
    assert 4 <= last < 300
    steps = range(0, last + 1, 2)
    check(sol, loop(2, [0.1] * last)[::2], 0.1 * np.array(steps), steps)


def test_looks_record_speed_energy_and_clusters():
    energy, mu = DRIFT + Perceptron(jnp.eye(2), jnp.array([0.5, -0.5])), empirical(X[2])
    threshold = cluster_threshold(2.0, 2)
    watch = Observe(every=3, energy=True, threshold=threshold)
    sol = flow(energy, mu, stop=MaxSteps(10), save=SaveEvery(1), observe=watch)
    looked = int(sol.looked)
    assert np.asarray(sol.series.step)[:looked].tolist() == [0, 3, 6, 9, 10]

    @eqx.filter_jit
    def seen(x):
        at = mu.at(x)
        _, count, spread = arc_clusters(jnp.arctan2(x[:, 1], x[:, 0]), threshold)
        return jnp.stack([*residual(energy, at), energy(at), spread / threshold, count.astype(float)])

    columns = [getattr(sol.series, name) for name in ("residual", "residual_l2", "energy", "spread", "clusters")]
    for row, step in enumerate([0, 3, 6, 9, 10]):
        np.testing.assert_allclose([float(v[row]) for v in columns], seen(sol.x[step]), rtol=1e-11, atol=1e-12)
    ends = [float(v) for v in (sol.residual, sol.residual_l2, sol.energy)]
    np.testing.assert_allclose(
        ends, [float(v[4]) for v in (sol.series.residual, sol.series.residual_l2, sol.series.energy)]
    )


@pytest.mark.parametrize(("count", "limit"), [(2, 100), (12, 100), (60, 10_000), (50, 10)])
def test_logarithmic_schedule(count, limit):
    marks = np.asarray(SaveLog(count).marks(limit))
    assert (marks[0], marks[-1]) == (0, limit) or count == 2
    assert (np.diff(marks) > 0).all()
    assert len(marks) <= count
    if limit == 10_000:
        ratios = marks[-20:] / marks[-21:-1]
        np.testing.assert_allclose(ratios, limit ** (1 / (count - 2)), rtol=0.01)
        assert len(marks) > 0.8 * count


@pytest.mark.parametrize("times", [[1.0, 0.5], [0.5, 0.5], [-1.0], [np.nan], [np.inf], np.eye(2)])
def test_times_refused(times):
    with pytest.raises(ValueError, match="expected finite increasing times"):
        SaveAt(times)


@pytest.mark.parametrize("build", [lambda: SaveEvery(0), lambda: SaveLog(1)])
def test_schedules_refused(build):
    with pytest.raises(ValueError, match="expected at least"):
        build()


def test_step_lengths_are_kept_between_landings():
    """A time that whole steps reach costs no extra step."""
    sol = flow(DRIFT, empirical(X[2]), stop=MaxSteps(30), save=SaveAt(0.1 * np.arange(31)), integrator=Euler(0.1))
    check(sol, loop(2, [0.1] * 30), 0.1 * np.arange(31), range(31))
