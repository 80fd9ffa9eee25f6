"""Open questions 1 and 2 of paper A: how many atoms the global minimiser has, and where, against beta.

    python benchmarks/minimisers.py [--seeds 777,0,1] [--quick] [--draw-only]

Circle, the published weights (seed 777 is the paper's) times {ReLU, GeLU} times both kernel conventions. Each count is
made at gaps of 1e-10, 1e-12 and 1e-14 of the energy's scale and called resolved where the three agree and are proved.
Beside them the gap of the best smooth density, and how far the uniform measure is above.
Writes results/minimisers.json (a row a problem: counts, gaps, angles, masses) and ../docs/minimisers.svg.
"""

import argparse
import json
import time
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
from common import RESULTS, table, write  # noqa: E402

from mflandscape.experiment import Experiment  # noqa: E402
from mflandscape.plotting.minimisers import atom_counts  # noqa: E402
from mflandscape.plotting.style import save  # noqa: E402
from mflandscape.spec import Spec  # noqa: E402
from mflandscape.stationary import GAPS, count_atoms, smooth_rival  # noqa: E402
from mflandscape.theory import concavity_window, heavy_atom_bound  # noqa: E402

BETAS = {
    "exponential": (0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 9, 10, 12),
    "shifted": (0.5, 1, 1.5, 2, 3, 5, 8, 12, 18, 25, 35, 50),
}
QUICK = {"exponential": (1, 2, 5), "shifted": (1, 5, 25)}
PICTURE = Path(__file__).parents[1] / "docs" / "minimisers"


def row(experiment: Experiment, member: int) -> dict:
    """One problem: its counts, how well they are known, and its atoms at the smallest gap."""
    point, began = experiment.point(member), time.perf_counter()
    beta = float(point["beta"])
    found = count_atoms(experiment.drift(member), d=2)
    best = found.minima[-1]
    x, w = np.asarray(best.mu.x), np.asarray(best.mu.w)
    return {
        "kernel": experiment.spec.kernel,
        "activation": experiment.spec.activation,
        "weight_seed": int(point["weight_seed"]),
        "beta": beta,
        "counts": list(found.counts),
        "gaps": [float(f"{f.gap / f.scale:.2e}") for f in found.minima],
        "rigorous": [f.rigorous for f in found.minima],
        "resolved": found.resolved,
        "rival_gap": float(f"{smooth_rival(experiment.drift(member)).gap / best.scale:.3e}"),
        "uniform_excess": float(f"{found.uniform_excess:.3e}"),
        "intervals": int(np.ceil(4 * np.pi / concavity_window(beta))),
        "heavy_atom_bound": heavy_atom_bound(beta, [2 * np.pi], float(w.min()), kernel=experiment.spec.kernel).count,
        "energy": best.energy,
        "angles": [round(float(a), 8) for a in np.mod(np.arctan2(x[:, 1], x[:, 0]), 2 * np.pi)],
        "masses": [round(float(m), 8) for m in w],
        "seconds": round(time.perf_counter() - began, 2),
    }


def compute(seeds: list[int], betas: dict[str, tuple[float, ...]]) -> list[dict]:
    """All rows, printed as they come."""
    rows = []
    for activation in ("relu", "gelu"):
        for kernel, values in betas.items():
            spec = Spec(beta=list(values), weight_seed=seeds, activation=activation, kernel=kernel, n_particles=1)
            experiment = Experiment(spec.replace(interaction="dense"))
            for member in range(spec.members):
                rows.append(row(experiment, member))
                shown = ("activation", "kernel", "weight_seed", "beta", "counts", "resolved", "seconds")
                print(*(rows[-1][name] for name in shown), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="777,0,1")
    parser.add_argument("--quick", action="store_true", help="three betas for each convention")
    parser.add_argument("--draw-only", action="store_true", help="draw the rows already written")
    given = parser.parse_args()
    if not given.draw_only:
        rows = compute([int(word) for word in given.seeds.split(",")], QUICK if given.quick else BETAS)
        write("minimisers", {"tolerances": list(GAPS), "rows": rows})
    rows = json.loads((RESULTS / "minimisers.json").read_text())["rows"]
    names = ("activation", "kernel", "weight_seed", "beta", "counts", "resolved", "rival_gap", "uniform_excess")
    table("atoms of the global minimiser", [{name: r[name] for name in names} for r in rows])
    print(*save(atom_counts(rows), PICTURE, ("svg",)))


if __name__ == "__main__":
    main()
