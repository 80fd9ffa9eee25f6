"""What all commands share: help in sections, one clear message for bad input, exit codes, text in 80 columns."""

import json
import math
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from .._options import nearest

BAD_INPUT, NOT_CONVERGED, INTERRUPTED = 2, 3, 130
WIDTH = 80
NO_BREAK = "\u00a0"


class Commands(click.Group):
    """The group of commands: bad input is one message on standard error and exit code 2, never a traceback.

    The words of the command line are kept as the context's `obj`, for the command that resumes.
    """

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> Any:
        """Run the command line and exit with its code."""
        words = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        try:
            code = super().main(words, "mflandscape", obj=words, **extra)
        except click.Abort:
            code = _failed("interrupted before anything was run", INTERRUPTED)
        except click.ClickException as error:
            code = _failed(_usage(error), error.exit_code)
        except BrokenPipeError:  # the reader of standard output went away, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 0
        except OSError as error:
            code = _failed(f"{error.filename or 'input or output'}: {error.strerror or error}", BAD_INPUT)
        except ValueError as error:
            code = _failed(str(error), BAD_INPUT)
        sys.exit(code)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order in which one uses them."""
        return list(self.commands)


class Sections(click.Command):
    """A command whose help lists options under the titles of their sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, a section a title, in the order of their first options."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def plain(value: Any) -> Any:
    """`value` as strict JSON takes it: nan and inf become null, NumPy values and paths plain ones."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    click.echo(json.dumps(plain(value), allow_nan=False))


def print_rows(rows: Sequence[tuple[str, str]], err: bool = False) -> None:
    """Labels and texts in two columns, wrapped at 80; words are never broken, nor texts at no-break spaces."""
    left = max((len(label) for label, _ in rows), default=0) + 2
    for label, text in rows:
        lines = textwrap.wrap(text, WIDTH - left, break_long_words=False, break_on_hyphens=False) or [""]
        text = label.ljust(left) + ("\n" + " " * left).join(lines)
        click.echo(text.replace(NO_BREAK, " "), err=err)


def _usage(error: click.ClickException) -> str:
    message = error.format_message().rstrip()
    context = getattr(error, "ctx", None)
    if isinstance(error, click.NoSuchOption) and context is not None:
        known = [word for each in context.command.get_params(context) for word in (*each.opts, *each.secondary_opts)]
        message = f"no such option {error.option_name}{nearest(error.option_name, known)}"
    return message + (f" See `{context.command_path} --help`." if context is not None else "")


def _failed(message: str, code: int) -> int:
    click.echo(f"error: {message}", err=True)
    return code
