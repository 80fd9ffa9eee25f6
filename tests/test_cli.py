"""The command line: what it parses, what it refuses, what it prints, and runs that are interrupted and resumed."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from mflandscape import runner
from mflandscape.cli import main
from mflandscape.cli.keys import SECTIONS, changes, toml
from mflandscape.cli.plan import make_plan
from mflandscape.cli.progress import Rate, sentence
from mflandscape.presets import PRESETS, preset
from mflandscape.runner import Progress, Report
from mflandscape.spec import Spec, fields_table
from mflandscape.store import open_run

SMALL = ("--beta", "1", "--beta", "5", "--n-particles", "60", "--max-steps", "40")
MEMBER = {
    "beta", "weight_seed", "start_seed", "scale", "clusters", "masses", "heaviest_mass", "residual", "energy",
    "stop_reason", "steps", "seconds",
}  # fmt: skip


def call(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def at(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A real run of two members that stop at 40 steps, and what `--json --strict` gave."""
    folder = tmp_path_factory.mktemp("cli") / "small"
    return folder, call("run", *SMALL, "--out", folder, "--json", "--strict", "--quiet")


@pytest.fixture
def plans(monkeypatch):
    """Stands in for the runner: remembers the specs and folders it was asked to run."""
    asked = []

    def run(spec, out, *, resume=False, progress=None, interrupted=lambda: False):
        asked.append((spec, Path(out), resume))
        return Report(Path(out), [], spec.members, False, [])

    monkeypatch.setattr(runner, "run", run)
    return asked


# Words to specs


def test_every_key_is_an_option_of_one_section():
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(key.name for key in fields_table())
    text = call("run", "--help").output
    assert all(f"{key.option} " in text for key in fields_table()) and "default: 0.1" in text
    assert all(title in text for title in SECTIONS) and max(map(len, text.splitlines())) <= 80


def test_options_toml_and_json_give_one_spec(at):
    (at / "config.json").write_text(
        json.dumps(
            {
                "betas": [0.1, 5], "n_particles": 60, "dimension": 3, "dt": 0.05, "total_time": "inf", "max_steps": 70,
                "integrator": "rk2", "self_attention": True, "ascending": True, "activation": "gelu", "mlp_scale": 2.0,
                "mlp_seed": 3, "particle_seed": 4, "cluster_scale": 0.5, "convergence_drift_tol": 1e-4,
            }
        )
    )  # fmt: skip
    (at / "ours.toml").write_text(
        'beta = [0.1, 5]\nn_particles = 60\ndim = 3\ndt = 0.05\nmax_steps = 70\nintegrator = "midpoint"\n'
        'direction = "ascent"\nactivation = "gelu"\nmlp_scale = 2\nweight_seed = 3\nstart_seed = 4\n'
    )
    options = {
        "beta": ("0.1", "5"), "n_particles": "60", "dim": "3", "dt": "0.05", "max_steps": "70",
        "integrator": "midpoint", "direction": "ascent", "activation": "gelu", "mlp_scale": ("2",),
        "weight_seed": ("3",), "start_seed": ("4",),
    }  # fmt: skip
    published, ours, typed = (
        make_plan(config, None, given, None, False)
        for config, given in (("config.json", {}), ("ours.toml", {}), (None, options))
    )
    assert published.specs == ours.specs == typed.specs
    assert [str(p.out) for p in (published, ours, typed)] == [
        f"results/{name}-{typed.specs[0].hash}" for name in ("config", "ours", "run")
    ]


def test_options_override_file_and_file_overrides_preset(at, plans):
    (at / "mine.toml").write_text('beta = [3]\nactivation = "tanh"\n')
    words = ("mine.toml", "--preset", "paper-s2", "--beta", "1,2", "--no-self-attention", "--n_particles", "7")
    assert call("run", *words, "--out", "x", "--quiet").exit_code == 0
    expected = preset("paper-s2").replace(beta=(1.0, 2.0), activation="tanh", self_attention=False, n_particles=7)
    assert plans == [(expected, Path("x"), False)]


def test_weights_of_a_preset(at, plans):
    given = changes({"weights": "paper-s1-gelu", "mlp_units": "5", "beta": (), "self_attention": None})
    source = preset("paper-s1-gelu")
    assert given == {
        "weights": "numpy", "weight_seed": source.weight_seed, "mlp_units": 5, "mlp_scale_mode": "std",
        "gradient_mlp": True, "activation": "gelu",
    }  # fmt: skip
    assert changes({"weights": "paper-s1-gelu", "activation": "tanh"})["activation"] == "tanh"
    assert call("run", "--weights", "paper-s1-attention", "--out", "x", "--quiet").exit_code == 0
    assert plans[0][0].weights == "none"


