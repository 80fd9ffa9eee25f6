"""Stopping rules: what they say alone and together, how many steps are really taken, and runs that break."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape import sphere
from mflandscape._results import NAMES, RESULTS, name_of
from mflandscape.clusters import cluster_threshold
from mflandscape.drifts import Attention, Perceptron, SoftmaxAttention
from mflandscape.ensemble import run_lanes
from mflandscape.flows import (
    Brownian,
    ClustersSettled,
    Euler,
    MaxSteps,
    MaxTime,
    Observe,
    Problem,
    SaveEvery,
    Stationary,
    Unrolled,
    flow,
    published_rule,
)
from mflandscape.flows.solve import solve
from mflandscape.flows.stopping import Look
from mflandscape.gradient import residual, velocity
from mflandscape.interactions import CircleFourier
from mflandscape.measure import from_angles, uniform

KEY = jax.random.key(3)
MU = {d: uniform(KEY, 12, d) for d in (2, 3)}
THRESHOLD = cluster_threshold(4.0, 2)


def by_hand(drift, mu, steps, dt=0.1):
    """Ascent on the circle in NumPy-like steps: angles after 0, 1, ..., `steps` steps and the largest speeds there."""
    theta = np.arctan2(np.asarray(mu.x[:, 1]), np.asarray(mu.x[:, 0]))
    beta = float(drift.kernel.beta)
    thetas, speeds = [], []
    for _ in range(steps + 1):
        gaps = theta[None, :] - theta[:, None]
        v = (np.exp(beta * (np.cos(gaps) - 1)) * np.sin(gaps)).mean(1)
        thetas.append(theta)
        speeds.append(np.abs(v).max())
        theta = theta + dt * v
    return thetas, np.array(speeds)


def greedy_count(theta, threshold):
    """Sorted angles cut at the largest gap; a point joins while it is within the threshold of the cluster's first."""
    theta = np.sort(theta % (2 * np.pi))
    cut = np.argmax(np.diff(theta, append=theta[0] + 2 * np.pi)) + 1
    count, first = 0, -np.inf
    for angle in np.concatenate([theta[cut:], theta[:cut] + 2 * np.pi]):
        if angle - first > threshold:
            count, first = count + 1, angle
    return count


def look(step=1, time=0.1, residual=1.0, residual_l2=1.0, clusters=-1, spread=np.nan):
    return Look(
        step=jnp.asarray(step, jnp.int32),
        time=jnp.asarray(time),
        residual=jnp.asarray(residual),
        residual_l2=jnp.asarray(residual_l2),
        energy=jnp.asarray(np.nan),
        clusters=jnp.asarray(clusters, jnp.int32),
        spread=jnp.asarray(spread),
    )


def verdicts(rule, looks):
    memory, names = rule.init(), []
    for seen in looks:
        result, memory = rule.verdict(seen, memory)
        names.append(name_of(result))
    return names


VERDICTS = [
    (Stationary(0.5), [dict(residual=r) for r in (0.6, 0.5, np.nan)], "running stationary running"),
    (Stationary(0.5, 0.1), [dict(residual=0.4, residual_l2=r) for r in (0.2, 0.1)], "running stationary"),
    (MaxSteps(2), [dict(step=n) for n in (1, 2, 3)], "running max_steps max_steps"),
    (MaxTime(0.3), [dict(time=t) for t in (0.2, 0.1 + 0.2, 0.3 - 1e-12)], "running max_time running"),
    (
        ClustersSettled(3),
        [dict(clusters=c, spread=0.5) for c in (4, 3, 3, 3, 3, 2)],
        "running running running clusters_settled clusters_settled running",
    ),
    (
        ClustersSettled(2, 1.0),
        [dict(clusters=3, spread=s) for s in (0.5, 1.5, 1.0)],
        "running running clusters_settled",
    ),
    (ClustersSettled(1), [dict(clusters=-1), dict(clusters=1, spread=0.0)], "running clusters_settled"),
    (
        Stationary(0.5) | MaxSteps(2),
        [dict(step=1), dict(step=2, residual=0.1), dict(step=2)],
        "running stationary max_steps",
    ),
    (
        MaxSteps(2) | Stationary(0.5),
        [dict(step=1), dict(step=2, residual=0.1), dict(step=1, residual=0.1)],
        "running max_steps stationary",
    ),
    (
        Stationary(0.5) & MaxSteps(2),
        [dict(step=2), dict(residual=0.1), dict(step=2, residual=0.1)],
        "running running converged",
    ),
    (
        (Stationary(0.5) & MaxSteps(2)) | MaxSteps(4),
        [dict(step=3), dict(step=4), dict(step=4, residual=0.1)],
        "running max_steps converged",
    ),
    (
        published_rule(2, 0.5),
        [dict(clusters=3, spread=0.5, residual=r) for r in (0.1, 0.6, 0.5)],
        "running running converged",
    ),
]


