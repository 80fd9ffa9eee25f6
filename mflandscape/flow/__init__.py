"""Flows in time: integrators, stopping rules, snapshots, derivatives, and the verb `flow`."""

from .adjoints import AbstractAdjoint as AbstractAdjoint, Forward as Forward, Unrolled as Unrolled
from .dynamics import Dynamics as Dynamics
from .integrators import (
    AbstractIntegrator as AbstractIntegrator,
    Brownian as Brownian,
    Euler as Euler,
    Midpoint as Midpoint,
    RK4 as RK4,
)
from .problem import Problem as Problem
from .saving import (
    AbstractSave as AbstractSave,
    Observe as Observe,
    SaveAt as SaveAt,
    SaveEvery as SaveEvery,
    SaveLog as SaveLog,
    SaveNothing as SaveNothing,
)
from .solve import flow as flow, Solution as Solution
from .stopping import (
    AbstractStop as AbstractStop,
    ClustersSettled as ClustersSettled,
    MaxSteps as MaxSteps,
    MaxTime as MaxTime,
    published_rule as published_rule,
    Stationary as Stationary,
)
