"""What a check of a theorem is, and what it finds: numbers beside the limits that the theorem puts on them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, SupportsFloat

HOLDS, FAILS, NOT_APPLICABLE = "holds", "fails", "not_applicable"


@dataclass(frozen=True)
class Comparison:
    """One measured number and what it is compared with: `"at most"` or `"at least"` the limit. A nan meets none."""

    what: str
    measured: float
    relation: Literal["at most", "at least"]
    limit: float

    @property
    def met(self) -> bool:
        """Whether the number is on the right side of its limit."""
        if math.isnan(self.measured):
            return False
        return self.measured <= self.limit if self.relation == "at most" else self.measured >= self.limit


@dataclass(frozen=True)
class Verdict:
    """What a check found.

    Attributes:
        name, statement: of the theorem.
        unmet: its hypotheses that are not met, each with the number that says so; empty if all are.
        comparisons: what was measured, and the limits.
        context: numbers that decide nothing.
    """

    name: str
    statement: str
    unmet: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    context: Mapping[str, float | int] = field(default_factory=dict)

    @property
    def conclusion(self) -> str:
        """`"holds"` if every number is within its limit, else `"fails"`, whether the hypotheses are met or not."""
        met = bool(self.comparisons) and all(each.met for each in self.comparisons)
        return HOLDS if met else FAILS

    @property
    def verdict(self) -> str:
        """The conclusion; `"not_applicable"` where a hypothesis is not met."""
        return NOT_APPLICABLE if self.unmet else self.conclusion

    def payload(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "name": self.name,
            "statement": self.statement,
            "hypotheses_met": not self.unmet,
            "measured": {each.what: each.measured for each in self.comparisons} | dict(self.context),
            "tolerance": {each.what: {each.relation: each.limit} for each in self.comparisons},
            "verdict": self.verdict,
            "unmet": list(self.unmet),
            "conclusion": self.conclusion,
        }


@dataclass(frozen=True)
class Check:
    """A theorem and the function that checks it.

    `measure(**parameters)` is pure; its defaults meet the hypotheses, `quick` are parameters that take less time.
    """

    name: str
    title: str
    statement: str
    measure: Callable[..., Verdict]
    quick: Mapping[str, Any] = field(default_factory=dict)

    def run(self, quick: bool = False) -> Verdict:
        """The check at its defaults."""
        return self.measure(**(self.quick if quick else {}))


def at_most(what: str, measured: SupportsFloat, limit: SupportsFloat) -> Comparison:
    """A number that may not exceed its limit."""
    return Comparison(what, float(measured), "at most", float(limit))


def at_least(what: str, measured: SupportsFloat, limit: SupportsFloat) -> Comparison:
    """A number that may not fall below its limit."""
    return Comparison(what, float(measured), "at least", float(limit))


def unmet(hypotheses: Mapping[str, Any]) -> tuple[str, ...]:
    """Those that are false."""
    return tuple(name for name, holds in hypotheses.items() if not holds)
