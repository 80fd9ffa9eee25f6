"""The published code's `config.json` read as `Spec`s, with a sentence on every key; our TOML or theirs, by content."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ._options import Rule, nearest, read_json
from .spec import Spec, fields_table
from .starts import expand_seeds
from .weights import declared_activation, load_weights

# The published code's own defaults, which omitted keys take (its shipped config.json differs in most of them).
DEFAULTS: dict[str, Any] = {
    "betas": [0.1, 0.5, 1, 2, 5, 7, 9, 12, 15, 25],
    "dimension": 2,
    "n_particles": 1000,
    "dt": 5e-4,
    "total_time": 20.0,
    "max_steps": 200_000,
    "save_every": 10,
    "integrator": "euler",
    "attention_mode": "unnormalized",
    "self_attention": False,
    "ascending": False,
    "activation": "relu",
    "mlp_units": None,
    "mlp_scale": 0.5,
    "mlp_scale_mode": "std",
    "gradient_MLP": True,
    "mlp_params_path": None,
    "num_mlp_inits": 1,
    "num_point_inits": 1,
    "mlp_seed": 11,
    "particle_seed": 7,
    "cluster_scale": 1.0,
    "mass_threshold": 0.0,
    "convergence_window": 5,
    "convergence_drift_tol": 1e-3,
    "convergence_spread_factor": 1.0,
    "results_dir": "results",
    "experiment_dir": None,
}
_PICTURES = "not applicable: it sets the published code's pictures; `plot` draws from the stored run"
PICTURE_KEYS = {
    "k_max": "not applicable: number of modes in the published code's spectrum plot; no run depends on it",
    "plot_interval": _PICTURES,
    "output_frame_limit": _PICTURES,
    "mlp0_output_frame_limit": _PICTURES,
    "gif_sphere": _PICTURES,
    "gif_histogram": _PICTURES,
    "gifs": _PICTURES,
    "pdf_trajectory": _PICTURES,
    "sphere_html_view": _PICTURES,
    "sphere_gif_rotations": _PICTURES,
}
RENAMED = {"exclude_self": "self_attention", "tie_potential": "gradient_MLP"}
INTEGRATORS = {"euler": "euler", "rk2": "midpoint", "rk4": "rk4"}
_COUNT = Rule("int", "", least=1)
_SEED = Rule("int", "", least=0, most=2**63 - 1)
_SWITCH = Rule("bool", "")
_RANGED: dict[str, Rule] = {
    "n_particles": _COUNT,
    "dt": Rule("float", "", above=0),
    "max_steps": _COUNT,
    "save_every": _COUNT,
    "self_attention": _SWITCH,
    "ascending": _SWITCH,
    "gradient_MLP": _SWITCH,
    "mlp_units": Rule("int", "", least=1, automatic="dimension"),
    "num_mlp_inits": _COUNT,
    "num_point_inits": _COUNT,
    "mlp_seed": _SEED,
    "particle_seed": _SEED,
    "cluster_scale": Rule("float", "", above=0),
    "mass_threshold": Rule("float", "", least=0, most=1),
    "convergence_window": _COUNT,
    "convergence_drift_tol": Rule("float", "", least=0),
    "convergence_spread_factor": Rule("float", "", least=0),
}
_CHOICES = {
    "integrator": tuple(INTEGRATORS),
    "attention_mode": ("unnormalized", "normalized"),
    "activation": ("relu", "gelu"),
    "mlp_scale_mode": ("std", "norm"),
}


@dataclass(frozen=True)
class ConfigTranslation:
    """What a configuration file asks for: one `Spec` for each dimension, a note on each key, where results would go.

    `notes` says for every key "honoured" (with what was made of it) or "not applicable" and why; `defaults` holds the
    keys that the file leaves out, with the published code's value; `out` is the folder the file names, or None.
    """

    specs: tuple[Spec, ...]
    notes: Mapping[str, str]
    defaults: Mapping[str, Any]
    out: Path | None = None


def load_config(path: str | Path) -> ConfigTranslation:
    """A run's configuration: our TOML or the published code's JSON, told apart by suffix, else by content.

    Raises:
        ValueError: unreadable file, unknown key or value; as `Spec.from_toml` and `read_config`.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".toml", ".json"):
        try:
            suffix = ".json" if Path(path).read_text(encoding="utf-8").lstrip().startswith("{") else ".toml"
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: cannot read the configuration ({error}); check the path") from error
    if suffix == ".json":
        return read_config(path)
    return ConfigTranslation((Spec.from_toml(path),), {}, {})


def read_config(path: str | Path) -> ConfigTranslation:
    """The published code's `config.json`, all its keys, omitted ones at that code's defaults.

    An infinite `total_time` is the published stop within `max_steps`; a finite one runs `round(total_time / dt)` steps
    with `stop = none`. `save_every` is the interval of observations. Weights and starts are the published draws.

    Raises:
        ValueError: not JSON (file and line are named), unknown key (the nearest is named), a renamed key, a value out
            of range, or a weights file that cannot be used.
    """
    data = read_json(path, "configuration")
    if not isinstance(data, dict):
        raise ValueError(f"{path}: got {type(data).__name__}; expected a JSON object of keys and values")
    _check_keys(path, data)
    try:
        return _translate(Path(path), data)
    except ValueError as error:
        raise ValueError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from error


