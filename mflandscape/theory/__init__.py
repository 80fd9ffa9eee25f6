"""Theory without simulation: the spectrum at the uniform measure, and bounds on stationary states."""

from .bounds import HeavyAtoms as HeavyAtoms
from .bounds import MassBound as MassBound
from .bounds import concavity_window as concavity_window
from .bounds import curvature as curvature
from .bounds import heavy_atom_bound as heavy_atom_bound
from .bounds import lone_atom_bound as lone_atom_bound
from .bounds import mass_bound as mass_bound
from .bounds import mass_bound_asymptotic as mass_bound_asymptotic
from .bounds import maximal_curvature as maximal_curvature
from .spectrum import cluster_phases as cluster_phases
from .spectrum import eigenvalues as eigenvalues
from .spectrum import exit_time as exit_time
from .spectrum import growth_rates as growth_rates
from .spectrum import k_max as k_max
from .spectrum import log_eigenvalues as log_eigenvalues
from .spectrum import log_exit_time as log_exit_time
from .spectrum import log_growth_rates as log_growth_rates
