"""More than one device: particles laid out on a mesh, members run on it one after another, processes that wait for
each other.

One program runs in every process, on all devices of all of them; JAX's own runtime connects them
(`jax.distributed.initialize`).
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax._src import distributed as runtime  # its barrier and its store of words have no public names
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding
from jaxtyping import Array, PyTree

from .ensemble import Chunk, Finished, finished_run, resumed_run, started_run
from .flows import Problem
from .flows.loop import FlowState, block, going
from .interactions import AbstractInteraction
from .interactions.sharded import AXIS, sharded
from .measure import Measure, concrete

_CHUNK_SECONDS = 0.5  # between two looks of the host: long against its dispatch and the word that processes exchange
_STEPS = itertools.count()  # all processes take the same ones, so that this numbers them alike
_PATIENCE = 30 * 24 * 3600 * 1000  # milliseconds a process waits for the others


def first_devices(count: int | None = None) -> list:
    """`count` devices of this process, all by default.

    Raises:
        ValueError: fewer than one, or more than there are.
    """
    found = jax.local_devices()
    if count is not None and not 1 <= count <= len(found):
        raise ValueError(f"devices = {count}: expected 1 to {len(found)}, the devices of this process; ask for fewer")
    return found[:count]


def particle_mesh(devices: int | None = None) -> Mesh:
    """A mesh with the one axis "particles" over so many devices of each process. Raises as `first_devices`."""
    count = len(first_devices(devices))
    by_process: dict[int, list] = {}
    for device in jax.devices():
        by_process.setdefault(device.process_index, []).append(device)
    return Mesh(np.asarray([d for owned in by_process.values() for d in owned[:count]]), (AXIS,))


def shard(tree: PyTree, mesh: Mesh) -> PyTree:
    """A drift, a measure or a problem (or a tree of them) on a mesh: particles divided, everything else on all devices.

    Evaluators become their sharded forms, of equal values and derivatives (to rounding); a flow of the result is
    partitioned by the compiler and moves no particles between devices, except to count clusters. Where the number of
    particles is no multiple of the number of devices, each device holds them all and only the sums are divided. The
    same array is laid out for any number of devices, each process placing its own part of it.

    Raises:
        ValueError: a mesh without the axis "particles", an evaluator that cannot be divided.
    """
    whole = NamedSharding(mesh, PartitionSpec())

    def place(part: Any) -> Any:
        if isinstance(part, Measure):
            return Measure(_put(part.x, _rows(mesh, part.n)), _put(part.w, _rows(mesh, part.n)))
        if isinstance(part, AbstractInteraction):
            part = sharded(part, mesh)
        return jax.tree.map(lambda v: _put(v, whole) if eqx.is_array(v) else v, part)

    placed = jax.tree.map(place, tree, is_leaf=lambda v: isinstance(v, Measure | AbstractInteraction))
    if isinstance(tree, Problem):
        placed = eqx.tree_at(lambda problem: problem.u, placed, _put(tree.u, _rows(mesh, tree.mu.n)))
    return placed


def gathered(tree: PyTree) -> PyTree:
    """All arrays as NumPy arrays, whole in every process; to be called by all of them."""

    def whole(v: Array) -> np.ndarray:
        if v.is_fully_addressable or v.is_fully_replicated:
            return np.asarray(v)
        return multihost_utils.process_allgather(v, tiled=True)

    return jax.tree.map(whole, tree)


def leads() -> bool:
    """Whether this process is the first: the one that writes what is written once, and that speaks."""
    return jax.process_index() == 0


@contextlib.contextmanager
def step_of_all(name: str) -> Iterator[None]:
    """A stretch of a program at whose end all processes wait for each other, and that fails in all if it does in one.

    Raises:
        ValueError: what another process raised, with its number.
    """
    if jax.process_count() == 1:
        yield
        return
    failure = None
    try:
        yield
    except Exception as error:  # passed on below
        failure = error
    client: Any = runtime.global_state.client
    place = f"mflandscape/{next(_STEPS)}/{name}"
    client.key_value_set(f"{place}/{jax.process_index()}", str(failure or ""))
    client.wait_at_barrier(place, _PATIENCE)
    if failure is not None:
        raise failure
    for key, text in client.key_value_dir_get(place):
        if text:
            raise ValueError(f"process {key.rsplit('/')[-1]} stopped: {text}")


def largest(*values: float) -> tuple[float, ...]:
    """The largest of each value over the processes; to be called by all of them."""
    if jax.process_count() == 1:
        return values
    return tuple(np.max(multihost_utils.process_allgather(np.asarray(values)), axis=0).tolist())


def run_divided(
    build: Callable[[int], Problem],
    members: Sequence[int],
    mesh: Mesh,
    *,
    restore: Callable[[int], list[np.ndarray] | None] = lambda member: None,
) -> Iterator[Chunk]:
    """Runs members one after another, each with its particles on all devices, yielding after every chunk.

    As `run_lanes`, for runs that are too large for one device. In every process alike: what is yielded, and
    `Chunk.states`, are to be asked for by all of them.
    """
    useful = executed = 0
    for member in members:
        began, done = time.perf_counter(), useful
        with jax.default_device(_host()):
            problem = build(member)
        problem = shard(problem, mesh)
        state = _resumed(_start(problem, mesh), restore(member))
        first, looks, running = int(state.step), 1, True
        while running:
            chunk_began = time.perf_counter()
            state, still, ran = _advance(problem, state, jnp.asarray(looks, jnp.int32), mesh)
            running, steps = bool(still), int(state.step)
            useful, executed = done + steps - first, executed + int(ran) * problem.observe.every
            (seconds,) = largest(time.perf_counter() - chunk_began)
            looks = int(np.clip(_CHUNK_SECONDS / seconds * looks, 1, 4 * looks))
            finished = [] if running else [_finished(member, problem, state, began)]
            yield Chunk(finished, {member: steps} if running else {}, useful, executed, _states(member, state))


def _states(member: int, state: FlowState) -> Callable[[], dict[int, list[np.ndarray]]]:
    return lambda: {member: jax.tree.leaves(gathered(eqx.filter(state, eqx.is_array)))}


def _finished(member: int, problem: Problem, state: FlowState, began: float) -> Finished:
    return Finished(member, gathered(finished_run(problem, state)), time.perf_counter() - began)


def _resumed(state: FlowState, stored: list[np.ndarray] | None) -> FlowState:
    return resumed_run(state, stored, lambda old, new: _put(old, new.sharding))


@eqx.filter_jit
def _start(problem: Problem, mesh: Mesh) -> FlowState:
    return _laid_out(started_run(problem), mesh)


@eqx.filter_jit
def _advance(problem: Problem, state: FlowState, looks: Array, mesh: Mesh) -> tuple[FlowState, Array, Array]:
    """Up to `looks` blocks, whether the run goes on, and how many blocks there were."""
    problem = problem.prepared()

    def more(carry: tuple[Array, FlowState]) -> Array:
        return going(carry[1]) & (carry[0] < looks)

    done, state = jax.lax.while_loop(
        more, lambda carry: (carry[0] + 1, block(problem, carry[1])), (jnp.zeros_like(looks), state)
    )
    return _laid_out(state, mesh), going(state), done


def _laid_out(state: FlowState, mesh: Mesh) -> FlowState:
    """Particles divided, the rest everywhere: a chunk takes what the last one gave, and nothing compiles again."""
    n = state.u.shape[0]

    def place(v: Array, axis: int = 0) -> Array:
        sharding = _rows(mesh, n, axis) if v.shape[axis : axis + 1] == (n,) else NamedSharding(mesh, PartitionSpec())
        return jax.lax.with_sharding_constraint(v, sharding)

    buffer = place(state.snapshots.u, 1)
    placed = jax.tree.map(lambda v: place(v) if eqx.is_array(v) else v, state)
    return eqx.tree_at(lambda s: s.snapshots.u, placed, buffer)


def _rows(mesh: Mesh, n: int, axis: int = 0) -> NamedSharding:
    even = n % mesh.shape[AXIS] == 0
    return NamedSharding(mesh, PartitionSpec(*[None] * axis, AXIS) if even else PartitionSpec())


def _put(v: Any, sharding: Sharding) -> Array:
    """The array laid out on the mesh; each process places the parts on its own devices."""
    if not concrete(v):
        return jax.device_put(v, sharding)
    if isinstance(v, jax.Array) and not v.is_fully_addressable:
        return v if v.sharding == sharding else jax.device_put(v, sharding)
    if jnp.issubdtype(v.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_put(jax.random.key_data(v), sharding), impl=jax.random.key_impl(v))
    host = np.asarray(v)
    return jax.make_array_from_callback(host.shape, sharding, lambda part: host[part])


def _host() -> Any:
    """Where problems are built: the processor's memory, which holds what one accelerator may not."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS leaves the processor out
        return jax.local_devices()[0]
