# %% [markdown]
# # When is a cluster count metastable?
#
# Attention alone attracts: the only attractor is one point. Yet the count stays for long at a plateau near `k_max`, the
# degree that grows fastest at the uniform measure. Here: a plateau, what kind of state it is, and how long it can last.

# %%
# %matplotlib inline
import math
import os
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np

import mflandscape as mfl
from mflandscape.plotting.style import BLUE, GREY, ORANGE, PAGE, new_figure, save, styled, tidy, time_axis
from mflandscape.theory import exit_time, growth_rates, k_max

SMALL = bool(os.environ.get("MFLANDSCAPE_SMALL"))  # a size for tests
OUT = Path(os.environ.get("MFLANDSCAPE_OUT", "results/notebooks"))
BETA = 25.0
N, TIME = (200, 400.0) if SMALL else (10_000, 1500.0)

# %% [markdown]
# ## The plateau
#
# The uniform measure is stationary and unstable: a perturbation of degree l grows like `e^(gamma_l t)`. From a random
# start of N particles the linear phase ends at about `log(N)/(2 gamma)`.

# %%
k = k_max(BETA)
gamma = float(growth_rates(BETA, 2, k))
print(f"k_max = {k}, gamma = {gamma:.4f}, linear phase until t = {exit_time(BETA, 2, N):.0f}")

attention = mfl.Attention(BETA, interaction=mfl.CircleFourier.for_beta(BETA))
solution = mfl.flow(
    attention,
    mfl.uniform(jax.random.key(1), N, 2),
    direction="ascent",
    integrator=mfl.Euler(0.1),
    stop=mfl.MaxTime(TIME) | mfl.MaxSteps(round(10 * TIME)),
    save=mfl.SaveLog(120),
    observe=mfl.Observe(every=10, threshold=mfl.cluster_threshold(BETA, d=2)),
)
looks = int(solution.looked)
times, counts, speeds = (
    np.asarray(v)[:looks] for v in (solution.series.time, solution.series.clusters, solution.series.residual)
)


# %%
@styled
def counts_and_speeds():
    figure = new_figure(PAGE, 2.6)
    left, right = figure.subplots(1, 2)
    left.step(times, counts, where="post", color=BLUE)
    left.axhline(k, color=ORANGE, linewidth=0.9, linestyle="--")
    left.set(ylabel="Clusters (dashed: $k_{max}$)", ylim=(0, 4 * k))
    right.plot(times, speeds, color=BLUE)
    right.axhline(1e-4, color=GREY, linewidth=0.8, linestyle=":")
    right.set(ylabel="Residual (largest speed)", yscale="log")
    for axes in (left, right):
        time_axis(axes, times, log_time=False)
        tidy(axes, bare=True)
    return figure


figure = counts_and_speeds()
save(figure, OUT / "metastable-count", ("png",))
figure

# %% [markdown]
# ## What kind of state is it?
#
# Take the snapshot of least speed after the linear phase, refine it, and classify it. A plateau is near a
# stationary state that is a *saddle*: its smallest eigenvalue is negative, and a deviation of size delta needs about
# `log(1/delta)/|eigenvalue|` to leave.

# %%
snapshots = np.asarray(solution.times)[: int(solution.saved)]
after = snapshots > exit_time(BETA, 2, N)
speed_then = np.interp(snapshots, times, speeds)
best = int(np.argmin(np.where(after, speed_then, np.inf)))
cloud = mfl.empirical(solution.x[best])
state = mfl.refine(attention, cloud, direction="ascent")
kind = mfl.classify(attention, state.mu, direction="ascent", gap=False)
eigenvalue = kind.smallest_eigenvalue
print(f"t = {snapshots[best]:.0f}, speed {speed_then[best]:.1e}: {state.mu.n} atoms of masses")
print("  ", [round(float(mass), 3) for mass in state.mu.w])
print(f"   {kind.kind}, smallest eigenvalue {eigenvalue:.2e}, residual {state.residual:.0e}")

# %% [markdown]
# Equal masses at equal distances are the extreme case. For k of them the eigenvalue falls with the distance `2 pi / k`:
# a few clusters at large beta can outlast any simulation, and no rule on the count or on the speed tells.

# %%
lifetimes = {}
for points in range(2, k + 1):
    ideal = mfl.from_angles(2 * math.pi * np.arange(points) / points)
    ring = mfl.classify(attention, ideal, direction="ascent", gap=False)
    rate = -ring.smallest_eigenvalue
    if rate <= ring.spectrum.cutoff:
        print(f"{points} equal clusters: rate below {ring.spectrum.cutoff:.0e}, not resolved")
        continue
    lifetimes[points] = math.log(1e3) / rate
    print(f"{points} equal clusters: rate {rate:.2e}, a deviation grows a thousandfold in {lifetimes[points]:.3g}")

# %% [markdown]
# So: a count is metastable when the state beside it is a saddle. Ask `classify`, not the count; a plateau's length is
# read off the eigenvalue, not off the time one had patience for.
