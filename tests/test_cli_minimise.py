"""`mflandscape minimise`: its JSON, its text, kernel conventions, what it refuses; and the picture of atom counts."""

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

from mflandscape.cli import main
from mflandscape.plotting.minimisers import atom_counts

ASKED = {"energy", "gap", "atoms", "multiplier", "iterations", "rigorous"}


def call(*words):
    return CliRunner().invoke(main, ["minimise", *map(str, words)])


def test_json_of_one_member_and_of_a_grid():
    found = json.loads(call("--weights", "paper-s1", "--beta", "25,50", "--json").stdout)["members"]
    one = json.loads(call("--weights", "paper-s1", "--beta", 50, "--json").stdout)
    assert one == found[1] and set(one) >= ASKED and one["scale"] == 1
    for member in found:
        masses = [atom["mass"] for atom in member["atoms"]]
        assert sum(masses) == pytest.approx(1) and masses == sorted(masses, reverse=True)
        assert member["rigorous"] and member["converged"] and 0 <= member["gap"] < 1e-12
        for atom in member["atoms"]:
            np.testing.assert_allclose(atom["point"], [math.cos(atom["angle"]), math.sin(atom["angle"])], atol=1e-15)
    angles = [atom["angle"] for atom in one["atoms"]]
    assert masses == pytest.approx([0.5, 0.5], abs=1e-9)
    assert abs(angles[0] - angles[1]) == pytest.approx(math.radians(3.3), abs=1e-3)  # as seen in the prototype


def test_the_exponential_kernel_has_its_own_units():
    """Weights `e^beta` times those of the shifted kernel give the same measure, and `e^beta` times its energy."""
    shifted = json.loads(call("--beta", 1, "--json").stdout)
    words = ("--beta", 1, "--kernel", "exponential", "--mlp-scale", math.e, "--json")
    own = json.loads(call(*words).stdout)
    assert own["energy"] == pytest.approx(math.e * shifted["energy"], rel=1e-12)
    assert [a["angle"] for a in own["atoms"]] == pytest.approx([a["angle"] for a in shifted["atoms"]], abs=1e-7)


def test_text_for_people():
    found = call("--beta", 5, "--weights", "none", "--dim", 3)
    assert found.exit_code == 0, found.output
    assert "proved" in found.stdout and "atoms" in found.stdout and "more, all of them with --json" in found.stdout
    assert max(map(len, found.stdout.splitlines())) <= 80


def test_strict_exits_with_3_where_the_gap_is_too_large():
    assert call("--beta", 1, "--tol", 1e-17, "--strict", "--json").exit_code == 3
    assert call("--beta", 1, "--strict", "--json").exit_code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--direction", "ascent"), "maximise"),
        (("--attention-mode", "normalized"), "no energy"),
        (("--no-gradient-mlp",), "no energy"),
        (("--weights", "paper-s2"), "dim = 3"),
        (("--beta", "-1"), "beta"),
        (("--tol", "much"), "tol"),
        (("--tol", "0"), "tol"),
    ],
)
def test_refusals(words, message):
    found = call(*words)
    assert found.exit_code == 2 and message in found.stderr and found.stdout == ""


def test_picture_of_atom_counts():
    """Resolved counts are lines of full dots, the others bars from the least to the largest count."""
    base = {"activation": "relu", "weight_seed": 7}
    rows = [
        base | {"kernel": kernel, "beta": beta, "counts": counts, "resolved": len(set(counts)) == 1, "intervals": 12}
        for kernel in ("exponential", "shifted")
        for beta, counts in ((1.0, [4, 4, 4]), (2.0, [7, 7, 7]), (12.0, [44, 26, 27]))
    ]
    figure = atom_counts(rows)
    for axes in figure.axes:
        lines = {line.get_gid(): line.get_xydata().tolist() for line in axes.lines}
        assert lines["resolved"] == [[1, 4], [2, 7]] and lines["unresolved"] == [[12, 26], [12, 44]]
        assert lines["bound"] == [[1, 12], [2, 12], [12, 12]]
