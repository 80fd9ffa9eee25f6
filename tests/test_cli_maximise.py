"""The command `maximise`: what it prints, for people and for scripts, and what it refuses."""

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

from mflandscape.cli import main
from mflandscape.weights import PerceptronWeights, numpy_weights, save_weights

KEYS = {
    "beta",
    "weight_seed",
    "scale",
    "value",
    "energy",
    "points",
    "dimensions",
    "continuum",
    "gap",
    "method",
    "rigorous",
}


def call(*words):
    return CliRunner().invoke(main, ["maximise", *(str(word) for word in words)])


def asked(*words):
    found = call(*words, "--json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_published_weights_on_the_circle():
    """Against a grid of angles, fine enough for a maximum to 1e-9 and its place to 1e-4."""
    found = asked("--weights", "paper-s1", "--beta", 5)
    weights, angles = numpy_weights(777, 2), np.linspace(0, 2 * math.pi, 200_001)
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    values = np.maximum(x @ weights.a.T, 0) ** 2 @ weights.omega
    assert set(found) == KEYS | {"angles"}
    assert 0 <= found["value"] - values.max() < 1e-9
    np.testing.assert_allclose(found["points"], [x[values.argmax()]], atol=1e-4)
    np.testing.assert_allclose(found["angles"], [angles[values.argmax()]], atol=1e-4)
    assert found["energy"] == pytest.approx((found["value"] + 1 / 5) / 2, abs=1e-14)
    assert (found["continuum"], found["method"], found["rigorous"]) == (False, "arrangement", True)


def test_grid_and_kernel_conventions():
    """The exponential kernel has the same maximisers, and the energy `e^beta / beta` of its own units."""
    shifted = asked("--weights", "paper-s2", "--dim", 3, "--beta", "1,2", "--mlp-scale", 3)["members"]
    own = asked("--weights", "paper-s2", "--dim", 3, "--beta", "1,2", "--mlp-scale", 3, "--kernel", "exponential")
    for one, other in zip(shifted, own["members"], strict=True):
        assert set(one) == KEYS and one["scale"] == 3 and one["beta"] == other["beta"]
        assert one["value"] == pytest.approx(other["value"], rel=1e-12)
        assert other["energy"] == pytest.approx((one["value"] + math.exp(one["beta"]) / one["beta"]) / 2, rel=1e-12)
        np.testing.assert_allclose(one["points"], other["points"], atol=1e-12)


def test_gelu_is_searched():
    found = asked("--weights", "paper-s1", "--beta", 5, "--activation", "gelu")
    assert found["method"] == "branch and bound" and found["rigorous"] and found["gap"] < 1e-10


def test_file_of_weights_and_the_text_for_people(tmp_path):
    save_weights(tmp_path / "w.json", PerceptronWeights("relu", np.eye(3), omega=np.ones(3)))
    found = call("--weights", tmp_path / "w.json", "--dim", 3, "--beta", "1,5")
    assert found.exit_code == 0, found.output
    assert "continuum, dim 2" in found.stdout and "beta 5" in found.stdout and "arrangement" in found.stdout
    assert max(map(len, found.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--weights", "paper-s2"), "dim = 2"),
        (("--weights", "paper-s1", "--tol", "x"), "tol = 'x'"),
        (("--weights", "paper-s1", "--tol", "-1"), "tol = -1"),
        (("--weights", "paper-s1", "--beta", "-1"), "beta"),
        (("--weights", "paper-s9"), "did you mean"),
    ],
)
def test_bad_input(words, message):
    found = call(*words)
    assert found.exit_code == 2 and message in found.stderr and "Traceback" not in found.stderr
