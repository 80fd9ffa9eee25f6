"""The notebooks run from top to bottom at small size, and say what they should."""

import contextlib
import runpy
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
TESTED = (
    "first_flow",
    "phase_diagram_over_beta",
    "when_is_a_cluster_count_metastable",
    "certified_minimiser",
    "three_phases",
)


@pytest.fixture
def execute(tmp_path, monkeypatch):
    """Runs a notebook; its names. Pictures must be there at the end."""

    monkeypatch.setenv("MFLANDSCAPE_SMALL", "1")
    monkeypatch.setenv("MFLANDSCAPE_OUT", str(tmp_path))
    # what a user of a notebook has: JAX's own promotion of ranks and dtypes
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.numpy_rank_promotion("allow"))
        stack.enter_context(jax.numpy_dtype_promotion("standard"))
        yield partial(_run, tmp_path)


def _run(out, name):
    found = runpy.run_path(str(FOLDER / f"{name}.py"))
    assert [path.stat().st_size > 5000 for path in out.glob("*.png")] in ([True], [True, True])
    return found


def test_every_notebook_is_listed_and_tested():
    names = {path.stem for path in FOLDER.glob("*.py")}
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert len(names) == 5 and all(f"[{name}]({name}.py)" in listed and name[3:] in TESTED for name in names)
    for path in FOLDER.glob("*.py"):
        assert path.read_text(encoding="utf-8").startswith("# %% [markdown]\n# # ")


@pytest.mark.slow
def test_first_flow(execute):
    found = execute("01_first_flow")
    energies = np.asarray(found["solution"].series.energy)[: int(found["solution"].looked)]
    assert (np.diff(energies) < 0).all() and found["clusters"].count >= 1
    assert [member["beta"] for member in found["report"].members] == [1.0, 5.0]


@pytest.mark.slow
def test_phase_diagram(execute):
    found = execute("02_phase_diagram_over_beta")
    assert all(kind.stationary and kind.gap.value > 0 for kind in found["kinds"].values())


@pytest.mark.slow
def test_metastable(execute):
    found = execute("03_when_is_a_cluster_count_metastable")
    assert found["k"] == 7 and found["eigenvalue"] < 0 and found["kind"].kind == "saddle"
    times = list(found["lifetimes"].values())
    assert len(times) >= 3 and (np.diff(times) < 0).all()  # nearer clusters meet sooner


@pytest.mark.slow
def test_certified_minimiser(execute):
    found = execute("04_certified_minimiser")
    best = found["best"]
    assert best.rigorous and best.gap < 1e-11
    assert found["variation"].min() > best.multiplier - 1e-6 and found["variation"].min() < best.multiplier + 1e-4


@pytest.mark.slow
def test_three_phases(execute):
    found = execute("05_three_phases")
    assert found["k"] == 7 and found["rate"] == pytest.approx(found["gamma"], rel=0.1)
    degree, reached = found["k"], found["reached"]
    inside = reached & (found["times"][1:] < found["linear_end"] / 2)
    limit = np.asarray(found["limit"].densities.amplitude(degree))[inside]
    seen = np.interp(found["times"][1:][inside], found["clock"], np.log(found["modes"][degree - 1]))
    assert len(seen) >= 8
    np.testing.assert_allclose(np.exp(seen), limit, rtol=0.05)
