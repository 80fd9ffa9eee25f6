"""`mflandscape theory`: its numbers, its table, what it refuses."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from mflandscape.cli import main
from mflandscape.cli.theory import theory as command
from mflandscape.theory import concavity_window, exit_time, growth_rates, log_growth_rates, lone_atom_bound, mass_bound

KEYS = {
    "beta", "dim", "degrees", "attention_mode", "k_max", "k_max_normalised", "growth_rates", "log_growth_rates",
    "growth_rates_normalised", "tau", "mass_bound_asymptotic", "mass_bound_exact", "lone_atom_bound",
}  # fmt: skip


def call(*words):
    if "theory" not in main.commands:
        main.add_command(command)
    return CliRunner().invoke(main, ["theory", *map(str, words)])


def test_json_of_one_beta():
    found = json.loads(call("--beta", 5, "--json").stdout)
    assert set(found) == KEYS and (found["k_max"], found["degrees"], found["dim"]) == (3, 16, 2)
    np.testing.assert_allclose(found["growth_rates"], growth_rates(5, 2, range(17)), rtol=1e-15)
    np.testing.assert_allclose(found["growth_rates_normalised"], growth_rates(5, 2, range(17), True), rtol=1e-15)
    assert found["log_growth_rates"][0] is None
    np.testing.assert_allclose(found["log_growth_rates"][1:], log_growth_rates(5, 2, range(1, 17)), rtol=1e-15)
    assert (found["tau"], found["mass_bound_exact"]) == (concavity_window(5), mass_bound(5).value)
    assert found["lone_atom_bound"] == lone_atom_bound(5).value
    assert found["mass_bound_asymptotic"] == pytest.approx(0.574192, abs=5e-7)


def test_json_of_several_betas_with_exit_times():
    words = ("--dim", 3, "--n_particles", 1000, "--degrees", 40, "--attention-mode", "normalized", "--json")
    members = json.loads(call("--beta", "1,25", "--beta", 50, *words).stdout)["members"]
    assert [member["beta"] for member in members] == [1, 25, 50]
    for member in members:
        assert set(member) == KEYS | {"n_particles", "exit_time", "log_exit_time"} and len(member["growth_rates"]) == 41
        assert member["exit_time"] == exit_time(member["beta"], 3, 1000, normalised=True)


def test_default_degrees_reach_past_the_fastest():
    for beta, top in ((1, 12), (1e6, 2000), (1e7, 4472 + 10)):
        found = json.loads(call("--beta", beta, "--json").stdout)
        assert found["degrees"] == top > found["k_max"]


def test_tables():
    one = call("--beta", 5, "--n-particles", 1000)
    assert one.exit_code == 0 and "0.125299" in one.stdout and "27.565" in one.stdout and "0.38872" in one.stdout
    assert "degrees 0 to 11 of 0 to 16" in one.stdout
    several = call("--beta", "1,5,25", "--dim", 1000).stdout
    assert "degrees" not in several and max(map(len, several.splitlines())) <= 80
    assert "e1716" in call("--beta", 1e6, "--dim", 1000, "--n-particles", 100).stdout


BAD = [
    ((), "no beta", "--beta 5"),
    (("--beta", "x"), "'x'", "give --beta a number"),
    (("--beta", "-1"), "-1", ">= 0"),
    (("--beta", "nan"), "nan", "finite"),
    (("--beta", "1,1"), "twice", "remove"),
    (("--beta", "1", "--dim", "1"), "dim = 1", ">= 2"),
    (("--beta", "1", "--degrees", "2.5"), "degrees = 2.5", "round it"),
    (("--beta", "1", "--n-particles", "many"), "'many'", "give --n-particles a number"),
    (("--beta", "1", "--attention-mode", "normalised"), "'normalised'", "did you mean 'normalized'"),
]


@pytest.mark.parametrize("words, got, advice", BAD)
def test_bad_input(words, got, advice):
    result = call(*words)
    assert result.exit_code == 2 and got in result.stderr and advice in result.stderr and not result.stdout
