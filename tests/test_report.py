"""The interactive page: what it holds against the dataset, and what it does in a browser."""

import base64
import json
import re
import tomllib

import numpy as np
import pytest
import synthetic
from browser import CHROMIUM, Page
from click.testing import CliRunner

from mflandscape import runner
from mflandscape.cli.report import animate, report
from mflandscape.cli.teaching import Commands
from mflandscape.experiment import Experiment
from mflandscape.measure import from_angles
from mflandscape.plotting.report import chosen_members, page
from mflandscape.spec import Spec
from mflandscape.stationary import classify, refine
from mflandscape.store import open_run

TWO_PI = 2 * np.pi
BETA, SMALL = (0.5, 5.0, 25.0), dict(n=120, max_steps=200, save_count=12)
CRITICAL = {
    2: {"atoms": [{"point": [0.0, 1.0], "mass": 0.75}, {"point": [-1.0, 0.0], "mass": 0.25}], "residual": 2e-14,
        "class": "strictly SOPD", "smallest_eigenvalue": 0.1234, "null": 0, "splitting": -0.5, "gap": 0.0321},
    4: {"note": "still <moving>"},
}  # fmt: skip


def made(ds, numbers, critical=None):
    words = dict(name="a run", toml='beta = [5]\nname = "</script>"', commands=["mflandscape run spec.toml"])
    return page(ds, numbers, critical=critical, **words)


def data_of(text):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.S)[1])


def unpacked(packed):
    steps = np.frombuffer(base64.b64decode(packed["data"]), "<u2").reshape(packed["shape"])
    return packed["low"] + (packed["high"] - packed["low"]) / 65535 * steps


def words_of(text):
    """The page's own markup: without the drawing library, whose comments hold addresses."""
    return re.sub(r"<script.*?</script>", "", text, flags=re.S)


@pytest.fixture(scope="module")
def runs():
    circle = synthetic.dataset(d=2, beta=BETA, **SMALL)
    many = circle.isel(particle=np.arange(2600) % 120)  # more particles than are drawn
    return {
        "circle": circle,
        "sphere": synthetic.dataset(d=3, beta=BETA[1:], weight_seed=(111,), start_seed=(42,), bias=0.3, **SMALL),
        "high": synthetic.dataset(d=5, beta=BETA[:2], start_seed=(42,), **SMALL),
        "many": many,
        "free": circle.drop_vars("omega").assign(observed_energy=circle["observed_energy"] * np.nan),
        "weighted": circle.assign(weight=(("start_seed", "particle"), np.linspace(1, 3, 240).reshape(2, 120) / 250)),
    }


def test_what_the_page_holds_is_what_the_run_holds(runs):
    ds = runs["circle"]
    text = made(ds, [0, 2, 4], CRITICAL)
    data = data_of(text)
    assert 4e6 < len(text.encode()) < 1e7
    assert [member["number"] for member in data["members"]] == [0, 2, 4]
    for member in data["members"]:
        at = np.unravel_index(member["number"], (3, 1, 2, 1))
        angle, count = ds["angle"].values[at], int(ds["snapshot_count"].values[at])
        ends = float(ds["final_time"].values[at]) > float(ds["snapshot_time"].values[at][count - 1])
        states = np.concatenate([angle[:count], ds["final_angle"].values[at][None]])[: count + ends]
        drawn = unpacked(member["points"])
        assert drawn.shape == states.shape and len(member["times"]) == len(states)
        assert np.abs(np.angle(np.exp(1j * (drawn - states)))).max() < TWO_PI / 65535
        np.testing.assert_allclose(unpacked(member["histogram"]).sum(axis=1), 1.0, atol=120 * 2 / 65535)
        np.testing.assert_allclose(sum(member["masses"]), 1.0, atol=1e-5)
        near = np.isfinite(ds["observed_energy"].values[at])
        np.testing.assert_allclose(member["observed"]["energy"]["value"], ds["observed_energy"].values[at][near])
        inner = unpacked(member["inner"])[-1]
        x = synthetic_points(states[-1])
        expected = np.histogram((x @ x.T)[np.triu_indices(120, 1)].clip(-1, 1), 100, (-1, 1))[0] / (120 * 119 / 2)
        assert np.abs(inner - expected).max() <= 1.01 / 65535
    (scene,) = data["scenes"]
    x = synthetic_points(np.array(scene["angle"]))
    half_v = synthetic.PHI["relu"](x @ ds["a"].values[0].T) @ ds["omega"].values[0] / 2
    np.testing.assert_allclose(scene["half_v"], half_v, rtol=1e-5, atol=1e-5 * np.abs(half_v).max())
    assert scene["active"] == (x @ ds["a"].values[0].T > 0).sum(axis=1).tolist()
    for chord, a in zip(scene["chords"], ds["a"].values[0], strict=True):
        assert np.abs(np.array(chord) @ a).max() < 1e-5


