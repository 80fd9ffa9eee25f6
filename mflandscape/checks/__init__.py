"""The theorems of both papers as executable checks: each can hold, fail, or not apply."""

from . import atomicity, extremisers, kernel, mass_bounds, uniform, variants
from .base import FAILS as FAILS
from .base import HOLDS as HOLDS
from .base import NOT_APPLICABLE as NOT_APPLICABLE
from .base import Check as Check
from .base import Comparison as Comparison
from .base import Verdict as Verdict

_ALL = (
    atomicity.RELU_ATOMS,
    atomicity.STRICT_ATOMS,
    atomicity.SPHERE_ATOMS,
    variants.BIASES,
    mass_bounds.CLUSTER_MASSES,
    mass_bounds.HEAVY_ATOMS,
    extremisers.MAXIMISERS,
    extremisers.MINIMISERS,
    kernel.LEMMA_5_1,
    kernel.LEMMA_5_3,
    variants.SOFTMAX,
    uniform.RATES,
    uniform.FASTEST,
    uniform.CHAOS,
)
CHECKS: dict[str, Check] = {check.name: check for check in _ALL}
