"""The limit of many particles on the circle: densities, their equation, and expansions around the uniform one."""

from .chaos import Chaos as Chaos
from .chaos import Fit as Fit
from .chaos import chaos as chaos
from .chaos import dobrushin_constant as dobrushin_constant
from .chaos import fit_line as fit_line
from .chaos import growth_rate as growth_rate
from .density import Density as Density
from .density import cosine_density as cosine_density
from .density import density_of_measure as density_of_measure
from .density import density_of_moments as density_of_moments
from .density import measure_moments as measure_moments
from .density import prepared_density as prepared_density
from .density import uniform_density as uniform_density
from .density import von_mises_density as von_mises_density
from .grenier import Expansion as Expansion
from .grenier import grenier as grenier
from .pde import ENDINGS as ENDINGS
from .pde import DensitySolution as DensitySolution
from .pde import solve_pde as solve_pde
