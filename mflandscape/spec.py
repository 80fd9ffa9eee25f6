"""`Spec`: everything that defines a run, as plain values; its keys are the TOML keys and the command-line options."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ._options import Rule, looks_like_file, option, read_toml, unknown
from ._spec_checks import FIXED_STEP, TOLERANCES, automatic, check
from .interactions import EVALUATORS
from .starts import Start, equispaced_start, fibonacci_start, load_points, numpy_start, sampled_start
from .weights import PerceptronWeights, declared_activation, load_weights, numpy_weights, sampled_weights

ACTIVATIONS = ("relu", "gelu", "leaky_relu", "tanh", "softplus")
ADAPTIVE = ("tsit5", "dopri5", "dopri8", *TOLERANCES)
DRAWN_WEIGHTS = ("numpy", "sampled", "none")
NAMED_STARTS = ("numpy", "uniform", "equispaced", "fibonacci")
_FILE_KEYS = ("weights", "start")


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A grid of runs: inverse temperatures x weight seeds x start seeds x perceptron scales, all else equal.

    Every field is checked and converted by its rule (see `fields_table`): a single value stands for a list of one.
    `None` leaves a default that depends on other fields (dimension, files) to the constructor, which fills it in.

    Raises:
        ValueError: a value out of range or of the wrong type, an unknown choice (the nearest is named), fields that
            contradict each other, an unreadable file.
    """

    beta: tuple[float, ...] = option((1.0,), "float", "inverse temperature of the attention", many=True, least=0)
    dim: int = option(2, "int", "ambient dimension d: particles live on the sphere S^(d-1)", least=2)
    n_particles: int = option(
        None, "int", "number of particles N", least=1, automatic="1000, or the points of the start file"
    )
    kernel: str = option(
        "shifted", "str", "convention: exp(beta (t - 1))/beta or exp(beta t)/beta", choices=("shifted", "exponential")
    )
    attention_mode: str = option(
        "unnormalized",
        "str",
        "attention as is (USA) or divided by its sum (SA)",
        choices=("unnormalized", "normalized"),
    )
    self_attention: bool = option(True, "bool", "whether a particle interacts with itself")
    direction: str = option("descent", "str", "down or up the energy", choices=("descent", "ascent"))
    activation: str = option(
        None, "str", "the perceptron's sigma", choices=ACTIVATIONS, automatic="relu, or the weights file's own"
    )
    weights: str = option(
        "numpy",
        "str",
        "perceptron weights: the published draw, a JAX draw, none",
        choices=DRAWN_WEIGHTS,
        file="a JSON file",
    )
    mlp_units: int | None = option(None, "int", "neurons J of drawn weights", least=1, automatic="dim")
    mlp_scale: tuple[float, ...] = option((1.0,), "float", "factor of all perceptron weights", many=True, least=0)
    mlp_scale_mode: str = option("std", "str", "drawn weights: Gaussian, or of length one", choices=("std", "norm"))
    gradient_mlp: bool = option(True, "bool", "drawn weights: omega_j a_j, or independent vectors (no energy)")
    weight_seed: tuple[int, ...] = option(
        None, "int", "seeds of the weights, or entries of the weights file (from 0)", many=True, least=0,
        most=2**63 - 1, automatic="777 on the circle, 111 above; all entries of a file",
    )  # fmt: skip
    start: str = option(
        "numpy",
        "str",
        "start: the published draw, a JAX draw, a lattice",
        choices=NAMED_STARTS,
        file="a file of points",
    )
    start_seed: tuple[int, ...] = option(
        (42,), "int", "seeds of the start (and noise)", many=True, least=0, most=2**63 - 1
    )
    integrator: str = option("euler", "str", "time stepping: fixed steps, or adaptive", choices=FIXED_STEP + ADAPTIVE)
    dt: float = option(0.1, "float", "time step (first step of an adaptive integrator)", above=0, unit="time")
    rtol: float = option(
        None, "float", "tolerance of an adaptive step: relative; in radians for rosenbrock and stabilised", above=0,
        automatic="1e-6; 1e-3 for rosenbrock, 5e-4 for stabilised",
    )  # fmt: skip
    atol: float = option(1e-9, "float", "absolute tolerance of a step of tsit5, dopri5 or dopri8", above=0)
    temperature: float = option(0.0, "float", "noise T: sqrt(2T) times Brownian motion", least=0, unit="1/time")
    stop: str = option(
        "published", "str", "end at settled clusters and small speed, at small speed, or at the limits only",
        choices=("published", "stationary", "none"),
    )  # fmt: skip
    drift_tol: float = option(1e-4, "float", "largest speed at a stop (published: 0 = off)", least=0, unit="1/time")
    window: int = option(5, "int", "equal cluster counts in a row for a published stop", least=1, unit="observations")
    spread_factor: float = option(1.0, "float", "published stop: cluster spread over threshold (0 = off)", least=0)
    cluster_scale: float = option(0.5, "float", "cluster threshold min(scale/sqrt(beta), pi/(2d))", above=0, unit="rad")
    mass_threshold: float = option(0.0, "float", "least mass of a counted cluster", least=0, most=1)
    max_steps: int = option(10_000, "int", "limit of steps a member", least=1, unit="steps")
    total_time: float = option(math.inf, "float", "limit of time", above=0, finite=False, unit="time")
    observe_every: int = option(10, "int", "steps between observations, the stop's among them", least=1, unit="steps")
    save: str = option(
        "log", "str", "snapshots: start and end, log-spaced, every n steps, given times",
        choices=("ends", "log", "every", "times"),
    )  # fmt: skip
    save_count: int = option(60, "int", "number of log-spaced snapshots", least=2)
    save_every: int = option(100, "int", "steps between snapshots for save = every", least=1, unit="steps")
    save_times: tuple[float, ...] = option(
        (), "float", "times of snapshots for save = times", many=True, least=0, empty=True, unit="time"
    )
    interaction: str = option("auto", "str", "how the attention is summed", choices=("auto", *EVALUATORS))
    dtype: str = option("float64", "str", "floating-point type of the run", choices=("float64", "float32"))
    lanes: int = option(0, "int", "members computed side by side (0 = automatic)", least=0)

    # The constructor converts and checks by itself, with messages for people.
    __no_type_check__: ClassVar[bool] = True

    def __post_init__(self):
        for name, rule in _RULES.items():
            object.__setattr__(self, name, rule.convert(name, getattr(self, name)))
        for name, value in automatic(self).items():
            object.__setattr__(self, name, value)
        check(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Spec":
        """The spec with these keys, defaults elsewhere; single values stand for lists of one, "inf" for infinity."""
        _known(values)
        return cls(**values)

    @classmethod
    def from_toml(cls, path: str | Path) -> "Spec":
        """The spec of a flat TOML file; file names in it are relative to its folder.

        Raises:
            ValueError: unreadable or not TOML (file and line are named), unknown key, or as the constructor.
        """
        values = read_toml(path, "configuration")
        _known(values, where=f"{path}: ")
        for key in _FILE_KEYS:
            name = values.get(key)
            if isinstance(name, str) and name not in _RULES[key].choices and looks_like_file(name):
                values[key] = str((Path(path).parent / Path(name).expanduser()).resolve())
        try:
            return cls(**values)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """All keys as JSON-able values (lists for tuples, "inf" for infinity): `from_dict` gives the spec back."""
        values = {name: getattr(self, name) for name in _RULES}
        return {name: _jsonable(value) for name, value in values.items()}

    def replace(self, **changes: Any) -> "Spec":
        """The spec with some keys changed; what depended on a replaced file or choice is chosen anew unless given too.

        With another integrator `rtol` returns to its default, with other weights the seeds do where they meant
        something else before (seeds, or entries of a file), with a weights file the file's activation is taken, with a
        start file its number of points.
        """
        _known(changes)
        values = {name: getattr(self, name) for name in _RULES} | changes
        if values["integrator"] != self.integrator:
            values["rtol"] = changes.get("rtol")
        given = str(changes.get("weights", self.weights))
        if given != self.weights:
            if not {given, self.weights} <= {"numpy", "sampled"}:
                values["weight_seed"] = changes.get("weight_seed")
            if given == "none":
                values["mlp_scale"] = changes.get("mlp_scale", 1.0)
            elif looks_like_file(given) and "activation" not in changes:
                values["activation"] = declared_activation(given) or self.activation
        given = str(changes.get("start", self.start))
        if given != self.start and looks_like_file(given):
            values["n_particles"] = changes.get("n_particles")
        return type(self)(**values)

    @property
    def grid(self) -> dict[str, tuple[float, ...] | tuple[int, ...]]:
        """The axes of the grid in their order: beta, weight_seed, start_seed, scale."""
        return {
            "beta": self.beta,
            "weight_seed": self.weight_seed,
            "start_seed": self.start_seed,
            "scale": self.mlp_scale,
        }

    @property
    def members(self) -> int:
        """Number of members, the product of the axes' lengths."""
        return math.prod(len(axis) for axis in self.grid.values())

    @property
    def step_limit(self) -> int:
        """Most steps of a member: `max_steps`, or `round(total_time / dt)` if fewer and steps are fixed."""
        if self.integrator in ADAPTIVE or math.isinf(self.total_time):
            return self.max_steps
        return min(self.max_steps, round(self.total_time / self.dt))

    @property
    def hash(self) -> str:
        """Sixteen hexadecimal digits of the SHA-256 of all keys; contents of files are not in it, their names are."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def perceptrons(self) -> tuple[PerceptronWeights, ...]:
        """The weights at scale 1, one for each weight seed; empty without a perceptron.

        Raises:
            ValueError: a weights file that cannot be used, or has no such entry.
        """
        if self.weights == "none":
            return ()
        if self.weights in DRAWN_WEIGHTS:
            draw = numpy_weights if self.weights == "numpy" else sampled_weights
            mode = "norm" if self.mlp_scale_mode == "norm" else "std"
            size = (self.dim, self.mlp_units, mode, self.gradient_mlp, self.activation)
            return tuple(draw(seed, *size) for seed in self.weight_seed)
        entries = load_weights(self.weights, self.dim, self.activation)
        missing = [seed for seed in self.weight_seed if seed >= len(entries)]
        if missing:
            raise ValueError(
                f"weight_seed = {missing[0]}: expected an entry of {self.weights}, which has {len(entries)} (from 0); "
                "leave weight_seed out to take all"
            )
        if self.mlp_units not in (None, entries[0].units):
            raise ValueError(
                f"mlp_units = {self.mlp_units}: {self.weights} has {entries[0].units}; leave mlp_units out"
            )
        return tuple(entries[seed] for seed in self.weight_seed)

    def starts(self) -> tuple[Start, ...]:
        """The starting points, one set for each start seed.

        Raises:
            ValueError: a file of points that cannot be used, or has another number of points than `n_particles`.
        """
        if self.start in ("numpy", "uniform"):
            draw = numpy_start if self.start == "numpy" else sampled_start
            return tuple(draw(seed, self.n_particles, self.dim) for seed in self.start_seed)
        if self.start in NAMED_STARTS:
            lattice = equispaced_start if self.start == "equispaced" else fibonacci_start
            return (lattice(self.n_particles),) * len(self.start_seed)
        points = load_points(self.start, self.dim)
        if points.n != self.n_particles:
            raise ValueError(
                f"n_particles = {self.n_particles}: {self.start} has {points.n} points; leave n_particles out"
            )
        return (points,) * len(self.start_seed)


@dataclass(frozen=True)
class Key:
    """One key of a `Spec` as documents and the command line (`option`) need it; `many` values sweep."""

    name: str
    option: str
    kind: str
    many: bool
    default: str
    unit: str
    allowed: str
    help: str


def fields_table() -> tuple[Key, ...]:
    """All keys of a `Spec` in their order."""
    return tuple(
        Key(
            name=field.name,
            option="--" + field.name.replace("_", "-"),
            kind=rule.kind,
            many=rule.many,
            default=rule.automatic or _text(field.default),
            unit=rule.unit,
            allowed=rule.allowed(),
            help=rule.help,
        )
        for field, rule in ((field, _RULES[field.name]) for field in dataclasses.fields(Spec))
    )


def is_file(key: str, value: str) -> bool:
    """Whether the value of `weights` or `start` names a file."""
    return value not in _RULES[key].choices


_RULES: dict[str, Rule] = {field.name: field.metadata["rule"] for field in dataclasses.fields(Spec)}


def _known(values: Mapping[str, Any], where: str = "") -> None:
    for key in values:
        if key not in _RULES:
            raise ValueError(where + str(unknown("key", str(key), _RULES)))


def _jsonable(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_jsonable(item) for item in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_text, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
