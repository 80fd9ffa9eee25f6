"use strict";
// Reads the JSON beside it and draws: nothing is computed here but what a picture of given numbers needs.
const run = JSON.parse(document.getElementById("data").textContent);
const C = run.colors;
const state = { member: 0, when: 0, timer: null, surface: "potential", unpacked: new Map() };
const at = (id) => document.getElementById(id);
const config = { displaylogo: false, displayModeBar: "hover", responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
const FONT = { family: '"STIX Two Text", STIXGeneral, Georgia, serif', size: 14, color: C.ink };
const ANGLES = { tickvals: [0, 1, 2, 3, 4].map((k) => k * Math.PI / 2), ticktext: ["0", "π/2", "π", "3π/2", "2π"] };

function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.data), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer), out = new Float64Array(bytes.length / 2);
  const step = (packed.high - packed.low) / 65535;
  for (let i = 0; i < out.length; i++) out[i] = packed.low + step * view.getUint16(2 * i, true);
  return out;
}

function frames(member, name) {  // the rows of a packed array along its first axis
  const key = member.number + name;
  if (!state.unpacked.has(key)) state.unpacked.set(key, unpack(member[name]));
  const all = state.unpacked.get(key), size = all.length / member[name].shape[0];
  return (when) => all.subarray(when * size, (when + 1) * size);
}

const show = (value, digits = 4) => value === null || value === undefined ? "none" : Number(value.toPrecision(digits)).toString();
const small = (value) => value === null || value === undefined ? "none" : value.toExponential(1);

function last(series, time) {  // the last observation up to a time
  if (!series) return null;
  let i = series.time.length - 1;
  while (i > 0 && series.time[i] > time * (1 + 1e-9)) i--;
  return series.value[i];
}

function base(more) {
  const axis = { linecolor: C.ink, ticks: "outside", ticklen: 4, zeroline: false, showgrid: false, automargin: true };
  const layout = { font: FONT, margin: { l: 62, r: 20, t: 12, b: 46 }, showlegend: false, uirevision: "same", hovermode: "closest" };
  for (const [name, value] of Object.entries(more)) layout[name] = /^[xy]axis/.test(name) ? { ...axis, ...value, ...(value.title ? { title: { standoff: 8, ...value.title } } : {}) } : value;
  return layout;
}

// The circle

function ring(member, scene) {
  const traces = [], shapes = [];
  for (const [low, high, active] of (scene && (scene.dead || !scene.half_v) ? scene.regions : [])) {
    const x = [0], y = [0];
    for (let k = 0; k <= 60; k++) {
      const angle = low + (high - low) * k / 60;
      x.push(Math.cos(angle)); y.push(Math.sin(angle));
    }
    traces.push({ x, y, fill: "toself", mode: "none", fillcolor: scene.shades[active], hoverinfo: "skip" });
  }
  for (const chord of scene ? scene.chords : []) {
    traces.push({ x: chord.map((p) => p[0]), y: chord.map((p) => p[1]), mode: "lines", hoverinfo: "skip", line: { color: C.grey, width: 1, dash: "dash" } });
  }
  if (scene && scene.half_v) {
    const most = Math.max(...scene.half_v.map(Math.abs)) || 1;
    traces.push({
      x: scene.angle.map((a) => 1.13 * Math.cos(a)), y: scene.angle.map((a) => 1.13 * Math.sin(a)), mode: "markers",
      marker: { size: 9, color: scene.half_v, colorscale: C.signed, cmin: -most, cmax: most, colorbar: { title: { text: "v/2" }, thickness: 12, len: 0.7 } },
      customdata: scene.angle.map((a, i) => [a, scene.half_v[i]]), hovertemplate: "θ = %{customdata[0]:.3f}<br>v/2 = %{customdata[1]:.4g}<extra></extra>",
    });
  }
  const angles = Array.from(frames(member, "points")(state.when)), begun = Array.from(frames(member, "points")(0));
  const bins = frames(member, "histogram")(state.when), spokes = { x: [], y: [] };
  bins.forEach((mass, i) => {
    if (mass <= 0) return;
    const angle = (i + 0.5) * 2 * Math.PI / bins.length, inner = 1 - 0.8 * Math.sqrt(mass);
    spokes.x.push(Math.cos(angle), inner * Math.cos(angle), null);
    spokes.y.push(Math.sin(angle), inner * Math.sin(angle), null);
  });
  traces.push({ ...spokes, mode: "lines", line: { color: C.blue, width: 3 }, hoverinfo: "skip" });
  traces.push({
    x: angles.map(Math.cos), y: angles.map(Math.sin), mode: "markers", customdata: angles.map((a, i) => [a, begun[i]]),
    marker: { size: 7, color: begun, colorscale: C.angles, cmin: 0, cmax: 2 * Math.PI, opacity: 0.8 },
    hovertemplate: "θ = %{customdata[0]:.4f}<br>began at %{customdata[1]:.4f}<extra></extra>",
  });
  traces.push(atomMarks(member, { type: "scatter" }));
  const fixed = { range: [-1.3, 1.3], visible: false };
  Plotly.react("view", traces, base({ shapes, margin: { l: 5, r: 5, t: 5, b: 5 }, xaxis: fixed, yaxis: { ...fixed, scaleanchor: "x" } }), config);
}