def test_files_are_relative_to_where_they_are_named(at, plans):
    (at / "sub").mkdir()
    (at / "sub" / "w.json").write_text(json.dumps({"a": [[1.0, 0, 0]], "omega": [[0.5, 0, 0]]}))
    (at / "sub" / "c.toml").write_text('weights = "w.json"\n')
    for words in (("sub/c.toml", "--dim", 3), ("--weights", "sub/w.json", "--dim", 3)):
        assert call("run", *words, "--out", "x", "--quiet").exit_code == 0
    assert plans[0][0] == plans[1][0] and plans[0][0].weights == str(at / "sub" / "w.json")


def test_list_of_dimensions_gives_runs(at, plans):
    (at / "config.json").write_text(json.dumps({"dimension": [2, 3], "betas": [1], "total_time": 2, "k_max": 20}))
    found = call("run", "config.json", "--out", "x", "--json")
    assert [(spec.dim, out) for spec, out, _ in plans] == [(2, Path("x/dim-2")), (3, Path("x/dim-3"))]
    assert [run["run"] for run in json.loads(found.stdout)["runs"]] == ["x/dim-2", "x/dim-3"]
    assert "k_max" in found.stderr and "not applicable" in found.stderr and "dt=0.0005" in found.stderr
    plans.clear()
    assert call("run", "config.json", "--out", "x", "--quiet", "--dim", "3", "--dt", "0.01").exit_code == 0
    ((spec, out, _),) = plans
    assert (spec.dim, spec.step_limit, out) == (3, 200, Path("x"))


def test_command_that_resumes_names_the_folder(at, monkeypatch):
    """Also for a default folder, with what was typed quoted; of several runs, those after the interrupted one wait."""
    (at / "my config.json").write_text('{"dimension": [2, 3], "betas": [1]}')
    asked = []

    def run(spec, out, **_):
        asked.append(out)
        return Report(Path(out), [], spec.members, True, [])

    monkeypatch.setattr(runner, "run", run)
    found = call("run", "my config.json", "--quiet")
    assert found.exit_code == 130 and found.stdout == "" and len(asked) == 1
    out = asked[0].parent
    assert out.parent == Path("results") and out.name.startswith("my config-")
    assert found.stderr.splitlines()[-1].strip() == f"mflandscape run 'my config.json' --quiet --out '{out}' --resume"
    assert "0 of 2 members finished" in found.stderr


def test_folder_named_by_a_config(at):
    (at / "config.json").write_text('{"results_dir": "there"}')
    plan = make_plan("config.json", None, {}, None, False)
    assert plan.out == Path("there") / f"config-{plan.specs[0].hash}"
    (at / "config.json").write_text('{"experiment_dir": "here/it"}')
    assert make_plan("config.json", None, {}, None, False).out == Path("here/it")


# Bad input: exit code 2, one message, nothing created

BAD = [
    (("--beta", "-1"), "beta = -1", "expected beta >= 0"),
    (("--beta", "nan"), "beta = nan", "expected a finite number"),
    (("--beta", "one"), "beta = 'one'", "expected a number >= 0"),
    (("--beta", "800", "--kernel", "exponential"), "beta = 800", "use kernel = shifted"),
    (("--beta", "1e6", "--dtype", "float32"), "beta = 1e+06", "use a smaller beta"),
    (("--n-particles", "0"), "n_particles = 0", "expected n_particles >= 1"),
    (("--n-particles", "2.5"), "n_particles = 2.5", "whole number"),
    (("--dim", "1"), "dim = 1", "expected dim >= 2"),
    (("--start", "off.npy"), "off.npy", "divide each by its length"),
    (("--start", "nan.npy"), "nan.npy", "nan"),
    (("--start", "absent.npy"), "absent.npy", "check the path"),
    (("--weights", "three.json"), "three.json", "expected d = 2"),
    (("--weights", "paper-s1", "--dim", "3"), "weights for dim = 2", "paper-s2"),
    (("--weights", "paper-s9"), "'paper-s9'", "did you mean"),
    (("--activation", "rlu"), "activation = 'rlu'", "did you mean 'relu'"),
    (("--preset", "paper-s9"), "unknown preset", "did you mean"),
    (("--n-particle", "3"), "no such option --n-particle", "did you mean '--n-particles'"),
    (("key.toml",), "unknown key 'betta'", "did you mean 'beta'"),
    (("key.json",), "unknown key 'betta'", "did you mean 'betas'"),
    (("cut.toml",), "cut.toml, line 1", "truncated"),
    (("cut.json",), "cut.json, line 1", "truncated"),
    (("absent.toml",), "absent.toml", "check the path"),
    (("paper-s1",), "paper-s1", "--preset paper-s1"),
    (("key.json", "--preset", "paper-s1"), "every key", "leave --preset out"),
    (("--out", "there"), "there exists", "--resume"),
    (("--out", "there", "--resume"), "there", "run"),
    (("--out", "file/below"), "file/below", "--out"),
]


