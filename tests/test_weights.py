import json
from pathlib import Path

import jax
import numpy as np
import pytest

import mflandscape.activations as activations
from mflandscape import sphere, starts, weights
from mflandscape.weights import PerceptronWeights, declared_activation, load_weights, numpy_weights, sampled_weights

SEEDS = {2: 777, 3: 111}
DRAWS = np.load(Path(__file__).parent / "data" / "published_draws.npz")
A = [[1.0, 0.0], [0.6, 0.8]]
OMEGA = [[2.0, 0.0], [-0.3, -0.4]]
FREE = [[1.0, 1.0], [0.0, 2.0]]


def write(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("d", [2, 3])
def test_published_weights_to_the_bit(d):
    drawn = numpy_weights(SEEDS[d], d)
    assert drawn.omega is not None and drawn.gradient and drawn.activation == "relu"
    np.testing.assert_array_equal(drawn.a, DRAWS[f"a_d{d}"], strict=True)
    np.testing.assert_array_equal(drawn.vectors, DRAWS[f"omega_d{d}"], strict=True)
    free = numpy_weights(SEEDS[d], d, gradient=False)
    assert free.omega is None and not free.gradient
    np.testing.assert_array_equal(free.a, DRAWS[f"a_d{d}"], strict=True)
    np.testing.assert_array_equal(free.vectors, DRAWS[f"w_d{d}"], strict=True)


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("name", ["x0", "x0_64"])
def test_published_starts_to_the_bit(d, name):
    published = DRAWS[f"{name}_d{d}"]
    start = starts.numpy_start(42, len(published), d)
    np.testing.assert_array_equal(start.theta if d == 2 else start.x, published, strict=True)
    assert start.n == len(published) and start.w is None
    np.testing.assert_allclose(np.linalg.norm(start.x, axis=1), 1, atol=4e-16)


@pytest.mark.parametrize("scale", [0.1, 0.3, 1.7, 2.0, 1e-3])
def test_scaling_a_draw_is_the_published_draw_at_that_scale(scale):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        a = rng.normal(size=(5, 3))
        a /= np.linalg.norm(a, axis=1, keepdims=True)
        published = rng.normal(scale=scale, size=(5, 1)) * a
        drawn = numpy_weights(seed, 3, 5)
        assert drawn.omega is not None
        np.testing.assert_array_equal((scale * drawn.omega)[:, None] * drawn.a, published, strict=True)


@pytest.mark.parametrize("draw", [numpy_weights, sampled_weights])
@pytest.mark.parametrize("gradient", [True, False])
def test_distributions(draw, gradient):
    std = draw(3, 3, 4000, "std", gradient)
    norm = draw(3, 3, 4000, "norm", gradient, "gelu")
    assert (std.units, std.dim, norm.activation) == (4000, 3, "gelu")
    np.testing.assert_allclose(np.linalg.norm(std.a, axis=1), 1, atol=1e-15)
    np.testing.assert_allclose(std.a.mean(axis=0), 0, atol=5 / np.sqrt(3 * 4000))
    values = std.omega if gradient else std.w
    np.testing.assert_allclose([values.mean(), values.std()], [0, 1], atol=0.08)
    np.testing.assert_allclose(np.linalg.norm(norm.vectors, axis=1), 1, atol=1e-15)
    if gradient:
        assert set(norm.omega) == {-1.0, 1.0} and abs(norm.omega.mean()) < 0.08
        np.testing.assert_array_equal(np.sign(std.omega), norm.omega)


def test_jax_draws_do_not_depend_on_the_default_dtype():
    for draw in (lambda: sampled_weights(5, 3).vectors, lambda: starts.sampled_start(5, 10, 3).x):
        with jax.enable_x64(True):
            wide = draw()
        with jax.enable_x64(False):
            narrow = draw()
        assert wide.dtype == narrow.dtype == np.float64
        np.testing.assert_array_equal(wide, narrow)


@pytest.mark.parametrize("draw", [numpy_weights, sampled_weights])
def test_weights_are_a_function_of_the_seed(draw):
    np.testing.assert_array_equal(draw(7, 4, 3).vectors, draw(7, 4, 3).vectors)
    assert not np.array_equal(draw(7, 4, 3).a, draw(8, 4, 3).a)
    assert draw(7, 4).units == 4


BAD_WEIGHTS = [
    (dict(activation="rleu", a=A, omega=[1, 2]), "relu"),
    (dict(activation="relu", a=A), "both or neither"),
    (dict(activation="relu", a=A, omega=[1, 2], w=FREE), "both or neither"),
    (dict(activation="relu", a=[1.0, 0.0], omega=[1]), "a has 1 axes: expected 2"),
    (dict(activation="relu", a=[[1.0], [2.0]], omega=[1, 2]), "d >= 2"),
    (dict(activation="relu", a=A, omega=[1, 2, 3]), r"omega has shape \(3,\): expected \(2,\)"),
    (dict(activation="relu", a=A, w=[[1.0, 0.0, 0.0]] * 2), r"w has shape \(2, 3\): expected \(2, 2\)"),
    (dict(activation="relu", a=A, omega=[1, 2], bias=[0.0]), r"bias has shape \(1,\)"),
    (dict(activation="relu", a=[[np.nan, 0], [0, 1]], omega=[1, 2]), "a has nan or inf"),
    (dict(activation="relu", a=A, omega=[np.inf, 2]), "omega has nan or inf"),
    (dict(activation="relu", a=[[1, 0], [0]], omega=[1, 2]), "rows of equal length"),
]


@pytest.mark.parametrize("fields, message", BAD_WEIGHTS)
def test_bad_weights(fields, message):
    with pytest.raises(ValueError, match=message):
        PerceptronWeights(**fields)


@pytest.mark.parametrize("draw", [numpy_weights, sampled_weights])
@pytest.mark.parametrize(
    "arguments, message",
    [((0, 1), "d = 1: expected d >= 2"), ((0, 2, 0), "units = 0"), ((0, 2, 2, "norn"), "did you mean 'norm'")],
)
def test_bad_draws(draw, arguments, message):
    draw = getattr(draw, "__wrapped__", draw)  # the message, not the type checker's
    with pytest.raises(ValueError, match=message):
        draw(*arguments)


def test_weights_are_read_only_copies():
    a = np.array(A)
    kept = PerceptronWeights("relu", a, omega=[1, 2])
    a[0] = 9
    assert kept.a[0, 0] == 1 and not kept.a.flags.writeable


ONE = {"activation": "gelu", "a": A, "omega": OMEGA}
FORMS = [
    (ONE, 1),
    ({"params": [ONE, ONE]}, 2),
    ({"mlp_params": [ONE]}, 1),
    ([ONE, ONE, ONE], 3),
    ({"activation": "gelu", "params": [{"a": A, "omega": OMEGA}]}, 1),
    ({"activation": " GeLU ", "comment": "free text", "a": A, "omega": OMEGA}, 1),
    ([ONE, {"a": A, "omega": OMEGA}], 2),
]


@pytest.mark.parametrize("content, count", FORMS)
def test_published_forms_of_a_file(tmp_path, content, count):
    path = write(tmp_path / "mlp.json", content)
    entries = load_weights(path, 2)
    assert len(entries) == count and declared_activation(path) == "gelu"
    for entry in entries:
        assert entry.activation == "gelu" and entry.bias is None
        np.testing.assert_array_equal(entry.a, A)
        np.testing.assert_allclose(entry.omega, [2.0, -0.5], rtol=1e-15)


def test_a_flat_row_is_one_neuron(tmp_path):
    path = write(tmp_path / "mlp.json", {"a": [0.0, 2.0], "omega": [0.0, 3.0], "bias": 0.25})
    (entry,) = load_weights(path, 2)
    assert entry.units == 1 and entry.activation == "relu" and declared_activation(path) is None
    np.testing.assert_array_equal(entry.omega, [1.5])  # a is used as given, not normalised
    np.testing.assert_array_equal(entry.bias, [0.25])
    assert load_weights(path, 2, "tanh")[0].activation == "tanh"


@pytest.mark.parametrize("tilt, gradient", [(0.0, True), (1e-13, True), (1e-11, False), (0.5, False)])
def test_gradient_form_is_detected_within_1e_12(tmp_path, tilt, gradient):
    a = np.array([[0.6, 0.8], [1e-200, 0.0], [0.0, 0.0]])
    omega = np.array([[0.6, 0.8], [-3e-200, 0.0], [0.0, 0.0]]) * 2
    omega[0] += tilt * np.array([-0.8, 0.6]) * 2
    (entry,) = load_weights(write(tmp_path / "w.json", {"a": a.tolist(), "omega": omega.tolist()}), 2)
    assert entry.gradient is gradient
    if gradient:
        np.testing.assert_allclose(entry.omega, [2, -6, 0], rtol=1e-12)
    else:
        np.testing.assert_array_equal(entry.w, omega)


def test_entries_are_all_of_one_form(tmp_path):
    path = write(tmp_path / "w.json", [{"a": A, "omega": OMEGA}, {"a": A, "omega": FREE, "bias": [1, 2]}])
    first, second = load_weights(path, 2)
    assert not first.gradient and not second.gradient
    np.testing.assert_array_equal(first.w, OMEGA)
    np.testing.assert_array_equal(first.bias, [0, 0])


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize("count", [1, 3])
def test_saved_weights_are_read_back(tmp_path, gradient, count):
    drawn = [numpy_weights(seed, 3, 4, gradient=gradient, activation="softplus") for seed in range(count)]
    drawn[0] = PerceptronWeights("softplus", drawn[0].a, drawn[0].omega, drawn[0].w, bias=[0.1, 0.2, 0.3, 0.4])
    path = tmp_path / "saved.json"
    weights.save_weights(path, drawn[0] if count == 1 else drawn)
    for before, after in zip(drawn, load_weights(path, 3), strict=True):
        assert after.activation == "softplus" and after.gradient is gradient
        np.testing.assert_array_equal(after.a, before.a)
        np.testing.assert_allclose(after.vectors, before.vectors, rtol=1e-14)
    with pytest.raises(ValueError, match="no weights"):
        weights.save_weights(path, [])


BAD_FILES = [
    ('{"a": [[1, 0]],\n "omega": [[1,', r"bad.json, line 2: the weights file is truncated or not JSON"),
    ("a = 3", r"line 1: the weights file is truncated or not JSON"),
    ("3", "expected an object"),
    ("[]", "non-empty list"),
    ({"params": 3}, "non-empty list"),
    ([3], "entry 0: got int"),
    ({"a": A}, "'omega' is missing"),
    ({"a": A, "omega": OMEGA, "biass": [1, 2]}, "did you mean 'bias'"),
    ({"a": A, "omega": [[1.0, 0.0]]}, r"a has shape \(2, 2\) and omega \(1, 2\)"),
    ({"a": [[1.0, 0, 0]], "omega": [[1.0, 0, 0]]}, "rows of 3 numbers; expected d = 2; set dim = 3"),
    ({"a": [[1.0], [2.0, 3.0]], "omega": OMEGA}, "rows of equal length"),
    ({"a": A, "omega": [["x", 1], [2, 3]]}, "no array of numbers"),
    ('{"a": [[NaN, 1]], "omega": [[1, 1]]}', "a has nan or inf"),
    ({"a": A, "omega": [[None, 1], [2, 3]]}, "omega has nan or inf"),
    ({"a": A, "omega": OMEGA, "bias": [1.0]}, r"bias has shape \(1,\)"),
    ({"a": A, "omega": OMEGA, "activation": "gelo"}, r"bad.json, entry 0: .*gelu"),
    ([ONE, {"activation": "relu", "a": A, "omega": OMEGA}], "activations .'gelu', 'relu'."),
    ([ONE, {"a": A[:1], "omega": OMEGA[:1]}], "different numbers of neurons"),
]


@pytest.mark.parametrize("content, message", BAD_FILES)
def test_bad_files(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        load_weights(write(tmp_path / "bad.json", content), 2)


def test_missing_and_binary_files(tmp_path):
    with pytest.raises(ValueError, match="nowhere.json: cannot read the weights file"):
        load_weights(tmp_path / "nowhere.json", 2)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="binary.json: the weights file is not UTF-8"):
        load_weights(tmp_path / "binary.json", 2)


def test_a_conflicting_activation_is_an_error(tmp_path):
    path = write(tmp_path / "mlp.json", ONE)
    with pytest.raises(ValueError, match="file's activation is gelu, asked for was relu"):
        load_weights(path, 2, "relu")
    assert load_weights(path, 2, "gelu")[0].activation == "gelu"


def test_expanded_seeds_are_the_published_ones():
    # The published code draws them in one call; one by one gives the same.
    drawn = np.random.default_rng(777).integers(0, 2**31 - 1, size=4, dtype=np.int64)
    assert starts.expand_seeds(777, 5) == (777, *map(int, drawn))
    assert starts.expand_seeds(777, 1) == (777,)
    with pytest.raises(ValueError, match="number of seeds = 0"):
        starts.expand_seeds(777, 0)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_sampled_start_is_uniform(d):
    start = starts.sampled_start(1, 4000, d)
    np.testing.assert_allclose(np.linalg.norm(start.x, axis=1), 1, atol=1e-15)
    np.testing.assert_allclose(start.x.T @ start.x / 4000, np.eye(d) / d, atol=0.05)
    assert (start.theta is None) == (d > 2)


def test_lattices():
    circle = starts.equispaced_start(7)
    np.testing.assert_allclose(circle.x, np.asarray(sphere.equispaced(7)), atol=1e-7)
    np.testing.assert_allclose(circle.theta, 2 * np.pi * np.arange(7) / 7, atol=1e-15)
    globe = starts.fibonacci_start(200)
    np.testing.assert_allclose(globe.x.mean(axis=0), 0, atol=0.02)
    assert globe.x.dtype == np.float64
    with pytest.raises(ValueError, match="n = 0"):
        starts.fibonacci_start(0)


def points_file(folder, suffix, x, w=None):
    path = folder / f"points{suffix}"
    if suffix == ".npy":
        np.save(path, x)
    elif suffix == ".npz":
        np.savez(path, **({"x": x} if w is None else {"x": x, "w": w}))
    elif suffix == ".json":
        path.write_text(json.dumps(x.tolist() if w is None else {"points": x.tolist(), "weights": w.tolist()}))
    else:
        table = x.reshape(len(x), -1)
        heading = [f"x{k}" for k in range(table.shape[1])] + ([] if w is None else ["w"])
        table = table if w is None else np.column_stack([table, w])
        join = ", " if suffix == ".csv" else " "
        lines = ["# a comment", join.join(heading), *(join.join(map(repr, map(float, row))) for row in table), ""]
        path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("suffix", starts.SUFFIXES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", ["angles", "circle", "sphere"])
def test_points_of_a_file_are_kept_to_the_bit(tmp_path, suffix, weighted, form):
    d = 3 if form == "sphere" else 2
    drawn = starts.numpy_start(3, 8, d)
    x = drawn.theta if form == "angles" else drawn.x
    w = np.arange(8) / 28 if weighted and suffix != ".npy" else None
    read = starts.load_points(points_file(tmp_path, suffix, x, w), d)
    np.testing.assert_array_equal(read.x, drawn.x, strict=True)
    if form == "angles":
        np.testing.assert_array_equal(read.theta, drawn.theta, strict=True)
    elif form == "circle":
        np.testing.assert_allclose(read.theta, drawn.theta, atol=1e-15)
    if w is None:
        assert read.w is None
    else:
        np.testing.assert_allclose(read.w, w, rtol=1e-15)


def test_nearly_unit_points_and_outlying_angles_are_repaired(tmp_path):
    x = starts.numpy_start(3, 8, 3).x
    near = starts.load_points(points_file(tmp_path, ".npy", (x * (1 + 5e-7)).astype(np.float64)), 3)
    np.testing.assert_allclose(near.x, x, atol=1e-15)
    single = starts.load_points(points_file(tmp_path, ".npy", x.astype(np.float32)), 3)
    np.testing.assert_allclose(np.linalg.norm(single.x, axis=1), 1, atol=1e-15)
    turned = starts.load_points(points_file(tmp_path, ".npy", np.array([-1.0, 7.0, -1e-17, 2 * np.pi])), 2)
    np.testing.assert_allclose(turned.theta, [2 * np.pi - 1, 7 - 2 * np.pi, 0, 0], atol=1e-15)
    w = starts.load_points(points_file(tmp_path, ".npz", x, np.full(8, 0.125 * (1 + 5e-7))), 3).w
    np.testing.assert_allclose(w, 0.125, rtol=1e-15)


UNIT = np.eye(3)
BAD_POINTS = [
    (".npy", UNIT * 1.01, None, "point 0 has length 1.01; expected points of the unit sphere"),
    (".npy", np.array([[1.0, 0, 0], [0, np.nan, 1]]), None, "point 1 is nan or inf"),
    (".csv", np.array([[1.0, 0, 0], [0, np.inf, 1]]), None, "point 1 is nan or inf"),
    (".npy", np.eye(4), None, r"shape \(4, 4\); expected \(N, 3\); set dim"),
    (".npy", np.zeros(4), None, r"shape \(4,\); expected \(N, 3\)"),
    (".npy", np.zeros((0, 3)), None, "no points"),
    (".npy", np.zeros((2, 2, 3)), None, "array of 3 axes"),
    (".npy", UNIT.astype(complex), None, "not an array of real numbers"),
    (".npz", UNIT, np.array([0.5, 0.6, -0.1]), "weight 2 is -0.1; expected finite weights >= 0"),
    (".npz", UNIT, np.array([0.5, np.nan, 0.5]), "weight 1 is nan"),
    (".json", UNIT, np.array([0.5, 0.5, 0.5]), "weights have sum 1.5; expected sum 1"),
    (".npz", UNIT, np.array([0.5, 0.5]), r"weights have shape \(2,\); expected \(3,\)"),
]


@pytest.mark.parametrize("suffix, x, w, message", BAD_POINTS)
def test_bad_points(tmp_path, suffix, x, w, message):
    with pytest.raises(ValueError, match=message):
        starts.load_points(points_file(tmp_path, suffix, x, w), 3)


BAD_POINT_FILES = [
    ("points.mat", b"", "unknown kind of file '.mat'; expected one of .npy"),
    ("points.npy", b"not an array", "damaged, or not a .npy file"),
    ("points.npz", b"PK\x03\x04 cut off", "damaged, or not a .npz file"),
    ("points.csv", b"1, 0, 0\n0, 1\n", r"points.csv, line 2: got \['0', '1'\]; expected 3 numbers"),
    ("points.csv", b"1, 0, 0\n0, one, 0\n", "line 2"),
    ("points.txt", b"\xff\xfe", "damaged, or not a .txt file"),
    ("points.txt", b"# nothing\n", "no points"),
    ("points.json", b"[[1, 0, 0],\n [0, 1", "points.json, line 2: the points file is truncated or not JSON"),
    ("points.json", b'{"y": [[1, 0, 0]]}', "unknown key 'y'; known: x, points, theta, w, weights"),
    ("points.json", b'{"w": [1]}', "expected one of the keys x, points, theta"),
    ("points.json", b'{"theta": [[1, 0]]}', "theta has shape"),
    ("points.json", b"[[1, 0, 0], [1]]", "rows of equal length"),
]


@pytest.mark.parametrize("name, content, message", BAD_POINT_FILES)
def test_bad_point_files(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        starts.load_points(tmp_path / name, 3)


def test_truncated_array_and_missing_file(tmp_path):
    path = points_file(tmp_path, ".npy", np.eye(3))
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match="damaged, or not a .npy file"):
        starts.load_points(path, 3)
    with pytest.raises(ValueError, match="cannot read the points"):
        starts.load_points(tmp_path / "none.npy", 3)


@pytest.mark.parametrize("name", ["relu", "gelu", "leaky_relu", "tanh", "softplus"])
def test_every_activation_may_be_in_a_file(tmp_path, name):
    path = write(tmp_path / "w.json", {"activation": name, "a": A, "omega": OMEGA})
    assert load_weights(path, 2)[0].activation == activations.activation(name).name == name