def _check_keys(path: str | Path, data: Mapping[str, Any]) -> None:
    known = (*DEFAULTS, *PICTURE_KEYS)
    for key in data:
        if key in RENAMED:
            raise ValueError(f"{path}: {key} is an old name; use {RENAMED[key]} instead")
        if key not in known:
            ours = "; it is a key of our TOML form" if key in {row.name for row in fields_table()} else ""
            raise ValueError(f"{path}: unknown key '{key}'{nearest(key, known)}{ours}; known: {', '.join(known)}")


def _translate(path: Path, data: Mapping[str, Any]) -> ConfigTranslation:
    raw = DEFAULTS | {key: value for key, value in data.items() if key in DEFAULTS}
    values = raw | {key: rule.convert(key, raw[key]) for key, rule in _RANGED.items()}
    values |= {key: _choice(key, raw[key], choices) for key, choices in _CHOICES.items()}
    notes = {key: "honoured" for key in DEFAULTS} | PICTURE_KEYS
    fields = _plain(values)
    for made, said in (_attention(values), _time(values), _output(values)):
        fields |= made
        notes |= said
    dimensions, said = _dimensions(values["dimension"])
    notes |= said
    specs = []
    for dim in dimensions:
        made, said = _perceptron(path, values, dim)
        notes |= said
        specs.append(Spec(dim=dim, **fields, **made))
    folder = values["experiment_dir"] or values["results_dir"]
    return ConfigTranslation(
        tuple(specs),
        notes={key: notes[key] for key in data},
        defaults={key: value for key, value in DEFAULTS.items() if key not in data},
        out=Path(str(folder)) if folder else None,
    )


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that take a key's value as it is."""
    return {
        "beta": _betas(values["betas"]),
        "n_particles": values["n_particles"],
        "direction": "ascent" if values["ascending"] else "descent",
        "start": "numpy",
        "start_seed": expand_seeds(values["particle_seed"], values["num_point_inits"]),
        "integrator": INTEGRATORS[values["integrator"]],
        "dt": values["dt"],
        "drift_tol": values["convergence_drift_tol"],
        "window": values["convergence_window"],
        "spread_factor": values["convergence_spread_factor"],
        "cluster_scale": values["cluster_scale"],
        "mass_threshold": values["mass_threshold"],
        "observe_every": values["save_every"],
    }


