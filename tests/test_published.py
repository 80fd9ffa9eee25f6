import json
import math

import numpy as np
import pytest

from mflandscape import published, starts, weights
from mflandscape.published import DEFAULTS, PICTURE_KEYS, load_config, read_config
from mflandscape.spec import Spec

SHIPPED = {
    "betas": [0.01, 0.05, 0.1, 0.5, 1, 3, 5, 7, 10, 15, 25, 35, 50],
    "n_particles": 500,
    "dt": 0.1,
    "total_time": "inf",
    "max_steps": 200000,
    "save_every": 10,
    "dimension": 3,
    "integrator": "euler",
    "k_max": 20,
    "num_point_inits": 1,
    "particle_seed": 42,
    "cluster_scale": 0.5,
    "mass_threshold": 0.0,
    "convergence_window": 5,
    "convergence_drift_tol": 0.0001,
    "convergence_spread_factor": 1.0,
    "attention_mode": "unnormalized",
    "self_attention": True,
    "ascending": False,
    "num_mlp_inits": 1,
    "mlp_units": None,
    "activation": "relu",
    "mlp_scale": [1.0],
    "mlp_scale_mode": "std",
    "mlp_seed": 777,
    "results_dir": "results",
    "experiment_dir": None,
    "plot_interval": 0.1,
    "output_frame_limit": 400,
    "gif_sphere": True,
    "sphere_gif_rotations": 1.0,
}


@pytest.fixture
def config(tmp_path):
    def write(values):
        path = tmp_path / "config.json"
        path.write_text(values if isinstance(values, str) else json.dumps(values))
        return path

    return write


def test_shipped_config(config):
    read = read_config(config(SHIPPED))
    (spec,) = read.specs
    assert spec == Spec(
        beta=SHIPPED["betas"],
        dim=3,
        n_particles=500,
        activation="relu",
        weights="numpy",
        weight_seed=777,
        start="numpy",
        start_seed=42,
        stop="published",
        max_steps=200_000,
    )
    assert set(read.notes) == set(SHIPPED) and str(read.out) == "results"
    assert all(note.startswith(("honoured", "not applicable: ")) for note in read.notes.values())
    assert set(read.defaults) == set(DEFAULTS) - set(SHIPPED) == {"gradient_MLP", "mlp_params_path"}


def test_omitted_keys_take_the_published_defaults(config):
    read = read_config(config({}))
    (spec,) = read.specs
    assert spec == Spec(
        beta=[0.1, 0.5, 1, 2, 5, 7, 9, 12, 15, 25],
        dim=2,
        n_particles=1000,
        dt=5e-4,
        total_time=20.0,
        max_steps=40_000,
        stop="none",
        self_attention=False,
        mlp_scale=0.5,
        weight_seed=11,
        start_seed=7,
        cluster_scale=1.0,
        drift_tol=1e-3,
        activation="relu",
    )
    assert read.notes == {} and read.defaults == DEFAULTS and spec.step_limit == 40_000


