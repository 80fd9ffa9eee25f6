"""The papers' figures: registry, cache and command line with a figure of its own; the findings' oracles; all of paper A
at the quick sizes (slow)."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner
from matplotlib.figure import Figure

from mflandscape.cli import main
from mflandscape.paper import FIGURES, Finding, PaperFigure, a_histograms, make
from mflandscape.paper.published_runs import FALSE_CONVERGENCES, ROWS, against_published, count_finding
from mflandscape.paper.runs import own_kind, with_own_end
from mflandscape.plotting import Member
from mflandscape.spec import Spec

OURS = ["A1", "A3", "A4", "A5", "A6", "A7", "A8", "A9", "A10", "A11", "A12", "Astop"]
GRID = ("beta", "weight_seed", "start_seed", "scale")


def call(*words):
    return CliRunner().invoke(main, ["figure", *map(str, words)])


@pytest.fixture
def toy(monkeypatch):
    """A figure that counts its computations."""
    calls = []

    def compute(settings, folder):
        calls.append((settings, folder))
        if settings.get("stop"):
            raise KeyboardInterrupt
        kind = ("x", ["a long word", "b", "b"], {"units": "1"})
        return {"one": xr.Dataset({"y": ("x", [1.0, np.nan, 3.0]), "n": ("x", [1, -1, 2])}, {"kind": kind})}

    def draw(data):
        figure = Figure()
        figure.subplots().plot(data["one"]["y"])
        return figure

    def settings(quick):
        return {"n": 3 if quick else 4}

    def findings(data):
        return [Finding("the third", "3 (by hand)", f"{float(data['one']['y'][2]):g}", "agrees")]

    figure = PaperFigure("A1", "a toy", settings, compute, draw, findings)
    monkeypatch.setattr(make, "FIGURES", {"A1": figure})
    return calls


def test_the_list_is_complete_and_ordered():
    listed = json.loads(call("--list", "--json").stdout)
    assert [row["name"] for row in listed if row["name"].startswith("A")] == OURS
    assert all(row["title"] and "\n" not in row["title"] for row in listed)
    assert {row["name"]: row["title"] for row in listed} == {f.name: f.title for f in FIGURES.values()}
    text = call("--list").stdout
    assert all(name in text for name in OURS) and max(map(len, text.splitlines())) <= 80


def test_bad_names_exit_with_2_and_the_nearest():
    found = call("A13")
    assert found.exit_code == 2 and "A1" in found.stderr and "did you mean" in found.stderr
    assert call().exit_code == 2


def test_settings_are_plain_and_differ_between_the_sizes():
    for name in OURS:
        sizes = [FIGURES[name].settings(quick) for quick in (True, False)]
        assert sizes[0] != sizes[1]
        assert [json.loads(json.dumps(size)) for size in sizes] == sizes, f"{name}: settings are not JSON values"


def test_data_are_computed_once_for_the_same_settings(toy, tmp_path):
    first = make.make_figure("A1", tmp_path, quick=True)
    again = make.make_figure("A1", tmp_path, quick=True)
    assert len(toy) == 1 and not first.cached and again.cached and again.findings == first.findings
    assert toy[0][1] == tmp_path / "runs" and {p.name for p in first.pictures} == {"A1-quick.png", "A1-quick.pdf"}
    other = make.make_figure("A1", tmp_path, data_only=True)
    assert len(toy) == 2 and other.data != first.data and other.pictures == []
    data, notes = make.read_data(first.data)
    assert list(data["one"]["kind"].values) == ["a long word", "b", "b"] and data["one"]["kind"].attrs == {"units": "1"}
    np.testing.assert_array_equal(data["one"]["y"], [1.0, np.nan, 3.0])
    np.testing.assert_array_equal(data["one"]["n"], [1, -1, 2])
    assert notes["settings"] == {"n": 3}


def test_data_are_there_whole_or_not_at_all(toy, tmp_path, monkeypatch):
    made = make.make_figure("A1", tmp_path, data_only=True)
    (made.data / "notes.json").write_text("{}")
    with pytest.raises(ValueError, match="delete the folder"):
        make.make_figure("A1", tmp_path, data_only=True)

    def breaks(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("mflandscape.paper.data.write_sealed", breaks)
    with pytest.raises(KeyboardInterrupt):
        make.make_figure("A1", tmp_path, quick=True, data_only=True)
    monkeypatch.undo()


def test_an_interruption_says_how_to_go_on(toy, tmp_path, monkeypatch):
    stopping = make.FIGURES["A1"]
    monkeypatch.setattr(make, "FIGURES", {"A1": PaperFigure("A1", "t", lambda quick: {"stop": True}, stopping.compute,
                                                            stopping.draw, stopping.findings)})  # fmt: skip
    found = call("A1", "--out", tmp_path)
    assert found.exit_code == 130 and "same command" in found.stderr
    assert not list(tmp_path.glob("A1/data/*"))


def test_the_command_prints_findings_files_and_time(toy, tmp_path):
    text = call("A1", "--quick", "--out", tmp_path)
    assert text.exit_code == 0, text.output
    for word in ("agrees", "the third: 3", "expected: 3 (by hand)", "A1-quick.png", " s ("):
        assert word in text.stdout
    (row,) = json.loads(call("A1", "--quick", "--json", "--data-only", "--out", tmp_path).stdout)
    assert row["findings"] == [
        {"what": "the third", "expected": "3 (by hand)", "measured": "3", "verdict": "agrees"}
    ]  # fmt: skip
    assert row["pictures"] == [] and row["cached"] and row["name"] == "A1" and len(toy) == 1


def test_the_published_table_is_that_of_the_tests():
    """The converged rows agree with those that the runs themselves are tested against, to the digits printed."""
    setups = json.loads((Path(__file__).parent / "data" / "experiments.json").read_text())["setups"]
    assert set(setups) == set(ROWS)
    for name, how in setups.items():
        ours = {row[0]: row[1:4] for row in ROWS[name] if row[4]}
        assert ours == {row[0]: (row[1], row[2], pytest.approx(row[3], abs=1e-9)) for row in how["rows"]}
    assert {key[0] for key in FALSE_CONVERGENCES} <= set(ROWS)


def ends(counts, heaviest, reasons, n=500):
    shape = (len(counts), 1, 1, 1)
    values = {"clusters": counts, "heaviest_mass": heaviest, "stop_reason": reasons}
    variables = {name: (GRID, np.reshape(value, shape)) for name, value in values.items()}
    variables["start"] = (("particle",), np.zeros(n))
    return xr.Dataset(variables, {"beta": [row[0] for row in ROWS["s2_desc_relu"][: len(counts)]]})


def test_comparison_with_the_published_code_can_fail():
    rows = ROWS["s2_desc_relu"][:3]
    counts, heaviest, good = [row[2] for row in rows], [row[3] for row in rows], ["converged"] * 3
    (same,) = against_published(ends(counts, heaviest, good), "s2_desc_relu", "x")
    assert same.verdict == "agrees" and same.measured == "3 of 3"
    (other,) = against_published(ends([9, *counts[1:]], heaviest, good), "s2_desc_relu", "x")
    assert other.verdict == "differs" and "2 of 3 (beta 0.01: 9" in other.measured
    (heavy,) = against_published(ends(counts, [heaviest[0] + 0.01, *heaviest[1:]], good), "s2_desc_relu", "x")
    assert heavy.verdict == "differs"
    assert against_published(ends(counts, heaviest, good, n=1000), "s2_desc_relu", "x") == []
    (partly,) = against_published(ends([9, *counts[1:]], heaviest, ["max_steps", *good[1:]]), "s2_desc_relu", "x")
    assert partly.measured == "2 of 2" and partly.verdict == "agrees"
    assert count_finding(ends([9, *counts[1:]], heaviest, good), "s2_desc_relu", "x")[0].verdict == "differs"
    assert count_finding(ends(counts, heaviest, good, n=1000), "s2_desc_relu", "x")[0].verdict == "not comparable"


def test_metastable_states_are_told_from_stationary_ones():
    """Attention alone, ascent: two atoms almost opposite each other are left (a saddle), one atom stays."""
    spec = Spec(beta=(3.0,), weights="none", n_particles=8, direction="ascent", start_seed=(0, 1))
    near = np.repeat([1.0, 1.0 + math.pi - 1e-3], [5, 3])
    angles = np.stack([near, np.full(8, 2.0)])[None, None, :, None]
    ds = xr.Dataset(
        {
            "final_angle": ((*GRID, "particle"), angles),
            "clusters": (GRID, np.array([2, 1]).reshape(1, 1, 2, 1)),
            "stop_reason": (GRID, np.full((1, 1, 2, 1), "converged")),
        },
        {"beta": [3.0], "weight_seed": list(spec.weight_seed), "start_seed": [0, 1], "scale": [1.0]},
    )
    found = with_own_end(spec, ds, {"ascent": 200})
    left, stays = Member(start_seed=0), Member(start_seed=1)
    assert own_kind(found, left) == "metastable" and own_kind(found, stays) == "at rest"
    assert found["own_end_clusters"].values[left] == 1 and found["own_end_heaviest_mass"].values[left] == 1.0
    assert found["own_end_residual"].values.max() < 1e-8
    # masses 5/8 and 3/8 meet at their centre: momentum is conserved, the angles' mean stays
    np.testing.assert_allclose(found["own_end_final_angle"].values[left], near.mean(), atol=1e-3)
    changed = found.assign(stop_reason=(GRID, np.full((1, 1, 2, 1), "max_steps")))
    assert own_kind(changed, stays) == "unfinished"


def test_the_published_energy_of_gelu_is_not_the_potential():
    """Of one particle: `v/2` with the primitive by quadrature of 2 GeLU, against `(s^2 Phi + s n)/2`."""
    s, omega, angle = 0.6, 1.7, math.acos(0.6)
    scene = {
        "a": (("weight_seed", "neuron", "coordinate"), [[[1.0, 0.0]]]),
        "omega": (("weight_seed", "neuron"), [[omega]]),
        "angle": ((*GRID, "time", "particle"), np.full((1, 1, 1, 1, 1, 1), angle)),
        "final_angle": ((*GRID, "particle"), np.full((1, 1, 1, 1, 1), angle)),
        "snapshot_time": ((*GRID, "time"), np.zeros((1, 1, 1, 1, 1))),
        "snapshot_count": (GRID, np.ones((1, 1, 1, 1), int)),
        "final_time": (GRID, np.zeros((1, 1, 1, 1))),
    }
    attrs = {"spec": json.dumps({"activation": "gelu", "weights": "numpy"})}
    found = a_histograms.two_energies(xr.Dataset(scene, {"beta": [2.0], "scale": [1.0]}, attrs))
    t = (np.arange(20000) + 0.5) / 20000 * s
    cdf = lambda u: 0.5 * (1.0 + np.vectorize(math.erf)(u / math.sqrt(2.0)))  # noqa: E731
    primitive = float(np.mean(2.0 * t * cdf(t)) * s)
    normal = math.exp(-s * s / 2.0) / math.sqrt(2.0 * math.pi)
    attention = 1.0 / (2.0 * 2.0)
    assert float(found["right"][0]) == pytest.approx(attention + omega * primitive / 2.0, abs=1e-8)
    wrong = attention + omega * (s * s * float(cdf(s)) + s * normal) / 2.0
    assert float(found["published"][0]) == pytest.approx(wrong, abs=1e-12)


@pytest.mark.slow
def test_all_figures_of_paper_a_at_the_quick_sizes(tmp_path):
    """Every picture is drawn; the published code's converged rows are met; what is known to differ does."""
    differ = set()
    for name in OURS:
        made = make.make_figure(name, tmp_path, quick=True, formats=("png",))
        assert made.pictures[0].stat().st_size > 10_000 and made.findings
        rows = [finding for finding in made.findings if "published code, N = 500, rows both call" in finding.expected]
        assert all(finding.verdict == "agrees" for finding in rows)
        differ |= {name} if any(finding.verdict == "differs" for finding in made.findings) else set()
    assert differ <= {"A12", "Astop"}
