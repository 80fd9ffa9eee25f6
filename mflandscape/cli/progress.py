"""Progress of a run on standard error: a bar on a terminal, elsewhere a line every ten seconds."""

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterator
from datetime import timedelta

import click

from ..runner import Progress

_LINE_SECONDS = 10.0
_RATE_SECONDS = 10.0


@contextlib.contextmanager
def progress_shown(label: str, quiet: bool, bar: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A function to call with each `Progress` of one run."""
    if quiet:
        yield None
    elif bar:
        with _bar(label) as show:
            yield show
    else:
        yield _lines(label)


class Rate:
    """Steps a second over the last ten seconds: neither the compilation nor old members count for long."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def __call__(self, progress: Progress) -> float:
        """The rate now; nan at first."""
        self._seen.append((progress.seconds, progress.steps))
        while len(self._seen) > 2 and self._seen[0][0] < progress.seconds - _RATE_SECONDS:
            self._seen.popleft()
        seconds, steps = (last - first for first, last in zip(self._seen[0], self._seen[-1], strict=True))
        return steps / seconds if seconds > 0 else math.nan


def sentence(progress: Progress, rate: float) -> str:
    """Members, steps, rate and time left in words."""
    left = progress.expected / rate if rate > 0 else math.nan
    time = f"{timedelta(seconds=round(left))} left" if math.isfinite(left) else "time left unknown"
    speed = f"{_short(rate)}/s" if math.isfinite(rate) else "-/s"
    return f"{progress.done}/{progress.total} members  {_short(progress.steps)} steps  {speed}  {time}"


@contextlib.contextmanager
def _bar(label: str) -> Iterator[Callable[[Progress], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    rate = Rate()
    text = TextColumn("{task.fields[state]}", markup=False)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=None), text)
    with Bars(*columns, console=Console(stderr=True), transient=True, expand=True) as bars:
        task = bars.add_task(label, total=None, state="compiling")

        def show(progress: Progress) -> None:
            known = math.isfinite(progress.expected)
            bars.update(
                task,
                total=progress.steps + progress.expected if known else None,
                completed=progress.steps,
                state=sentence(progress, rate(progress)),
            )

        yield show


def _lines(label: str) -> Callable[[Progress], None]:
    rate, said = Rate(), 0.0

    def show(progress: Progress) -> None:
        nonlocal said
        speed = rate(progress)
        if progress.seconds - said >= _LINE_SECONDS:
            said = progress.seconds
            click.echo(f"{label}  {sentence(progress, speed)}", err=True)

    return show


def _short(number: float | int) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if letter == 'k' else size):.1f}{letter}"
    return f"{number:.0f}"
