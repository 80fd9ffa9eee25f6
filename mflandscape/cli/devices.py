"""Settings of JAX that must be made before its devices are looked at."""

import os

_MOST_DEVICES = 16


def prepare() -> None:
    """Float64, and a CPU device for each core this process may use (16 at most): members run beside each other on them.

    A number of devices that the user set (JAX_NUM_CPU_DEVICES, XLA_FLAGS) is kept; with JAX_PLATFORMS naming another
    platform nothing is changed there.
    """
    import jax

    jax.config.update("jax_enable_x64", True)
    set_by_user = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    elsewhere = "cpu" not in (getattr(jax.config, "jax_platforms", None) or "cpu")
    if set_by_user or elsewhere or getattr(jax.config, "jax_num_cpu_devices", -1) != -1:
        return
    jax.config.update("jax_num_cpu_devices", min(_cores(), _MOST_DEVICES))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