HONOURED = [
    ({"betas": "0.1, 1,5"}, {"beta": (0.1, 1.0, 5.0)}),
    ({"betas": [5]}, {"beta": (5.0,)}),
    ({"dimension": 3}, {"dim": 3}),
    ({"dimension": [2]}, {"dim": 2}),
    ({"n_particles": 64}, {"n_particles": 64}),
    ({"total_time": "inf", "max_steps": 70}, {"stop": "published", "max_steps": 70, "total_time": math.inf}),
    ({"total_time": " Infinity "}, {"stop": "published", "max_steps": 200_000}),
    ({"total_time": "infty"}, {"stop": "published"}),
    ({"total_time": "infinite"}, {"stop": "published"}),
    ('{"total_time": Infinity}', {"stop": "published"}),
    ({"total_time": 3, "dt": 0.1}, {"stop": "none", "max_steps": 30, "total_time": 3.0}),
    ({"total_time": "3", "dt": 0.1}, {"stop": "none", "max_steps": 30}),
    ({"total_time": 3.06, "dt": 0.1, "max_steps": 5}, {"max_steps": 31, "step_limit": 31}),
    ({"save_every": 7}, {"observe_every": 7}),
    ({"integrator": "rk2"}, {"integrator": "midpoint"}),
    ({"integrator": "RK4"}, {"integrator": "rk4"}),
    ({"attention_mode": "normalized"}, {"attention_mode": "normalized", "self_attention": True}),
    ({"self_attention": True}, {"self_attention": True}),
    ({"ascending": True}, {"direction": "ascent"}),
    ({"activation": "GeLU"}, {"activation": "gelu"}),
    ({"mlp_units": 7}, {"mlp_units": 7}),
    ({"mlp_scale": 2}, {"mlp_scale": (2.0,)}),
    ({"mlp_scale": [2, 3], "betas": [1]}, {"mlp_scale": (2.0, 3.0)}),
    ({"mlp_scale": [0.5, 1.0, 2.0]}, {"mlp_scale": (0.5,)}),
    ({"mlp_scale": [1, 2, 3]}, {"mlp_scale": (1.0,)}),
    ({"mlp_scale": [1, 1, 3]}, {"mlp_scale": (1.0,)}),
    ({"mlp_scale": [1, 2, 0.5], "betas": [1]}, {"mlp_scale": (1.0, 1.5, 2.0)}),
    ({"mlp_scale": [2, 1, 0.5], "betas": [1]}, {"mlp_scale": (2.0, 1.5, 1.0)}),
    ({"mlp_scale": [1, 2, -0.5], "betas": [1]}, {"mlp_scale": (1.0, 1.5, 2.0)}),
    ({"mlp_scale_mode": "norm"}, {"mlp_scale_mode": "norm"}),
    ({"gradient_MLP": False}, {"gradient_mlp": False}),
    ({"num_mlp_inits": 3}, {"weight_seed": starts.expand_seeds(11, 3)}),
    ({"num_point_inits": 2, "particle_seed": 42}, {"start_seed": starts.expand_seeds(42, 2)}),
    ({"mlp_params_path": ""}, {"weights": "numpy"}),
    ({"cluster_scale": 0.25}, {"cluster_scale": 0.25}),
    ({"mass_threshold": 0.1}, {"mass_threshold": 0.1}),
    ({"convergence_window": 9}, {"window": 9}),
    ({"convergence_drift_tol": 0, "total_time": "inf"}, {"drift_tol": 0.0}),
    ({"convergence_spread_factor": 0}, {"spread_factor": 0.0}),
]


@pytest.mark.parametrize("values, expected", HONOURED)
def test_keys_are_honoured(config, values, expected):
    (spec,) = read_config(config(values)).specs
    assert {key: getattr(spec, key) for key in expected} == expected


@pytest.mark.parametrize("key", sorted(PICTURE_KEYS))
def test_picture_keys_are_named_as_not_applicable(config, key):
    read = read_config(config({key: 1}))
    assert read.notes[key].startswith("not applicable: ") and list(read.notes) == [key]


NOTES = [
    ({"total_time": 5, "max_steps": 9}, "max_steps", "not applicable: total_time is finite"),
    ({"total_time": 5, "convergence_window": 9}, "convergence_window", "counted at the end"),
    ({"total_time": "inf", "max_steps": 9}, "max_steps", "honoured"),
    ({"total_time": 5}, "total_time", "10000 steps and stop = none"),
    ({"attention_mode": "normalized", "self_attention": False}, "self_attention", "not applicable: normalised"),
    ({"self_attention": False}, "self_attention", "honoured: no velocity changes; energies leave out the self term"),
    ({"integrator": "rk2"}, "integrator", "honoured: midpoint"),
    ({"dimension": [2, 3]}, "dimension", "2 runs, one for each dimension; d = 2 uses the circle's"),
    ({"mlp_scale": [0.5, 1.0, 2.0]}, "mlp_scale", "honoured: 0.5"),
    ({"experiment_dir": "here", "results_dir": "there"}, "results_dir", "not applicable: experiment_dir is given"),
]


@pytest.mark.parametrize("values, key, note", NOTES)
def test_notes(config, values, key, note):
    assert note in read_config(config(values)).notes[key]


