import json
import math

import numpy as np
import pytest

from mflandscape import activations, spec, starts, weights
from mflandscape.presets import PAPER_BETAS, PRESETS, preset
from mflandscape.spec import Spec, fields_table


def test_defaults_are_those_of_the_interface():
    default = Spec()
    assert (default.dim, default.n_particles, default.kernel, default.direction) == (2, 1000, "shifted", "descent")
    assert (default.activation, default.weights, default.weight_seed) == ("relu", "numpy", (777,))
    assert (default.dt, default.stop, default.drift_tol, default.window) == (0.1, "published", 1e-4, 5)
    assert default.total_time == math.inf and default.cluster_scale == 0.5 and default.members == 1
    assert Spec(dim=3).weight_seed == (111,) and Spec(weights="none").weight_seed == (0,)


CONVERSIONS = [
    ("beta", 5, (5.0,)),
    ("beta", [1, 2.5], (1.0, 2.5)),
    ("beta", np.array([1.0, 2.0]), (1.0, 2.0)),
    ("beta", 0, (0.0,)),
    ("dim", np.int64(3), 3),
    ("n_particles", 1e3, 1000),
    ("weight_seed", [3, 4], (3, 4)),
    ("start_seed", 2**62, (2**62,)),
    ("total_time", "inf", math.inf),
    ("total_time", 20, 20.0),
    ("self_attention", np.bool_(False), False),
    ("mlp_scale", 2, (2.0,)),
]


@pytest.mark.parametrize("key, value, expected", CONVERSIONS)
def test_values_are_converted(key, value, expected):
    converted = getattr(Spec(**{key: value}), key)
    assert converted == expected and type(converted) is type(expected)
    if isinstance(expected, tuple):
        assert [type(item) for item in converted] == [type(item) for item in expected]


