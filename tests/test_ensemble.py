"""Many flows as one program: each member as if it ran alone, to the bit, whatever runs beside it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape import ensemble
from mflandscape._results import name_of
from mflandscape.activations import activation
from mflandscape.clusters import cluster_threshold
from mflandscape.drifts import Attention, Perceptron
from mflandscape.ensemble import default_lanes, run_lanes
from mflandscape.flows import MaxSteps, Observe, Problem, SaveEvery, SaveLog, Stationary, Unrolled, published_rule
from mflandscape.flows.solve import solve
from mflandscape.interactions import CircleFourier
from mflandscape.measure import from_angles
from mflandscape.starts import expand_seeds, numpy_start
from mflandscape.weights import numpy_weights

BETAS = (0.5, 1.0, 3.0, 5.0, 10.0)
MODES = CircleFourier.for_beta(max(BETAS))
A, OMEGA = (lambda w: (w.a, w.omega))(numpy_weights(777, 2))
WAYS = {"stop": published_rule() | MaxSteps(400), "save": SaveLog(6), "n": 24}


def member(number, *, stop=None, save=None, n=24, activation="relu", a=A, omega=OMEGA):
    """Betas slowest, four starts fastest: lengths from 130 steps to the limit."""
    beta = BETAS[number // 4 % len(BETAS)]
    start = numpy_start(number % 4, n, 2)
    drift = Attention(beta, interaction=MODES) + Perceptron(a, omega, activation=activation)
    return Problem(
        drift,
        from_angles(start.theta),
        stop=WAYS["stop"] if stop is None else stop,
        direction="ascent",
        observe=Observe(every=10, energy=True, threshold=cluster_threshold(beta, 2)),
        save=WAYS["save"] if save is None else save,
        angles=jnp.asarray(start.theta),
    )


def run(members, lanes=1, devices=2, build=member, **keywords):
    chunks = list(run_lanes(build, members, lanes=lanes, devices=jax.devices()[:devices], **keywords))
    return {done.member: done.solution for chunk in chunks for done in chunk.finished}, chunks


def same_bits(a, b):
    for v, w in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(np.asarray(v), np.asarray(w))


def close(a, b, tol):
    for v, w in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(np.asarray(v), np.asarray(w), rtol=tol, atol=tol)


@pytest.fixture(scope="module")
def alone():
    return {m: run([m], devices=1)[0][m] for m in range(20)}


@pytest.fixture(scope="module")
def abreast():
    return run(range(20), lanes=4, devices=1)[0]


def test_members_are_the_flows_they_would_be_alone(alone):
    assert default_lanes() == 1
    together, chunks = run(range(20))
    assert set(together) == set(range(20)) and len({int(s.steps) for s in together.values()}) > 5
    for m in range(20):
        same_bits(together[m], alone[m])
    for m in (0, 7, 19):
        close(together[m], jax.tree.map(np.asarray, solve(member(m), Unrolled())), 1e-12)


@pytest.mark.parametrize("seconds", [1e-9, 0.003, 10.0], ids=["one look", "short", "whole runs"])
def test_bits_do_not_depend_on_the_length_of_chunks(alone, seconds, monkeypatch):
    monkeypatch.setattr(ensemble, "_CHUNK_SECONDS", seconds)
    found, chunks = run(range(6))
    assert seconds == 0.003 or (len(chunks) > 40) == (seconds == 1e-9)
    for m in range(6):
        same_bits(found[m], alone[m])


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("members", [(19, 3), (7, 6, 5, 4, 3, 2, 1, 0)], ids=len)
def test_bits_do_not_depend_on_order_neighbours_number_or_devices(alone, members, devices):
    found, _ = run(members, devices=devices)
    assert set(found) == set(members)
    for m in members:
        same_bits(found[m], alone[m])


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("members", [(3,), (0, 1, 2, 3), (5, 3, 19), (9, 11, 3, 14, 4, 16, 17, 18, 0)], ids=len)
def test_four_lanes_have_bits_of_their_own(abreast, alone, members, devices):
    found, _ = run(members, lanes=4, devices=devices)
    for m in members:
        same_bits(found[m], abreast[m])
        assert int(found[m].steps) == int(alone[m].steps)


@pytest.mark.slow
def test_widths_agree_after_a_hundred_steps():
    def build(m):
        return member(m, stop=MaxSteps(100), n=100)

    narrow, wide = (run((0, 9, 19), width, devices=1, build=build)[0] for width in (1, 7))
    for m in (0, 9, 19):
        assert int(narrow[m].steps) == 100
        close(narrow[m], wide[m], 1e-12)


class Counting(eqx.Module):
    """An activation that counts how often it is traced."""

    traces: list = eqx.field(static=True)

    def __call__(self, s):
        self.traces.append(1)
        return jnp.tanh(s)


def test_a_grid_and_the_next_one_of_its_kind_are_traced_once():
    counter = Counting([])
    counted = activation(counter)  # made once: making it looks at the function too

    def build(shift):
        return lambda m: member(m, activation=counted, omega=(1 + shift + m % 3) * OMEGA, stop=MaxSteps(30))

    first, _ = run(range(1), build=build(0.0))
    traced = len(counter.traces)
    assert traced > 0
    second, _ = run(range(24), build=build(0.0))
    third, _ = run(range(24), build=build(0.5))
    assert len(counter.traces) == traced
    same_bits(first[0], second[0])
    assert len({float(s.residual) for s in [*second.values(), *third.values()]}) == 2 * len(set(map(grid, range(24))))


def grid(m):
    return m % 4, m // 4 % len(BETAS), m % 3


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_member_that_breaks_does_not_spoil_its_neighbours(alone, abreast, lanes):
    healthy = alone if lanes == 1 else abreast

    def build(m):
        return member(m, a=10 * A, omega=np.full(2, 1e308)) if m == 2 else member(m)

    found, _ = run(range(6), lanes=lanes, devices=1, build=build)
    assert name_of(found[2].result) == "nonfinite" and np.isfinite(found[2].u).all()
    for m in (0, 1, 3, 4, 5):
        same_bits(found[m], healthy[m])


@pytest.mark.parametrize(
    "other",
    [{"n": 25}, {"stop": published_rule() | MaxSteps(401)}, {"stop": Stationary(1e-4) | MaxSteps(400)}]
    + [{"activation": "gelu"}, {"save": SaveEvery(7)}, {"a": A.astype(np.float32)}, {"a": A[:1], "omega": OMEGA[:1]}],
    ids=["particles", "limit", "rule", "activation", "schedule", "dtype", "neurons"],
)
def test_members_of_another_structure_are_refused(other):
    with pytest.raises(ValueError, match="member 5 differs from the first one"):
        run([0, 5], build=lambda m: member(m, **(other if m == 5 else {})))


def test_no_lanes_are_refused_and_no_members_are_done_at_once():
    assert run([])[1] == []
    with pytest.raises(ValueError, match="lanes = 0: expected at least 1"):
        run([0], lanes=0)


def test_more_lanes_than_members(abreast):
    found, chunks = run([1, 2], lanes=4, devices=2)
    assert set(found) == {1, 2} and chunks[-1].running == {}
    same_bits(found[1], abreast[1])


@pytest.mark.parametrize("lanes", [1, 4])
def test_restored_states_go_on_to_the_same_bits(alone, abreast, lanes, monkeypatch):
    monkeypatch.setattr(ensemble, "_CHUNK_SECONDS", 1e-9)
    ended = {}
    for chunk in run_lanes(member, range(8), lanes=lanes, devices=jax.devices()[:1]):
        ended |= {done.member: done.solution for done in chunk.finished}
        if len(ended) > 1 and chunk.running:
            break
    states = chunk.states()
    assert states and set(states) == set(chunk.running) and chunk.useful < 8 * 400
    stored = {m: [leaf.copy() for leaf in leaves] for m, leaves in states.items()}
    left = [m for m in range(8) if m not in ended]
    again, later = run(left, lanes=lanes, restore=stored.get)
    for m, solution in {**ended, **again}.items():
        same_bits(solution, (alone if lanes == 1 else abreast)[m])
    taken = sum(int(s.steps) for s in again.values()) - sum(chunk.running[m] for m in stored)
    assert later[-1].useful == taken <= later[-1].executed


def test_a_state_of_another_shape_is_not_used(alone):
    found, _ = run([3], restore=lambda m: [np.zeros(3)])
    same_bits(found[3], alone[3])


@pytest.mark.parametrize("lanes, devices", [(1, 1), (1, 2), (4, 1), (4, 2)])
def test_work_is_accounted_for(lanes, devices):
    found, chunks = run(range(20), lanes=lanes, devices=devices)
    assert chunks[-1].useful == sum(int(s.steps) for s in found.values())
    assert all(a.executed < b.executed and a.useful <= b.useful for a, b in zip(chunks, chunks[1:], strict=False))
    assert all(chunk.useful <= chunk.executed and chunk.executed % (10 * lanes) == 0 for chunk in chunks)
    assert lanes > 1 or chunks[-1].useful == chunks[-1].executed


def sweep_of_very_different_lengths(m):
    beta = SWEEP[m // 8]
    return Problem(
        Attention(beta, interaction=SWEEP_MODES) + Perceptron(A, OMEGA, activation="relu"),
        from_angles(numpy_start(SEEDS[m % 8], 40, 2).theta),
        stop=published_rule() | MaxSteps(20_000),
        direction="ascent",
        observe=Observe(every=10, threshold=cluster_threshold(beta, 2)),
    )


SWEEP = (0.01, 0.05, 0.1, 0.5, 1.0, 3.0, 5.0, 7.0, 10.0, 15.0, 25.0, 35.0, 50.0)
SWEEP_MODES = CircleFourier.for_beta(max(SWEEP))
SEEDS = expand_seeds(42, 8)


@pytest.mark.parametrize("lanes, devices, least", [(1, 2, 0.95), pytest.param(8, 1, 0.85, marks=pytest.mark.slow)])
def test_the_share_of_useful_work_is_high(lanes, devices, least):
    def siblings(m):
        return range(m - m % 8, m - m % 8 + 8)

    found, chunks = run(range(104), lanes, devices, sweep_of_very_different_lengths, siblings=siblings)
    lengths = sorted(int(s.steps) for s in found.values())
    assert lengths[-1] > 50 * lengths[0]
    assert chunks[-1].useful / chunks[-1].executed >= least
