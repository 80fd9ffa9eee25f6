import json
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
import synthetic
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.image import imread

from mflandscape.plotting import PICTURES, Member, draw, pictures, readable
from mflandscape.plotting.circle import atoms, histograms, trajectories
from mflandscape.plotting.landscape import landscape
from mflandscape.plotting.sphere import camera, equal_area, groups, local_mass, particles, spherical_histogram
from mflandscape.plotting.statistics import cluster_counts, cluster_masses, energy_and_residual, stop_times
from mflandscape.plotting.style import save

TWO_PI = 2.0 * np.pi


def with_spec(ds, **changes):
    return ds.assign_attrs(spec=json.dumps(json.loads(ds.attrs["spec"]) | changes))


def build():
    circle = synthetic.dataset(d=2)
    gelu = synthetic.dataset(
        d=2, beta=(5.0, 1.0), start_seed=(1, 2, 3), scale=(0.5, 4.0), n=80, activation="gelu", direction="ascent"
    )
    sphere = synthetic.dataset(d=3, weight_seed=(111,), n=150, bias=0.3)
    return {
        "circle": circle,
        "gelu": gelu,
        "sphere": sphere,
        "sphere-gelu": with_spec(sphere, activation="gelu"),
        "high": synthetic.dataset(d=5, weight_seed=(111, 112), n=60, max_steps=100),
        "none": with_spec(circle.drop_vars(["a", "omega", "bias"]), weights="none"),
        "free": circle.drop_vars("omega").assign(
            w=circle["a"] * 0.3, observed_energy=circle["observed_energy"] * np.nan
        ),
        "single": circle.isel(beta=[1], start_seed=[0]),
        "ends": circle.isel(time=[0]).assign(snapshot_count=circle["snapshot_count"] * 0 + 1),
    }


@pytest.fixture(scope="module")
def runs():
    return build()


STATISTICS = {"energy-and-residual", "cluster-counts", "cluster-masses", "stop-times"}
CIRCLE = {"trajectories", "trajectories-log", "histograms"}
EXPECTED = {
    "circle": CIRCLE | STATISTICS,
    "gelu": CIRCLE | STATISTICS,
    "sphere": {"particles", "spherical-histogram"} | STATISTICS,
    "sphere-gelu": {"particles", "spherical-histogram"} | STATISTICS,
    "high": STATISTICS,
    "none": CIRCLE | STATISTICS,
    "free": CIRCLE | STATISTICS,
    "single": CIRCLE | {"energy-and-residual"},
    "ends": {"histograms"} | STATISTICS,
}


SLOW = ("gelu", "sphere-gelu", "none", "free")


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.slow] * (k in SLOW)) for k in EXPECTED])
def test_every_picture_that_fits_is_drawn_and_nothing_else_changes(runs, kind, tmp_path):
    ds = runs[kind]
    before, settings = ds.copy(deep=True), dict(matplotlib.rcParams)
    formats = ("png", "pdf") if kind in ("circle", "sphere") else ("png",)
    written = draw(ds, tmp_path / "pictures", formats)
    assert {path.stem for path in written} == EXPECTED[kind] == set(pictures(ds))
    assert len(written) == len(formats) * len(EXPECTED[kind])
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == sorted(path.name for path in written)
    for path in written:
        if path.suffix == ".png":
            shades = imread(path)[..., :3]
            assert shades.std() > 0.05 and np.mean(shades < 0.9) > 0.01
            assert shades.shape[1] in (680, 1400)  # a column or a page at 200 dpi
        else:
            assert path.read_bytes().startswith(b"%PDF") and path.stat().st_size < 3_000_000
    assert ds.identical(before) and dict(matplotlib.rcParams) == settings


def by_gid(axes, gid):
    return [artist for artist in axes.get_children() if (artist.get_gid() or "").startswith(gid)]


def panel(figure, title):
    return next(axes for axes in figure.axes if title in axes.get_title(loc="left"))