BAD = [
    ({"beta": -1}, r"beta = -1: expected beta >= 0; give"),
    ({"beta": math.nan}, "beta = nan: expected a finite number >= 0"),
    ({"beta": math.inf}, "beta = inf: expected a finite number"),
    ({"beta": []}, r"beta = \[\]: expected at least one value"),
    ({"beta": [1, 2, 1.0]}, "beta has 1.0 twice"),
    ({"beta": "5"}, "beta = '5': expected a number >= 0, or a list; got str"),
    ({"beta": [[1]]}, "got list"),
    ({"beta": True}, "got bool"),
    ({"beta": 1e15}, "no two correct digits in float64"),
    ({"beta": 1e5, "dtype": "float32"}, "no two correct digits in float32 .* or dtype = float64"),
    ({"beta": 710, "kernel": "exponential"}, r"beta = 710: exp\(beta\) overflows float64 .*709.8.*kernel = shifted"),
    ({"beta": 89, "kernel": "exponential", "dtype": "float32"}, r"overflows float32 .*88.7"),
    ({"dim": 1}, "dim = 1: expected dim >= 2"),
    ({"dim": 2.5}, "dim = 2.5: expected a whole number >= 2; round it"),
    ({"n_particles": 0}, "n_particles = 0: expected n_particles >= 1"),
    ({"kernel": "exponentiel"}, "kernel = 'exponentiel': expected one of shifted, exponential; did you mean 'expon"),
    ({"kernel": 3}, "kernel = 3: expected text, one of shifted"),
    ({"attention_mode": "normalised"}, "did you mean 'normalized'"),
    ({"attention_mode": "normalized", "self_attention": False}, "self_attention = false: expected true with"),
    ({"self_attention": "no"}, "self_attention = 'no': expected true or false"),
    ({"self_attention": 1}, "expected true or false"),
    ({"direction": "down"}, "expected one of descent, ascent"),
    ({"activation": "rleu"}, "did you mean 'relu'"),
    ({"weights": "nmpy"}, "weights = 'nmpy': expected one of numpy, .* or a JSON file.*did you mean 'numpy'"),
    ({"weights": "nowhere.json"}, "nowhere.json: cannot read the weights file"),
    ({"weights": "none", "weight_seed": [1, 2]}, "weight_seed has 2 values with weights = none"),
    ({"weights": "none", "mlp_scale": 2}, "mlp_scale = 2 with weights = none"),
    ({"mlp_units": 0}, "mlp_units = 0: expected mlp_units >= 1"),
    ({"mlp_scale": -1}, "mlp_scale = -1: expected mlp_scale >= 0"),
    ({"mlp_scale_mode": "nrm"}, "did you mean 'norm'"),
    ({"weight_seed": -1}, "weight_seed = -1: expected weight_seed >= 0"),
    ({"weight_seed": []}, "expected at least one value"),
    ({"start_seed": 1.5}, "start_seed = 1.5: expected a whole number"),
    ({"start_seed": 2**63}, "start_seed = 9223372036854775808: expected start_seed >= 0 and <="),
    ({"start_seed": [1, 1]}, "start_seed has 1 twice"),
    ({"start": "equispaced", "dim": 3}, "start = equispaced: expected dim = 2, got dim = 3"),
    ({"start": "fibonacci"}, "start = fibonacci: expected dim = 3, got dim = 2"),
    ({"start": "equispaced", "start_seed": [1, 2]}, "start_seed has 2 values with start = equispaced"),
    ({"start": "unifrom"}, "did you mean 'uniform'"),
    ({"start": "nowhere.npy"}, "nowhere.npy: cannot read the points"),
    ({"integrator": "eulr"}, "did you mean 'euler'"),
    ({"dt": 0}, "dt = 0: expected dt > 0"),
    ({"dt": -0.1}, "dt = -0.1: expected dt > 0"),
    ({"rtol": 0}, "rtol = 0: expected rtol > 0"),
    ({"atol": math.inf}, "atol = inf: expected a finite number"),
    ({"temperature": -1}, "temperature = -1: expected temperature >= 0"),
    ({"temperature": 0.1, "integrator": "tsit5"}, "noise needs fixed steps; use euler"),
    ({"stop": "publshed"}, "did you mean 'published'"),
    ({"stop": "stationary", "drift_tol": 0}, "drift_tol = 0 with stop = stationary"),
    ({"drift_tol": -1e-4}, "drift_tol = -0.0001"),
    ({"window": 0}, "window = 0: expected window >= 1"),
    ({"spread_factor": -1}, "spread_factor = -1"),
    ({"cluster_scale": 0}, "cluster_scale = 0: expected cluster_scale > 0"),
    ({"mass_threshold": 1.5}, "mass_threshold = 1.5: expected mass_threshold >= 0 and <= 1"),
    ({"max_steps": 0}, "max_steps = 0"),
    ({"total_time": 0}, "total_time = 0: expected total_time > 0"),
    ({"total_time": -math.inf}, "total_time = -inf"),
    ({"total_time": "long"}, "total_time = 'long': expected a number > 0 or inf; got str"),
    ({"total_time": 0.01}, "total_time = 0.01: expected at least one step of dt = 0.1"),
    ({"observe_every": 0}, "observe_every = 0"),
    ({"save": "evry"}, "did you mean 'every'"),
    ({"save_count": 1}, "save_count = 1: expected save_count >= 2"),
    ({"save_every": 0}, "save_every = 0"),
    ({"save": "times"}, "save = times with 0 save_times"),
    ({"save_times": [1, 2]}, "save = log with 2 save_times"),
    ({"save": "times", "save_times": [2, 1]}, "not ascending"),
    ({"save": "times", "save_times": [1, 9], "total_time": 5}, "save_times end at 9, after total_time = 5"),
    ({"save": "times", "save_times": [-1, 9]}, "save_times = -1: expected save_times >= 0"),
    ({"interaction": "circle_fourier"}, "did you mean 'circle-fourier'"),
    ({"interaction": "circle-fourier", "dim": 3}, "expected dim = 2, got dim = 3"),
    ({"dtype": "float16"}, "expected one of float64, float32"),
    ({"lanes": -1}, "lanes = -1: expected lanes >= 0"),
    ({"bata": 1}, "unknown key 'bata'; did you mean 'beta'"),
    ({"colour": "red"}, "unknown key 'colour'.*Known: beta, dim,"),
]


@pytest.mark.parametrize("values, message", BAD)
def test_bad_values(values, message):
    with pytest.raises(ValueError, match=message):
        Spec.from_dict(values)


ALLOWED = [
    {"beta": 709, "kernel": "exponential"},
    {"beta": [0, 1e8]},
    {"beta": 88, "kernel": "exponential", "dtype": "float32"},
    {"start": "equispaced", "start_seed": [1, 2], "temperature": 0.1},
    {"drift_tol": 0, "spread_factor": 0},
    {"total_time": 0.01, "integrator": "dopri8"},
    {"save": "times", "save_times": [0, 1, 5], "total_time": 5},
    {"start": "fibonacci", "dim": 3, "weights": "none", "mlp_scale": 1},
]


@pytest.mark.parametrize("values", [*ALLOWED, *({"activation": name} for name in spec.ACTIVATIONS)])
def test_specs_survive_json_and_toml(values, tmp_path):
    first = Spec.from_dict(values)
    written = first.to_dict()
    assert Spec.from_dict(json.loads(json.dumps(written, allow_nan=False))) == first
    path = tmp_path / "run.toml"
    path.write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in written.items() if v is not None))
    assert Spec.from_toml(path) == first and Spec.from_toml(path).hash == first.hash