def synthetic_points(angle):
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def test_tables_and_words(runs):
    text = words_of(made(runs["circle"], [0, 2, 4], CRITICAL))
    for number in ("0.7500", "strictly SOPD", "0.123", "2.0e-14", "-0.5", "3.2e-02", "1.57079633", "3.14159265"):
        assert number in text
    assert "Member 4: still &lt;moving&gt;." in text and "<moving>" not in text
    assert "3 of 6 members are not on this page" in text and "&lt;/script&gt;" in text
    assert f"{float(runs['circle']['residual'][1, 0, 0, 0]):.1e}" in text
    link = re.search(r'href="data:text/plain;base64,([^"]*)"', text)[1]
    assert tomllib.loads(base64.b64decode(link).decode()) == {"beta": [5], "name": "</script>"}
    assert not re.search(r'(src|href)="(?!data:)', text) and "//" not in text.replace("data:", "")


def test_other_dimensions_and_thinning(runs):
    sphere = data_of(made(runs["sphere"], [0, 1]))
    points = unpacked(sphere["members"][1]["points"])
    expected = runs["sphere"]["position"].values[1, 0, 0, 0, : len(points)]
    known = np.isfinite(expected).all(axis=(1, 2))
    assert np.abs(points[: len(expected)][known] - expected[known]).max() <= 1.01 / 65535
    np.testing.assert_allclose(unpacked(sphere["members"][0]["histogram"]).sum(axis=(1, 2)), 1.0, atol=0.02)
    for curve, a in zip(sphere["scenes"][0]["curves"], runs["sphere"]["a"].values[0], strict=True):
        np.testing.assert_allclose(np.array(curve) @ a, -0.3, atol=1e-5)
    high = data_of(made(runs["high"], [0, 1]))["members"][0]
    assert "points" not in high and unpacked(high["inner"]).sum(axis=1) == pytest.approx(1.0, abs=0.01)
    many = data_of(made(runs["many"], [1]))["members"][0]
    assert many["points"]["shape"][1] == 1300  # each second of 2600
    free = data_of(made(runs["free"], [1]))
    assert "half_v" not in free["scenes"][0] and "energy" not in free["members"][0]["observed"]
    last = unpacked(data_of(made(runs["weighted"], [3]))["members"][0]["histogram"])[0]
    mass, start = runs["weighted"]["weight"].values[1], runs["weighted"]["angle"].values[1, 0, 1, 0, 0]
    expected = np.histogram(start % TWO_PI, 120, (0, TWO_PI), weights=mass)[0]
    assert np.abs(last - expected).max() < 2 / 65535


def test_members_are_chosen_evenly_and_finished(runs):
    ds = runs["circle"].assign(complete=(synthetic.GRID, np.array([1, 1, 0, 1, 1, 1], bool).reshape(3, 1, 2, 1)))
    assert chosen_members(ds) == [0, 1, 3, 4, 5] and chosen_members(ds, [1, 2]) == [1]
    with pytest.raises(ValueError, match="no finished member"):
        chosen_members(ds, [2])
    wide = runs["circle"].isel(start_seed=np.arange(40) % 2)
    assert len(chosen_members(wide)) == 16 and chosen_members(wide)[::15] == [0, 119]


