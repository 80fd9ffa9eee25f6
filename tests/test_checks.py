"""The checks of theorems: each holds at its defaults, and each sees its conclusion fail where a hypothesis is broken
or the expected number is wrong.
"""

import inspect
import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

import mflandscape as mfl
from mflandscape.checks import CHECKS, Check, Comparison, Verdict
from mflandscape.checks.atomicity import relu_atoms
from mflandscape.checks.base import at_least, at_most
from mflandscape.checks.kernel import smallest_singular_value
from mflandscape.checks.mass_bounds import Member, State, cluster_masses
from mflandscape.checks.regions import continue_densities, find_regions, largest_jump
from mflandscape.checks.states import perceptron, published, smooth_state
from mflandscape.checks.uniform import CASES
from mflandscape.cli import main
from mflandscape.measure import equispaced, from_angles
from mflandscape.theory import eigenvalues, mass_bound
from mflandscape.weights import PerceptronWeights

ANALYTIC = PerceptronWeights("relu", np.array([[0.6, 0.8], [-0.6, -0.8]]), omega=np.array([0.02, 0.02]))
SCALAR = PerceptronWeights("relu", np.eye(2), omega=np.ones(2))
DENSE = State(mfl.Attention(5.0), equispaced(40), "exponential")
PAIR = State(mfl.Attention(5.0), from_angles(np.array([-0.05, 0.05])), "exponential")
HEAP = State(mfl.Attention(5.0), from_angles(1 + 0.001 * np.arange(10)), "exponential")

# name, parameters, whether it takes long
HOLDING = [
    ("lemma-5.1", {"seeds": (7,)}, False),
    ("lemma-5.3", {"betas": (0.5, 5.0, 1e3)}, False),
    ("theorem-3.1", {"particles": (), "gaps": ()}, False),
    ("theorem-3.1", {"weights": published(2, 5), "beta": 0.5, "particles": (), "gaps": ()}, False),
    ("theorem-3.1", {"particles": (32, 64), "gaps": (1e-10, 1e-13)}, True),
    ("theorem-3.2", {"particles": (32, 64)}, True),
    ("theorem-3.3", {"n": 16}, True),
    ("remark-3.4", {}, False),
    ("theorem-3.5", {"ensemble": (DENSE,)}, False),
    ("theorem-3.5", {"ensemble": (Member(25.0, "relu", 0.3),)}, True),
    ("corollary-3.6", {"ensemble": (DENSE,), "heavy_mass": 0.02}, False),
    ("prop-3.7-i", {"seeds": (3, 4), "d": 4}, False),
    ("prop-3.7-ii", {}, True),
    ("prop-6.1", {"particles": ()}, False),
    ("prop-6.1", {"particles": (16, 64)}, True),
    ("rates", {"cases": CASES[:1]}, False),
    ("rates", {"beta": 25.0}, True),
    ("k-max", {"betas": (5.0,), "n": 400}, False),
    ("chaos", {"sizes": (50, 800), "seeds": tuple(range(6)), "times": (0.0, 2.0)}, True),
]  # fmt: skip
# name, parameters, the verdict, whether it takes long; the conclusion fails in every case
BROKEN = [
    ("lemma-5.1", {"deconvolve_at": 3.001, "seeds": (0,)}, "fails", False),
    ("lemma-5.1", {"beta": 0.0, "seeds": (0,)}, "not_applicable", False),
    ("lemma-5.3", {"window": 1.01}, "fails", False),
    ("lemma-5.3", {"betas": (1.0, 5.0)}, "not_applicable", False),
    ("theorem-3.1", {"weights": ANALYTIC, "particles": (), "gaps": ()}, "not_applicable", False),
    ("theorem-3.1", {"weights": ANALYTIC, "particles": (8, 32), "gaps": ()}, "not_applicable", True),
    ("theorem-3.2", {"weights": smooth_state(5.0)[0], "particles": (16, 64)}, "not_applicable", True),
    ("theorem-3.3", {"weights": published(3, 1), "n": 16, "activations": ("gelu",)}, "not_applicable", True),
    ("remark-3.4", {"bias": 1.3}, "not_applicable", False),
    ("remark-3.4", {"matrix": np.diag([1.0, 0.0])}, "not_applicable", False),
    ("theorem-3.5", {"ensemble": (PAIR,)}, "not_applicable", False),
    ("theorem-3.5", {"ensemble": (DENSE,), "share": 0.1}, "fails", False),
    ("corollary-3.6", {"ensemble": (HEAP,)}, "not_applicable", False),
    ("corollary-3.6", {"ensemble": (DENSE,), "heavy_mass": 0.02, "share": 0.01}, "fails", False),
    ("prop-3.7-i", {"matrix": np.diag([1.0, 2.0]), "d": 2, "seeds": (0,)}, "not_applicable", True),
    ("prop-3.7-ii", {"reflect": np.array([1.0, 0.0])}, "not_applicable", True),
    ("prop-3.7-ii", {"beta": 0.0}, "not_applicable", True),
    ("prop-6.1", {"weights": SCALAR, "particles": ()}, "not_applicable", False),
    ("rates", {"cases": CASES[:1], "factor": 1.02}, "fails", False),
    ("rates", {"cases": CASES[:1], "amplitude": 0.1}, "not_applicable", False),
    ("k-max", {"betas": (5.0,), "n": 400, "predicted": (4,)}, "fails", False),
    ("chaos", {"sizes": (50, 800), "seeds": (0, 1), "times": (0.0, 2.0), "constant": 0.0}, "fails", True),
]  # fmt: skip


