"""Keys of a configuration: types, ranges, choices, the sentence that says what is wrong; reading of JSON and TOML."""

import dataclasses
import difflib
import json
import math
import numbers
import os
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


def nearest(word: str, words: Iterable[str], likeness: float = 0.5) -> str:
    """`"; did you mean 'x'?"` for the word closest to a misspelled one, or nothing where none is close."""
    known = {name.lower(): name for name in words}
    close = difflib.get_close_matches(str(word).lower(), known, n=1, cutoff=likeness)
    return f"; did you mean '{known[close[0]]}'?" if close else ""


def unknown(kind: str, word: str, words: Iterable[str]) -> ValueError:
    """The error for a name that is none of `words`: the nearest one first, then all of them."""
    words = tuple(words)
    return ValueError(f"unknown {kind} '{word}'{nearest(word, words)} Known: {', '.join(words)}")


def looks_like_file(value: str) -> bool:
    """Whether a string names a file (it has a folder or a suffix) and not one of the choices."""
    return "/" in value or os.sep in value or "." in value


@dataclass(frozen=True)
class Rule:
    """What one key accepts: `kind` float, int, bool or str; one value or `many`; a range; choices, or a file."""

    kind: str
    help: str
    unit: str = ""
    many: bool = False
    automatic: str = ""
    least: int | float | None = None
    above: int | float | None = None
    most: int | float | None = None
    finite: bool = True
    choices: tuple[str, ...] = ()
    file: str = ""
    empty: bool = False

    def allowed(self) -> str:
        """The accepted values in words, as tables and errors print them."""
        if self.choices:
            return ", ".join(self.choices) + (f", or {self.file}" if self.file else "")
        parts = [{"float": "number", "int": "whole number", "bool": "true or false", "str": "text"}[self.kind]]
        parts += [self._bounds()] if self._bounds() else []
        parts += [] if self.finite else ["or inf"]
        return " ".join(parts) + (", or a list" if self.many else "")

    def convert(self, name: str, value: Any) -> Any:
        """The value in its Python type.

        Raises:
            ValueError: wrong type, out of range, unknown choice, empty list, or a value listed twice.
        """
        if value is None and self.automatic:
            return None
        if not self.many:
            return self._one(name, value)
        items = list(value) if isinstance(value, list | tuple | np.ndarray) else [value]
        if not items and not self.empty:
            raise ValueError(f"{name} = []: expected at least one value; give a value or leave the key out")
        converted = tuple(self._one(name, item) for item in items)
        twice = next((item for k, item in enumerate(converted) if item in converted[:k]), None)
        if twice is not None:
            raise ValueError(f"{name} has {twice!r} twice: expected different values; remove one of them")
        return converted

    def _one(self, name: str, value: Any) -> Any:
        if self.kind == "bool":
            if not isinstance(value, bool | np.bool_):
                raise ValueError(f"{name} = {value!r}: expected true or false, without quotes")
            return bool(value)
        if self.kind == "str":
            return self._word(name, value)
        return self._number(name, value)

    def _word(self, name: str, value: Any) -> str:
        if not isinstance(value, str | os.PathLike):
            raise ValueError(f"{name} = {value!r}: expected text, one of {self.allowed()}")
        word = os.fspath(value)
        if word in self.choices or (self.file and looks_like_file(word)):
            return os.path.expanduser(word) if word not in self.choices else word
        raise ValueError(
            f"{name} = '{word}': expected one of {', '.join(self.choices)}"
            + (f", or {self.file} (a name with a suffix such as .json)" if self.file else "")
            + nearest(word, self.choices)
        )

    def _number(self, name: str, value: Any) -> float | int:
        if isinstance(value, str) and not self.finite and value.strip().lower() in ("inf", "infinity"):
            value = math.inf
        if not _is_real(value):
            raise ValueError(f"{name} = {value!r}: expected a {self.allowed()}; got {type(value).__name__}")
        number: float | int = float(value)
        if math.isnan(number) or (math.isinf(number) and (self.finite or number < 0)):
            raise ValueError(f"{name} = {number}: expected a finite {self.allowed()}; give a number in that range")
        if self.kind == "int":
            if math.isinf(number) or number != int(number):
                raise ValueError(f"{name} = {value}: expected a {self.allowed()}; round it")
            number = int(value)
        low = self.least is not None and number < self.least or self.above is not None and number <= self.above
        if low or (self.most is not None and number > self.most):
            raise ValueError(f"{name} = {value}: expected {name} {self._bounds()}; give a value in that range")
        return number

    def _bounds(self) -> str:
        bounds = [f"> {self.above:g}"] if self.above is not None else []
        bounds += [f">= {self.least:g}"] if self.least is not None else []
        bounds += [f"<= {self.most:g}"] if self.most is not None else []
        return " and ".join(bounds)


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)


def option(default: Any, kind: str, help: str, **rule: Any) -> Any:
    """A dataclass field with its `Rule` in the metadata."""
    return dataclasses.field(default=default, metadata={"rule": Rule(kind, help, **rule)})


def read_json(path: str | Path, what: str) -> Any:
    """The contents of a JSON file.

    Raises:
        ValueError: no such file, unreadable, truncated or not JSON; the message names file and line.
    """
    try:
        return json.loads(_read_text(path, what))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}, line {error.lineno}: the {what} is truncated or not JSON ({error.msg}); repair it"
        ) from error


def read_toml(path: str | Path, what: str) -> dict[str, Any]:
    """The contents of a TOML file.

    Raises:
        ValueError: no such file, unreadable, truncated or not TOML; the message names file and line.
    """
    text = _read_text(path, what)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        where = line[1] if line else str(max(1, len(text.splitlines())))
        raise ValueError(f"{path}, line {where}: the {what} is truncated or not TOML ({error}); repair it") from error


def _read_text(path: str | Path, what: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path}: cannot read the {what} ({error.strerror or error}); check the path") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: the {what} is not UTF-8 text; check that it is the right file") from error