@pytest.mark.parametrize(("rule", "looks", "expected"), VERDICTS)
def test_verdicts(rule, looks, expected):
    assert verdicts(rule, [look(**seen) for seen in looks]) == expected.split()


def test_combinations_flatten_and_know_their_limits():
    a, b, c = Stationary(1e-3), MaxSteps(5), MaxSteps(7)
    assert len((a | b | c).stops) == 3
    assert ((a | b | c).step_limit, (b & c).step_limit, (a & b).step_limit) == (5, 7, None)
    assert float((MaxTime(3.0) | MaxTime(2.0) | a).time_limit) == 2.0
    assert (MaxTime(3.0) & a).time_limit is None
    assert (a | ClustersSettled()).needs_clusters
    assert not (a | b).needs_clusters


@pytest.mark.parametrize("every", [1, 10])
def test_stationary_stops_at_the_first_look_below(every):
    drift, mu = Attention(1.0), MU[2]
    _, speeds = by_hand(drift, mu, 400)
    first = next(s for s in range(every, 401, every) if speeds[s] <= 1e-3)
    sol = flow(drift, mu, direction="ascent", stop=Stationary(1e-3) | MaxSteps(100_000), observe=Observe(every=every))
    assert name_of(sol.result) == "stationary"
    assert int(sol.steps) == first  # and not the step limit's 100 000
    assert int(sol.looked) == first // every + 1
    assert int(sol.evaluations) == first + 1
    np.testing.assert_allclose(float(sol.residual), speeds[first], rtol=1e-9)
    np.testing.assert_allclose(sol.series.residual[: int(sol.looked)], speeds[: first + 1 : every], rtol=1e-9)
    assert float(residual(drift, sol.mu)[0]) == pytest.approx(float(sol.residual), rel=1e-12)


def test_published_rule_is_the_published_loop():
    """The protocol's loop in NumPy: a count every 10 steps into a window of 5, the drift re-evaluated."""
    drift, mu = Attention(4.0), MU[2]
    thetas, speeds = by_hand(drift, mu, 1500)
    counts, expected = [], None
    for step in range(10, 1501, 10):
        counts.append(greedy_count(thetas[step], float(THRESHOLD)))
        if len(counts) >= 5 and len(set(counts[-5:])) == 1 and speeds[step] <= 1e-3:
            expected = step
            break
    rule = published_rule(5, 1e-3) | MaxSteps(1500)
    sol = flow(drift, mu, direction="ascent", stop=rule, observe=Observe(every=10, threshold=THRESHOLD))
    assert (name_of(sol.result), int(sol.steps)) == ("converged", expected)
    assert np.asarray(sol.series.clusters)[1 : len(counts) + 1].tolist() == counts


def test_window_of_a_state_at_rest_ends_at_step_50():
    mu = from_angles(jnp.array([0.0, 0.0, np.pi / 2]))
    rule = published_rule(5, 10.0) | MaxSteps(1000)
    sol = flow(Attention(1e4), mu, stop=rule, observe=Observe(every=10, threshold=THRESHOLD))
    assert (name_of(sol.result), int(sol.steps)) == ("converged", 50)


@pytest.mark.parametrize("order", ["steps first", "settled first"])
def test_the_rule_listed_first_names_the_reason(order):
    mu = from_angles(jnp.array([0.0, 1.0]))
    settled, steps = ClustersSettled(2, 100.0), MaxSteps(2)
    rule = steps | settled if order == "steps first" else settled | steps
    sol = flow(Attention(1.0), mu, stop=rule, observe=Observe(threshold=THRESHOLD))
    assert name_of(sol.result) == ("max_steps" if order == "steps first" else "clusters_settled")
    assert int(sol.steps) == 2


