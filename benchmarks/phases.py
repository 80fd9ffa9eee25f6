"""The phases of attention on the circle against theory: growth rates, cluster counts, propagation of chaos.

    python benchmarks/phases.py [rates] [counts] [chaos] [--quick]

Ascent, float64, d = 2. Rates: modes k_max - 2 to k_max + 2 of a small perturbation, by the mean-field equation and by
particles, against gamma_k. Counts: clusters at the plateau, of prepared and of random starts, against k_max. Chaos:
slope in N of the distance between N independent particles and the density that they come from, at three times.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
from common import arguments, table, write

from mflandscape import Attention, CircleFourier
from mflandscape.meanfield import chaos, cosine_density, growth_rate, solve_pde, uniform_density
from mflandscape.paper import FIGURES
from mflandscape.paper.clouds import clouds, lattice_angles
from mflandscape.theory import growth_rates, k_max

BETAS = (1.0, 5.0, 25.0, 50.0, 100.0)
SMALL, UNTIL, LOOKS = 1e-6, 4, 4


def rates(quick: bool) -> list[dict]:
    """Both ways at once: one start for the equation and, as a lattice of quantiles, for the particles."""
    n, betas = (2000, BETAS[:3]) if quick else (100_000, BETAS)
    starts, rows = [], []
    for beta in betas:
        k = k_max(beta)
        starts.append(cosine_density(256, {q: (SMALL, float(q)) for q in range(max(1, k - 2), k + 3)}))
    lattices = np.array([[lattice_angles(start, n)] for start in starts])
    modes = np.abs(clouds(betas, lattices, UNTIL, LOOKS)[1])[:, 0]
    for beta, start, particles in zip(betas, starts, modes, strict=True):
        k = k_max(beta)
        gamma = growth_rates(beta, 2, range(k + 3))
        times = np.arange(UNTIL * LOOKS + 1) / (LOOKS * gamma[k])
        limit = solve_pde(Attention(beta), start, times, direction="ascent").densities
        for q in range(max(1, k - 2), k + 3):
            row = {"beta": beta, "mode": q, "gamma": float(gamma[q])}
            for name, amplitude in (("equation", limit.amplitude(q)), ("particles", particles[:, q])):
                row[f"{name}, relative error"] = growth_rate(times, amplitude).slope / row["gamma"] - 1
            rows.append(row)
    return rows


def counts(quick: bool) -> list[dict]:
    """Figure B8's computation."""
    figure = FIGURES["B8"]
    with tempfile.TemporaryDirectory() as folder:
        data = figure.compute(figure.settings(quick), Path(folder))
    return [vars(finding) for finding in figure.findings(data)]


def distances(quick: bool) -> list[dict]:
    """Uniform starts stay at the uniform density; others move with it."""
    beta, n, seeds = 5.0, (250, 1000, 4000) if quick else (1000, 4000, 16_000), range(4 if quick else 8)
    drift, k = Attention(beta, interaction=CircleFourier.for_beta(beta)), k_max(beta)
    unit, rows = 1 / float(growth_rates(beta, 2, [k])[0]), []
    for name, start in (("uniform", uniform_density(8)), ("cosine", cosine_density(512, {k: (0.05, 0.0)}))):
        gamma_t = (0.5, 1.0, 2.0)
        found = chaos(drift, start, [unit * t for t in gamma_t], n, seeds)
        for order in (1, 2):
            for i, t in enumerate(gamma_t):
                fit = found.slope(order, i)
                values = (found.w1 if order == 1 else found.w2)[-1, :, i]
                rows.append({
                    "start": name, "distance": f"W_{order}", "gamma t": t, "slope in N": fit.slope,
                    "error": fit.error, f"at N = {n[-1]}": float(values.mean()),
                })  # fmt: skip
    return rows


PARTS = {"rates": rates, "counts": counts, "chaos": distances}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which of them; all by default")
    given = parser.parse_args()
    for part in given.parts or PARTS:
        rows = PARTS[part](given.quick)
        table(f"{part}", rows)
        write(f"phases-{part}", json.loads(json.dumps({"rows": rows})))


if __name__ == "__main__":
    main()
