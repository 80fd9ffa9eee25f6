"""What `run` is asked to do: preset, configuration file and options put together, later ones winning."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._options import looks_like_file, read_toml
from ..presets import PRESETS, preset
from ..published import ConfigTranslation, read_config
from ..spec import ADAPTIVE, Spec, is_file
from ..store import describe
from .keys import changes, check_preset_weights

_FILE_KEYS = ("weights", "start")
_ENDLESS = 2**53


@dataclass(frozen=True)
class Plan:
    """The runs to make, one for each spec, the folder of each, and what to say about a configuration's keys."""

    specs: tuple[Spec, ...]
    folders: tuple[Path, ...]
    out: Path
    notes: tuple[tuple[str, str], ...] = ()


def make_plan(
    config: str | None, preset_name: str | None, options: Mapping[str, Any], out: str | None, resume: bool
) -> Plan:
    """The runs that a preset, a configuration file over it, and options over both ask for.

    With nothing but the folder of a run to resume, its stored spec is taken. Several specs (a published configuration
    with a list of dimensions) go to `out/dim-2`, `out/dim-3`, ...

    Raises:
        ValueError: bad input, or an output folder that exists (unless to resume).
    """
    given = changes(options)
    if resume and out is not None and not (config or preset_name or given):
        return Plan((Spec.from_dict(describe(out)["spec"]),), (Path(out),), Path(out))
    notes: tuple[tuple[str, str], ...] = ()
    parent, exact = Path("results"), False
    if config is not None and _is_published(config):
        if preset_name is not None:
            raise ValueError(f"--preset {preset_name} with {config}: a config.json sets every key; leave --preset out")
        translation = read_config(config)
        specs = _published_specs(translation, given)
        notes, parent = _notes(translation), translation.out or parent
        exact = str(translation.notes.get("experiment_dir", "")).endswith("where a run is resumed")
    else:
        specs = (_own_spec(config, preset_name, given),)
    for spec in specs:
        check_preset_weights(options, spec.dim)
    name = Path(config).stem if config is not None else preset_name or "run"
    chosen = Path(out) if out is not None else parent if exact else parent / f"{name}-{_hash(specs)}"
    _refuse_existing(chosen, resume)
    folders = (chosen,) if len(specs) == 1 else tuple(chosen / f"dim-{spec.dim}" for spec in specs)
    return Plan(specs, folders, chosen, notes)


def _is_published(path: str) -> bool:
    """Whether a configuration is the published code's JSON, by suffix, else by content."""
    suffix = Path(path).suffix.lower()
    if suffix in (".toml", ".json"):
        return suffix == ".json"
    try:
        return Path(path).read_text(encoding="utf-8").lstrip().startswith("{")
    except (OSError, UnicodeDecodeError) as error:
        advice = f"for the preset of that name, --preset {path}" if path in PRESETS else "give a TOML or JSON file"
        raise ValueError(f"{path}: cannot read the configuration ({error}); {advice}") from error


def _own_spec(config: str | None, preset_name: str | None, given: dict[str, Any]) -> Spec:
    """Preset, then the TOML file's keys (file names relative to its folder), then options."""
    values = {} if config is None else read_toml(config, "configuration")
    for key in _FILE_KEYS:
        name = values.get(key)
        if config is not None and isinstance(name, str) and is_file(key, name) and looks_like_file(name):
            values[key] = str((Path(config).parent / Path(name).expanduser()).resolve())
    try:
        if preset_name is not None:
            return preset(preset_name).replace(**values | given)
        return Spec.from_dict(values | given)
    except ValueError as error:
        source = "" if config is None else f"{config} with the options given: " if given else f"{config}: "
        raise ValueError(source + str(error)) from error


def _published_specs(translation: ConfigTranslation, given: Mapping[str, Any]) -> tuple[Spec, ...]:
    """The specs of a config.json with options over them; `--dim` leaves one of them."""
    specs = translation.specs
    if "dim" in given:
        specs = tuple(spec for spec in specs if spec.dim == given["dim"]) or specs[:1]
    return tuple(_changed(spec, given) for spec in specs)


def _changed(spec: Spec, given: Mapping[str, Any]) -> Spec:
    """Where a config.json's finite total_time sets the number of steps, it still does when options change time."""
    moved = {"dt", "total_time"} & set(given) and "max_steps" not in given
    if spec.stop == "none" and moved:
        endless = spec.replace(**{**given, "max_steps": _ENDLESS})
        if endless.integrator not in ADAPTIVE and endless.step_limit < _ENDLESS:
            return endless.replace(max_steps=endless.step_limit)
    return spec.replace(**given)


def _notes(translation: ConfigTranslation) -> tuple[tuple[str, str], ...]:
    """Rows about a config.json: keys honoured as they are in one, the others one by one, then those left out."""
    as_is = [key for key, note in translation.notes.items() if note == "honoured"]
    rows = [("honoured", ", ".join(as_is))] if as_is else []
    rows += [(key, note) for key, note in translation.notes.items() if note != "honoured"]
    left_out = ", ".join(f"{key}={value}" for key, value in translation.defaults.items())
    return tuple(rows + ([("left out", f"the published code's defaults: {left_out}")] if left_out else []))


def _hash(specs: tuple[Spec, ...]) -> str:
    if len(specs) == 1:
        return specs[0].hash
    return hashlib.sha256("".join(spec.hash for spec in specs).encode()).hexdigest()[:16]


def _refuse_existing(out: Path, resume: bool) -> None:
    if not resume and (out.exists() or out.is_symlink()):
        raise ValueError(
            f"{out} exists: expected a folder that does not, for a run never overwrites another's results; "
            "choose another --out, or continue the run in it with --resume"
        )