@pytest.mark.parametrize("words, got, advice", BAD, ids=[" ".join(words) for words, *_ in BAD])
def test_bad_input(at, words, got, advice):
    np.save("off.npy", np.array([[1.0, 0.0], [2.0, 0.0]]))
    np.save("nan.npy", np.array([[1.0, 0.0], [math.nan, 0.0]]))
    files = {
        "three.json": json.dumps({"a": [[1.0, 0, 0]], "omega": [[0.5, 0, 0]]}),
        "key.toml": "betta = 1\n",
        "key.json": '{"betta": 1}',
        "cut.toml": "beta = [1, ",
        "cut.json": '{"betas": [1, ',
        "file": "a file",
    }
    for name, text in files.items():
        Path(name).write_text(text)
    Path("there").mkdir()
    before = sorted(map(str, at.rglob("*")))
    found = call("run", *words, *(() if "--out" in words else ("--out", "made")))
    assert found.exit_code == 2, found.output
    assert found.stdout == "" and found.stderr.startswith("error: ") and len(found.stderr.splitlines()) == 1
    assert got in found.stderr and advice in found.stderr, found.stderr
    assert sorted(map(str, at.rglob("*"))) == before


@pytest.mark.parametrize("command", ["info", "plot", "export"])
def test_not_a_run(at, command):
    for folder in ("absent", "."):
        found = call(command, folder, *(("--csv",) if command == "export" else ()))
        assert found.exit_code == 2 and found.stderr.startswith("error: ") and not list(at.iterdir())
    (at / "two" / "dim-2").mkdir(parents=True)
    (at / "two" / "dim-2" / "run.json").write_text("{}")
    assert "name two/dim-2" in call(command, "two").stderr


def test_unknown_command_and_version():
    found = call("rn")
    assert found.exit_code == 2 and "'rn'" in found.stderr and "mflandscape --help" in found.stderr
    assert call("--version").output == "mflandscape 0.1.0\n"


# Real runs


def test_json_of_a_run(small):
    folder, found = small
    read = json.loads(found.stdout)
    assert found.exit_code == 3 and found.stderr == "" and found.stdout.count("\n") == 1
    assert read["run"] == str(folder) and not read["interrupted"] and read["total"] == 2
    assert [row["beta"] for row in read["members"]] == [1.0, 5.0] and all(MEMBER <= set(r) for r in read["members"])
    stored = open_run(folder)
    for index, row in enumerate(read["members"]):
        at = stored.isel(beta=index, weight_seed=0, start_seed=0, scale=0)
        assert (row["stop_reason"], row["steps"], row["converged"]) == ("max_steps", 40, False)
        assert row["residual"] == float(at["residual"]) and row["clusters"] == len(row["masses"])
        assert row["heaviest_mass"] == max(row["masses"]) and math.isclose(sum(row["masses"]), 1.0, rel_tol=1e-12)


def test_table_of_a_run(small):
    """A finished run resumed returns at once; without --strict what did not converge is named and the code is 0."""
    folder, made = small
    found = call("run", *SMALL, "--out", folder, "--resume")
    rows = {row["beta"]: row for row in json.loads(made.stdout)["members"]}
    lines = [line.split() for line in found.stdout.splitlines() if line.strip()]
    assert found.exit_code == 0
    for beta in (1, 5):
        row = rows[beta]
        cells = [
            str(beta),
            str(row["clusters"]),
            f"{row['heaviest_mass']:.4f}",
            f"{row['residual']:.1e}",
            "max_steps",
            "40",
        ]
        assert any(line[:6] == cells for line in lines)
    assert "did not converge, 2 of 2:\n  beta = 1 (max_steps); beta = 5 (max_steps)\n" in found.stdout
    assert f"mflandscape plot {folder}" in found.stdout and str(folder) in found.stdout


def test_resume_with_nothing_but_the_folder(small):
    folder, made = small
    found = call("run", "--resume", "--out", folder, "--json", "--quiet")
    assert found.exit_code == 0 and json.loads(found.stdout)["members"] == json.loads(made.stdout)["members"]
    other = call("run", *SMALL[:-1], "50", "--out", folder, "--resume")
    assert other.exit_code == 2 and "max_steps" in other.stderr


def test_info(small):
    folder, _ = small
    text = call("info", folder)
    assert text.exit_code == 0 and "2 of 2 done" in text.stdout and "shifted" in text.stdout
    read = json.loads(call("info", folder, "--json").stdout)
    assert (read["members"], read["done"], read["damaged"]) == (2, 2, [])
    assert Spec.from_dict(read["spec"]) == Spec(beta=(1, 5), n_particles=60, max_steps=40, lanes=read["spec"]["lanes"])
    (folder.parent / "spec.toml").write_text(text.stdout[text.stdout.index("# Grid") :])
    assert Spec.from_toml(folder.parent / "spec.toml") == Spec.from_dict(read["spec"])