def test_a_list_of_dimensions_is_a_run_for_each(config):
    read = read_config(config({"dimension": [2, 3, 5], "betas": [1, 2]}))
    assert [spec.dim for spec in read.specs] == [2, 3, 5]
    assert [spec.perceptrons()[0].units for spec in read.specs] == [2, 3, 5]
    assert {spec.beta for spec in read.specs} == {(1.0, 2.0)}


@pytest.mark.parametrize("folders, out", [({}, "results"), ({"experiment_dir": "a"}, "a"), ({"results_dir": "b"}, "b")])
def test_suggested_folder(config, folders, out):
    assert str(read_config(config(folders)).out) == out


BAD = [
    ('{"betas": [1],\n "dt": ', r"config.json, line 2: the configuration is truncated or not JSON"),
    ("[1, 2]", "config.json: got list; expected a JSON object"),
    ({"beta": [1]}, "unknown key 'beta'; did you mean 'betas'.*a key of our TOML form"),
    ({"mlp_sed": 3}, "unknown key 'mlp_sed'; did you mean 'mlp_seed'"),
    ({"exclude_self": True}, "exclude_self is an old name; use self_attention"),
    ({"tie_potential": True}, "tie_potential is an old name; use gradient_MLP"),
    ({"betas": []}, "config.json: betas = .*expected at least one value"),
    ({"betas": "1, x"}, "betas: 'x' is not a number"),
    ({"betas": 5}, "betas = 5: expected a list, or a string"),
    ({"betas": [-1]}, "betas = -1: expected betas >= 0"),
    ({"betas": [1, 1]}, "betas has 1.0 twice"),
    ({"betas": [1e200]}, "beta = 1e.200: exp"),
    ({"dimension": 1}, "dimension = 1: expected dimension >= 2"),
    ({"dimension": []}, "dimension = .*at least one"),
    ({"dimension": "3"}, "dimension = '3': expected a whole number"),
    ({"n_particles": 0}, "n_particles = 0"),
    ({"dt": 0}, "dt = 0: expected dt > 0"),
    ({"total_time": 0}, "total_time = 0: expected total_time > 0"),
    ({"total_time": "forever"}, "total_time: 'forever' is not a number"),
    ({"total_time": 0.01, "dt": 0.1}, "expected at least one step"),
    ('{"total_time": NaN}', "total_time = nan"),
    ({"max_steps": 0, "total_time": "inf"}, "max_steps = 0"),
    ({"save_every": 0}, "save_every = 0"),
    ({"integrator": "rk3"}, "integrator = 'rk3': expected one of euler, rk2, rk4"),
    ({"attention_mode": "softmax"}, "attention_mode = 'softmax': expected one of unnormalized, normalized"),
    ({"self_attention": "yes"}, "self_attention = 'yes': expected true or false"),
    ({"ascending": 1}, "ascending = 1: expected true or false"),
    ({"gradient_MLP": None}, "gradient_MLP = None: expected true or false"),
    ({"activation": "tanh"}, "activation = 'tanh': expected one of relu, gelu"),
    ({"activation": None}, "activation = None: expected text"),
    ({"mlp_units": 0}, "mlp_units = 0"),
    ({"mlp_scale": -1}, "mlp_scale = -1: expected mlp_scale >= 0"),
    ({"mlp_scale": []}, "mlp_scale = .*at least one"),
    ({"mlp_scale": [1, 2, 0], "betas": [1]}, "expected a step other than 0"),
    ({"mlp_scale": [1, 2]}, "mlp_scale has 2 values: expected exactly one beta"),
    ({"mlp_scale_mode": "sd"}, "expected one of std, norm"),
    ({"num_mlp_inits": 0}, "num_mlp_inits = 0"),
    ({"num_point_inits": 1.5}, "num_point_inits = 1.5: expected a whole number"),
    ({"mlp_seed": None}, "mlp_seed = None: expected a whole number"),
    ({"particle_seed": -3}, "particle_seed = -3"),
    ({"cluster_scale": 0}, "cluster_scale = 0"),
    ({"mass_threshold": 2}, "mass_threshold = 2"),
    ({"convergence_window": 0}, "convergence_window = 0"),
    ({"convergence_drift_tol": -1}, "convergence_drift_tol = -1"),
    ({"convergence_spread_factor": -1}, "convergence_spread_factor = -1"),
    ({"mlp_params_path": 3}, "mlp_params_path = 3: expected the name of a file"),
    ({"mlp_params_path": "nowhere.json"}, "nowhere.json: cannot read the weights file"),
    ({"results_dir": 3}, "results_dir = 3: expected the name of a folder"),
]