def cases(table):
    return [pytest.param(*row[:-1], marks=[pytest.mark.slow] if row[-1] else []) for row in table]


@pytest.mark.parametrize("name, parameters", cases(HOLDING))
def test_holds(name, parameters):
    found = CHECKS[name].measure(**parameters)
    assert found.name == name and found.verdict == "holds", found


@pytest.mark.parametrize("name, parameters, verdict", cases(BROKEN))
def test_fails_where_it_must(name, parameters, verdict):
    found = CHECKS[name].measure(**parameters)
    assert (found.verdict, found.conclusion) == (verdict, "fails"), found
    assert bool(found.unmet) == (verdict == "not_applicable")


def test_every_check_is_held_and_broken():
    names = set(CHECKS)
    assert {row[0] for row in HOLDING} == names == {row[0] for row in BROKEN}
    for check in CHECKS.values():
        assert set(check.quick) <= set(inspect.signature(check.measure).parameters)
        assert check.statement.endswith(".") or "[paper" in check.statement


def test_verdicts():
    good, bad = at_most("a", 1.0, 2.0), at_least("b", 1.0, 2.0)
    assert (good.met, bad.met, at_least("b", 2.0, 2.0).met, at_most("nan", math.nan, 1.0).met) == (
        True,
        False,
        True,
        False,
    )
    assert Verdict("n", "s", (), (good,)).verdict == "holds" and Verdict("n", "s", (), (good, bad)).verdict == "fails"
    open_ = Verdict("n", "s", ("beta > 0",), (bad,), {"c": 3})
    assert (open_.verdict, open_.conclusion, Verdict("n", "s", (), ()).verdict) == ("not_applicable", "fails", "fails")
    assert open_.payload() == {
        "name": "n", "statement": "s", "hypotheses_met": False, "measured": {"b": 1.0, "c": 3},
        "tolerance": {"b": {"at least": 2.0}}, "verdict": "not_applicable", "unmet": ["beta > 0"],
        "conclusion": "fails",
    }  # fmt: skip


@pytest.mark.parametrize("d, regions", [(2, 4), (3, 8)])
def test_the_field_of_a_regions_density_in_closed_form(d, regions):
    """Elsewhere it is `P (S - S_A) x`; the density itself solves `K[rho] + v_A/2 = c`."""
    part = perceptron(published(d))
    a, omega = np.asarray(part.a), np.asarray(part.omega)
    found, seen = continue_densities(2.0, part), find_regions(part)
    assert found.regions == len(seen.active) == regions and found.inside < 1e-12
    x, fields = seen.x, []
    quadratic = [(a[on].T * omega[on]) @ a[on] for on in seen.active]
    own = np.stack([quadratic[r] @ y for r, y in zip(seen.at, x, strict=True)])
    for matrix in (*quadratic, np.zeros((d, d))):
        field = own - x @ matrix
        fields.append(np.linalg.norm(field - np.sum(field * x, axis=1)[:, None] * x, axis=1).max())
    np.testing.assert_allclose(found.beyond, min(fields[:-1]) / fields[-1], rtol=1e-9)


