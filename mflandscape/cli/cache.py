"""Compiled programs are kept between commands."""

import hashlib
import logging
import os
import platform
import re
from pathlib import Path

VARIABLE = "MFLANDSCAPE_CACHE"
_MOST_BYTES = 1 << 30


def keep_compiled_programs() -> Path | None:
    """Turns on JAX's persistent compilation cache; the folder, or None where it is off.

    The folder is `~/.cache/mflandscape` (`XDG_CACHE_HOME` is followed), or what MFLANDSCAPE_CACHE says; "off" turns
    it off, and where JAX_COMPILATION_CACHE_DIR is set JAX has its own way. At most 1 GiB, oldest out first. Programs
    are kept apart by processor, for a home folder may be shared by machines of several kinds. A folder that cannot be
    written leaves the cache off.
    """
    import jax

    chosen = os.environ.get(VARIABLE, "")
    if chosen.lower() == "off" or getattr(jax.config, "jax_compilation_cache_dir", None):
        return None
    folder = Path(chosen).expanduser() if chosen else _home() / "mflandscape"
    folder = folder / _processor()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(folder, os.W_OK):
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_compilation_cache_max_size", _MOST_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    if not os.environ.get("JAX_LOGGING_LEVEL") and os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1":  # as JAX sets it
        # XLA's loader calls its own tuning flags features that this machine lacks, in pages on standard error.
        jax.config.update("jax_logging_level", "CRITICAL")
        logging.getLogger("jax").setLevel(logging.WARNING)
    return folder


def _home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _processor() -> str:
    """A name for the instructions that programs compiled here may use."""
    try:
        found = re.search(r"^(?:flags|Features)\s*:(.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
    except OSError:
        found = None
    flags = " ".join(sorted(found.group(1).split())) if found else platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(flags.encode()).hexdigest()[:12]}"
