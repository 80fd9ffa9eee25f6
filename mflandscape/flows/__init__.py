"""Flows in time: integrators, stopping rules, snapshots, derivatives, and the verbs `flow` and `settle`."""

from .adjoints import AbstractAdjoint as AbstractAdjoint
from .adjoints import Forward as Forward
from .adjoints import Implicit as Implicit
from .adjoints import Unrolled as Unrolled
from .dynamics import Dynamics as Dynamics
from .integrators import (
    RK4 as RK4,
)
from .integrators import (
    AbstractIntegrator as AbstractIntegrator,
)
from .integrators import (
    Brownian as Brownian,
)
from .integrators import (
    Euler as Euler,
)
from .integrators import (
    Midpoint as Midpoint,
)
from .problem import Problem as Problem
from .rosenbrock import Rosenbrock as Rosenbrock
from .saving import (
    AbstractSave as AbstractSave,
)
from .saving import (
    Observe as Observe,
)
from .saving import (
    SaveAt as SaveAt,
)
from .saving import (
    SaveEvery as SaveEvery,
)
from .saving import (
    SaveLog as SaveLog,
)
from .saving import (
    SaveNothing as SaveNothing,
)
from .settle import Settled as Settled
from .settle import settle as settle
from .solve import Solution as Solution
from .solve import flow as flow
from .stabilised import Stabilised as Stabilised
from .stopping import (
    AbstractStop as AbstractStop,
)
from .stopping import (
    ClustersSettled as ClustersSettled,
)
from .stopping import (
    MaxSteps as MaxSteps,
)
from .stopping import (
    MaxTime as MaxTime,
)
from .stopping import (
    Stationary as Stationary,
)
from .stopping import (
    published_rule as published_rule,
)