@pytest.mark.parametrize("log_time", [False, True])
def test_trajectories_carry_the_angles_of_the_dataset_without_jumps(runs, log_time):
    ds = runs["circle"]
    axes = panel(trajectories(ds, (1, 0, 1, 0), log_time), r"\beta = 5")
    bundles = [artist for artist in axes.collections if isinstance(artist, LineCollection)]
    lines = [path.vertices for bundle in bundles for path in bundle.get_paths()]
    assert all(np.abs(np.diff(line[:, 1])).max() < np.pi for line in lines)
    count = int(ds["snapshot_count"][1, 0, 1, 0])
    drawn = {tuple(np.round(np.exp(1j * line[:, 1]), 9)) for line in lines}
    stored = np.exp(1j * ds["angle"].values[1, 0, 1, 0, :count]).T
    assert drawn == {tuple(np.round(row, 9)) for row in stored}
    assert np.allclose(lines[0][:, 0], ds["snapshot_time"].values[1, 0, 1, 0, :count])
    inside = np.concatenate([line[(line[:, 1] >= 0) & (line[:, 1] < TWO_PI)] for line in lines])
    assert len(inside) == stored.size  # each angle is seen exactly once in [0, 2 pi)
    assert axes.get_xscale() == ("symlog" if log_time else "linear")


@pytest.mark.parametrize("offset", [0.0, 0.99, -0.4])
def test_dead_zones_are_shaded_where_all_neurons_are_off(runs, offset):
    ds = runs["circle"].assign(bias=runs["circle"]["bias"] + offset)
    a = ds["a"].values[0]
    angle = np.random.default_rng(0).uniform(0.0, TWO_PI, 4000)
    active = np.sum(np.stack([np.cos(angle), np.sin(angle)], 1) @ a.T + offset > 0.0, axis=1)
    shown = np.full(len(angle), -1)
    for patch in by_gid(panel(trajectories(ds, (0, 0, 0, 0)), r"\beta"), "region-"):
        low, high = patch.get_y(), patch.get_y() + patch.get_height()
        shown[(angle >= low) & (angle <= high)] = int(patch.get_gid().rsplit("-", 1)[1])
        if patch.get_gid().endswith("-0"):
            assert np.allclose(patch.get_facecolor()[:3], 0.7)
    assert (active == 0).any() == (offset < 0.9) and np.array_equal(shown, active)


def test_the_landscape_line_and_the_background_show_the_potential(runs):
    ds = runs["gelu"]
    member = Member(0, 0, 0, 1)
    a, omega = ds["a"].values[0], ds["omega"].values[0]

    def half(angle):
        level = np.cos(angle)[:, None] * a[:, 0] + np.sin(angle)[:, None] * a[:, 1]
        return 4.0 * synthetic.PHI["gelu"](level) @ omega / 2.0

    figure = histograms(ds, member)
    (line,) = by_gid(figure.axes[-1], "landscape")
    assert np.allclose(line.get_ydata(), half(line.get_xdata()), atol=1e-12)
    mesh = by_gid(figure.axes[0], "sign-of-v")[0]
    edges = np.linspace(0.0, TWO_PI, 361)
    assert np.allclose(np.ravel(mesh.get_array()), 2.0 * half((edges[1:] + edges[:-1]) / 2.0), atol=1e-12)
    side = by_gid(trajectories(ds, member).axes[-1], "landscape")[0]
    assert np.allclose(side.get_xdata(), half(side.get_ydata()), atol=1e-12)


