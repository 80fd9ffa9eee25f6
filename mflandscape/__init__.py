"""A JAX particle engine for the mean-field landscape of attention with perceptrons.

Energies of measures on the sphere, their Wasserstein gradient flows, and whole grids of them as one program. Nouns are frozen
pytrees, verbs are functions; see the README for a first flow.
"""

from . import sphere as sphere
from ._results import RESULTS as RESULTS
from .activations import activation as activation
from .clusters import Clusters as Clusters, cluster_threshold as cluster_threshold, find_clusters as find_clusters
from .drifts import (
    AbstractEnergy as AbstractEnergy,
    Attention as Attention,
    FreePerceptron as FreePerceptron,
    Perceptron as Perceptron,
    SoftmaxAttention as SoftmaxAttention,
)
from .flow import (
    Brownian as Brownian,
    ClustersSettled as ClustersSettled,
    Euler as Euler,
    flow as flow,
    Forward as Forward,
    MaxSteps as MaxSteps,
    MaxTime as MaxTime,
    Midpoint as Midpoint,
    Observe as Observe,
    Problem as Problem,
    published_rule as published_rule,
    RK4 as RK4,
    SaveAt as SaveAt,
    SaveEvery as SaveEvery,
    SaveLog as SaveLog,
    Solution as Solution,
    Stationary as Stationary,
    Unrolled as Unrolled,
)
from .gradient import (
    dissipation as dissipation,
    first_variation as first_variation,
    hessian_vector_product as hessian_vector_product,
    residual as residual,
    velocity as velocity,
)
from .interactions import (
    Blocked as Blocked,
    choose_interaction as choose_interaction,
    CircleFourier as CircleFourier,
    Dense as Dense,
)
from .measure import empirical as empirical, from_angles as from_angles, Measure as Measure, uniform as uniform
from .modes import density_modes as density_modes
from .presets import preset as preset
from .runner import run as run
from .spec import Spec as Spec
from .store import open_run as open
from .sweep import sweep as sweep

__version__ = "0.1.0"


def __getattr__(name: str):
    """`Adaptive`, which imports Diffrax, on first use."""
    if name == "Adaptive":
        from .flow.adaptive import Adaptive

        return Adaptive
    raise AttributeError(f"module 'mflandscape' has no attribute {name!r}")