@pytest.mark.parametrize(("d", "t", "steps"), [(2, 1.0, 10), (2, 0.05, 1), (3, 1.03, 11)])
def test_max_time_lands_on_the_time(d, t, steps):
    sol = flow(Attention(1.0), MU[d], stop=MaxTime(t) | MaxSteps(20), save=SaveEvery(1))
    assert (name_of(sol.result), int(sol.steps), float(sol.time)) == ("max_time", steps, t)
    before = MU[d].at(sol.x[steps - 1])
    last = sphere.retract(before.x + (t - 0.1 * (steps - 1)) * velocity(Attention(1.0), before))
    np.testing.assert_allclose(sol.mu.x, last, atol=1e-14 if d == 3 else 1e-3)  # on the circle the arc, not the chord
    assert Problem(Attention(1.0), MU[d], stop=MaxTime(t)).max_steps == steps


@pytest.mark.parametrize("every", [1, 7])
def test_limits_hold_inside_a_block(every):
    """The step and the time limit are kept to the step, also where they fall between looks."""
    sol = flow(Attention(1.0), MU[3], stop=MaxSteps(10), observe=Observe(every=every))
    assert (name_of(sol.result), int(sol.steps)) == ("max_steps", 10)
    assert np.asarray(sol.series.step)[int(sol.looked) - 1] == 10
    sol = flow(Attention(1.0), MU[3], stop=MaxTime(0.95) | MaxSteps(100), observe=Observe(every=every))
    assert (name_of(sol.result), int(sol.steps), float(sol.time)) == ("max_time", 10, 0.95)


def test_time_is_summed_without_drift():
    sol = flow(Attention(1.0), from_angles(jnp.array([0.0, 1.0])), stop=MaxSteps(10_000), observe=Observe(every=100))
    assert float(sol.time) == 1000.0
    assert float(np.add.accumulate(np.full(10_000, 0.1))[-1]) != 1000.0  # what a plain sum gives


# Runs that break. The trap is dead on the upper half of the circle and overflows on the lower one.


def trap(scale=1e200):
    return Perceptron(scale * jnp.array([[0.0, -1.0]]), jnp.array([scale]), activation="relu")


INSIDE, OUTSIDE = from_angles(jnp.array([4.0, 1.0, 2.0])), from_angles(jnp.array([0.06, 0.3, 0.5]))


def test_a_velocity_that_is_not_finite_at_the_start():
    sol = flow(trap(), INSIDE, stop=MaxSteps(1000), throw=False)
    assert (name_of(sol.result), int(sol.steps)) == ("nonfinite", 0)
    np.testing.assert_allclose(sol.mu.x, INSIDE.x, atol=1e-15)