def test_histograms_hold_all_the_mass(runs):
    ds = runs["circle"]
    figure = histograms(ds, (2, 0, 0, 0))
    count = int(ds["snapshot_count"][2, 0, 0, 0])
    for axes, when in zip(figure.axes, (0, (count - 1) // 2, count - 1), strict=False):
        heights = np.array([bar.get_height() for bar in axes.patches if bar.get_gid() == "mass"])
        expected = np.histogram(ds["angle"].values[2, 0, 0, 0, when], bins=len(heights), range=(0.0, TWO_PI))[0]
        assert len(heights) == 120 and np.array_equal(heights, expected / 200)
        assert heights.sum() == pytest.approx(1.0)
        assert axes.get_ylim()[1] > heights.max()


def test_atoms_are_found_across_the_cut_and_none_in_a_uniform_cloud():
    rng = np.random.default_rng(3)
    cloud = rng.uniform(2.0, 6.0, 200)
    angle = np.concatenate([1e-6 * rng.normal(size=500) % TWO_PI, np.full(300, 1.0), cloud])
    found = sorted((min(place, TWO_PI - place), mass) for place, mass in atoms(angle))
    assert np.allclose(found, [(0.0, 0.5), (1.0, 0.3)], atol=1e-6)
    assert atoms(np.full(7, 2.0)) == [(2.0, 1.0)]
    for n in (1, 10, 1000, 100000):
        assert atoms(rng.uniform(0.0, TWO_PI, n)) == [] or n == 1


def test_particles_are_where_the_camera_sees_them(runs):
    ds = runs["sphere"]
    frame = camera()
    assert np.allclose(frame @ frame.T, np.eye(3)) and np.linalg.det(frame) == pytest.approx(1.0)
    figure, found = particles(ds, (1, 0, 0, 0), when=3), []
    for axes, turn in zip(figure.axes[:2], (1.0, -1.0), strict=True):
        (spots,) = by_gid(axes, "particles")
        right, up = np.asarray(spots.get_offsets()).T
        depth = np.sqrt(1.0 - right**2 - up**2)
        found.append(np.stack([turn * right, up, turn * depth], 1) @ frame)
    found, stored = np.concatenate(found), ds["position"].values[1, 0, 0, 0, 3]
    assert found.shape == stored.shape
    assert np.abs(found[:, None] - stored[None]).sum(-1).min(axis=0).max() < 1e-6


def test_hyperplanes_lie_on_the_planes_and_the_dead_zone_is_darkest(runs):
    ds, frame = runs["sphere"], camera()
    a, bias = ds["a"].values[0], ds["bias"].values[0]
    figure = particles(ds, (0, 0, 0, 0))
    for axes, turn in zip(figure.axes[:2], (1.0, -1.0), strict=True):
        for neuron in range(3):
            (line,) = by_gid(axes, f"hyperplane-{neuron}")
            right, up = line.get_xdata(), line.get_ydata()
            seen = np.isfinite(right)
            depth = np.sqrt(np.clip(1.0 - right[seen] ** 2 - up[seen] ** 2, 0.0, None))
            x = np.stack([turn * right[seen], up[seen], turn * depth], 1) @ frame
            assert np.abs(x @ a[neuron] + bias[neuron]).max() < 4e-3  # depth behind the rim is drawn to 1e-3
        image = by_gid(axes, "hemisphere")[0].get_array()
        grid = (np.arange(len(image)) + 0.5) / len(image) * 2.0 - 1.0
        right, up = np.meshgrid(grid, grid)
        disc = right**2 + up**2 < 0.98
        x = np.stack([turn * right, up, turn * np.sqrt(np.where(disc, 1.0 - right**2 - up**2, 0.0))], -1) @ frame
        active = np.sum(x @ a.T + bias > 0.0, axis=-1)
        lit = image[..., 0] / (0.84 + 0.16 * np.clip(np.stack([right, up, np.abs((x @ frame.T)[..., 2])], -1)
                                                    @ np.array([-0.4, 0.55, 0.73]), 0.0, 1.0))  # fmt: skip
        for count, shade in enumerate((0.70, 0.86, 0.93, 1.0)):
            assert np.allclose(lit[disc & (active == count)], shade, atol=1e-6)
    tips = [c for axes in figure.axes[:2] for c in axes.collections if isinstance(c, LineCollection)]
    assert sum(len(c.get_paths()) for c in tips) > 60


def test_local_mass_and_groups_agree_with_counting():
    rng = np.random.default_rng(5)
    centre = np.eye(3)
    x = np.concatenate([np.repeat(centre[:1], 60, 0), np.repeat(centre[1:2], 30, 0), np.repeat(centre[2:], 10, 0)])
    near = local_mass(x)
    assert np.allclose(near, np.repeat([0.6, 0.3, 0.1], [60, 30, 10]))
    index, mass = groups(x, near)
    assert np.allclose(mass, [0.6, 0.3, 0.1]) and np.allclose(x[index], centre)
    cloud = rng.normal(size=(700, 3))
    cloud /= np.linalg.norm(cloud, axis=1, keepdims=True)
    chord = np.linalg.norm(cloud[:, None] - cloud[None], axis=-1)
    assert np.allclose(local_mass(cloud), np.mean(chord <= 2.0 * np.sin(0.05), axis=1))


def test_the_spherical_histogram_has_cells_of_equal_area(runs):
    ds = runs["sphere"]
    index = np.arange(400_000)
    z = 1.0 - (2.0 * index + 1.0) / len(index)
    turn = np.pi * (1.0 + np.sqrt(5.0)) * index
    ring = np.sqrt(1.0 - z**2)
    mass = equal_area(np.stack([ring * np.cos(turn), ring * np.sin(turn), z], axis=1))
    assert mass.sum() == pytest.approx(1.0) and np.ptp(mass) < 0.05 * mass.mean()
    (mesh,) = by_gid(panel(spherical_histogram(ds, (2, 0, 1, 0)), r"\beta = 25"), "mass")
    x = ds["final_position"].values[2, 0, 1, 0]
    azimuth = np.arctan2(x[:, 1], x[:, 0]) % TWO_PI
    expected = np.histogram2d(x[:, 2], azimuth, bins=(24, 48), range=((-1.0, 1.0), (0.0, TWO_PI)))[0] / len(x)
    assert np.allclose(mesh.get_array().filled(0.0).reshape(24, 48), expected)


def test_energies_and_residuals_are_those_observed(runs):
    ds = runs["sphere"]
    energy_axes, residual_axes = energy_and_residual(ds).axes[:2]
    times, energy = ds["observed_time"].values.reshape(6, -1), ds["observed_energy"].values.reshape(6, -1)
    residual = ds["observed_residual"].values.reshape(6, -1)
    lines = zip(by_gid(energy_axes, "energy"), by_gid(residual_axes, "residual"), strict=True)
    for i, (first, second) in enumerate(lines):
        known = np.isfinite(times[i])
        assert np.array_equal(first.get_xdata(), times[i, known])
        assert np.array_equal(first.get_ydata(), energy[i, known] - energy[i, 0])
        assert np.array_equal(second.get_ydata(), residual[i, known])
    assert i == 5
    assert len(energy_and_residual(runs["free"]).axes) == 2  # no energy: residual and colour bar only


def test_cluster_counts_and_masses_are_those_of_the_dataset(runs):
    ds = runs["gelu"]
    settled = ds["stop_reason"].values == "converged"
    assert settled.any() and not settled.all()
    root = np.broadcast_to(np.sqrt(ds["beta"].values)[:, None, None, None], settled.shape)
    for figure, name in ((cluster_counts(ds), "clusters"), (cluster_masses(ds), "heaviest_mass")):
        axes = figure.axes[0]
        for gid, mask in (("converged", settled), ("not-converged", ~settled)):
            dots = np.concatenate([np.asarray(c.get_offsets()) for c in axes.collections if c.get_gid() == gid])
            expected = np.stack([root[mask], ds[name].values[mask]], axis=1)
            assert sorted(map(tuple, dots)) == sorted(map(tuple, expected.astype(float)))
        for line, scale in zip(by_gid(axes, "mean"), (0, 1), strict=True):
            mean = ds[name].values[..., scale].mean(axis=(1, 2))
            assert np.allclose(line.get_ydata(), mean[np.argsort(ds["beta"].values)])
    assert not by_gid(axes, "bound")  # ascent: the theorem does not speak of it
    (bound,) = by_gid(cluster_masses(runs["circle"]).axes[0], "bound")
    assert np.allclose(bound.get_ydata(), 0.574192, atol=1e-6)


def test_stop_times_are_drawn_against_scale_or_beta(runs):
    for name, x in (("gelu", "scale"), ("circle", "beta")):
        ds = runs[name]
        axes = stop_times(ds).axes[0]
        dots = [np.asarray(c.get_offsets()) for c in axes.collections if "converged" in (c.get_gid() or "")]
        stored = ds["final_time"].broadcast_like(ds["final_time"])
        expected = [(float(cell[x]), float(cell)) for cell in stored.stack(all=stored.dims).T]
        assert sorted(map(tuple, np.concatenate(dots))) == sorted(expected)


def test_a_member_that_went_non_finite_is_drawn_up_to_there(runs, tmp_path):
    ds = runs["circle"].copy(deep=True)
    ds["angle"][0, 0, 0, 0, 5:] = np.nan
    ds["final_angle"][0, 0, 0, 0] = np.nan
    ds["observed_energy"][0, 0, 0, 0, 3:] = np.nan
    ds["heaviest_mass"][0] = np.nan
    names = ["trajectories", "energy-and-residual", "cluster-masses"]
    assert len(draw(ds, tmp_path, ("png",), names)) == 3
    ds["angle"][0] = np.nan
    with pytest.raises(ValueError, match="no finite state"):
        trajectories(ds, (0, 0, 0, 0))


def test_titles_and_notes_say_which_members_are_shown(runs):
    ds = runs["gelu"]
    figure = histograms(ds)
    assert figure.get_supxlabel() == "start seed 1; scale 0.5"
    assert [axes.get_title(loc="left") for axes in figure.axes[::3]][:2] == [r"$\beta = 1$", r"$\beta = 5$"]
    figure = trajectories(ds, [(0, 0, 2, 0), (0, 0, 2, -1)])
    assert figure.get_supxlabel() == "start seed 3"
    assert panel(figure, r"$\beta = 5$, scale 4: ") is figure.axes[2]
    assert trajectories(runs["single"]).get_supxlabel() == ""


def test_many_particles_and_many_panels(runs):
    ds = runs["circle"].isel(particle=np.tile(np.arange(200), 25))
    figure = trajectories(ds)
    drawn = sum(len(c.get_paths()) for c in by_gid(figure.axes[0], "particles+0"))
    assert drawn <= 2000 and "of 5000 particles" in figure.get_supxlabel()
    betas = synthetic.dataset(beta=tuple(np.geomspace(50.0, 0.1, 13)), n=10, start_seed=(1,), max_steps=20)
    chosen = [float(betas["beta"][member.beta]) for member in readable(betas)]
    assert len(chosen) == 4 and chosen == sorted(chosen)
    assert chosen[0] == pytest.approx(0.1) and chosen[-1] == pytest.approx(50.0)


def test_the_same_picture_gives_the_same_bytes(runs, tmp_path):
    ds = runs["single"]
    for folder in ("one", "two"):
        draw(ds, tmp_path / folder, ("png", "pdf", "svg"), ["trajectories"])
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_bad_input_is_refused_with_a_sentence(runs, tmp_path):
    ds = runs["circle"]
    with pytest.raises(ValueError, match="did you mean 'trajectories'"):
        draw(ds, tmp_path / "out", names=["trajectoires"])
    with pytest.raises(ValueError, match="does not fit this run"):
        draw(ds, tmp_path / "out", names=["particles"])
    with pytest.raises(ValueError, match="format 'gif'"):
        draw(ds, tmp_path / "out", formats=("png", "gif"))
    with pytest.raises(ValueError, match="the run has 3"):
        trajectories(ds, (3, 0, 0, 0))
    with pytest.raises(ValueError, match="expected indices"):
        histograms(ds, [])
    with pytest.raises(ValueError, match="snapshot 99"):
        particles(runs["sphere"], when=99)
    with pytest.raises(ValueError, match="no potential"):
        landscape(runs["free"], Member()).value(np.ones((1, 2)))
    assert not (tmp_path / "out").exists()


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    def half(figure, path, **kwargs):
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", half)
    (tmp_path / "p.png").write_bytes(b"old")
    with pytest.raises(OSError, match="disk full"):
        save(Figure(), tmp_path / "p")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("p.png", b"old")]


def test_drawing_needs_no_pyplot():
    code = "import sys, mflandscape.plotting; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_registered_picture_fits_some_dataset(runs):
    assert set().union(*(pictures(ds) for ds in runs.values())) == set(PICTURES)