def test_activation_names_are_those_of_the_library():
    for name in spec.ACTIVATIONS:
        assert activations.activation(name).name == name
    with pytest.raises(ValueError, match=", ".join(spec.ACTIVATIONS)):
        activations.activation("none of them")


def test_grid_members_and_hash():
    swept = Spec(beta=[1, 2, 3], weight_seed=[1, 2], start_seed=[0, 1, 2, 3, 4])
    assert swept.grid == {
        "beta": (1.0, 2.0, 3.0),
        "weight_seed": (1, 2),
        "start_seed": (0, 1, 2, 3, 4),
        "scale": (1.0,),
    }
    assert swept.members == 30
    assert swept.hash == Spec.from_dict(swept.to_dict()).hash != swept.replace(dt=0.05).hash
    assert len(swept.hash) == 16 and {swept: 1}[swept.replace()] == 1


def test_step_limit():
    assert Spec(max_steps=70).step_limit == 70
    assert Spec(max_steps=70, total_time=3.0).step_limit == 30
    assert Spec(max_steps=70, total_time=30.0).step_limit == 70
    assert Spec(max_steps=70, total_time=3.0, integrator="tsit5").step_limit == 70


BAD_TOML = [
    ("beta = [1, 2\nn_particles = 5\n", r"run.toml, line 2: the configuration is truncated or not TOML"),
    ('beta = 1\nkernel = "shif', r"run.toml, line 2: the configuration is truncated"),
    ("beta = [1,\n2", r"run.toml, line 2: the configuration is truncated"),
    ("betas = [1]\n", r"run.toml: unknown key 'betas'; did you mean 'beta'"),
    ("beta = -1\n", r"run.toml: beta = -1"),
    ("[run]\nbeta = 1\n", "unknown key 'run'"),
    ("beta = nan\n", "beta = nan"),
]


@pytest.mark.parametrize("content, message", BAD_TOML)
def test_bad_toml(tmp_path, content, message):
    (tmp_path / "run.toml").write_text(content)
    with pytest.raises(ValueError, match=message):
        Spec.from_toml(tmp_path / "run.toml")


def test_missing_toml(tmp_path):
    with pytest.raises(ValueError, match="none.toml: cannot read the configuration"):
        Spec.from_toml(tmp_path / "none.toml")


@pytest.fixture
def folder(tmp_path):
    entries = [weights.numpy_weights(seed, 2, 3, activation="gelu") for seed in range(3)]
    weights.save_weights(tmp_path / "mlp.json", entries)
    np.save(tmp_path / "points.npy", starts.numpy_start(1, 17, 2).x)
    (tmp_path / "run.toml").write_text('weights = "mlp.json"\nstart = "points.npy"\ntotal_time = inf\n')
    return tmp_path


def test_files_are_relative_to_the_toml_and_fill_in_the_defaults(folder):
    run = Spec.from_toml(folder / "run.toml")
    assert run.weights == str(folder / "mlp.json") and run.weight_seed == (0, 1, 2)
    assert run.activation == "gelu" and run.n_particles == 17
    loaded = run.perceptrons()
    assert [one.units for one in loaded] == [3, 3, 3] and len(run.starts()) == 1
    np.testing.assert_allclose(loaded[2].a, weights.numpy_weights(2, 2, 3).a)
    np.testing.assert_array_equal(run.starts()[0].x, starts.numpy_start(1, 17, 2).x)
    (folder / "mlp.json").unlink()
    assert Spec.from_dict(run.to_dict()) == run  # a stored spec is readable without its files


def test_contradictions_with_files(folder):
    run = Spec.from_toml(folder / "run.toml")
    with pytest.raises(ValueError, match="file's activation is gelu, asked for was relu"):
        Spec(weights=run.weights, activation="relu")
    with pytest.raises(ValueError, match="weight_seed = 3: expected an entry of .* which has 3"):
        run.replace(weight_seed=[0, 3]).perceptrons()
    with pytest.raises(ValueError, match="mlp_units = 2: .* has 3"):
        run.replace(mlp_units=2).perceptrons()
    with pytest.raises(ValueError, match="n_particles = 5: .* has 17 points"):
        run.replace(n_particles=5).starts()
    with pytest.raises(ValueError, match="rows of 2 numbers; expected d = 3"):
        run.replace(dim=3).perceptrons()


