"""What the published code of paper A gives, and whether our runs of the same settings end in the same states.

Made once with that code, unmodified (commit 667bf3c): N = 500, Euler, dt = 0.1, seed 42 of the particles, 777 (circle)
and 111 (S^2) of the weights, its own stop, at most 20 000 steps. Rows: beta, last step, clusters, heaviest mass,
converged by its own rule.
"""

from xarray import Dataset

from ..plotting.members import converged
from .registry import Finding

PARTICLES = 500
# fmt: off
ROWS: dict[str, tuple[tuple[float, int, int, float, bool], ...]] = {
    "s1_asc_nomlp": (
        (0.01, 230, 1, 1, True), (0.05, 250, 1, 1, True), (0.1, 260, 1, 1, True), (0.5, 360, 1, 1, True),
        (1, 450, 1, 1, True), (3, 750, 2, 0.594, True), (5, 1110, 2, 0.634, True), (7, 8430, 2, 0.54, True),
        (10, 4970, 3, 0.472, True), (15, 4980, 4, 0.292, True), (25, 1370, 6, 0.23, True),
        (35, 4340, 6, 0.234, True), (50, 2860, 8, 0.174, True),
    ),
    "s1_asc_relu": (
        (0.01, 190, 1, 1, True), (0.05, 190, 1, 1, True), (0.1, 190, 1, 1, True), (0.5, 220, 1, 1, True),
        (1, 320, 1, 1, True), (3, 6970, 1, 1, True), (5, 390, 2, 0.558, True), (7, 770, 2, 0.552, True),
        (10, 4810, 2, 0.552, True), (15, 690, 3, 0.452, True), (25, 2270, 3, 0.452, True),
        (35, 1430, 4, 0.452, True), (50, 2200, 4, 0.452, True),
    ),
    "s1_desc_relu": (
        (0.01, 20000, 3, 0.454, False), (0.05, 5520, 3, 0.45, True), (0.1, 3250, 3, 0.45, True),
        (0.5, 1850, 3, 0.448, True), (1, 16750, 3, 0.446, True), (3, 16470, 5, 0.454, True),
        (5, 18690, 5, 0.598, True), (7, 20000, 7, 0.704, False), (10, 20000, 5, 0.778, False),
        (15, 20000, 7, 0.768, False), (25, 20000, 12, 0.728, False), (35, 20000, 18, 0.688, False),
        (50, 20000, 23, 0.636, False),
    ),
    "s1_desc_gelu": (
        (0.01, 1000, 2, 0.526, True), (0.05, 1270, 2, 0.526, True), (0.1, 4300, 3, 0.51, True),
        (0.5, 1310, 3, 0.458, True), (1, 1730, 3, 0.458, True), (3, 7970, 3, 0.488, True), (5, 4510, 3, 0.488, True),
        (7, 3920, 3, 0.488, True), (10, 3120, 3, 0.488, True), (15, 2970, 3, 0.484, True),
        (25, 2630, 3, 0.484, True), (35, 2140, 3, 0.482, True), (50, 2960, 3, 0.482, True),
    ),
    "s2_asc_relu": (
        (0.01, 120, 1, 1, True), (0.05, 130, 1, 1, True), (0.1, 140, 1, 1, True), (0.5, 200, 1, 1, True),
        (1, 340, 1, 1, True), (3, 350, 1, 1, True), (5, 570, 1, 1, True), (7, 1520, 1, 1, True),
        (10, 530, 2, 0.802, True), (15, 540, 2, 0.802, True), (25, 540, 2, 0.804, True), (35, 540, 2, 0.804, True),
        (50, 540, 2, 0.804, True),
    ),
    "s2_desc_relu": (
        (0.01, 2140, 2, 0.542, True), (0.05, 1180, 4, 0.536, True), (0.1, 670, 4, 0.536, True),
        (0.5, 360, 4, 0.538, True), (1, 300, 4, 0.544, True), (3, 460, 3, 0.548, True), (5, 310, 2, 0.55, True),
        (7, 290, 2, 0.55, True), (10, 290, 2, 0.55, True), (15, 330, 2, 0.55, True), (25, 270, 3, 0.55, True),
        (35, 270, 3, 0.55, True), (50, 270, 3, 0.55, True),
    ),
}
# fmt: on
# It stops before stationarity in three of these: clusters some steps later, its own stepper going on.
FALSE_CONVERGENCES = {("s1_asc_nomlp", 3.0): 1, ("s1_asc_nomlp", 50.0): 7, ("s2_desc_relu", 1.0): 3}


