"""Energies named on the command line: the options of a model, and the energies of their grid."""

from collections.abc import Mapping
from typing import Any

import click

from ..experiment import Experiment
from ..spec import Spec
from .keys import SECTIONS, changes, check_preset_weights, key_options


def model_options(*names: str) -> list[click.Option]:
    """The options of these keys of a `Spec`, in the order of its sections.

    Raises:
        ValueError: a name that is no key.
    """
    unknown = set(names) - {name for section in SECTIONS.values() for name in section}
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))}: expected keys of a Spec")
    return [option for option in key_options() if option.name in names]


def read_models(options: Mapping[str, Any]) -> Experiment:
    """The grid of energies that options of keys ask for, with the dense evaluator: there are no particles yet.

    Raises:
        ValueError: bad values, weights of another dimension, files that cannot be read.
    """
    spec = Spec.from_dict({"n_particles": 1} | changes(options))
    check_preset_weights(options, spec.dim)
    return Experiment(spec.replace(interaction="dense"))
