"""What a run computes on: settings of JAX that must be made before its devices are looked at."""

import contextlib
import os
import sys
from collections.abc import Iterator

import click

from ..runner import SHARED

_MOST_DEVICES = 16
# How many processes srun, Open MPI, or another MPI started together, and which of them this one is.
_LAUNCHERS = (
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
)
_SECTION = "Devices and processes (docs/clusters.md)"


class DeviceOption(click.Option):
    """An option of the section on devices."""

    section = _SECTION


def device_options() -> list[click.Option]:
    """Options of `prepare`, and `--shard`."""
    whole = click.IntRange(min=1)
    return [
        DeviceOption(
            ["--devices"],
            type=whole,
            metavar="N",
            help="Devices of each process.  [default: all GPUs, or a CPU device a core]",
        ),
        DeviceOption(
            ["--shard"],
            type=click.Choice(SHARED),
            help="What they share: members, each on one device, or the particles of one member after another.  "
            "[default: members]",
        ),
        DeviceOption(
            ["--coordinator"],
            metavar="HOST:PORT",
            help="Where process 0 listens; srun and mpirun need none of these three.",
        ),
        DeviceOption(["--processes"], type=whole, metavar="P", help="Processes in all."),
        DeviceOption(["--process-id"], type=click.IntRange(min=0), metavar="I", help="This one's number, from 0."),
    ]


def prepare(
    devices: int | None = None,
    coordinator: str | None = None,
    processes: int | None = None,
    process_id: int | None = None,
) -> None:
    """Float64; the CPU devices; and the other processes, where a launcher or the options say that there are some.

    CPU devices: `devices`, or one for each core this process may use (16 at most): members run beside each other on
    them. A number that the user set (JAX_NUM_CPU_DEVICES, XLA_FLAGS) is kept; with JAX_PLATFORMS naming another
    platform nothing is changed there.

    Raises:
        ValueError: some but not all of coordinator, processes and process_id; a launcher that does not say where
            process 0 is.
    """
    import jax

    jax.config.update("jax_enable_x64", True)
    set_by_user = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    elsewhere = "cpu" not in (getattr(jax.config, "jax_platforms", None) or "cpu")
    if not (set_by_user or elsewhere or getattr(jax.config, "jax_num_cpu_devices", -1) != -1):
        jax.config.update("jax_num_cpu_devices", devices or min(_cores(), _MOST_DEVICES))
    _connect(coordinator, processes, process_id)


def _connect(coordinator: str | None, processes: int | None, process_id: int | None) -> None:
    launched = _launched()
    if launched is not None and processes is None and process_id is None:
        processes, process_id = launched
    elif coordinator is processes is process_id is None:
        return
    elif None in (coordinator, processes, process_id):
        raise ValueError(
            f"--coordinator {coordinator} --processes {processes} --process-id {process_id}: expected all three, or "
            "none under a launcher (srun, mpirun)"
        )
    import jax

    jax.config.update("jax_enable_preemption_service", False)  # SIGTERM is ours: it saves and ends the run
    try:
        jax.distributed.initialize(coordinator, processes, process_id)
    except ValueError as error:
        raise ValueError(f"process {process_id} of {processes}: {error} Give --coordinator HOST:PORT") from error


def _launched() -> tuple[int, int] | None:
    """Processes and this one's number, if a launcher started several."""
    for count, number in _LAUNCHERS:
        if number in os.environ and int(os.environ.get(count, 1)) > 1:
            return int(os.environ[count]), int(os.environ[number])
    return None


@contextlib.contextmanager
def output_kept() -> Iterator[None]:
    """What libraries print on standard output meanwhile (Gloo does, when processes connect) goes to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
