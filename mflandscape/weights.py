"""Perceptron weights on the host: the published draws to the bit, draws from JAX keys, and the published JSON files."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import jax
import numpy as np
from jaxtyping import Float

from . import sphere
from ._options import nearest, read_json
from .activations import activation as as_activation

ScaleMode = Literal["std", "norm"]
Array64 = Float[np.ndarray, "..."]
ENTRY_KEYS = ("activation", "a", "omega", "bias")
PARALLEL_TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class PerceptronWeights:
    """Weights of the drift `sum_j omega_j sigma(a_j.x + b_j) a_j` (gradient form), or with free vectors `w_j`.

    Exactly one of `omega (J,)` and `w (J, d)` is given; free vectors have a drift but no energy. Stored as read-only
    float64 arrays at scale 1. `a` is used as given: the published code does not normalise it either.

    Raises:
        ValueError: unknown activation, both or neither of `omega` and `w`, shapes that differ, nan or inf.
    """

    activation: str
    a: Float[np.ndarray, "J d"]
    omega: Float[np.ndarray, " J"] | None = None
    w: Float[np.ndarray, "J d"] | None = None
    bias: Float[np.ndarray, " J"] | None = None
    # Lists and integers are welcome: the constructor converts and checks by itself, with messages for people.
    __no_type_check__: ClassVar[bool] = True

    def __post_init__(self):
        object.__setattr__(self, "activation", as_activation(self.activation).name)
        if (self.omega is None) == (self.w is None):
            raise ValueError("omega and w: got both or neither; give omega (J,) for the gradient form or w (J, d)")
        a = _array("a", self.a, ndim=2)
        if a.shape[0] < 1 or a.shape[1] < 2:
            raise ValueError(f"a has shape {a.shape}: expected (J, d) with J >= 1 neurons and d >= 2")
        object.__setattr__(self, "a", a)
        for name, shape in (("omega", a.shape[:1]), ("w", a.shape), ("bias", a.shape[:1])):
            value = getattr(self, name)
            if value is not None:
                value = _array(name, value, ndim=len(shape))
                if value.shape != shape:
                    raise ValueError(f"{name} has shape {value.shape}: expected {shape}, a having shape {a.shape}")
                object.__setattr__(self, name, value)

    @property
    def units(self) -> int:
        """Number of neurons J."""
        return self.a.shape[0]

    @property
    def dim(self) -> int:
        """Ambient dimension d."""
        return self.a.shape[1]

    @property
    def gradient(self) -> bool:
        """Whether the drift is a gradient, so that there is an energy."""
        return self.omega is not None

    @property
    def vectors(self) -> Float[np.ndarray, "J d"]:
        """The vectors `w_j` of the drift: `omega_j a_j` in the gradient form."""
        if self.omega is not None:
            return self.omega[:, None] * self.a
        assert self.w is not None
        return self.w


def _array(name: str, value: Any, ndim: int) -> Array64:
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is no array of numbers ({error}); expected rows of equal length") from error
    if array.ndim != ndim:
        raise ValueError(f"{name} has {array.ndim} axes: expected {ndim}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has nan or inf: expected finite numbers; repair the weights")
    array.flags.writeable = False
    return array


def numpy_weights(
    seed: int, d: int, units: int | None = None, scale_mode: ScaleMode = "std", gradient: bool = True,
    activation: str = "relu",
) -> PerceptronWeights:  # fmt: skip
    """The weights of the published code at scale 1, to the bit.

    `rng = np.random.default_rng(seed)`; `a = rng.normal(size=(J, d))`, rows normalised; `rng.normal(size=(J, 1))` is
    `omega` (`std`) or gives its sign (`norm`); free vectors are `rng.normal(size=(J, d))`, rows normalised in `norm`
    mode. At another scale the published code draws `rng.normal(scale=c)`, which is `c * rng.normal()` to the bit:
    multiply `omega` or `w` by c (free vectors in `norm` mode then agree to rounding). `units = None` means J = d.
    """
    units = _checked(d, units, scale_mode)
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(units, d))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    free = rng.normal(size=(units, 1 if gradient else d))
    return _weights(activation, a, free, scale_mode, gradient)


def sampled_weights(
    seed: int, d: int, units: int | None = None, scale_mode: ScaleMode = "std", gradient: bool = True,
    activation: str = "relu",
) -> PerceptronWeights:  # fmt: skip
    """Weights distributed as those of `numpy_weights`, drawn from `jax.random.key(seed)` (threefry, in float64)."""
    units = _checked(d, units, scale_mode)
    with jax.enable_x64(True):
        key_a, key_free = jax.random.split(jax.random.key(seed, impl="threefry2x32"))
        a = np.asarray(sphere.uniform(key_a, units, d, np.dtype(np.float64)))
        free = np.asarray(jax.random.normal(key_free, (units, 1 if gradient else d), np.float64))
    return _weights(activation, a, free, scale_mode, gradient)


def _checked(d: int, units: int | None, scale_mode: str) -> int:
    if d < 2:
        raise ValueError(f"d = {d}: expected d >= 2; the sphere S^(d-1) needs two coordinates")
    if units is not None and units < 1:
        raise ValueError(f"units = {units}: expected at least 1 neuron; leave it out for units = d")
    if scale_mode not in ("std", "norm"):
        raise ValueError(f"scale_mode = '{scale_mode}': expected std or norm{nearest(scale_mode, ('std', 'norm'))}")
    return d if units is None else units


def _weights(activation: str, a: Array64, free: Array64, scale_mode: str, gradient: bool) -> PerceptronWeights:
    if gradient:
        omega = free[:, 0] if scale_mode == "std" else np.where(free[:, 0] >= 0, 1.0, -1.0)
        return PerceptronWeights(activation, a, omega=omega)
    if scale_mode == "norm":
        free = free / np.linalg.norm(free, axis=1, keepdims=True)
    return PerceptronWeights(activation, a, w=free)


def declared_activation(path: str | Path) -> str | None:
    """The activation that a weights file names, or None where it names none."""
    entries, shared = _entries(path)
    named = [entry["activation"] for entry in entries if isinstance(entry, dict) and entry.get("activation")]
    return _activation_name(f"{path}", (*named, shared)[0])


def load_weights(path: str | Path, d: int, activation: str | None = None) -> tuple[PerceptronWeights, ...]:
    """The perceptrons of a weights file in the published format: one, or one per weight seed.

    `{"activation", "a": (J, d), "omega": (J, d), "bias": (J,)}`, `{"params": [...]}`, `{"mlp_params": [...]}` or a list
    of such objects; a single row may be flat; `bias` is optional and ours. It is the gradient form when in all entries
    every `omega_j` is a multiple of `a_j` within 1e-12 relative (the scalar is `omega_j.a_j / |a_j|^2`), else free.

    Args:
        path: the file.
        d: ambient dimension the weights must have.
        activation: one asked for by name; None takes the file's own, or relu where the file names none.

    Raises:
        ValueError: unreadable or not JSON, unknown or missing key, wrong d, shapes that differ, nan or inf, entries
            with different activations or numbers of neurons, an `activation` other than the file's.
    """
    entries, shared = _entries(path)
    read = [_read_entry(f"{path}, entry {k}", entry, d) for k, entry in enumerate(entries)]
    shared = _activation_name(f"{path}", shared)
    named = {name or shared for name, *_ in read} - {None}
    if len(named) > 1:
        raise ValueError(f"{path}: entries have activations {sorted(map(str, named))}; expected one; split the file")
    own = named.pop() if named else None
    if own is not None and activation is not None and own != as_activation(activation).name:
        raise ValueError(
            f"{path}: the file's activation is {own}, asked for was {activation}; leave the option out or edit the file"
        )
    if len({a.shape for _, a, _, _ in read}) > 1:
        raise ValueError(f"{path}: entries have different numbers of neurons; expected one J for all; split the file")
    name = own or activation or "relu"
    scalars = [_scalars(a, omega) for _, a, omega, _ in read]
    free = any(scalar is None for scalar in scalars)
    biased = any(bias is not None for *_, bias in read)
    return tuple(
        PerceptronWeights(
            name,
            a,
            omega=None if free else scalar,
            w=omega if free else None,
            bias=None if not biased else np.zeros(len(a)) if bias is None else bias,
        )
        for (_, a, omega, bias), scalar in zip(read, scalars, strict=True)
    )


def save_weights(path: str | Path, weights: PerceptronWeights | Sequence[PerceptronWeights]) -> None:
    """Write one perceptron or several in the published format (`omega` as vectors; `bias` only where there is one)."""
    many = [weights] if isinstance(weights, PerceptronWeights) else list(weights)
    if not many:
        raise ValueError("save_weights: got no weights; expected at least one PerceptronWeights")
    entries = [
        {"activation": one.activation, "a": one.a.tolist(), "omega": one.vectors.tolist()}
        | ({} if one.bias is None else {"bias": one.bias.tolist()})
        for one in many
    ]
    content = entries[0] if len(entries) == 1 else {"params": entries}
    Path(path).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _entries(path: str | Path) -> tuple[list[Any], Any]:
    data = read_json(path, "weights file")
    shared = data.get("activation") if isinstance(data, dict) else None
    if isinstance(data, dict):
        key = next((key for key in ("params", "mlp_params") if key in data), None)
        data = [data] if key is None else data[key]
    if not isinstance(data, list) or not data:
        raise ValueError(f"{path}: expected an object with 'a' and 'omega', or a non-empty list of them under 'params'")
    return data, shared


def _read_entry(where: str, entry: Any, d: int) -> tuple[str | None, Array64, Array64, Array64 | None]:
    if not isinstance(entry, dict):
        raise ValueError(f"{where}: got {type(entry).__name__}; expected an object with 'a' and 'omega'")
    for key in entry:  # other keys are comments, as in the published code, unless they look like a slip
        if key not in ENTRY_KEYS and (meant := nearest(key, ENTRY_KEYS, likeness=0.7)):
            raise ValueError(f"{where}: unknown key '{key}'{meant} Known: {', '.join(ENTRY_KEYS)}")
    for key in ("a", "omega"):
        if entry.get(key) is None:
            raise ValueError(f"{where}: '{key}' is missing; expected rows of {d} numbers")
    a, omega = (_rows(where, key, entry[key], d) for key in ("a", "omega"))
    if a.shape != omega.shape:
        raise ValueError(f"{where}: a has shape {a.shape} and omega {omega.shape}; expected the same shape")
    bias = entry.get("bias")
    if bias is not None:
        bias = _array(f"{where}: bias", np.atleast_1d(bias), ndim=1)
        if bias.shape != a.shape[:1]:
            raise ValueError(f"{where}: bias has shape {bias.shape}; expected {a.shape[:1]}, one a neuron")
    return _activation_name(where, entry.get("activation")), a, omega, bias


def _rows(where: str, key: str, value: Any, d: int) -> Array64:
    flat = isinstance(value, list) and value and not any(isinstance(row, list) for row in value)
    rows = _array(f"{where}: {key}", [value] if flat else value, ndim=2)
    if rows.shape[1] != d:
        raise ValueError(
            f"{where}: {key} has rows of {rows.shape[1]} numbers; expected d = {d}; set dim = {rows.shape[1]}"
        )
    return rows


def _activation_name(where: str, name: Any) -> str | None:
    try:
        return None if name is None else as_activation(str(name).strip()).name
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _scalars(a: Array64, omega: Array64) -> Array64 | None:
    """The scalars s with `omega_j = s_j a_j` within 1e-12 relative, or None where there are none."""
    size = np.max(np.abs(a), axis=1)
    unit = a / np.where(size > 0, size, 1.0)[:, None]
    square = np.sum(unit * unit, axis=1)
    scalar = np.sum(omega * unit, axis=1) / np.where(square > 0, square, 1.0)
    gap = np.linalg.norm(omega - scalar[:, None] * unit, axis=1)
    if (gap > PARALLEL_TOLERANCE * np.linalg.norm(omega, axis=1)).any():
        return None
    scalar = scalar / np.where(size > 0, size, 1.0)
    return scalar if math.isfinite(float(np.sum(np.abs(scalar)))) else None
