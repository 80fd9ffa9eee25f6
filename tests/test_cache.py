"""Compiled programs outlive a command; whoever wants none, or JAX's own way, has it."""

import json
import os
import subprocess
import sys

import pytest

CODE = """
import json, sys
import mflandscape.cli.cache as cache
found = cache.keep_compiled_programs()
import jax
kept = []
jax.monitoring.register_event_listener(lambda name, **_: kept.append(name))
jax.jit(lambda x: x * 3)(2.0)
print(json.dumps([str(found), jax.config.jax_compilation_cache_dir, kept.count("/jax/compilation_cache/cache_hits")]))
"""


def start(home, **variables):
    env = {k: v for k, v in os.environ.items() if k not in ("MFLANDSCAPE_CACHE", "JAX_COMPILATION_CACHE_DIR")}
    env |= {"XDG_CACHE_HOME": str(home), **variables}
    out = subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True, check=True)
    assert "cpu_aot_loader" not in out.stderr
    return json.loads(out.stdout)


def test_the_second_process_finds_what_the_first_compiled(tmp_path):
    first, again = start(tmp_path), start(tmp_path)
    assert first[0] == first[1] and first[0].startswith(str(tmp_path / "mflandscape"))
    assert first[2] == 0 and again[2] >= 1


@pytest.mark.parametrize("case", ["off", "chosen", "jax", "refused"])
def test_where_it_is(tmp_path, case):
    chosen = str(tmp_path / "chosen")
    if case == "off":
        assert start(tmp_path, MFLANDSCAPE_CACHE="off")[:2] == ["None", None]
    elif case == "chosen":
        assert start(tmp_path, MFLANDSCAPE_CACHE=chosen)[1].startswith(chosen)
    elif case == "jax":
        assert start(tmp_path, JAX_COMPILATION_CACHE_DIR=chosen)[:2] == ["None", chosen]
    else:
        (tmp_path / "file").write_text("in the way", encoding="utf-8")
        assert start(tmp_path / "file")[:2] == ["None", None]
