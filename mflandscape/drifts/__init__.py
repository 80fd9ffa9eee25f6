"""Drifts and energies: attention, softmax attention, perceptrons, and their sums."""

from .attention import Attention as Attention
from .attention import SoftmaxAttention as SoftmaxAttention
from .base import (
    AbstractDrift as AbstractDrift,
)
from .base import (
    AbstractEnergy as AbstractEnergy,
)
from .base import (
    AbstractPotential as AbstractPotential,
)
from .base import EnergySum as EnergySum
from .base import (
    check as check,
)
from .base import (
    defect as defect,
)
from .base import (
    prepare as prepare,
)
from .perceptron import FreePerceptron as FreePerceptron
from .perceptron import Perceptron as Perceptron
