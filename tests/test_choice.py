"""The table that chooses an evaluator: what it gives, what the user may change, the command that prints it."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from click.testing import CliRunner

from mflandscape import Spec
from mflandscape.cli import main
from mflandscape.experiment import Experiment
from mflandscape.interactions import (
    EVALUATORS,
    Blocked,
    Choice,
    CircleFourier,
    Dense,
    SphereFourier,
    Tiled,
    choice_table,
    choose,
    choose_interaction,
    named_interaction,
)

CASES = [
    (2, 10**6, 50.0, False, "cpu", CircleFourier),
    (2, 1000, 50.0, False, "gpu", CircleFourier),
    (2, 100, 50.0, True, "cpu", Dense),
    (2, 1000, 1e6, False, "cpu", Dense),  # more modes than pairs are worth
    (3, 800, 50.0, False, "cpu", Dense),
    (3, 1000, 10.0, False, "cpu", SphereFourier),
    (3, 1000, 50.0, False, "cpu", SphereFourier),
    (3, 2048, 50.0, True, "cpu", Blocked),
    (3, 10**5, 1e5, False, "cpu", Blocked),  # tables of gigabytes
    (5, 1536, 50.0, False, "cpu", Dense),
    (5, 1537, 50.0, False, "cpu", Blocked),
    (3, 1000, 10.0, False, "gpu", Tiled),
    (3, 10**6, 10.0, False, "cuda", SphereFourier),
    (10, 10**6, 10.0, True, "gpu", Tiled),
]


@pytest.mark.parametrize("d,n,beta,matrix,device,kind", CASES)
def test_the_choice_of_an_evaluator(d, n, beta, matrix, device, kind):
    chosen = choose_interaction(d, n, beta, np.float64, matrix, device)
    assert type(chosen) is kind
    chosen.check(d, matrix)


def test_every_case_has_a_line_and_every_line_is_some_case_s():
    taken = set()
    for d in (2, 3, 4):
        for n in (1, 10, 1000, 10**4, 10**7):
            for beta in (0.0, 1.0, 50.0, 1e8):
                for matrix in (False, True):
                    taken |= {choose(d, n, beta, matrix, device) for device in ("cpu", "gpu")}
    assert taken == set(choice_table())


def test_by_default_for_the_device_in_use():
    assert jax.default_backend() == "cpu"
    assert choose(3, 10**4, 1e8) == choose(3, 10**4, 1e8, device="cpu") != choose(3, 10**4, 1e8, device="gpu")


def test_the_modes_follow_the_dtype():
    double, single = (choose_interaction(2, 1000, 50.0, dtype).modes for dtype in (np.float64, np.float32))
    assert double == CircleFourier.for_beta(50.0).modes > single


def test_a_table_of_one_s_own():
    table = (Choice("tiled", "to try it", most=100.0), *choice_table())
    assert choose_interaction(2, 100, 5.0, table=table) == Tiled()
    assert choose_interaction(2, 101, 5.0, table=table) == CircleFourier.for_beta(5.0)
    with pytest.raises(ValueError, match="no line of the table holds for d = 2, n = 101.*end it with one that always"):
        choose(2, 101, 5.0, table=table[:1])


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="evaluator 'fmm': expected one of dense, blocked"):
        Choice("fmm", "linear")
    with pytest.raises(ValueError, match="interaction 'fmm': expected one of dense, blocked"):
        named_interaction("fmm", 5.0)


@pytest.mark.parametrize("name", EVALUATORS)
def test_a_spec_may_name_every_evaluator(name):
    if name.endswith("nufft"):
        pytest.importorskip("jax_finufft")
    dim = 3 if name.startswith("sphere") else 2
    found = Experiment(Spec(beta=(1.0, 5.0), dim=dim, n_particles=8, interaction=name)).interaction
    kind = {"circle-nufft": "nonuniformfft", "sphere-nufft": "spherenonuniformfft"}.get(name, name.replace("-", ""))
    assert found == named_interaction(name, 5.0) and type(found).__name__.lower() == kind
    if name.startswith(("circle", "sphere")):
        with pytest.raises(ValueError, match=f"interaction = {name}: expected dim = {dim}, got dim = 5"):
            Spec(dim=5, interaction=name)


def call(*words):
    return CliRunner().invoke(main, ["evaluators", *map(str, words)])


def test_the_command_prints_the_table_and_the_choice():
    found = call("--dim", 3, "--n-particles", 65536, "--beta", 50, "--device", "cpu")
    assert found.exit_code == 0 and max(map(len, found.stdout.splitlines())) <= 80
    text = " ".join(found.stdout.split())
    for line in choice_table():
        assert f"{line.evaluator} {line.where}: {line.why}" in text
    assert f"chosen sphere-fourier, {SphereFourier.for_beta(50.0)!r}: linear in N" in text


def test_the_command_s_json():
    words = ("--dim", 3, "--n_particles", 4096, "--beta", 10, "--dtype", "float32", "--device", "gpu", "--json")
    found = json.loads(call(*words).stdout)
    given = {"dim": 3, "n_particles": 4096, "beta": 10.0, "dtype": "float32", "device": "gpu"}
    assert found["given"] == given and found["chosen"]["evaluator"] == "tiled" and found["chosen"]["where"] == "gpu"
    assert [line["evaluator"] for line in found["table"]] == [line.evaluator for line in choice_table()]
    assert set(found["table"][0]) == {field.name for field in dataclasses.fields(Choice)} | {"where"}


@pytest.mark.parametrize(
    "words,message",
    [
        (("--dim", 1), "dim = 1: expected dim >= 2"),
        (("--beta", "warm"), "beta = 'warm'"),
        (("--n-particles", 0), "n_particles = 0"),
    ],
)
def test_the_command_refuses(words, message):
    found = call(*words)
    assert found.exit_code == 2 and message in found.stderr