def row_of(setup: str, beta: float) -> tuple[float, int, int, float, bool]:
    """The published code's row at one beta.

    Raises:
        KeyError: it was not run there.
    """
    at, step, clusters, heaviest, ended = next(row for row in ROWS[setup] if row[0] == beta)
    return float(at), step, clusters, float(heaviest), ended


def against_published(ds: Dataset, setup: str, title: str, scale: int = 0) -> list[Finding]:
    """Whether counts are equal and heaviest masses within 1/N, for the betas where the published code converged.

    The runs are those of the first seeds; none are compared where N is not that of the published code.
    """
    if ds.sizes["particle"] != PARTICLES:
        return []
    at = {"weight_seed": 0, "start_seed": 0, "scale": scale}
    count, heaviest = ds["clusters"].isel(at).values, ds["heaviest_mass"].isel(at).values
    ended = converged(ds)[:, 0, 0, scale]
    known = {row[0]: row for row in ROWS[setup]}
    same, compared, other = 0, 0, []
    for i, beta in enumerate(ds["beta"].values.tolist()):
        if beta not in known or not (known[beta][4] and ended[i]):
            continue
        compared += 1
        equal = count[i] == known[beta][2] and abs(heaviest[i] - known[beta][3]) <= 1.0 / PARTICLES
        same += bool(equal)
        if not equal:
            other.append(f"beta {beta:g}: {count[i]}, {heaviest[i]:.3f}")
    if not compared:
        return []
    measured = f"{same} of {compared}" + (f" ({'; '.join(other)})" if other else "")
    expected = f"{compared} of {compared} (published code, N = {PARTICLES}, rows both call converged)"
    what = f"{title}: cluster count equal and heaviest mass within 1/N"
    return [Finding(what, expected, measured, "agrees" if same == compared else "differs")]


def count_finding(ds: Dataset, setup: str, title: str, scale: int = 0) -> list[Finding]:
    """A figure's cluster counts beside the published code's; comparable for its N where both converged."""
    betas = [beta for beta in ds["beta"].values.tolist() if any(row[0] == beta for row in ROWS[setup])]
    if not betas:
        return []
    index = [ds["beta"].values.tolist().index(beta) for beta in betas]
    counts = ds["clusters"].values[index, 0, 0, scale]
    rows, ended = [row_of(setup, beta) for beta in betas], converged(ds)[index, 0, 0, scale]
    both = [row[4] and bool(end) for row, end in zip(rows, ended, strict=True)]
    verdict = "not comparable"
    if ds.sizes["particle"] == PARTICLES and any(both):
        pairs = zip(both, counts, rows, strict=True)
        verdict = "agrees" if all(count == row[2] for known, count, row in pairs if known) else "differs"
    marked = " ".join(f"{row[2]}{'' if row[4] else '*'}" for row in rows)
    ours = " ".join(f"{count}{'' if end else '*'}" for count, end in zip(counts, ended, strict=True))
    what = f"{title}: clusters at beta = {', '.join(f'{beta:g}' for beta in betas)} (* not converged)"
    return [
        Finding(what, f"{marked} (published code, N = {PARTICLES})", f"{ours} (N = {ds.sizes['particle']})", verdict)
    ]
