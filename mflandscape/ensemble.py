"""Many flows as one program: a static number of lanes, advanced in chunks, refilled from the queue by the host.

A chunk is one call of a compiled loop; its length is a number, not a shape, so it may follow the clock. Lanes are
`vmap`ped on each device and devices run beside each other under `shard_map`; with one lane a device the loop is the
plain one and ends when its member does. For one width, device, jax version and dtype a member's bits do not depend on
chunks, lane, neighbours, order, or the number of devices.
"""

import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from ._results import RESULTS
from .flows import Problem, Solution
from .flows.loop import FlowState, block, going, start
from .flows.solve import finish

_CHUNK_SECONDS = 0.1  # how long a chunk takes at most: long against its dispatch
_BUSY = 2**18  # particles side by side that keep a large accelerator busy
_MOST_LANES = 1024
_CHUNKS_A_MEMBER = 10  # shorter chunks where members are short: a device whose members ended waits for the others


@dataclass(frozen=True)
class Finished:
    """A member that has ended: its number, what it gave (NumPy arrays), and the seconds it was in a lane."""

    member: int
    solution: Solution
    seconds: float


@dataclass
class Chunk:
    """What one chunk brought: members that ended, members still running with their steps, and the work so far.

    `useful` are the members' own steps since the call, `executed` lanes times steps executed, idle lanes included.
    """

    finished: list[Finished]
    running: dict[int, int]
    useful: int
    executed: int
    states: Callable[[], dict[int, list[np.ndarray]]] = field(repr=False)


def default_lanes(problem: Callable[[], Problem] | None = None) -> int:
    """Lanes a device: 1 on a CPU, where a loop of its own suits each member best; on an accelerator, as many as fill
    it with members like `problem()` (1000 particles, if not given).
    """
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return 1
    if problem is None:
        return _BUSY // 1024
    memory = (device.memory_stats() or {}).get("bytes_limit", math.inf)
    return lanes_that_fill(problem(), memory)