def test_jumps_of_the_second_derivative():
    """Against one-sided second differences of `v` beside each kink of the circle, a shared and a biased one."""
    a = np.array([[0.8, 0.0], [-0.4, 0.0], [0.0, 1.0], [1.0, 1.0]])
    part = mfl.Perceptron(a, np.array([0.5, 1.0, -0.3, 2.0]), np.array([0.0, 0.0, 0.2, 5.0]))
    v = lambda t: 2 * np.asarray(part.potential(from_angles(t).x, equispaced(1)))  # noqa: E731
    h, jumps = 1e-5, []
    for kink in (math.pi / 2, math.asin(-0.2)):
        above, below = (v(kink + side * h * np.arange(3)) @ np.array([1, -2, 1]) / h**2 for side in (1, -1))
        jumps.append(abs(above - below))
    np.testing.assert_allclose(jumps, [2 * abs(0.5 * 0.64 - 1.0 * 0.16), 2 * 0.3 * (1 - 0.2**2)], rtol=0.01)
    assert largest_jump(part) == pytest.approx(0.6, rel=1e-12)
    assert largest_jump(perceptron(ANALYTIC)) == 0 == largest_jump(perceptron(published(2, bias=1.3)))


def test_singular_values_of_the_plain_kernel():
    """Its Funk-Hecke eigenvalues: cosines and sines have half the square of the constant's norm."""
    values = eigenvalues(2.0, 2, [0, 4])
    expected = values[1] / values[0] / math.sqrt(2)
    assert smallest_singular_value(mfl.Attention(2.0), 4) == pytest.approx(expected, rel=1e-10)
    assert smallest_singular_value(mfl.Attention(2.0, matrix=np.diag([1.0, 0.0])), 4) < 1e-15


def test_the_density_of_two_opposite_neurons_is_stationary():
    weights, mu = smooth_state(3.0, 128)
    energy = mfl.Attention(3.0) + perceptron(weights)
    u = np.asarray(mfl.first_variation(energy, equispaced(64).x, mu))
    assert np.ptp(u) < 1e-12 * np.ptp(np.asarray(energy.terms[1].potential(equispaced(64).x, mu))) + 1e-13


def test_masses_beside_the_bound_by_hand():
    """Forty equispaced atoms, two in each cluster of `tau/2`."""
    found = cluster_masses((DENSE,))
    assert found.context["clusters of two or more compared"] == 20
    exact = mass_bound(5.0, math.pi / 20).value
    assert found.comparisons[0].measured == pytest.approx(0.05 / exact, rel=1e-9)
    assert found.comparisons[2].measured == pytest.approx(0.05, rel=1e-12)


def test_free_vectors_are_refused():
    free = PerceptronWeights("relu", np.eye(2), w=np.ones((2, 2)))
    with pytest.raises(ValueError, match="free output vectors"):
        relu_atoms(weights=free)


def call(*words):
    return CliRunner().invoke(main, ["check", *words])


def test_command_lists():
    text, rows = call("--list").stdout, json.loads(call("--list", "--json").stdout)
    assert [row["name"] for row in rows] == list(CHECKS) == [line.split()[0] for line in text.splitlines()]
    wrong = call("theorem-3.4")
    assert wrong.exit_code == 2 and "unknown check 'theorem-3.4'; did you mean" in wrong.stderr


def test_command_prints_and_exits(monkeypatch):
    def measured(value=1.0, unmet=()):
        return Verdict("law", "The law.", unmet, (Comparison("size", value, "at most", 1.5),), {"runs": 3})

    law = Check("law", "a law", "The law.", measured, {"value": 2.0})
    monkeypatch.setitem(CHECKS, "law", law)
    monkeypatch.setitem(CHECKS, "open", Check("open", "open", "The law.", lambda: measured(2.0, ("beta > 0",))))
    good, bad = call("law"), call("law", "--quick")
    assert (good.exit_code, bad.exit_code, call("open").exit_code) == (0, 1, 0)
    for word in ("The law.", "hypotheses  met", "size: 1 (at most 1.5)", "runs: 3", "verdict     holds"):
        assert word in good.stdout
    assert (
        "FAILS" in bad.stdout and "not met: beta > 0" in call("open").stdout and "itself fails" in call("open").stdout
    )
    both = call("law", "open", "--json", "--quick")
    (first, second), keys = (
        json.loads(both.stdout),
        {"name", "statement", "hypotheses_met", "measured", "tolerance", "verdict"},
    )
    assert both.exit_code == 1 and keys <= set(first) and second["verdict"] == "not_applicable"
    assert first["measured"]["size"] == 2.0 and first["tolerance"]["size"] == {"at most": 1.5}
    assert "2 checks: 1 holds, 0 FAILS, 1 not applicable" in call("law", "open").stdout


def test_command_runs_a_check():
    (found,) = json.loads(call("lemma-5.3", "--json").stdout)
    assert found["verdict"] == "holds" and found["hypotheses_met"] and set(found["tolerance"]) == set(found["measured"])
