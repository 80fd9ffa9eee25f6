"""Numbers in the words of the command line."""

from .._options import Rule


def parse_number(name: str, word: str, allowed: str) -> float | int:
    """The whole number, or the number, that a word is.

    Raises:
        ValueError: it is neither; `allowed` says what was expected.
    """
    for parse in (int, float):
        try:
            return parse(word)
        except ValueError:
            continue
    option = "--" + name.replace("_", "-")
    raise ValueError(f"{name} = {word.strip()!r}: expected a {allowed}; give {option} a number")


def number_in(rule: Rule, name: str, word: str) -> float:
    """A word as the rule of its option takes it.

    Raises:
        ValueError: not a number, or out of range.
    """
    return float(rule.convert(name, parse_number(name, word, rule.allowed())))
