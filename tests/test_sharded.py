"""Sums and flows divided among devices: the numbers of one device, and no particle that travels without need."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

import mflandscape as mfl
from mflandscape.distributed import first_devices, particle_mesh, shard
from mflandscape.interactions.sharded import ShardedDirect, ShardedSpectral, sharded

SCRIPT = Path(__file__).with_name("four_devices.py")


def on_four_devices(*cases):
    words = [sys.executable, "-W", "error", str(SCRIPT), *cases]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


@pytest.fixture(scope="module")
def found():
    return on_four_devices("moments", "pairs", "flow", "starts")


@pytest.mark.parametrize("case", ["moments", "pairs"])
def test_sums_and_their_derivatives_are_those_of_dense(found, case):
    assert found[case]["deviation"] < 1e-13


def check_flow(flow):
    assert flow["flow"] < 1e-12
    assert flow["rows a device"] == 384 and flow["parts"] > 0 < flow["sums over devices"]
    assert flow["gathers"] == flow["whole arrays"] == 0


def test_a_whole_flow_is_partitioned_and_its_particles_stay(found):
    check_flow(found["flow"])


@pytest.mark.slow
def test_other_evaluators_are_divided_too_and_flows_in_reverse_mode():
    found = on_four_devices("sphere", "fused", "reverse")
    check_flow(found["reverse"])
    assert found["sphere"]["deviation"] < 1e-13 > found["fused"]["deviation"]


def test_starts_and_noise_are_the_same_for_any_number_of_devices(found):
    assert found["starts"] == {"starts": True, "rows": [1536, 768, 512, 384, 61], "noise": True}


def test_a_drift_is_divided_wherever_its_evaluators_are():
    mesh = particle_mesh()
    drift = mfl.Attention(1.0, interaction=mfl.CircleFourier(8)) + mfl.SoftmaxAttention(2.0)
    placed = shard(drift, mesh)
    spectral, direct = (term.interaction for term in placed.terms)
    assert isinstance(spectral, ShardedSpectral) and isinstance(direct, ShardedDirect)
    assert spectral.inner == mfl.CircleFourier(8) and mesh.shape["particles"] == len(jax.devices())
    again = shard(placed, mesh).terms[0].interaction
    assert again == spectral
    with pytest.raises(ValueError, match="d = 2"):
        mfl.velocity(placed, mfl.uniform(jax.random.key(0), 4, 3))


def test_what_cannot_be_divided_is_refused():
    with pytest.raises(ValueError, match='expected one named "particles"'):
        sharded(mfl.Dense(), Mesh(np.asarray(jax.devices()), ("lanes",)))
    with pytest.raises(ValueError, match="devices = 99: expected 1 to"):
        first_devices(99)