# In a browser

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")
READY = "document.documentElement?.dataset.ready === 'yes'"
PARTICLES = {
    2: "(() => { const t = document.getElementById('view').data.filter(t => t.mode === 'markers').at(-2);"
    " return t.x.map((x, i) => [x, t.y[i]]); })()",
    3: "(() => { const t = document.getElementById('view').data.filter(t => t.mode === 'markers').at(-2);"
    " return t.x.map((x, i) => [x / 1.01, t.y[i] / 1.01, t.z[i] / 1.01]); })()",
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    tab = Page(tmp_path_factory.mktemp("chromium"))
    yield tab
    tab.close()


def read(tab, name):
    return tab.value(f"document.getElementById('{name}').textContent")


def observed(ds, at, name, time):
    seen = ds["observed_time"].values[at]
    return ds[f"observed_{name}"].values[at][np.flatnonzero(seen <= time * (1 + 1e-9))[-1]]


@needs_chromium
@pytest.mark.parametrize("kind, d, last", [("circle", 2, 4), ("sphere", 3, 1)])
def test_the_page_in_a_browser(runs, browser, tmp_path, kind, d, last):
    ds, path = runs[kind], tmp_path / "page.html"
    path.write_text(made(ds, [0, 2, 4] if d == 2 else [0, 1], CRITICAL if d == 2 else None), encoding="utf-8")
    browser.complaints.clear()
    browser.requests.clear()
    browser.open(path, READY)
    at = np.unravel_index(last, tuple(ds.sizes[name] for name in synthetic.GRID))
    assert "strictly SOPD" in browser.value("document.body.innerText") or d == 3
    browser.value("document.getElementById('slider').focus()")
    seen = []
    steps = 4 if d == 2 else 2
    for step in range(steps):
        time = float(ds["snapshot_time"].values[at][step])
        assert float(read(browser, "time")) == pytest.approx(time, rel=1e-3)
        assert int(read(browser, "clusters")) == observed(ds, at, "clusters", time)
        assert float(read(browser, "residual")) == pytest.approx(observed(ds, at, "residual", time), rel=0.06)
        assert float(read(browser, "energy")) == pytest.approx(observed(ds, at, "energy", time), rel=1e-4)
        state = ds["angle" if d == 2 else "position"].values[(*at, step)]
        expected = synthetic_points(state) if d == 2 else state
        np.testing.assert_allclose(browser.value(PARTICLES[d]), expected, atol=1e-4)
        seen.append(read(browser, "time"))
        browser.press("ArrowRight", 39)
    assert len(set(seen)) == steps
    drawn = browser.value("[...document.querySelectorAll('.js-plotly-plot')].map(p => p.data.length)")
    assert len(drawn) == 7 and min(drawn) > 0
    browser.value("document.querySelector('tr[data-member]').click()")
    assert browser.value("document.getElementById('member').value") == "0"
    if d == 3:
        browser.value(
            "(s => { s.value = 'active'; s.dispatchEvent(new Event('change')); })(document.getElementById('surface'))"
        )
        assert browser.value("document.getElementById('view').data[0].cmax") == 3.5
    assert browser.complaints == []
    assert {address.split(":")[0] for address in browser.requests} <= {"file", "data", "blob"}
    assert sum(address.startswith("file:") for address in browser.requests) == 1


# The command


SPEC = Spec(beta=(1.0, 3.0), n_particles=6, weights="none", stop="none", max_steps=40, save="log", save_count=4)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "demo"
    runner.run(SPEC, folder)
    return folder


def call(*words):
    return CliRunner().invoke(Commands(commands={"report": report}), ["report", *map(str, words)])


def film(*words):
    return CliRunner().invoke(Commands(commands={"animate": animate}), ["animate", *map(str, words)])


def test_the_command_writes_one_file(demo, tmp_path):
    result = call(demo, "--no-classes")
    assert result.exit_code == 0 and result.stdout.strip() == str(demo / "report.html")
    text = (demo / "report.html").read_text(encoding="utf-8")
    link = re.search(r'href="data:text/plain;base64,([^"]*)"', text)[1]
    assert Spec.from_dict(tomllib.loads(base64.b64decode(link).decode())).replace(lanes=0) == SPEC
    assert "mflandscape run spec.toml --out demo" in text and "Not computed" in text
    assert [member["number"] for member in data_of(text)["members"]] == [0, 1]
    assert call(demo, "--member", 7).exit_code == 2
    nowhere = call(demo, "--no-classes", "--out", tmp_path / "absent" / "page.html")
    assert nowhere.exit_code == 2 and "Traceback" not in nowhere.output


def test_the_command_writes_a_film(demo, tmp_path, monkeypatch):
    result = film(demo)
    frames = int(open_run(demo)["snapshot_count"][1, 0, 0, 0])
    assert result.exit_code == 0 and result.stdout.startswith(str(demo / "member-1.gif"))
    assert f"({frames} frames)" in result.stdout or f"({frames + 1} frames)" in result.stdout
    monkeypatch.setenv("PATH", str(tmp_path))
    for words, message in (
        (("--format", "mp4"), "no ffmpeg here"),
        (("--format", "avi"), "format 'avi': expected one of gif, mp4"),
        (("--format", "mp4", "--out", tmp_path / "a.gif"), "expected a name that ends in .mp4"),
        (("--fps", "80"), "fps = 80"),
        (("--member", "2"), "expected a whole number from 0 to 1"),
    ):
        found = film(demo, *words)
        assert found.exit_code == 2 and message in found.stderr and "Traceback" not in found.output
    assert max(map(len, film("--help").output.splitlines())) <= 80


@pytest.mark.slow
def test_classes_are_those_of_the_library(tmp_path):
    spec = SPEC.replace(weights="numpy", stop="stationary", drift_tol=1e-9, max_steps=20_000)
    runner.run(spec, tmp_path / "run")
    assert call(tmp_path / "run", "--member", 1, "--out", tmp_path / "page.html").exit_code == 0
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    drift = Experiment(spec).drift(1)
    atoms = refine(drift, from_angles(open_run(tmp_path / "run")["final_angle"].values[1, 0, 0, 0])).mu
    kind = classify(drift, atoms)
    (member,) = data_of(text)["members"]
    np.testing.assert_allclose([atom["point"] for atom in member["atoms"]], atoms.x, atol=1e-9)
    assert kind.kind in words_of(text) and f"{kind.smallest_eigenvalue:.3g}" in words_of(text)