@pytest.mark.parametrize("values, message", BAD)
def test_bad_configs(config, values, message):
    path = config(values)
    with pytest.raises(ValueError, match=message) as caught:
        read_config(path)
    assert str(path) in str(caught.value) or "nowhere" in str(caught.value)


def test_weights_file_beside_the_config(config, tmp_path):
    entries = [weights.numpy_weights(seed, 2, 4, activation="gelu", gradient=False) for seed in range(2)]
    (tmp_path / "sub").mkdir()
    weights.save_weights(tmp_path / "sub" / "mlp.json", entries)
    given = {"mlp_params_path": "sub/mlp.json", "activation": "relu", "mlp_scale": 0.5, "mlp_units": 9, "mlp_seed": 3}
    read = read_config(config(given))
    (spec,) = read.specs
    assert (spec.activation, spec.weight_seed, spec.mlp_scale) == ("gelu", (0, 1), (1.0,))
    for loaded, entry in zip(spec.perceptrons(), entries, strict=True):
        np.testing.assert_array_equal(loaded.vectors, entry.vectors)
    assert "the weights file says gelu, which wins" in read.notes["activation"]
    assert "free vectors" in read.notes["mlp_params_path"]
    for key in ("mlp_units", "mlp_scale", "mlp_seed"):
        assert read.notes[key].startswith("not applicable: the weights are those of mlp_params_path")
    with pytest.raises(ValueError, match="not scaled; give one"):
        read_config(config(given | {"mlp_scale": [1, 2], "betas": [1]}))
    with pytest.raises(ValueError, match="rows of 2 numbers; expected d = 3"):
        read_config(config(given | {"dimension": 3}))
    weights.save_weights(tmp_path / "sub" / "mlp.json", entries[0])
    with pytest.raises(ValueError, match="num_mlp_inits = 2: .* has one perceptron"):
        read_config(config(given | {"num_mlp_inits": 2}))


def test_load_config_tells_the_two_forms_apart(config, tmp_path):
    ours = tmp_path / "run.toml"
    ours.write_text("beta = [1, 2]\n")
    assert load_config(ours).specs == (Spec(beta=[1, 2]),) and load_config(ours).notes == {}
    assert load_config(config({"betas": [1, 2]})).specs[0].dt == 5e-4
    (tmp_path / "theirs").write_text(' {"betas": [3]}')
    (tmp_path / "ours").write_text("beta = 3\n")
    assert load_config(tmp_path / "theirs").specs[0].weight_seed == (11,)
    assert load_config(tmp_path / "ours").specs == (Spec(beta=3),)
    with pytest.raises(ValueError, match="none: cannot read the configuration"):
        load_config(tmp_path / "none")
    with pytest.raises(ValueError, match="none.json: cannot read the configuration"):
        load_config(tmp_path / "none.json")


def test_published_draws_are_those_of_the_config(config):
    read = read_config(config({"dimension": 2, "mlp_seed": 777, "particle_seed": 42, "num_point_inits": 2}))
    (spec,) = read.specs
    rng = np.random.default_rng(42)
    second = int(rng.integers(0, 2**31 - 1, size=1, dtype=np.int64)[0])
    first_start, second_start = spec.starts()
    np.testing.assert_array_equal(first_start.theta, np.random.default_rng(42).uniform(0, 2 * np.pi, 1000))
    np.testing.assert_array_equal(second_start.theta, np.random.default_rng(second).uniform(0, 2 * np.pi, 1000))
    assert published.DEFAULTS["mlp_scale"] == spec.mlp_scale[0] == 0.5
