"""What an integrator integrates: a drift on weighted particles in one direction, seen in the chart in which they
move.
"""

import equinox as eqx
from jaxtyping import Array, Float

from .._types import Direction
from ..drifts import AbstractDrift
from ..gradient import velocity
from ..measure import Measure
from ..sphere import AbstractChart, chart


class Dynamics(eqx.Module):
    """The system `du/dt = velocity(u)`. Its parts are open to integrators that use their structure (Jacobians,
    moments).
    """

    drift: AbstractDrift
    w: Float[Array, " N"]
    direction: Direction = eqx.field(static=True)
    d: int = eqx.field(static=True)

    @property
    def chart(self) -> AbstractChart:
        """Coordinates in which particles move."""
        return chart(self.d)

    def measure(self, u: Array) -> Measure:
        """The measure at coordinates `u`."""
        return Measure(self.chart.points(u), self.w)

    def velocity(self, u: Array) -> Array:
        """Velocities at coordinates `u`, in coordinates."""
        mu = self.measure(u)
        return self.chart.components(mu.x, velocity(self.drift, mu, self.direction))
