"""Drifts and energies: attention, softmax attention, perceptrons, and their sums."""

from .attention import Attention as Attention, SoftmaxAttention as SoftmaxAttention
from .base import (
    AbstractDrift as AbstractDrift,
    AbstractEnergy as AbstractEnergy,
    AbstractPotential as AbstractPotential,
)
from .perceptron import FreePerceptron as FreePerceptron, Perceptron as Perceptron
