"""Evaluators of `sum_j k(<x_i, y_j>) q_j`: one interface, one derivative rule, different costs."""

from .base import AbstractInteraction as AbstractInteraction
from .choice import choose_interaction as choose_interaction
from .circle_fourier import CircleFourier as CircleFourier
from .dense import Blocked as Blocked
from .dense import Dense as Dense
