# %% [markdown]
# # A phase diagram over beta
#
# How many clusters does descent with a GeLU perceptron end in, against the inverse temperature? One run of the paper's
# section 4 over a grid of betas and starts, then a closer look at each end state: is it stationary, and of what kind?

# %%
# %matplotlib inline
import os
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np

import mflandscape as mfl
from mflandscape.plotting import cluster_counts, cluster_masses, save

SMALL = bool(os.environ.get("MFLANDSCAPE_SMALL"))  # a size for tests
OUT = Path(os.environ.get("MFLANDSCAPE_OUT", "results/notebooks"))
N, BETAS, STARTS = (
    (40, (1.0, 5.0), (42,)) if SMALL else (1000, (0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 25.0, 50.0), (42, 43, 44))
)

# %%
spec = mfl.preset("paper-s1-gelu").replace(beta=BETAS, start_seed=STARTS, n_particles=N, max_steps=20_000)
folder = OUT / f"phase-diagram-{N}"
report = mfl.run(spec, folder, resume=True)
dataset = mfl.open(folder)

# %% [markdown]
# Dots are members, hollow where the published rule did not end the run; bars span the starts.

# %%
figure = cluster_counts(dataset)
save(figure, OUT / "phase-diagram-counts", ("png",))
figure

# %%
figure = cluster_masses(dataset)
save(figure, OUT / "phase-diagram-masses", ("png",))
figure

# %% [markdown]
# The published rule ends a run when the count has not changed for a while and the largest speed is below 1e-4. That is
# not yet a stationary state. `refine` moves the clusters to one by Newton's method, `classify` says what it is:
#
# - *strictly SOPD*: a strict minimum as far as the atoms can move;
# - *splitting* below 0: an atom would gain by coming apart;
# - *gap*: the energy is at most so much above the global minimum.

# %%
weights = spec.perceptrons()[0]
kinds = {}
for i, beta in enumerate(BETAS):
    energy = mfl.Attention(beta) + mfl.Perceptron(weights.a, weights.omega, activation="gelu")
    end = mfl.from_angles(dataset["final_angle"].values[i, 0, 0, 0])
    atoms = mfl.refine(energy, end)
    kinds[beta] = mfl.classify(energy, atoms.mu)
    print(
        f"beta {beta:4g}: {atoms.mu.n:3d} atoms, residual {atoms.residual_before:.0e} -> {atoms.residual:.0e}, "
        f"{kinds[beta].kind}, splitting {kinds[beta].splitting.lower:+.1e}, gap {kinds[beta].gap.value:.1e}"
    )

# %% [markdown]
# A gap far above rounding: the flow's end is a local minimum for its atoms, and not the global one. Notebook 04
# computes that one.

# %%
counts = dataset["clusters"].values[..., 0]
print(
    "clusters, a row a beta:", *(f"{beta:g}: {np.ravel(row).tolist()}" for beta, row in zip(BETAS, counts, strict=True))
)
