"""Evaluators of `sum_j k(<x_i, y_j>) q_j`: one interface, one derivative rule, different costs."""

from .base import AbstractInteraction as AbstractInteraction
from .choice import DIMENSIONS as DIMENSIONS
from .choice import EVALUATORS as EVALUATORS
from .choice import Choice as Choice
from .choice import choice_table as choice_table
from .choice import choose as choose
from .choice import choose_interaction as choose_interaction
from .choice import named_interaction as named_interaction
from .circle_fourier import CircleFourier as CircleFourier
from .dense import Blocked as Blocked
from .dense import Dense as Dense
from .nufft import NonuniformFFT as NonuniformFFT
from .sphere_fourier import SphereFourier as SphereFourier
from .sphere_nufft import SphereNonuniformFFT as SphereNonuniformFFT
from .tiled import Fused as Fused
from .tiled import Tiled as Tiled