def test_plot_and_export(small, tmp_path):
    folder, _ = small
    found = call("plot", folder, "--picture", "histograms", "--format", "png", "--out", tmp_path)
    assert found.stdout.split() == [str(tmp_path / "histograms.png")]
    assert (tmp_path / "histograms.png").read_bytes().startswith(b"\x89PNG")
    wrong = call("plot", folder, "--picture", "histogram", "--out", tmp_path / "none")
    assert wrong.exit_code == 2 and "did you mean 'histograms'" in wrong.stderr and not (tmp_path / "none").exists()
    assert call("plot", folder, "--format", "gif", "--out", tmp_path / "none").exit_code == 2
    tables = call("export", folder, "--csv", "--full", "--out", tmp_path / "csv").stdout.split()
    assert [Path(table).name for table in tables] == ["summary.csv", "trajectory.csv"]
    assert call("export", folder).exit_code == 2


def test_pictures_of_help_are_those_of_plotting():
    from mflandscape.cli.results import _PICTURES
    from mflandscape.plotting import PICTURES

    assert list(_PICTURES) == list(PICTURES)


def started(command, out):
    """The process of a command line whose run has been created; it is compiling then."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (out / "run.json").exists() and process.poll() is None:
        time.sleep(0.05)
    return process


def test_interrupted_and_resumed(tmp_path):
    """Stopped by a signal it exits with 130 and says how to go on; doing so gives the uninterrupted run."""
    words = ["--beta", "1,5", "--n-particles", "60", "--max-steps", "20000", "--stop", "none", "--save", "ends"]
    out = tmp_path / "stopped"
    command = [sys.executable, "-m", "mflandscape.cli", "run", *words, "--out", str(out), "--json"]
    process = started(command, out)
    os.kill(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert json.loads(stdout)["interrupted"] and "once more to abort" in stderr
    resume = stderr.splitlines()[-1].split()
    assert resume == ["mflandscape", *command[3:], "--resume"]
    assert list((out / "checkpoint").iterdir())
    assert call("run", *words, "--out", tmp_path / "whole", "--quiet").exit_code == 0
    resumed = call(*resume[1:])
    assert resumed.exit_code == 0 and not json.loads(resumed.stdout)["interrupted"]
    one, other = open_run(out), open_run(tmp_path / "whole")
    assert set(one) == set(other)
    for name in set(one) - {"seconds"}:
        np.testing.assert_array_equal(one[name].values, other[name].values, err_msg=name)


def test_second_signal_ends_at_once(tmp_path):
    out = tmp_path / "stopped"
    process = started([sys.executable, "-m", "mflandscape.cli", "run", *SMALL, "--out", str(out), "--json"], out)
    os.kill(process.pid, signal.SIGTERM)
    assert process.stderr is not None and process.stderr.readline() == "\n"
    os.kill(process.pid, signal.SIGTERM)
    stdout, _ = process.communicate(timeout=120)
    assert (process.returncode, stdout) == (130, "") and not any((out / "ledger").iterdir())
    assert call("run", "--resume", "--out", out, "--quiet").exit_code == 0


# Presets, progress


def test_presets_round_trip(at):
    listing = call("presets").stdout
    assert len(listing.splitlines()) >= len(PRESETS)
    for name in PRESETS:
        assert f"{name} " in listing
        (at / "p.toml").write_text(call("presets", name).stdout)
        assert Spec.from_toml("p.toml") == preset(name)
    assert max(map(len, listing.splitlines())) <= 80
    found = call("presets", "paper-s9")
    assert found.exit_code == 2 and "did you mean" in found.stderr


def test_toml_of_awkward_values():
    spec = Spec(beta=(1e-300, 1.0), total_time=0.5, save="times", save_times=(0.1, 0.30000000000000004))
    text = toml(spec.to_dict() | {"weights": 'a "quoted"\\name.json'})
    import tomllib

    assert tomllib.loads(text) | {"weights": "numpy"} == {k: v for k, v in spec.to_dict().items() if v is not None}
    assert tomllib.loads(text)["weights"] == 'a "quoted"\\name.json'


def test_progress_in_words():
    rate = Rate()
    assert math.isnan(rate(Progress(0, 4, 100, {}, 5.0, math.nan)))
    late = Progress(1, 4, 20_100, {}, 7.0, 50_000.0)
    assert sentence(late, rate(late)) == "1/4 members  20.1k steps  10.0k/s  0:00:05 left"
    assert "time left unknown" in sentence(Progress(0, 4, 3, {}, 1.0, math.nan), math.nan)
