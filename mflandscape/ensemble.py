"""Many flows as one program: a static number of lanes, advanced together in chunks and refilled from the queue by the host.

A chunk is one call of a compiled loop; its length is a number, not a shape, so it may follow the clock. Lanes are `vmap`ped on each device and
devices run beside each other under `shard_map`; with one lane a device the loop is the plain one and ends when its member does. For one width,
device, jax version and dtype a member's bits do not depend on chunks, lane, neighbours, order, or the number of devices.
"""

import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from ._results import RESULTS
from .flow import Problem, Solution
from .flow.loop import FlowState, block, going, start
from .flow.solve import finish

_CHUNK_SECONDS = 0.1  # how long a chunk is meant to take: short against a member, long against its dispatch


@dataclass(frozen=True)
class Finished:
    """A member that has ended: its number, what it gave (NumPy arrays), and the seconds it was in a lane."""

    member: int
    solution: Solution
    seconds: float


@dataclass
class Chunk:
    """What one chunk brought: members that ended, members still running with their steps, and the work so far.

    `useful` are the members' own steps, `executed` lanes times steps executed, padding and idle lanes included.
    """

    finished: list[Finished]
    running: dict[int, int]
    useful: int
    executed: int
    states: Callable[[], dict[int, list[np.ndarray]]] = field(repr=False)


def default_lanes() -> int:
    """Lanes a device: 1 on a CPU, where a loop of its own suits each member best; 64 on an accelerator."""
    return 1 if jax.default_backend() == "cpu" else 64


def run_lanes(
    build: Callable[[int], Problem],
    members: Sequence[int],
    *,
    lanes: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    restore: Callable[[int], list[np.ndarray] | None] = lambda member: None,
    siblings: Callable[[int], Iterable[int]] = lambda member: (),
) -> Iterator[Chunk]:
    """Runs members to their ends, yielding after every chunk.

    Args:
        build: the problem of a member; all must agree in structure and shapes.
        members: which to run, in the order of the queue.
        lanes: width of the `vmap` on each device; part of what fixes the bits.
        devices: where to run; all local devices by default.
        restore: leaves of a stored `FlowState` (from `Chunk.states`) to go on from, or None.
        siblings: members expected to take about as long; once their lengths are known, long ones are started first.

    Raises:
        ValueError: lanes < 1; a member whose structure or shapes differ from the first one's.
    """
    lanes = default_lanes() if lanes is None else lanes
    if lanes < 1:
        raise ValueError(f"lanes = {lanes}: expected at least 1")
    queue = _Queue(list(members), siblings)
    if not queue.waiting:
        return
    lane_set = _Lanes(build, lanes, list(jax.local_devices() if devices is None else devices), restore)
    looks, useful, executed = 1, 0, 0
    while True:
        lane_set.refill(queue)
        if not lane_set.owners:
            return
        began = time.perf_counter()
        ran = lane_set.advance(looks)
        took = time.perf_counter() - began
        executed += int(ran.sum()) * lane_set.every * lanes
        finished = lane_set.collect()
        for done in finished:
            queue.learn(done.member, int(done.solution.steps))
            useful += int(done.solution.steps)
        running = lane_set.running()
        yield Chunk(finished, running, useful + sum(running.values()), executed, lane_set.states)
        pace = took / max(int(ran.max()), 1)
        looks = int(np.clip(_CHUNK_SECONDS / pace, 1, 4 * looks)) if looks > 1 or executed else looks * 4


class _Queue:
    """Members waiting for a lane. Those that are expected to take longest go first, so that no long one is left over at the end."""

    def __init__(self, waiting: list[int], siblings: Callable[[int], Iterable[int]]):
        self.waiting, self.siblings = waiting, siblings
        self.steps: dict[int, int] = {}

    def learn(self, member: int, steps: int) -> None:
        self.steps[member] = steps

    def pop(self) -> int:
        best = max(range(len(self.waiting)), key=lambda i: (self._expected(self.waiting[i]), -i))
        return self.waiting.pop(best)

    def _expected(self, member: int) -> float:
        known = [self.steps[other] for other in self.siblings(member) if other in self.steps]
        return sum(known) / len(known) if known else math.inf