function atomMarks(member, more) {  // refined atoms, where there are any
  const atoms = member.atoms || [], coordinate = (k) => atoms.map((a) => a.point[k] * (more.z ? 1.02 : 1));
  const trace = {
    ...more, x: coordinate(0), y: coordinate(1), mode: "markers", customdata: atoms.map((a) => a.mass),
    marker: { symbol: "circle-open", size: atoms.map((a) => 12 + 14 * Math.sqrt(a.mass)), color: C.negative, line: { width: 2 } },
    hovertemplate: "atom of mass %{customdata:.4f}<extra>refined end state</extra>",
  };
  if (more.z) trace.z = coordinate(2);
  return trace;
}

function bars(member, scene) {
  const bins = Array.from(frames(member, "histogram")(state.when)), width = 2 * Math.PI / bins.length;
  const traces = [{ type: "bar", x: bins.map((_, i) => (i + 0.5) * width), y: bins, width, marker: { color: C.blue }, hovertemplate: "θ = %{x:.3f}<br>mass %{y:.4f}<extra></extra>" }];
  const shapes = [];
  if (scene) {
    if (scene.dead || !scene.half_v) {
      for (const [x0, x1, active] of scene.regions) shapes.push({ type: "rect", x0, x1, y0: 0, y1: 1, yref: "paper", layer: "below", line: { width: 0 }, fillcolor: scene.shades[active] });
    }
    for (const [edge] of scene.regions.slice(1)) shapes.push({ type: "line", x0: edge, x1: edge, y0: 0, y1: 1, yref: "paper", layer: "below", line: { color: C.grey, width: 1, dash: "dash" } });
    if (scene.half_v) traces.push({ x: scene.angle, y: scene.half_v, yaxis: "y2", mode: "lines", line: { color: C.ink, width: 1.5 }, hovertemplate: "θ = %{x:.3f}<br>v/2 = %{y:.4g}<extra></extra>" });
  }
  const y2 = { title: { text: "v/2 (line)" }, overlaying: "y", side: "right", tickmode: "auto", nticks: 5 };
  Plotly.react("histogram", traces, base({
    shapes, bargap: 0, margin: { l: 62, r: 62, t: 12, b: 46 }, xaxis: { title: { text: "angle θ (rad)" }, range: [0, 2 * Math.PI], ...ANGLES },
    yaxis: { title: { text: "mass per bin" }, rangemode: "tozero" }, ...(scene && scene.half_v ? { yaxis2: y2 } : {}),
  }), config);
}

// The sphere

const webgl = (() => { const canvas = document.createElement("canvas"); return Boolean(canvas.getContext("webgl2") || canvas.getContext("webgl")); })();

