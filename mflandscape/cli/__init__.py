"""The command line `mflandscape`: runs, their end states, extremal states, theory; keys are those of `Spec`."""

import click

from .cache import keep_compiled_programs
from .check import check
from .classify import command as classify
from .evaluators import evaluators
from .figure import figure
from .maximise import maximise
from .minimise import minimise
from .presets import presets
from .refine import command as refine
from .report import animate, report
from .results import export, info, plot
from .run import run
from .teaching import Commands
from .theory import theory

__all__ = ["main"]

_EXAMPLES = """
\b
  mflandscape presets                           the paper's experiments
  mflandscape run --preset paper-s1 --out demo  13 betas on the circle
  mflandscape plot demo                         its pictures, PNG and PDF
  mflandscape run --beta 1,5,25 --dim 3         a run of your own
  mflandscape run config.json                   the published code's input
"""


@click.group(
    cls=Commands,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda word: word.replace("_", "-"),
    },
    epilog="Exit codes: 0 done; 2 bad input; 3 a member did not converge (--strict); 130 interrupted, resumable.",
)
@click.version_option(package_name="mflandscape", message="%(prog)s %(version)s")
def main() -> None:
    """Gradient flows of attention with perceptrons on the sphere: grids of runs, stored, resumed and drawn."""
    keep_compiled_programs()


main.help = f"{main.help}\n{_EXAMPLES}"
for _command in (
    run,
    info,
    plot,
    report,
    animate,
    export,
    refine,
    classify,
    minimise,
    maximise,
    theory,
    figure,
    check,
    presets,
    evaluators,
):
    main.add_command(_command)