def _attention(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    softmax = values["attention_mode"] == "normalized"
    itself = values["self_attention"]
    note = "honoured"
    if softmax and not itself:
        note = "not applicable: normalised attention always contains the particle itself, in the published code too"
    elif not itself:
        note = "honoured: no velocity changes; energies leave out the self term, which the published energies contain"
    return {"attention_mode": values["attention_mode"], "self_attention": softmax or itself}, {"self_attention": note}


def _time(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    total = _total_time(values["total_time"])
    notes = {
        "save_every": "honoured: steps between observations, the stop's tests among them; snapshots are log-spaced",
        "integrator": f"honoured: {INTEGRATORS[values['integrator']]}",
    }
    if math.isinf(total):
        notes["total_time"] = "honoured: runs to the published stop, at most max_steps"
        return {"stop": "published", "max_steps": values["max_steps"]}, notes
    steps = round(total / values["dt"])
    if steps < 1:
        raise ValueError(f"total_time = {total:g}: expected at least one step of dt = {values['dt']:g}; lengthen it")
    idle = "not applicable: total_time is finite, the run has no stopping rule (as in the published code)"
    notes |= {key: idle for key in ("max_steps", "convergence_drift_tol", "convergence_spread_factor")}
    notes["convergence_window"] = (
        "not applicable: total_time is finite; clusters are counted at the end, where the published code takes "
        "the last snapshot that ends a window of equal counts"
    )
    notes["total_time"] = f"honoured: {steps} steps and stop = none"
    return {"stop": "none", "total_time": total, "max_steps": steps}, notes


def _output(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    resumed = values["experiment_dir"]
    notes = {
        "experiment_dir": "honoured: the suggested output folder, where a run is resumed"
        if resumed
        else "honoured: none given",
        "results_dir": "not applicable: experiment_dir is given"
        if resumed
        else "honoured: the suggested output folder",
    }
    for key in ("experiment_dir", "results_dir"):
        if values[key] is not None and not isinstance(values[key], str):
            raise ValueError(f"{key} = {values[key]!r}: expected the name of a folder, or null")
    return {}, notes


def _dimensions(value: Any) -> tuple[tuple[int, ...], dict[str, str]]:
    dimensions = Rule("int", "", least=2, many=True).convert("dimension", value)
    if len(dimensions) == 1:
        return dimensions, {"dimension": "honoured"}
    note = f"honoured: {len(dimensions)} runs, one for each dimension"
    if 2 in dimensions:
        note += (
            "; d = 2 uses the circle's start, integrator and cluster rule, where the published code sends a d = 2 "
            "of a list through its sphere code"
        )
    return dimensions, {"dimension": note}


def _perceptron(path: Path, values: Mapping[str, Any], dim: int) -> tuple[dict[str, Any], dict[str, str]]:
    scales = _scales(values["mlp_scale"])
    if len(scales) > 1 and len(_betas(values["betas"])) != 1:
        raise ValueError(f"mlp_scale has {len(scales)} values: expected exactly one beta with them; keep one beta")
    if values["mlp_params_path"] not in (None, ""):
        return _perceptron_file(path, values, dim, scales)
    fields = {
        "weights": "numpy",
        "activation": values["activation"],
        "mlp_units": values["mlp_units"],
        "mlp_scale": scales,
        "mlp_scale_mode": values["mlp_scale_mode"],
        "gradient_mlp": values["gradient_MLP"],
        "weight_seed": expand_seeds(values["mlp_seed"], values["num_mlp_inits"]),
    }
    listed = ", ".join(f"{scale:g}" for scale in scales)
    return fields, {"mlp_scale": f"honoured: {listed}", "mlp_params_path": "honoured: none given"}


def _perceptron_file(
    path: Path, values: Mapping[str, Any], dim: int, scales: tuple[float, ...]
) -> tuple[dict[str, Any], dict[str, str]]:
    if not isinstance(values["mlp_params_path"], str):
        raise ValueError(f"mlp_params_path = {values['mlp_params_path']!r}: expected the name of a file, or null")
    file = (path.parent / Path(values["mlp_params_path"]).expanduser()).resolve()
    if len(scales) > 1:
        raise ValueError(f"mlp_scale has {len(scales)} values: the weights of mlp_params_path are not scaled; give one")
    activation = declared_activation(file) or values["activation"]
    entries = load_weights(file, dim, activation)
    if len(entries) == 1 and values["num_mlp_inits"] != 1:
        raise ValueError(f"num_mlp_inits = {values['num_mlp_inits']}: {file} has one perceptron; expected 1, or a list")
    given = "not applicable: the weights are those of mlp_params_path, as given"
    keys = ("mlp_units", "mlp_scale", "mlp_scale_mode", "gradient_MLP", "mlp_seed")
    notes = {key: given for key in keys} | {
        "num_mlp_inits": f"honoured: {len(entries)}, the number of perceptrons in the file",
        "mlp_params_path": f"honoured: {file}, {'gradient form' if entries[0].gradient else 'free vectors'}",
    }
    if entries[0].activation != values["activation"]:
        notes["activation"] = f"not applicable: the weights file says {entries[0].activation}, which wins"
    fields = {
        "weights": str(file),
        "activation": entries[0].activation,
        "mlp_scale": 1.0,
        "weight_seed": tuple(range(len(entries))),
    }
    return fields, notes


def _choice(key: str, value: Any, choices: tuple[str, ...]) -> str:
    word = value.strip().lower() if isinstance(value, str) else value
    return Rule("str", "", choices=choices).convert(key, word)


def _betas(value: Any) -> tuple[float, ...]:
    if isinstance(value, str):
        value = [_float("betas", word) for word in value.split(",") if word.strip()]
    if not isinstance(value, list):
        raise ValueError(f"betas = {value!r}: expected a list, or a string of numbers with commas")
    return Rule("float", "", least=0, many=True).convert("betas", value)


def _total_time(value: Any) -> float:
    if isinstance(value, str):
        word = value.strip().lower()
        value = math.inf if word in ("inf", "infty", "infinite", "infinity") else _float("total_time", word)
    return Rule("float", "", above=0, finite=False).convert("total_time", value)


def _scales(value: Any) -> tuple[float, ...]:
    """`mlp_scale`: a number, a list, or exactly three values read as `start, stop, step` (stop included if hit)."""
    numbers = value if isinstance(value, list) else [value]
    if len(numbers) == 3:
        start, stop, step = (Rule("float", "").convert("mlp_scale", number) for number in numbers)
        if step == 0:
            raise ValueError(f"mlp_scale = {value}: three values are start, stop, step; expected a step other than 0")
        step = math.copysign(step, stop - start)
        grid = np.arange(start, stop + 0.5 * step, step) if start != stop else np.array([start])
        inside = grid <= stop + 1e-12 if step > 0 else grid >= stop - 1e-12
        numbers = grid[inside].tolist()
    return Rule("float", "", least=0, many=True).convert("mlp_scale", numbers)


def _float(key: str, word: str) -> float:
    try:
        return float(word)
    except ValueError as error:
        raise ValueError(f"{key}: '{word.strip()}' is not a number; expected numbers") from error