function shaded(scene) {
  const [rows, columns] = run.grid, x = [], y = [], z = [];
  for (let i = 0; i < rows; i++) {
    const tilt = Math.PI * i / (rows - 1), line = Array.from({ length: columns }, (_, j) => 2 * Math.PI * j / (columns - 1));
    x.push(line.map((a) => Math.sin(tilt) * Math.cos(a))); y.push(line.map((a) => Math.sin(tilt) * Math.sin(a))); z.push(line.map(() => Math.cos(tilt)));
  }
  const trace = { type: "surface", x, y, z, hoverinfo: "skip", contours: { x: { highlight: false }, y: { highlight: false }, z: { highlight: false } }, lighting: { ambient: 0.85, diffuse: 0.3, specular: 0.02, roughness: 1 } };
  const potential = scene && scene.half_v && state.surface === "potential";
  if (potential) {
    const most = Math.max(...scene.half_v.flat().map(Math.abs)) || 1;
    return { ...trace, surfacecolor: scene.half_v, colorscale: C.signed, cmin: -most, cmax: most, colorbar: { title: { text: "v/2" }, thickness: 12, len: 0.7 } };
  }
  const units = scene ? scene.units : 1, steps = (scene ? scene.shades : []).flatMap((shade, k) => [[k / (units + 1), shade], [(k + 1) / (units + 1), shade]]);
  const active = scene ? scene.active : x.map((row) => row.map(() => 1));
  const bar = { title: { text: "active<br>neurons" }, thickness: 12, len: 0.7, ...(units < 9 ? { dtick: 1 } : {}) };
  return { ...trace, surfacecolor: active, colorscale: scene ? steps : [[0, "#eee"], [1, "#eee"]], cmin: -0.5, cmax: units + 0.5, showscale: Boolean(scene), colorbar: bar };
}

function nearby(points) {  // the share of the points drawn within 0.1 rad of each
  const n = points.length / 3, near = new Float64Array(n), least = Math.cos(0.1);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < n; j++) {
      if (points[3 * i] * points[3 * j] + points[3 * i + 1] * points[3 * j + 1] + points[3 * i + 2] * points[3 * j + 2] >= least) near[i]++;
    }
  }
  return Array.from(near, (count) => count / n);
}

function ball(member, scene) {
  if (!webgl) { at("view").textContent = "This browser has no WebGL, which the sphere needs; the histogram shows the same particles."; return; }
  const points = frames(member, "points")(state.when), near = nearby(points);
  const coordinate = (k) => Array.from(near, (_, i) => 1.01 * points[3 * i + k]);
  const traces = [shaded(scene)];
  for (const curve of scene ? scene.curves : []) {
    traces.push({ type: "scatter3d", x: curve.map((p) => 1.004 * p[0]), y: curve.map((p) => 1.004 * p[1]), z: curve.map((p) => 1.004 * p[2]), mode: "lines", hoverinfo: "skip", line: { color: C.ink, width: 3 } });
  }
  traces.push({
    type: "scatter3d", x: coordinate(0), y: coordinate(1), z: coordinate(2), mode: "markers", customdata: near,
    marker: { size: near.map((mass) => 3 + 9 * Math.sqrt(mass)), color: near.map(Math.log10), colorscale: C.masses, cmin: -Math.log10(near.length), cmax: 0, line: { width: 0 } },
    hovertemplate: "(%{x:.3f}, %{y:.3f}, %{z:.3f})<br>mass within 0.1 rad: %{customdata:.3f}<extra></extra>",
  });
  traces.push(atomMarks(member, { type: "scatter3d", z: true }));
  const axis = { visible: false, range: [-1.15, 1.15] };
  const scene3 = { xaxis: axis, yaxis: axis, zaxis: axis, aspectmode: "cube", camera: { eye: { x: 1.15, y: 0.66, z: 0.48 } } };
  Plotly.react("view", traces, base({ scene: scene3, margin: { l: 0, r: 0, t: 0, b: 0 } }), config);
}

