# %% [markdown]
# # Three phases
#
# Paper B: attention alone, started near the uniform measure, passes through three phases. *Linear*: the modes of the
# density grow by themselves, the fastest (degree `k_max`) takes over. *Quasi-linear*: the density is periodic with
# period `2 pi / k_max` and steepens. *Clustering*: `k_max` clusters form. Here: particles beside the equation for their
# density.

# %%
# %matplotlib inline
import os
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np

import mflandscape as mfl
from mflandscape.meanfield import ENDINGS, density_of_measure, solve_pde
from mflandscape.plotting.style import BLUE, GREEN, GREY, ORANGE, PAGE, key_below, new_figure, save, styled, tidy
from mflandscape.theory import exit_time, growth_rates, k_max

SMALL = bool(os.environ.get("MFLANDSCAPE_SMALL"))  # a size for tests
OUT = Path(os.environ.get("MFLANDSCAPE_OUT", "results/notebooks"))
BETA = 25.0
N, MODES = (2000, 256) if SMALL else (100_000, 512)

# %% [markdown]
# ## Particles
#
# A random start: every mode has an amplitude of about `N^(-1/2)`. Mode l then grows like `e^(gamma_l t)`.

# %%
k = k_max(BETA)
gamma = float(growth_rates(BETA, 2, k))
linear_end = exit_time(BETA, 2, N)
end = round(linear_end + 8 / gamma)
print(f"k_max = {k}, gamma = {gamma:.5f}, linear phase until about {linear_end:.0f}")

attention = mfl.Attention(BETA, interaction=mfl.CircleFourier.for_beta(BETA))
start = mfl.uniform(jax.random.key(3), N, 2)
times = np.linspace(0.0, end, 60)
solution = mfl.flow(
    attention,
    start,
    direction="ascent",
    integrator=mfl.RK4(0.5),
    stop=mfl.MaxTime(end + 1.0) | mfl.MaxSteps(2 * end + 4),
    save=mfl.SaveAt(times),
)
angles = np.asarray(solution.saved_u)[: int(solution.saved)]
clock = np.asarray(solution.times)[: int(solution.saved)]
modes = np.abs(np.exp(1j * np.arange(1, 2 * k + 1)[:, None, None] * angles).mean(axis=2))  # row l - 1: |M_l|
grown = np.linspace(0.1, 0.5, 9) * linear_end  # later the modes are no longer small
rate = np.polyfit(grown, np.log(np.interp(grown, clock, modes[k - 1])), 1)[0]
print(f"growth of mode {k}: measured {rate:.5f}, predicted {gamma:.5f}")

# %% [markdown]
# ## The equation for the density
#
# The limit of many particles, from the particles' own lower moments. It stops by itself before an atom that forms is
# under-resolved.

# %%
density = density_of_measure(start, 4 * k).resized(MODES)
limit = solve_pde(attention, density, times[1:], direction="ascent", tail=1e-3)
reached = np.asarray(limit.reached)
print(
    ENDINGS[limit.result],
    f"Reached t = {float(limit.time):.0f}; mass off by {np.abs(np.asarray(limit.mass)[reached] - 1).max():.0e}",
)


# %%
@styled
def modes_and_densities():
    figure = new_figure(PAGE, 3.0)
    left, right = figure.subplots(1, 2)
    for degree, color in ((k, BLUE), (k - 1, GREEN), (2 * k, ORANGE)):
        left.plot(clock, modes[degree - 1], color=color, label=f"mode {degree} (dots: the equation)")
        amplitude = np.asarray(limit.densities.amplitude(degree))
        left.plot(times[1:][reached], amplitude[reached], color=color, linestyle="none", marker="o", markersize=2.5)
    left.plot(clock, modes[k - 1, 0] * np.exp(gamma * clock), color=GREY, linestyle="--", label=r"$e^{\gamma t}$")
    left.axvline(linear_end, color=GREY, linewidth=0.6)
    left.set(xlabel="Time $t$", ylabel="$|M_l|$", yscale="log", ylim=(0.2 * N**-0.5, 2.0))
    for part, color in ((0.4, GREEN), (0.7, BLUE), (1.3, ORANGE)):
        when = int(np.argmin(np.abs(clock - part * linear_end)))
        mass, edges = np.histogram(angles[when] % (2 * np.pi), 180, (0.0, 2 * np.pi), density=True)
        right.stairs(mass, edges, color=color, label=f"particles at $t = {clock[when]:.0f}$")
    right.set(xlabel=r"Angle $\theta$ (rad)", ylabel="Density", yscale="log")
    for axes in (left, right):
        tidy(axes, bare=True)
    entries = [entry for axes in (left, right) for entry in axes.get_legend_handles_labels()[0]]
    key_below(figure, entries, columns=3)
    return figure


figure = modes_and_densities()
save(figure, OUT / "three-phases", ("png",))
figure

# %% [markdown]
# ## How many clusters
#
# From a random start the count at the plateau is `k_max` or near it, for neighbouring modes grow nearly as fast: at
# beta = 25 the next is within a few percent.

# %%
clusters = mfl.find_clusters(mfl.from_angles(angles[-1]), mfl.cluster_threshold(BETA, d=2), mass_threshold=0.02)
neighbours = growth_rates(BETA, 2, [k - 1, k + 1]) / gamma
print(f"{clusters.count} clusters; modes {k - 1} and {k + 1} grow at {neighbours[0]:.2f} and {neighbours[1]:.2f} of it")