class _Lanes:
    """The stacked problems and states of the lanes, on all devices, and who owns which lane."""

    def __init__(self, build, lanes: int, devices: list, restore):
        self.build, self.restore, self.lanes, self.devices = build, restore, lanes, devices
        self.mesh = Mesh(np.asarray(devices), ("lanes",))
        self.owners: dict[int, tuple[int, float]] = {}
        self.template: Problem | None = None
        self.stack: PyTree = None

    @property
    def every(self) -> int:
        return self.template.observe.every

    def refill(self, queue: _Queue) -> None:
        """Gives free lanes to waiting members; idle ones hold an ended copy of the first member."""
        width = self.lanes * len(self.devices)
        if self.template is None:
            first = queue.pop()
            self.template = self.build(first)
            pair = self._begin(first, self.template)
            idle = eqx.tree_at(lambda s: s.result, pair[1], RESULTS.where(jnp.asarray(True), RESULTS.max_steps, pair[1].result))
            arrays = eqx.filter((pair[0], idle), eqx.is_array)
            repeated = jax.tree.map(lambda v: jnp.broadcast_to(v[None], (self.lanes, *v.shape)), arrays)
            self.shards = [jax.device_put(repeated, device) for device in self.devices]
            self._insert(0, first, pair)
        free = [lane for lane in range(width) if lane not in self.owners]
        while free and queue.waiting:
            member = queue.pop()
            problem = self.build(member)
            self._check(member, problem)
            self._insert(free.pop(0), member, self._begin(member, problem))
        if self.stack is None:
            sharding = NamedSharding(self.mesh, PartitionSpec("lanes"))
            self.stack = jax.tree.map(
                lambda *parts: jax.make_array_from_single_device_arrays((width, *parts[0].shape[1:]), sharding, list(parts)),
                *self.shards,
            )

    def _begin(self, member: int, problem: Problem) -> tuple[Problem, FlowState]:
        state = _start(problem)
        stored = self.restore(member)
        if stored is None:
            return problem, state
        arrays, rest = eqx.partition(state, eqx.is_array)
        leaves, treedef = jax.tree.flatten(arrays)
        if [(v.shape, v.dtype) for v in leaves] != [(v.shape, v.dtype) for v in stored]:
            return problem, state
        return problem, eqx.combine(jax.tree.unflatten(treedef, [jnp.asarray(v) for v in stored]), rest)

    def _insert(self, lane: int, member: int, pair: tuple[Problem, FlowState]) -> None:
        self._split()
        device, row = divmod(lane, self.lanes)
        arrays = jax.device_put(eqx.filter(pair, eqx.is_array), self.devices[device])
        self.shards[device] = _write(self.shards[device], jnp.asarray(row), arrays)
        self.owners[lane] = (member, time.perf_counter())

    def _split(self) -> None:
        """From one sharded stack to one stack a device, without a copy."""
        if self.stack is None:
            return
        leaves, treedef = jax.tree.flatten(self.stack)
        order = [{shard.device: shard.data for shard in leaf.addressable_shards} for leaf in leaves]
        self.shards = [jax.tree.unflatten(treedef, [parts[device] for parts in order]) for device in self.devices]
        self.stack = None

    def advance(self, looks: int) -> np.ndarray:
        """One chunk; returns the looks executed on each device."""
        problems, states = self.stack
        states, ran = _advance(self._with_static(problems), states, jnp.asarray(looks, jnp.int32), self.mesh, self.lanes)
        self.stack = (problems, states)
        return np.asarray(ran)

    def collect(self) -> list[Finished]:
        """Members that have ended, taken out of their lanes."""
        result = np.asarray(jax.tree.leaves(self.stack[1].result)[0])
        ended = [lane for lane in self.owners if result[lane] != int(jax.tree.leaves(RESULTS.running)[0])]
        return [self._take_out(lane) for lane in ended]

    def _take_out(self, lane: int) -> Finished:
        member, since = self.owners.pop(lane)
        problem, state = self._lane(lane)
        solution = jax.tree.map(np.asarray, _finish(self._with_static(problem), state))
        return Finished(member, solution, time.perf_counter() - since)

    def _lane(self, lane: int) -> PyTree:
        device, row = divmod(lane, self.lanes)

        def pick(leaf):
            shard = next(s for s in leaf.addressable_shards if s.device == self.devices[device])
            return jax.device_put(shard.data, self.devices[0])[row]

        return jax.tree.map(pick, self.stack)

    def _with_static(self, arrays: PyTree) -> Problem:
        return eqx.combine(arrays, eqx.filter(self.template, eqx.is_array, inverse=True))

    def running(self) -> dict[int, int]:
        """Steps taken by the members in the lanes."""
        steps = np.asarray(self.stack[1].step)
        return {member: int(steps[lane]) for lane, (member, _) in self.owners.items()}

    def states(self) -> dict[int, list[np.ndarray]]:
        """Leaves of the members' states, from which `restore` goes on to the same bits."""
        return {member: [np.asarray(v) for v in jax.tree.leaves(self._lane(lane)[1])] for lane, (member, _) in self.owners.items()}

    def _check(self, member: int, problem: Problem) -> None:
        if not _alike(problem, self.template):
            raise ValueError(
                f"member {member} differs from the first one in structure, shapes or dtypes: a sweep is one program; give all members the same "
                "number of particles, neurons, modes (CircleFourier.for_beta(largest beta)), step limit and rules"
            )


