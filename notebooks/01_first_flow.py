# %% [markdown]
# # A first flow
#
# Tokens are particles on the unit sphere. Attention lets them attract (ascent) or repel (descent) each other, a
# perceptron adds a landscape, depth is time. Here: one flow on the circle, what it ends in, and the same as a stored
# run with pictures.

# %%
# %matplotlib inline
import os
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np

import mflandscape as mfl
from mflandscape.plotting import energy_and_residual, save, trajectories

SMALL = bool(os.environ.get("MFLANDSCAPE_SMALL"))  # a size for tests
OUT = Path(os.environ.get("MFLANDSCAPE_OUT", "results/notebooks"))
N, STEPS = (60, 200) if SMALL else (1000, 20_000)

# %% [markdown]
# ## An energy and a flow
#
# An energy is a sum of terms. `beta` is the inverse temperature: the range of attention is about `1/sqrt(beta)`. On the
# circle attention is summed in Fourier modes, exactly to rounding and in time proportional to N.

# %%
beta = 5.0
attention = mfl.Attention(beta, interaction=mfl.CircleFourier.for_beta(beta))
perceptron = mfl.Perceptron(a=np.eye(2), omega=np.array([0.6, -0.4]), activation="gelu")
energy = attention + perceptron

start = mfl.uniform(jax.random.key(0), N, 2)
solution = mfl.flow(
    energy,
    start,
    direction="descent",
    integrator=mfl.Euler(0.1),
    stop=mfl.Stationary(1e-6) | mfl.MaxSteps(STEPS),
    observe=mfl.Observe(every=10, energy=True),
)
print(mfl.RESULTS[solution.result])
print(f"{int(solution.steps)} steps, residual {float(solution.residual):.1e}, energy {float(solution.energy):.6f}")

# %% [markdown]
# The residual is the largest speed left. It, and not a small step, says how near to a stationary state the flow ended.
#
# ## What it ended in

# %%
clusters = mfl.find_clusters(solution.mu, mfl.cluster_threshold(beta, d=2))
print(clusters.count, "clusters of masses", [round(float(mass), 3) for mass in clusters.masses])

# %% [markdown]
# `mfl.refine` and `mfl.classify` say more: notebooks 02 and 03.
#
# ## The same as a stored run
#
# A `Spec` defines a whole grid of runs; `mfl.run` computes it into a folder, and with `resume=True` never twice. The
# presets are the experiments of the paper. On the command line this is `mflandscape run`.

# %%
spec = mfl.preset("paper-s1-gelu").replace(beta=(1.0, 5.0), n_particles=N, max_steps=STEPS, save="log", save_count=60)
report = mfl.run(spec, OUT / f"first-flow-{N}", resume=True)
for member in report.members:
    print(f"beta {member['beta']:g}: {member['clusters']} clusters, {member['stop_reason']} at {member['steps']} steps")

# %% [markdown]
# A run opens as an xarray dataset. Lines are particles over the perceptron's landscape (green: v > 0), with the final
# masses beside them.

# %%
dataset = mfl.open(OUT / f"first-flow-{N}")
figure = trajectories(dataset, log_time=True)
save(figure, OUT / "first-flow-trajectories", ("png",))
figure

# %%
figure = energy_and_residual(dataset)
save(figure, OUT / "first-flow-energy", ("png",))
figure
