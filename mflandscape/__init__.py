"""A JAX particle engine for the mean-field landscape of attention with perceptrons.

Energies of measures on the sphere, their Wasserstein gradient flows, and whole grids of them as one program. Nouns
are frozen pytrees, verbs are functions; see the README for a first flow.
"""

from . import sphere as sphere
from . import stationary as stationary
from . import theory as theory
from ._results import RESULTS as RESULTS
from .activations import activation as activation
from .clusters import cluster_threshold as cluster_threshold
from .clusters import find_clusters as find_clusters
from .drifts import (
    AbstractEnergy as AbstractEnergy,
)
from .drifts import (
    Attention as Attention,
)
from .drifts import (
    FreePerceptron as FreePerceptron,
)
from .drifts import (
    Perceptron as Perceptron,
)
from .drifts import (
    SoftmaxAttention as SoftmaxAttention,
)
from .flows import (
    RK4 as RK4,
)
from .flows import (
    Euler as Euler,
)
from .flows import (
    Forward as Forward,
)
from .flows import (
    Implicit as Implicit,
)
from .flows import (
    MaxSteps as MaxSteps,
)
from .flows import (
    MaxTime as MaxTime,
)
from .flows import (
    Observe as Observe,
)
from .flows import (
    Problem as Problem,
)
from .flows import (
    Rosenbrock as Rosenbrock,
)
from .flows import (
    SaveAt as SaveAt,
)
from .flows import (
    SaveEvery as SaveEvery,
)
from .flows import (
    SaveLog as SaveLog,
)
from .flows import (
    Stationary as Stationary,
)
from .flows import (
    Unrolled as Unrolled,
)
from .flows import (
    flow as flow,
)
from .flows import (
    published_rule as published_rule,
)
from .flows import (
    settle as settle,
)
from .gradient import (
    first_variation as first_variation,
)
from .gradient import (
    residual as residual,
)
from .gradient import (
    velocity as velocity,
)
from .interactions import (
    Blocked as Blocked,
)
from .interactions import (
    CircleFourier as CircleFourier,
)
from .interactions import (
    Dense as Dense,
)
from .interactions import (
    SphereFourier as SphereFourier,
)
from .measure import Measure as Measure
from .measure import empirical as empirical
from .measure import from_angles as from_angles
from .measure import uniform as uniform
from .presets import preset as preset
from .runner import run as run
from .spec import Spec as Spec
from .stationary import classify as classify
from .stationary import maximise as maximise
from .stationary import minimise as minimise
from .stationary import refine as refine
from .store import open_run as open  # noqa: F401
from .sweep import sweep as sweep

__version__ = "0.1.0"


def __getattr__(name: str):
    """`Adaptive`, which imports Diffrax, on first use."""
    if name == "Adaptive":
        from .flows.adaptive import Adaptive

        return Adaptive
    raise AttributeError(f"module 'mflandscape' has no attribute {name!r}")