def _alike(a: PyTree, b: PyTree) -> bool:
    if not eqx.tree_equal(eqx.filter(a, eqx.is_array, inverse=True), eqx.filter(b, eqx.is_array, inverse=True)):
        return False
    pairs = zip(jax.tree.leaves(eqx.filter(a, eqx.is_array)), jax.tree.leaves(eqx.filter(b, eqx.is_array)), strict=True)
    return all(v.shape == w.shape and v.dtype == w.dtype for v, w in pairs)


@eqx.filter_jit
def _start(problem: Problem) -> FlowState:
    return start(problem.prepared())


@eqx.filter_jit
def _finish(problem: Problem, state: FlowState) -> Solution:
    return finish(problem.prepared(), state)


@functools.partial(jax.jit, donate_argnums=0)
def _write(stack: PyTree, row: Array, arrays: PyTree) -> PyTree:
    return jax.tree.map(lambda s, v: s.at[row].set(v), stack, arrays)


@eqx.filter_jit
def _advance(problems: Problem, states: FlowState, looks: Array, mesh: Mesh, lanes: int) -> tuple[FlowState, Array]:
    """Up to `looks` blocks on every lane of every device, and how many blocks each device executed."""
    arrays, static = eqx.partition(problems, eqx.is_array)

    def local(arrays: PyTree, states: FlowState):
        mine = eqx.combine(arrays, static)
        if lanes > 1:
            return _loop(eqx.filter_vmap(Problem.prepared)(mine), states, looks, eqx.filter_vmap(block))
        alone, state = jax.tree.map(lambda v: v[0] if eqx.is_array(v) else v, (mine, states))
        state, done = _loop(alone.prepared(), state, looks, block)
        return jax.tree.map(lambda v: v[None], state), done

    spec = PartitionSpec("lanes")
    return jax.shard_map(local, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(arrays, states)


def _loop(problem: Problem, state: FlowState, looks: Array, step: Callable) -> tuple[FlowState, Array]:
    def more(carry: tuple[Array, FlowState]) -> Array:
        return jnp.any(going(carry[1])) & (carry[0] < looks)

    done, state = jax.lax.while_loop(more, lambda carry: (carry[0] + 1, step(problem, carry[1])), (jnp.zeros_like(looks), state))
    return state, done[None]