@pytest.mark.parametrize("every", [1, 4])
def test_a_run_that_breaks_midway_returns_its_last_finite_state(every):
    """Repulsion pushes a particle over the edge; up to there the run is that of attention alone."""
    watch = Observe(every=every)
    sol = flow(Attention(1.0) + trap(), OUTSIDE, stop=MaxSteps(100_000), observe=watch, throw=False)
    free = flow(Attention(1.0), OUTSIDE, stop=MaxSteps(20), save=SaveEvery(1))
    last = int(np.argmin(np.asarray(free.x)[:, 0, 1] > 0)) - 1  # the last step at which all are still above
    assert 0 < last < 18
    assert (name_of(sol.result), int(sol.steps)) == ("nonfinite", last // every * every)
    np.testing.assert_allclose(sol.mu.x, free.x[int(sol.steps)], atol=1e-14)
    assert np.isfinite(float(sol.residual))
    assert int(sol.looked) == last // every + 1


@pytest.mark.parametrize("batch", ["vmap", "lanes"])
def test_a_broken_run_does_not_spoil_its_neighbours(batch):
    problems = [
        Problem(Attention(1.0) + trap(scale), mu, stop=MaxSteps(40))
        for scale, mu in ((0.7, OUTSIDE), (1e200, OUTSIDE), (1e200, INSIDE))
    ]
    alone = solve(problems[0], Unrolled())
    if batch == "vmap":
        stacked = jax.tree.map(lambda *v: jnp.stack(v) if eqx.is_array(v[0]) else v[0], *problems)
        sols = eqx.filter_vmap(lambda problem: solve(problem, Unrolled()))(stacked)
        sols = [jax.tree.map(lambda v, i=i: v[i] if eqx.is_array(v) else v, sols) for i in range(3)]
    else:
        chunks = run_lanes(problems.__getitem__, range(3), lanes=3, devices=jax.devices()[:1])
        sols = [f.solution for f in sorted((f for c in chunks for f in c.finished), key=lambda f: f.member)]
    assert [name_of(sol.result) for sol in sols] == ["max_steps", "nonfinite", "nonfinite"]
    assert [int(sol.steps) for sol in sols][::2] == [40, 0]
    assert 0 < int(sols[1].steps) < 18
    assert all(np.isfinite(sol.mu.x).all() for sol in sols)
    np.testing.assert_allclose(sols[0].mu.x, alone.mu.x, atol=1e-14)


def test_throw_raises_the_sentence():
    with pytest.raises(RuntimeError, match="became infinite or not a number"):
        flow(trap(), INSIDE, stop=MaxSteps(10))
    with pytest.raises(RuntimeError, match=r"CircleFourier\.for_beta\(largest beta\)"):
        flow(Attention(50.0, interaction=CircleFourier(20)), MU[2], stop=MaxSteps(3))


@pytest.mark.parametrize(("modes", "result"), [(20, "series_truncated"), (67, "max_steps")])
def test_too_few_modes_are_reported_with_their_size(modes, result):
    sol = flow(Attention(50.0, interaction=CircleFourier(modes)), MU[2], stop=MaxSteps(3), throw=False)
    assert name_of(sol.result) == result
    assert (float(sol.defect) > 1e6) == (modes == 20)
    assert (float(sol.defect) <= 1) == (modes == 67)


PERCEPTRON3 = Perceptron(jnp.eye(3), jnp.ones(3))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (dict(stop=Stationary(1e-8)), "without a step limit"),
        (dict(stop=published_rule(), observe=Observe(threshold=0.1)), "without a step limit"),
        (dict(stop=Stationary(1e-8) & MaxTime(3.0)), "without a step limit"),
        (dict(stop=ClustersSettled() | MaxSteps(5)), "without clusters"),
        (dict(drift=SoftmaxAttention(1.0), observe=Observe(energy=True)), "is not an energy"),
        (dict(integrator=Brownian(Euler(0.1), 0.5)), "without a key"),
        (dict(drift=PERCEPTRON3), "dimension 3 for points of dimension 2"),
        (dict(drift=Attention(1.0) + PERCEPTRON3), "dimension 3 for points of dimension 2"),
        (dict(drift=Attention(1.0, interaction=CircleFourier(4)), mu=MU[3]), "it works on the circle"),
    ],
)  # fmt: skip
def test_problems_refused(arguments, sentence):
    arguments = {"drift": Attention(1.0), "mu": MU[2], "stop": MaxSteps(5)} | arguments
    with pytest.raises(ValueError, match=sentence):
        Problem(arguments.pop("drift"), arguments.pop("mu"), **arguments)


@pytest.mark.parametrize(
    "build",
    [
        lambda: MaxSteps(0),
        lambda: MaxTime(0.0),
        lambda: MaxTime(np.inf),
        lambda: Stationary(-1.0),
        lambda: Stationary(np.nan),
        lambda: ClustersSettled(0),
        lambda: Observe(every=0),
        lambda: Observe(threshold=0.0),
        lambda: Euler(0.0),
        lambda: Euler(np.nan),
        lambda: Brownian(Euler(0.1), -1.0),
    ],
)
def test_numbers_refused(build):
    with pytest.raises(ValueError, match="expected"):
        build()


def test_every_result_has_a_sentence_and_a_name():
    for code, name in enumerate(NAMES):
        assert name_of(getattr(RESULTS, name)) == name
        assert int(jax.tree.leaves(getattr(RESULTS, name))[0]) == code
        assert RESULTS[getattr(RESULTS, name)].endswith(".")