function map(member, scene) {
  const mass = frames(member, "histogram")(state.when), [, rows, columns] = member.histogram.shape;
  const rowsOf = (change) => Array.from({ length: rows }, (_, i) => Array.from(mass.subarray(i * columns, (i + 1) * columns), change));
  const traces = [{
    type: "heatmap", z: rowsOf((m) => m > 0 ? Math.log10(m) : null), customdata: rowsOf((m) => m), x0: Math.PI / columns, dx: 2 * Math.PI / columns, y0: -1 + 1 / rows, dy: 2 / rows,
    colorscale: C.density, zmin: -Math.log10(run.particles), zmax: 0, hovertemplate: "azimuth %{x:.2f}, z %{y:.2f}<br>mass %{customdata:.4f}<extra></extra>", hoverongaps: false,
    colorbar: { title: { text: "mass" }, thickness: 12, tickvals: [0, -1, -2, -3, -4, -5, -6], ticktext: ["1", "0.1", "10<sup>-2</sup>", "10<sup>-3</sup>", "10<sup>-4</sup>", "10<sup>-5</sup>", "10<sup>-6</sup>"] },
  }];
  for (const curve of scene ? scene.curves : []) {
    const x = [], y = [];
    curve.forEach((p) => {
      const azimuth = (Math.atan2(p[1], p[0]) + 2 * Math.PI) % (2 * Math.PI);
      if (x.length && Math.abs(azimuth - x[x.length - 1]) > Math.PI) { x.push(null); y.push(null); }
      x.push(azimuth); y.push(p[2]);
    });
    traces.push({ x, y, mode: "lines", hoverinfo: "skip", line: { color: C.grey, width: 1.2, dash: "dash" } });
  }
  Plotly.react("histogram", traces, base({ xaxis: { title: { text: "azimuth (rad)" }, range: [0, 2 * Math.PI], ...ANGLES }, yaxis: { title: { text: "z" }, range: [-1, 1] } }), config);
}

// Every dimension

function curve(id, member, title, change, more = {}) {
  const series = member.observed[id], time = member.times[state.when];
  const traces = [], shapes = [];
  let wide = false;
  if (series) {
    const positive = series.time.filter((t) => t > 0), end = series.time[series.time.length - 1];
    wide = positive.length > 1 && end > 100 * positive[0];
    traces.push({ x: series.time, y: series.value.map((v) => change(v, series.value[0])), mode: "lines", line: { color: C.blue, width: 1.6, shape: id === "clusters" ? "hv" : "linear" }, hovertemplate: "t = %{x:.4g}<br>%{y:.4g}<extra></extra>" });
    if (time > 0 || !wide) shapes.push({ type: "line", x0: time, x1: time, y0: 0, y1: 1, yref: "paper", line: { color: C.negative, width: 1.2 } });
    if (id === "residual" && run.tolerance) shapes.push({ type: "line", x0: 0, x1: 1, xref: "paper", y0: run.tolerance, y1: run.tolerance, line: { color: C.grey, width: 1, dash: "dot" } });
  }
  const powers = wide ? { type: "log", exponentformat: "power", dtick: 1 } : {};
  Plotly.react(id + "-plot", traces, base({
    shapes, annotations: series ? [] : [{ text: "none for this drift", showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5 }],
    xaxis: { title: { text: "time t" }, ...powers }, yaxis: { title: { text: title }, exponentformat: "power", ...more },
  }), config);
}

function masses(member) {
  const shapes = run.bound ? [{ type: "line", x0: 0, x1: 1, xref: "paper", y0: run.bound, y1: run.bound, line: { color: C.negative, width: 1.4, dash: "dash" } }] : [];
  const notes = run.bound ? [{ text: "theorem 3.5: " + run.bound.toFixed(4) + " (exp. kernel, large β)", showarrow: false, xref: "paper", x: 1, y: run.bound, yanchor: "bottom", font: { size: 12, color: C.negative } }] : [];
  Plotly.react("masses-plot", [{ type: "bar", x: member.masses.map((_, i) => i + 1), y: member.masses, marker: { color: C.blue }, hovertemplate: "rank %{x}: %{y:.4f}<extra></extra>" }],
    base({ shapes, annotations: notes, xaxis: { title: { text: "cluster, heaviest first" }, ...(member.masses.length < 12 ? { dtick: 1 } : {}) }, yaxis: { title: { text: "mass" }, range: [0, 1.05] } }), config);
}

function inner(member) {
  const share = Array.from(frames(member, "inner")(state.when)), width = 2 / share.length;
  Plotly.react("inner-plot", [{ type: "bar", x: share.map((_, i) => -1 + (i + 0.5) * width), y: share, width, marker: { color: C.green }, hovertemplate: "x·y = %{x:.2f}<br>share %{y:.4f}<extra></extra>" }],
    base({ bargap: 0, xaxis: { title: { text: "inner product x·y" }, range: [-1, 1] }, yaxis: { title: { text: "share of pairs" }, rangemode: "tozero" } }), config);
}

// The page

function panel(id, title, tall) {
  const figure = document.createElement("figure"), caption = document.createElement("figcaption"), plot = document.createElement("div");
  caption.textContent = title;
  plot.id = id;
  plot.className = tall ? "plot tall" : "plot";
  figure.append(caption, plot);
  at("views").append(figure);
  return caption;
}

