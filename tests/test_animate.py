"""Films: their frames, sizes and times, what a frame shows, and what is refused."""

import json
import shutil
import subprocess

import matplotlib
import numpy as np
import pytest
import synthetic
from PIL import Image

from mflandscape.plotting import Member
from mflandscape.plotting.animate import _Circle, _Sphere, animate
from mflandscape.plotting.members import path

SMALL = dict(n=60, max_steps=60, save_count=6, start_seed=(42,))


@pytest.fixture(scope="module")
def runs():
    return {
        "circle": synthetic.dataset(d=2, **SMALL),
        "gelu": synthetic.dataset(d=2, activation="gelu", **SMALL),
        "sphere": synthetic.dataset(d=3, bias=0.3, **SMALL),
        "high": synthetic.dataset(d=5, **SMALL),
    }


@pytest.mark.parametrize("kind, height", [("circle", 385), ("sphere", 429)])
def test_a_gif_has_a_frame_a_snapshot(runs, kind, height, tmp_path):
    ds, member, settings = runs[kind], Member(beta=1), dict(matplotlib.rcParams)
    times, _ = path(ds, member)
    out, frames = animate(ds, member, tmp_path / "new" / "film.gif", fps=25.0)
    assert frames == len(times) >= 6 and [file.name for file in out.parent.iterdir()] == ["film.gif"]
    pixels = []
    with Image.open(out) as film:
        assert film.n_frames == frames and film.size == (770, height) and film.info["loop"] == 0
        for frame in range(frames):
            film.seek(frame)
            assert film.info["duration"] == 40
            pixels.append(np.asarray(film.convert("RGB")).astype(int))
    assert all(np.abs(after - before).max() > 60 for before, after in zip(pixels, pixels[1:], strict=False))
    assert np.mean(pixels[0].min(axis=-1) > 240) > 0.3 and dict(matplotlib.rcParams) == settings


def test_equal_runs_give_equal_bytes(runs, tmp_path):
    films = [animate(runs["gelu"], Member(), tmp_path / f"{i}.gif")[0].read_bytes() for i in range(2)]
    assert films[0] == films[1]


def test_frames_show_the_snapshots(runs):
    ds, member = runs["circle"], Member(beta=2)
    times, states = path(ds, member)
    film = _Circle(ds, member, times, states)
    for when in (0, 3, len(times) - 1):
        film.show(when)
        x, y = np.asarray(film.dots.get_offsets()).T
        np.testing.assert_allclose(np.exp(1j * states[when]), x + 1j * y, atol=1e-12)
        heights = np.array([bar.get_height() for bar in film.bars])
        expected = np.histogram(states[when] % (2 * np.pi), 120, (0.0, 2 * np.pi))[0] / 60
        np.testing.assert_allclose(heights, expected, atol=1e-12)
        lengths = [np.hypot(*np.diff(spoke, axis=0)[0]) for spoke in film.spokes.get_segments()]
        np.testing.assert_allclose(lengths, 0.8 * np.sqrt(heights[heights > 0]), atol=1e-12)
        assert f"{times[when]:.4g}" in film.title.get_text()
    times, states = path(runs["sphere"], member)
    film = _Sphere(runs["sphere"], member, times, states)
    film.show(2)
    front, back = (np.asarray(dots.get_offsets()) for dots in film.dots)
    assert len(front) + len(back) == 60
    towards = states[2] @ film.views[0][2]
    assert len(front) == (towards >= 0).sum()
    np.testing.assert_allclose(np.sort(np.hypot(*front.T) ** 2), np.sort(1 - towards[towards >= 0] ** 2), atol=1e-9)


def test_masses_that_differ_count(runs):
    mass = np.linspace(1.0, 3.0, 60) / 120
    ds = runs["circle"].assign(weight=(("start_seed", "particle"), mass[None]))
    times, states = path(ds, Member())
    film = _Circle(ds, Member(), times, states)
    film.show(0)
    expected = np.histogram(states[0] % (2 * np.pi), 120, (0.0, 2 * np.pi), weights=mass)[0]
    np.testing.assert_allclose([bar.get_height() for bar in film.bars], expected, atol=1e-12)


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="no ffmpeg here")
def test_an_mp4(runs, tmp_path):
    out, frames = animate(runs["sphere"], Member(), tmp_path / "film.mp4", fps=20.0)
    asked = "stream=nb_read_frames,width,height,r_frame_rate"
    command = ["ffprobe", *"-v error -count_frames -select_streams v -of json -show_entries".split(), asked, str(out)]
    found = subprocess.run(command, capture_output=True, check=True).stdout
    (stream,) = json.loads(found)["streams"]
    assert int(stream["nb_read_frames"]) == frames and stream["r_frame_rate"] == "20/1"
    assert (stream["width"], stream["height"]) == (770, 430)


@pytest.mark.parametrize(
    "kind, name, fps, message",
    [
        ("circle", "film.avi", 10.0, "film format 'avi'; expected one of gif, mp4"),
        ("circle", "film.gif", 0.0, "fps = 0; expected 0.1 to 50"),
        ("circle", "film.mp4", 10.0, "no ffmpeg here"),
        ("high", "film.gif", 10.0, "d = 5; expected d = 2 or 3"),
        ("one", "film.gif", 10.0, "a film of one snapshot"),
    ],
)
def test_refusals_leave_nothing(runs, monkeypatch, tmp_path, kind, name, fps, message):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    one = runs["circle"].assign(snapshot_count=runs["circle"]["snapshot_count"] * 0)
    with pytest.raises(ValueError, match=message):
        animate({**runs, "one": one}[kind], Member(), tmp_path / name, fps=fps)
    assert not list(tmp_path.iterdir())
