"""The benchmarks run, at tiny size, say what they measure, and refuse what they cannot."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
KEYS = ["interaction", "d", "n", "beta", "dtype", "device", "seconds", "error", "memory_bytes"]


@pytest.fixture
def script(monkeypatch, tmp_path):
    """Imports a script by name; its results go to a folder of the test's own."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    common = importlib.import_module("common")
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    monkeypatch.setattr(common, "PICTURES", tmp_path)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if (BENCHMARKS / f"{name}.py").exists():
            del sys.modules[name]


def written(folder, name):
    assert (folder / f"{name}.svg").stat().st_size > 1000
    figures = json.loads((folder / f"{name}.json").read_text())
    assert {"device", "dtype", "versions", "commit"} <= set(figures["environment"])
    return figures


def test_step_prints_rows_of_the_selected_case_as_json(script, tmp_path, capsys):
    step = script("step")
    step.main(["--json", "--interaction", "circle-fourier", "--d", "2", "--n", "64", "--beta", "5", "--repeats", "1"])
    (row,) = json.loads(capsys.readouterr().out)
    assert list(row) == KEYS and list(tmp_path.iterdir()) == []
    assert [row[key] for key in KEYS[:5]] == ["circle-fourier", 2, 64, 5, "float64"]
    assert 0 < row["seconds"] < 1 and 0 <= row["error"] < 1e-14 and row["memory_bytes"] > 0


def test_step_compares_evaluators_and_writes_what_it_found(script, tmp_path, monkeypatch):
    step, evaluators = script("step"), script("common").EVALUATORS
    monkeypatch.setattr(step, "SIZES", (48,))
    monkeypatch.setattr(step, "BETAS", {2: (2.0,), 3: (2.0,)})
    monkeypatch.setattr(step, "LARGE", ((2, 64, 2.0),))
    monkeypatch.setattr(step, "present", lambda: {name: evaluators[name] for name in ("dense", "circle-fourier")})
    step.main(["--repeats", "1"])
    figures = written(tmp_path, "step")
    assert all(list(row) == KEYS and row["error"] < 1e-14 for row in figures["rows"])
    numpy = {"numpy-published", "numpy-dense", "numpy-fourier"}
    assert {row["interaction"] for row in figures["rows"] if row["d"] == 2} == {"dense", "circle-fourier"} | numpy
    assert all(row["times"] >= 1 for row in figures["ratios"] if row["interaction"] not in numpy)
    assert figures["loops"][0]["flow/loop"] > 0


def test_slopes_are_those_of_a_power_law_from_4096_on(script):
    step = script("step")
    rows = [{"interaction": "a", "d": 2, "beta": 1.0, "n": n, "seconds": 3e-9 * n**1.5} for n in (4096, 10**5, 10**6)]
    (found,) = step.slopes([*rows, rows[0] | {"n": 10, "seconds": 1.0}])
    assert found["slope"] == pytest.approx(1.5) and found["largest n"] == 10**6


def test_step_refuses_unknown_names_and_dimensions(script, capsys):
    step = script("step")
    for words in (["--interaction", "magic"], ["--interaction", "circle-fourier", "--d", "3"], ["--n", "0"]):
        with pytest.raises(SystemExit) as refused:
            step.main(words)
        assert refused.value.code == 2
    assert "sphere-fourier" in (said := capsys.readouterr().err) and "'magic'" in said and "d = [3]" in said


def test_the_table_of_evaluators_has_all_that_can_be_chosen_and_can_build_them(script):
    from mflandscape.interactions.choice import EVALUATORS

    common = script("common")
    assert set(EVALUATORS) == set(common.EVALUATORS)
    for evaluator in common.present().values():
        assert type(evaluator.build(3.0)).__name__ == evaluator.name
        assert evaluator.takes(2) == (evaluator.dimensions != (3,))


@pytest.mark.parametrize("d", [2, 3])
def test_peers_without_packages_give_our_velocity(script, d):
    step, peers = script("step"), script("peers")
    x = step.points(d, 40)
    wanted = step.reference(x, 7.0, np.arange(40))
    for name, peer in peers.PEERS.items():
        if peer.takes(d) and not peer.needs:
            assert np.abs(peer.make(x, 7.0)() - wanted).max() < 1e-14, name