def test_replace_chooses_dependent_keys_anew(folder):
    run = preset("paper-s1").replace(weights=folder / "mlp.json", start=folder / "points.npy")
    assert (run.activation, run.weight_seed, run.n_particles) == ("gelu", (0, 1, 2), 17)
    assert run.beta == PAPER_BETAS
    back = run.replace(weights="numpy")
    assert back.weight_seed == (777,) and back.activation == "gelu"
    assert run.replace(weights="none").grid["weight_seed"] == (0,)
    assert Spec(weight_seed=5).replace(weights="sampled").weight_seed == (5,)
    assert Spec(mlp_scale=[1, 2], weight_seed=[1, 2]).replace(weights="none").members == 1
    assert preset("paper-s1").replace(weights=folder / "mlp.json", weight_seed=1).weight_seed == (1,)
    with pytest.raises(ValueError, match="asked for was tanh"):
        preset("paper-s1").replace(weights=folder / "mlp.json", activation="tanh")
    with pytest.raises(ValueError, match="unknown key 'weight_seeds'; did you mean 'weight_seed'"):
        run.replace(weight_seeds=1)


def test_perceptrons_and_starts_follow_the_spec():
    run = Spec(dim=3, weight_seed=[4, 5], mlp_units=2, activation="tanh", start_seed=[6, 7, 8], n_particles=9)
    perceptrons, points = run.perceptrons(), run.starts()
    assert len(perceptrons) == 2 and len(points) == 3
    np.testing.assert_array_equal(perceptrons[1].vectors, weights.numpy_weights(5, 3, 2).vectors)
    np.testing.assert_array_equal(points[2].x, starts.numpy_start(8, 9, 3).x)
    drawn = run.replace(weights="sampled", start="uniform", mlp_scale_mode="norm", gradient_mlp=False)
    np.testing.assert_array_equal(drawn.perceptrons()[0].w, weights.sampled_weights(4, 3, 2, "norm", False).w)
    np.testing.assert_array_equal(drawn.starts()[0].x, starts.sampled_start(6, 9, 3).x)
    assert Spec(weights="none").perceptrons() == ()
    assert Spec(start="equispaced", n_particles=5).starts()[0].n == 5
    assert Spec(start="fibonacci", dim=3, n_particles=5).starts()[0].x.shape == (5, 3)


def test_fields_table_lists_every_key():
    rows = {row.name: row for row in fields_table()}
    assert list(rows) == list(Spec().to_dict())
    assert rows["n_particles"].option == "--n-particles" and rows["beta"].many and rows["dt"].unit == "time"
    for row in rows.values():
        assert row.help and row.allowed and row.default


EXPECTED = {
    "paper-s1": dict(dim=2, direction="descent", activation="relu", beta=PAPER_BETAS, weight_seed=(777,)),
    "paper-s1-gelu": dict(activation="gelu", direction="descent"),
    "paper-s1-ascent": dict(direction="ascent", activation="relu", attention_mode="unnormalized"),
    "paper-s1-softmax": dict(direction="ascent", attention_mode="normalized"),
    "paper-s1-softmax-descent": dict(direction="descent", attention_mode="normalized"),
    "paper-s1-attention": dict(direction="ascent", weights="none"),
    "paper-s1-attention-descent": dict(direction="descent", weights="none"),
    "paper-s1-starts": dict(activation="gelu", direction="descent"),
    "paper-s1-scales": dict(dim=2),
    "paper-s2": dict(dim=3, weight_seed=(111,), direction="descent", beta=PAPER_BETAS),
    "paper-s2-ascent": dict(dim=3, direction="ascent"),
    "paper-d5": dict(dim=5, weight_seed=(111,)),
}


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets(name):
    run = preset(name)
    assert run == PRESETS[name].spec and PRESETS[name].description and PRESETS[name].name == name
    for key, value in EXPECTED.get(name, {}).items():
        assert getattr(run, key) == value
    paper = (run.n_particles, run.dt, run.integrator, run.start, run.start_seed[0], run.stop)
    assert paper == (1000, 0.1, "euler", "numpy", 42, "published")
    rule = (run.cluster_scale, run.spread_factor, run.drift_tol, run.window, run.observe_every)
    assert rule == (0.5, 1.0, 1e-4, 5, 10) and len(run.perceptrons()) == (run.weights != "none")


def test_presets_sweep_what_they_say():
    assert set(EXPECTED) <= set(PRESETS)
    assert len(preset("paper-s1").beta) == 13 and preset("paper-s1").members == 13
    assert len(preset("paper-s1-starts").start_seed) == 50 and len(preset("paper-s1-softmax").beta) == 3
    assert preset("paper-s1-scales").members == len(preset("paper-s1-scales").mlp_scale) > 3
    with pytest.raises(ValueError, match="unknown preset 'papers1'; did you mean 'paper-s1'"):
        preset("papers1")
