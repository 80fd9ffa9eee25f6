"""The experiments of paper A, section 4, by name: each a `Spec` with one sentence."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ._options import unknown
from .spec import Spec
from .starts import expand_seeds

PAPER_BETAS = (0.01, 0.05, 0.1, 0.5, 1.0, 3.0, 5.0, 7.0, 10.0, 15.0, 25.0, 35.0, 50.0)
THREE_BETAS = (1.0, 5.0, 25.0)


@dataclass(frozen=True)
class Preset:
    """A `Spec` under a name, with what it shows."""

    name: str
    description: str
    spec: Spec


# Common to all: N = 1000, Euler with dt = 0.1, published draws and stop; 20 000 steps are where the published code's
# unfinished runs were cut for comparison, its own limit being ten times that.
_PAPER = Spec(beta=PAPER_BETAS, n_particles=1000, weights="numpy", start="numpy", start_seed=(42,), weight_seed=(777,),
              activation="relu", integrator="euler", dt=0.1, stop="published", drift_tol=1e-4, window=5,
              spread_factor=1.0, cluster_scale=0.5, observe_every=10, max_steps=20_000)  # fmt: skip
_STARTS: dict[str, Any] = {"beta": 5.0, "activation": "gelu", "start_seed": expand_seeds(42, 50)}
_SPHERE: dict[str, Any] = {"dim": 3, "weight_seed": 111}

_TABLE: dict[str, tuple[str, dict[str, Any]]] = {
    "paper-s1": ("circle, descent, ReLU, 13 betas (figures 1, 5, 9)", {}),
    "paper-s1-gelu": ("circle, descent, GeLU, 13 betas (figures 6, 9)", {"activation": "gelu"}),
    "paper-s1-ascent": ("circle, ascent, ReLU, 13 betas (figures 3, 9)", {"direction": "ascent"}),
    "paper-s1-ascent-gelu": ("circle, ascent, GeLU, 13 betas", {"direction": "ascent", "activation": "gelu"}),
    "paper-s1-attention": ("circle, ascent, attention alone, 13 betas (figure 9)",
                           {"direction": "ascent", "weights": "none"}),
    "paper-s1-attention-descent": ("circle, descent, attention alone, 13 betas (figure 1)", {"weights": "none"}),
    "paper-s1-softmax": ("circle, softmax attention, ascent, ReLU, three betas of ours (figure 8)",
                         {"beta": THREE_BETAS, "direction": "ascent", "attention_mode": "normalized"}),
    "paper-s1-softmax-descent": ("circle, softmax attention, descent, ReLU, three betas of ours (figure 8)",
                                 {"beta": THREE_BETAS, "attention_mode": "normalized"}),
    "paper-s1-starts": ("circle, descent, GeLU, beta 5 of ours, 50 starts (figure 10)", _STARTS),
    "paper-s1-starts-ascent": ("circle, ascent, GeLU, beta 5 of ours, 50 starts (figure 10)",
                               _STARTS | {"direction": "ascent"}),
    "paper-s1-starts-attention": ("circle, ascent, attention alone, beta 5 of ours, 50 starts (figure 10)",
                                  _STARTS | {"direction": "ascent", "weights": "none"}),
    "paper-s1-scales": ("circle, descent, ReLU, beta 5: stop time against the perceptron's scale (values of ours)",
                        {"beta": 5.0, "mlp_scale": (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)}),
    "paper-s2": ("sphere S^2, descent, ReLU, 13 betas (figures 7, 9)", _SPHERE),
    "paper-s2-gelu": ("sphere S^2, descent, GeLU, 13 betas (figures 7, 9)", _SPHERE | {"activation": "gelu"}),
    "paper-s2-ascent": ("sphere S^2, ascent, ReLU, 13 betas (figures 4, 9)", _SPHERE | {"direction": "ascent"}),
    "paper-s2-attention": ("sphere S^2, ascent, attention alone, 13 betas (figure 9)",
                           {"dim": 3, "direction": "ascent", "weights": "none"}),
    "paper-s2-softmax": ("sphere S^2, softmax attention, ascent, ReLU, three betas of ours",
                         _SPHERE | {"beta": THREE_BETAS, "direction": "ascent", "attention_mode": "normalized"}),
    "paper-s2-softmax-descent": ("sphere S^2, softmax attention, descent, ReLU, three betas of ours",
                                 _SPHERE | {"beta": THREE_BETAS, "attention_mode": "normalized"}),
    "paper-d5": ("sphere S^4, descent, ReLU, 13 betas (figures 11, 12)", {"dim": 5, "weight_seed": 111}),
    "paper-d10": ("sphere S^9, descent, ReLU, 13 betas (figures 11, 12)", {"dim": 10, "weight_seed": 111}),
}  # fmt: skip

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {name: Preset(name, text, _PAPER.replace(**changes)) for name, (text, changes) in _TABLE.items()}
)


def preset(name: str) -> Spec:
    """The `Spec` of a preset.

    Raises:
        ValueError: no such preset; the nearest is named.
    """
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name].spec
