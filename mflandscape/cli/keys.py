"""The keys of a `Spec` as options of the command line and as TOML, in the same sections."""

import json
import math
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from .._options import looks_like_file, nearest
from ..presets import PRESETS, preset
from ..spec import DRAWN_WEIGHTS, Key, fields_table, is_file
from .numbers import parse_number

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Grid (one member for each combination)": ("beta", "weight_seed", "start_seed", "mlp_scale"),
    "Model": ("dim", "n_particles", "kernel", "attention_mode", "self_attention", "direction", "activation"),
    "Weights": ("weights", "mlp_units", "mlp_scale_mode", "gradient_mlp"),
    "Start": ("start",),
    "Time": ("integrator", "dt", "rtol", "atol", "temperature"),
    "Stopping": ("stop", "drift_tol", "window", "spread_factor", "cluster_scale", "mass_threshold", "max_steps",
                 "total_time"),
    "Saving": ("observe_every", "save", "save_count", "save_every", "save_times"),
    "Computing": ("interaction", "dtype", "lanes"),
}  # fmt: skip
_OF_WEIGHTS = ("weights", "weight_seed", "mlp_units", "mlp_scale_mode", "gradient_mlp", "activation")
_VALUES = {"float": "NUMBER", "int": "INTEGER", "str": "NAME"}
_KEYS: Mapping[str, Key] = {key.name: key for key in fields_table()}


class KeyOption(click.Option):
    """The option of one key, which knows its section of the help."""

    def __init__(self, key: Key, section: str):
        self.section = section
        self.key = key
        if key.kind == "bool":
            rule: dict[str, Any] = {"default": None}
            names = [f"{key.option}/--no-{key.option[2:]}", key.name]
        else:
            metavar = _VALUES[key.kind] + ("|FILE" if _takes_file(key) else "")
            rule = {"type": str, "multiple": key.many, "metavar": metavar}
            names = [key.option, key.name]
        super().__init__(names, help=_help(key), **rule)


def key_options() -> list[click.Option]:
    """An option for every key of a `Spec`, section by section."""
    return [KeyOption(_KEYS[name], section) for section, names in SECTIONS.items() for name in names]


def changes(options: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that options give, as `Spec` takes them; file names made absolute, a preset's weights filled in.

    Raises:
        ValueError: not a number; weights that are neither a choice, a file nor a preset.
    """
    found: dict[str, Any] = {}
    for name, value in options.items():
        key = _KEYS[name]
        if value is None or value == ():
            continue
        if key.many:
            words = [word for text in value for word in text.split(",") if word.strip()]
            found[name] = [parse_number(name, word, key.allowed) for word in words]
        elif key.kind in ("float", "int"):
            found[name] = parse_number(name, value, key.allowed)
        elif _takes_file(key) and is_file(name, value) and looks_like_file(value):
            found[name] = str(Path(value).expanduser().resolve())
        else:
            found[name] = value
    return _preset_weights(found)


def check_preset_weights(options: Mapping[str, Any], dim: int) -> None:
    """Refuse `--weights PRESET` whose weights live in another dimension.

    Raises:
        ValueError: they do.
    """
    name = str(options.get("weights"))
    if name in PRESETS and preset(name).weights != "none" and preset(name).dim != dim:
        fitting = [other for other in PRESETS if preset(other).dim == dim and preset(other).weights != "none"]
        advice = f"take those of {fitting[0]}, or --weights numpy" if fitting else "take --weights numpy"
        raise ValueError(f"weights = {name}: weights for dim = {preset(name).dim}, but dim = {dim}; {advice}")


def toml(values: Mapping[str, Any]) -> str:
    """The keys of a spec (`Spec.to_dict`) as the TOML that `run` takes, in sections; keys that are null are left out.

    TOML has no null: such keys are the ones whose default depends on others.
    """
    lines: list[str] = []
    for section, names in SECTIONS.items():
        lines += ["", f"# {section}"]
        lines += [_assignment(name, values[name]) for name in names if values.get(name) is not None]
    return "\n".join(lines[1:])


def _assignment(name: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        text = f"{name} = [{', '.join(map(_literal, value))}]"
        return textwrap.fill(text, 80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return f"{name} = {_literal(value)}"


def _literal(value: Any) -> str:
    if value == "inf" or isinstance(value, float) and math.isinf(value):
        return "inf"
    return json.dumps(value, ensure_ascii=False)


def _preset_weights(found: dict[str, Any]) -> dict[str, Any]:
    """With `--weights PRESET`, the preset's keys of the weights, under those that are given."""
    name = found.get("weights")
    if name is None or name in DRAWN_WEIGHTS or looks_like_file(name):
        return found
    if name not in PRESETS:
        raise ValueError(
            f"weights = '{name}': expected {', '.join(DRAWN_WEIGHTS)}, a JSON file (a name with a suffix such as "
            f".json), or a preset (`mflandscape presets` lists them){nearest(name, (*DRAWN_WEIGHTS, *PRESETS))}"
        )
    spec = preset(name)
    return {key: getattr(spec, key) for key in _OF_WEIGHTS} | found | {"weights": spec.weights}


def _takes_file(key: Key) -> bool:
    return key.kind == "str" and " file" in key.allowed


def _help(key: Key) -> str:
    allowed = key.allowed.removesuffix(", or a list").removesuffix(f" and <= {2**63 - 1:g}")
    allowed += "; repeat it, or use commas, for several" if key.many else ""
    facts = [] if key.kind == "bool" else [allowed + (", or a preset's name" if key.name == "weights" else "")]
    facts += [f"unit: {key.unit}"] if key.unit else []
    return f"{key.help}  [{'; '.join([*facts, f'default: {key.default}'])}]"