function build() {
  if (run.dim === 2) panel("view", "Particles, coloured by where they began; spokes: mass (as its square root)", true);
  if (run.dim === 3) {
    const caption = panel("view", "Particles on the sphere, coloured by the mass near them", true);
    if (run.scenes.some((scene) => scene && scene.half_v)) {
      const choice = document.createElement("select");
      choice.id = "surface";
      choice.append(new Option("potential v/2", "potential"), new Option("active neurons", "active"));
      choice.addEventListener("change", () => { state.surface = choice.value; draw(false); });
      caption.append(choice);
    }
  }
  if (run.dim <= 3) panel("histogram", run.dim === 2 ? "Mass against angle" : "Mass in cells of equal area", true);
  panel("energy-plot", "Energy, change since the start");
  panel("residual-plot", "Residual: the largest speed");
  panel("clusters-plot", "Clusters against time");
  panel("masses-plot", "Cluster masses at the end");
  panel("inner-plot", "Inner products of particles");
  run.members.forEach((member, i) => at("member").append(new Option(member.title + ": " + member.ending, i)));
  at("member").addEventListener("change", (event) => choose(Number(event.target.value)));
  at("slider").addEventListener("input", (event) => { state.when = Number(event.target.value); draw(false); });
  at("play").addEventListener("click", play);
  document.querySelectorAll("tr[data-member]").forEach((row) => row.addEventListener("click", () => {
    const i = run.members.findIndex((member) => member.number === Number(row.dataset.member));
    if (i >= 0) choose(i);
  }));
}

function choose(i) {
  state.member = i;
  const times = run.members[i].times;
  state.when = Math.min(state.when, times.length - 1);
  at("member").value = String(i);
  at("slider").max = String(times.length - 1);
  at("slider").value = String(state.when);
  document.querySelectorAll("tr[data-member]").forEach((row) => row.classList.toggle("chosen", Number(row.dataset.member) === run.members[i].number));
  document.querySelectorAll("[data-atoms]").forEach((part) => { part.hidden = Number(part.dataset.atoms) !== run.members[i].number; });
  draw(true);
}

function play() {
  if (state.timer) { clearInterval(state.timer); state.timer = null; at("play").textContent = "▶"; return; }
  at("play").textContent = "⏸";
  state.timer = setInterval(() => {
    state.when = (state.when + 1) % run.members[state.member].times.length;
    at("slider").value = String(state.when);
    draw(false);
  }, 250);
}

function draw(all) {
  const member = run.members[state.member], scene = run.scenes[member.scene], time = member.times[state.when];
  at("time").textContent = show(time);
  at("clusters").textContent = show(last(member.observed.clusters, time));
  at("residual").textContent = small(last(member.observed.residual, time));
  at("energy").textContent = show(last(member.observed.energy, time), 6);
  if (run.dim === 2) { ring(member, scene); bars(member, scene); }
  if (run.dim === 3) { ball(member, scene); map(member, scene); }
  curve("energy", member, "E(t) − E(0)", (v, first) => v - first);
  curve("residual", member, "residual", (v) => v, { type: "log", dtick: 1 });
  curve("clusters", member, "clusters", (v) => v, { rangemode: "tozero" });
  inner(member);
  if (all) {
    masses(member);
    at("notes").textContent = notes(member);
  }
}

function notes(member) {
  const words = [];
  if (member.points) {
    const drawn = member.points.shape[1];
    if (drawn < run.particles) words.push(`${drawn} of ${run.particles} particles drawn; histograms count all.`);
  }
  if (member.left_out) words.push(`${member.left_out} of ${member.left_out + member.times.length} snapshots left out.`);
  if (run.paired < run.particles) words.push(`Inner products of ${run.paired} particles.`);
  if (member.atoms && run.dim <= 3) words.push("Open circles: the atoms of the refined end state.");
  return words.join(" ");
}

const [, wantedMember, wantedTime] = /^#(\d+)(?:\/(\d+))?$/.exec(location.hash) || [];
build();
if (wantedTime !== undefined) state.when = Number(wantedTime);
choose(Math.min(Number(wantedMember ?? run.members.length - 1), run.members.length - 1));
document.documentElement.dataset.ready = "yes";
