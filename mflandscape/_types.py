"""Shape words used in signatures: `N` particles, `M` targets, `d` ambient dimension, `J` neurons, `K` modes, `S`
saved times.
"""

from collections.abc import Callable
from typing import Literal

from jaxtyping import Array, Float, Int, PRNGKeyArray

Scalar = Float[Array, ""]
Count = Int[Array, ""]
Points = Float[Array, "N d"]
Angles = Float[Array, " N"]
Key = PRNGKeyArray
Direction = Literal["descent", "ascent"]
ScalarFunction = Callable[[Array], Array]