def lanes_that_fill(problem: Problem, memory: float) -> int:
    """The power of two that brings 2^18 particles side by side (1024 lanes at most), as long as the members' problems
    and states take a fifth of so many bytes of memory: a step needs them about three times.
    """
    pair = eqx.filter_eval_shape(lambda p: (p, started_run(p)), problem)
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(pair) if hasattr(leaf, "dtype"))
    most = min(_MOST_LANES, _BUSY // problem.mu.n, memory // (5 * size))
    return 1 << max(0, int(most).bit_length() - 1)


def run_lanes(
    build: Callable[[int], Problem],
    members: Sequence[int],
    *,
    lanes: int | None = None,
    devices: Sequence[jax.Device] | None = None,  # pyright: ignore[reportInvalidTypeForm]
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
    members = list(members)
    if not members:
        return
    lanes = default_lanes(lambda: build(members[0])) if lanes is None else lanes
    if lanes < 1:
        raise ValueError(f"lanes = {lanes}: expected at least 1")
    queue = _Queue(members, siblings)
    lane_set = _Lanes(build, lanes, list(jax.local_devices() if devices is None else devices), restore)
    looks, useful, executed, ended = 1, 0, 0, 0
    while True:
        lane_set.refill(queue)
        if not lane_set.owners:
            return
        began = time.perf_counter()
        ran = lane_set.advance(looks, bool(queue.waiting))
        took = time.perf_counter() - began
        executed += int(ran.sum()) * lane_set.every * lanes
        finished = lane_set.collect()
        useful += sum(int(done.solution.steps) for done in finished)
        running = lane_set.running()
        queue.learn({done.member: int(done.solution.steps) for done in finished} | running)
        yield Chunk(finished, running, useful + sum(running.values()) - lane_set.restored, executed, lane_set.states)
        ended += len(finished)
        pace = took / max(int(ran.max()), 1)
        seconds = _CHUNK_SECONDS
        if ended:
            a_member = useful / ended / lane_set.every * pace
            seconds = min(seconds, max(a_member / _CHUNKS_A_MEMBER, seconds / 10))
        looks = int(np.clip(seconds / pace, 1, 4 * looks))


class _Queue:
    """Members waiting for a lane: first one of each set of siblings, then those expected to take longest.

    So no long one is left over at the end. Siblings are expected to take as long as the longest of them has so far.
    """

    def __init__(self, waiting: list[int], siblings: Callable[[int], Iterable[int]]):
        self.group = {member: min((member, *siblings(member))) for member in waiting}
        self.members: dict[int, list[int]] = {}
        for member in waiting:
            self.members.setdefault(self.group[member], []).append(member)
        self.longest: dict[int, int] = {}

    @property
    def waiting(self) -> int:
        return sum(map(len, self.members.values()))

    def learn(self, steps: Mapping[int, int]) -> None:
        for member, taken in steps.items():
            group = self.group[member]
            self.longest[group] = max(self.longest.get(group, 0), taken)

    def pop(self) -> int:
        group = max((g for g, left in self.members.items() if left), key=lambda g: self.longest.get(g, math.inf))
        self.longest.setdefault(group, 0)
        return self.members[group].pop(0)


class _Lanes:
    """The stacked problems and states of the lanes, on all devices, and who owns which lane."""

    def __init__(self, build, lanes: int, devices: list, restore):
        self.build, self.restore, self.lanes, self.devices = build, restore, lanes, devices
        self.mesh = Mesh(np.asarray(devices), ("lanes",))
        self.owners: dict[int, tuple[int, float]] = {}
        self.restored = 0
        self.template: Problem | None = None
        self.stack: PyTree = None

    @property
    def every(self) -> int:
        assert self.template is not None
        return self.template.observe.every

    def refill(self, queue: _Queue) -> None:
        """Gives free lanes to waiting members; idle ones hold an ended copy of the first member."""
        width = self.lanes * len(self.devices)
        if self.template is None:
            first = queue.pop()
            self.template = template = self.build(first)
            pair = self._begin(first, template)
            ended = RESULTS.where(jnp.asarray(True), RESULTS.max_steps, pair[1].result)
            idle = eqx.tree_at(lambda s: s.result, pair[1], ended)
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
                lambda *parts: jax.make_array_from_single_device_arrays(
                    (width, *parts[0].shape[1:]), sharding, list(parts)
                ),
                *self.shards,
            )

    def _begin(self, member: int, problem: Problem) -> tuple[Problem, FlowState]:
        state = resumed_run(started_run(problem), self.restore(member))
        self.restored += int(state.step)
        return problem, state

    def _insert(self, lane: int, member: int, pair: tuple[Problem, FlowState]) -> None:
        self._split()
        device, row = divmod(lane, self.lanes)
        arrays = jax.device_put(eqx.filter(pair, eqx.is_array), self.devices[device])
        self.shards[device] = _write(self.shards[device], jnp.asarray(row), arrays)
        self.owners[lane] = (member, time.perf_counter())

    def _split(self) -> None:
        self.shards, self.stack = self._parts(), None

    def _parts(self) -> list[PyTree]:
        """One stack a device, without a copy."""
        if self.stack is None:
            return self.shards
        leaves, treedef = jax.tree.flatten(self.stack)
        order = [{shard.device: shard.data for shard in leaf.addressable_shards} for leaf in leaves]
        return [jax.tree.unflatten(treedef, [parts[device] for parts in order]) for device in self.devices]

    def advance(self, looks: int, waiting: bool) -> np.ndarray:
        """One chunk, cut short on a device with free lanes if members wait; the looks executed on each device."""
        problems, states = self.stack
        limits = jnp.asarray(looks, jnp.int32), jnp.asarray(waiting)
        states, ran = _advance(self._with_static(problems), states, *limits, self.mesh, self.lanes)
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
        solution = jax.tree.map(np.asarray, finished_run(self._with_static(problem), state))
        return Finished(member, solution, time.perf_counter() - since)

    def _lane(self, lane: int) -> PyTree:
        device, row = divmod(lane, self.lanes)
        return jax.device_put(_read(self._parts()[device], jnp.asarray(row)), self.devices[0])

    def _with_static(self, arrays: PyTree) -> Problem:
        return eqx.combine(arrays, eqx.filter(self.template, eqx.is_array, inverse=True))

    def running(self) -> dict[int, int]:
        """Steps taken by the members in the lanes."""
        steps = np.asarray(self.stack[1].step)
        return {member: int(steps[lane]) for lane, (member, _) in self.owners.items()}

    def states(self) -> dict[int, list[np.ndarray]]:
        """Leaves of the members' states, from which `restore` goes on to the same bits."""
        return {
            member: [np.asarray(v) for v in jax.tree.leaves(self._lane(lane)[1])]
            for lane, (member, _) in self.owners.items()
        }

    def _check(self, member: int, problem: Problem) -> None:
        if not _alike(problem, self.template):
            raise ValueError(
                f"member {member} differs from the first one in structure, shapes or dtypes: a sweep is one program; "
                "give all members the same number of particles, neurons, modes (CircleFourier.for_beta(largest beta)), "
                "step limit and rules"
            )


def _alike(a: PyTree, b: PyTree) -> bool:
    if not eqx.tree_equal(eqx.filter(a, eqx.is_array, inverse=True), eqx.filter(b, eqx.is_array, inverse=True)):
        return False
    pairs = zip(jax.tree.leaves(eqx.filter(a, eqx.is_array)), jax.tree.leaves(eqx.filter(b, eqx.is_array)), strict=True)
    return all(v.shape == w.shape and v.dtype == w.dtype for v, w in pairs)


@eqx.filter_jit
def started_run(problem: Problem) -> FlowState:
    """The state before the first step."""
    return start(problem.prepared())


def resumed_run(
    state: FlowState,
    stored: list[np.ndarray] | None,
    place: Callable[[np.ndarray, Array], Array] = lambda old, new: jnp.asarray(old),
) -> FlowState:
    """The state made of stored leaves; the given one, if there are none or they belong to another kind of run."""
    leaves, treedef = jax.tree.flatten(eqx.filter(state, eqx.is_array))
    if stored is None or [(v.shape, v.dtype) for v in leaves] != [(v.shape, v.dtype) for v in stored]:
        return state
    placed = [place(old, new) for old, new in zip(stored, leaves, strict=True)]
    return eqx.combine(jax.tree.unflatten(treedef, placed), eqx.filter(state, eqx.is_array, inverse=True))


@eqx.filter_jit
def finished_run(problem: Problem, state: FlowState) -> Solution:
    """The solution contained in the last state."""
    return finish(problem.prepared(), state)


@functools.partial(jax.jit, donate_argnums=0)
def _write(stack: PyTree, row: Array, arrays: PyTree) -> PyTree:
    return jax.tree.map(lambda s, v: s.at[row].set(v), stack, arrays)


@jax.jit
def _read(stack: PyTree, row: Array) -> PyTree:
    return jax.tree.map(lambda s: s[row], stack)


@eqx.filter_jit
def _advance(
    problems: Problem, states: FlowState, looks: Array, waiting: Array, mesh: Mesh, lanes: int
) -> tuple[FlowState, Array]:
    """Up to `looks` blocks on every lane of every device, and how many blocks each device executed.

    If members wait, a device stops as soon as a sixteenth of its lanes (at least one) have ended, to be refilled.
    """
    most_ended = jnp.where(waiting, max(lanes // 16, 1), lanes)
    arrays, static = eqx.partition(problems, eqx.is_array)

    def local(arrays: PyTree, states: FlowState):
        mine = eqx.combine(arrays, static)
        if lanes > 1:
            return _loop(eqx.filter_vmap(Problem.prepared)(mine), states, looks, most_ended, eqx.filter_vmap(block))
        alone, state = jax.tree.map(lambda v: v[0] if eqx.is_array(v) else v, (mine, states))
        state, done = _loop(alone.prepared(), state, looks, most_ended, block)
        return jax.tree.map(lambda v: v[None], state), done

    spec = PartitionSpec("lanes")
    return jax.shard_map(local, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(arrays, states)


def _loop(
    problem: Problem, state: FlowState, looks: Array, most_ended: Array, step: Callable
) -> tuple[FlowState, Array]:
    def more(carry: tuple[Array, FlowState]) -> Array:
        active = going(carry[1])
        return jnp.any(active) & (carry[0] < looks) & (jnp.sum(before & ~active) < most_ended)

    before = going(state)
    start_of = jnp.zeros_like(looks), state
    done, state = jax.lax.while_loop(more, lambda carry: (carry[0] + 1, step(problem, carry[1])), start_of)
    return state, done[None]