def test_work_precision_shows_the_orders_of_methods(script, monkeypatch):
    work = script("work_precision")
    few = {"euler": (0.1, 0.025), "rk4": (0.1,)}
    methods = {n: work.Method(m.make, few[n], 0.1, 10, 300) for n, m in work.METHODS.items() if n in few}
    exact = work.Method(lambda _: work.mfl.RK4(0.005), (), 0.1, 10, 300)
    monkeypatch.setattr(work, "METHODS", methods | {"dopri8": exact})
    case = work.Case.of("GeLU 5", 20)
    rows, apart = work.states("GeLU 5", case, methods, 0.5, 1)
    coarse, fine, rk4 = (row["error"] for row in rows)
    assert 3 < coarse / fine < 5 and apart < rk4 < 1e-3 * fine
    slow = lambda drift, mu, tol, throw: case.run(methods["rk4"], 0.1, work.mfl.Stationary(tol))  # noqa: E731
    monkeypatch.setattr(work, "settle", slow)
    ends = work.stationary("GeLU 5", case, methods, 0.2, 1)
    assert [row["integrator"] for row in ends] == ["euler", "rk4", "settle"]
    assert all(row["reached"] and row["Euler/it"] > 0 for row in ends)
    assert work.draw(rows).axes[0].get_title() == "GeLU 5"


def test_memory_and_roofline(script, tmp_path, monkeypatch):
    memory, roofline, common = script("memory"), script("roofline"), script("common")
    one = {name: common.EVALUATORS[name] for name in ("circle-fourier",)}
    monkeypatch.setattr(memory, "present", lambda: one)
    memory.main(["--quick", "--n", "3000", "6000"])
    small, large = written(tmp_path, "memory")["memory"]
    assert large["velocity B/particle"] < 1.5 * small["velocity B/particle"] < 5000
    monkeypatch.setattr(roofline, "present", lambda: one)
    roofline.main(["--quick", "--n", "500"])
    figures = written(tmp_path, "roofline")
    assert all(rate > 1e6 for rate in figures["ceilings"].values())
    (row,) = figures["rows"]
    assert 0 < row["efficiency"] == row["floor"] / row["seconds"]


def test_floor_is_the_longer_of_work_and_traffic(script):
    counts = script("roofline").Counts(gemm=8.0, flops=6.0, exps=1.0, bytes=100.0)
    rates = {"gemm": 4.0, "flops": 2.0, "exps": 0.5, "bytes": 50.0}
    assert counts.floor(rates) == 7.0 and counts.floor(rates | {"bytes": 10.0}) == 10.0


def test_compile_time_starts_fresh_processes(script, monkeypatch):
    compile_time, caches = script("compile_time"), []
    monkeypatch.setattr(compile_time, "fresh", lambda *_, cache: caches.append(cache) or (2.0, "1 0.5 1.5"))
    rows = compile_time.first_steps(10, 2)
    assert [row["cache"] for row in rows] == ["off", "cold", "warm"] and rows[0]["first chunk s"] == 0.5
    assert caches[:2] == ["off", "off"] and caches[2:4] == caches[4:6] and caches[2] != caches[3]
    assert len(compile_time.draw(rows).axes) == 1
    monkeypatch.undo()
    assert script("compile_time").fresh("-c", "print(7)")[1] == "7\n"
    with pytest.raises(RuntimeError, match="ended with 1"):
        compile_time.fresh("-c", "raise SystemExit(1)")


def test_summary_fills_tables_and_every_script_is_on_the_page(script):
    summary = script("summary")
    page = (BENCHMARKS / "README.md").read_text()
    names = {path.name for path in BENCHMARKS.glob("*.py")} - {"common.py"}
    assert not [name for name in names if f"`{name}" not in page and f"benchmarks/{name}" not in page]
    environment = {"device": "cpu", "dtype": "float64", "commit": "abc", "versions": {"jax": "1"}}
    figures = {"environment": environment, "rows": [{"case": "x", "n": 3, "measured": 0.12345, "promised": 1.5,
                                                     "met": True, "error": None, "seconds": 1.0}]}  # fmt: skip
    filled = summary.fill(page, {"gpu": figures})
    assert "| x | 3 | 0.123 | 1.5 | yes |  |" in filled and "commit abc" in filled
    assert summary.fill(filled, {"gpu": figures}) == filled
    assert summary.fill(filled, {}) == filled
    older = figures | {"rows environment": environment | {"commit": "def"}}  # a table of another run
    assert "commit def" in summary.fill(page, {"gpu": older})
    for name, key in summary.COLUMNS:
        assert f"<!-- {name} {key} -->" in page


def test_make_bench_runs_scripts_that_take_quick():
    words = (BENCHMARKS.parent / "Makefile").read_text().split("BENCHES := ")[1].splitlines()[0].split()
    assert words and all("arguments(__doc__)" in (BENCHMARKS / f"{word}.py").read_text() for word in words)


@pytest.mark.slow
@pytest.mark.parametrize("words", [["gpu", "--quick"], ["sweep", "--quick", "--n-particles=20", "--max-steps=20"]])
def test_whole_scripts(words, tmp_path):
    command = [sys.executable, str(BENCHMARKS / f"{words[0]}.py"), *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"BENCH_RESULTS": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert "figure 9" in done.stdout or "share" in done.stdout
