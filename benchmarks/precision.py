"""Errors of the velocity in float64 and float32 against a direct sum in NumPy, for every evaluator.

    python benchmarks/precision.py [--quick]

The reference is the direct sum over all sources in float64, in chords: `<x, y> - 1 = -|x - y|^2 / 2`, which keeps the
digits that a rounded inner product loses (times beta). It takes the float64 points for both dtypes: an error in float32
contains the rounding of the points themselves, as for a user who compares two runs. Half of the particles lie in a
cap, so that velocities are far from 0. For many particles a sample of targets is compared.
"""

import jax
import jax.numpy as jnp
import numpy as np
from common import arguments, present, table, write

import mflandscape as mfl
from mflandscape.drifts import prepare
from mflandscape.sphere import retract

SAMPLE = 160  # targets compared where there are more particles than EVERY
EVERY = 1000


def particles(n: int, d: int) -> np.ndarray:
    """Half anywhere, half within about 0.3 of a pole."""
    rng = np.random.default_rng(n + d)
    points = rng.normal(size=(n, d))
    points[::2] = 0.3 * points[::2] + np.eye(d)[0]
    return np.asarray(retract(jnp.asarray(points)))


def reference(x: np.ndarray, targets: np.ndarray, beta: float) -> np.ndarray:
    """`P_x sum_j w_j e^{-beta |x - y_j|^2 / 2} y_j`, target by target."""
    out = []
    for t in targets:
        chord = x - t
        weight = np.exp(-beta / 2 * np.sum(chord * chord, axis=1)) / len(x)
        pull = np.sum(weight[:, None] * chord, axis=0, dtype=np.longdouble)  # the radial part drops out
        out.append(pull - np.dot(pull, t) * t)
    return np.array(out, float)


def velocities(evaluator, x: np.ndarray, targets: np.ndarray, beta: float, dtype) -> np.ndarray:
    """By the evaluator, everything in the dtype."""
    points, at = jnp.asarray(x, dtype), jnp.asarray(targets, dtype)
    drift = prepare(mfl.Attention(jnp.asarray(beta, dtype), interaction=evaluator))
    mu = mfl.Measure(points, jnp.full(len(x), 1 / len(x), dtype))
    return np.asarray(jax.jit(lambda d, m, a: mfl.velocity(d, m, "ascent", at=a))(drift, mu, at), float)


def rows(d: int, n: int, beta: float) -> list[dict]:
    """One row an evaluator and dtype."""
    x = particles(n, d)
    targets = x if n <= EVERY else x[: 2 * SAMPLE : 2]
    expected = reference(x, targets, beta)
    largest = float(np.abs(expected).max())
    found = []
    for name, kind in present().items():
        if not kind.takes(d) or not kind.affordable(int((len(targets) * n) ** 0.5)):
            continue
        for dtype in (jnp.float64, jnp.float32):
            error = float(np.abs(velocities(kind.build(beta, dtype), x, targets, beta, dtype) - expected).max())
            found.append(
                {
                    "interaction": name, "d": d, "n": n, "beta": beta, "dtype": dtype.__name__,
                    "error": error, "relative": error / largest, "largest_velocity": largest,
                }
            )  # fmt: skip
    return found


def main() -> None:
    quick = arguments(__doc__).parse_args().quick
    sizes, betas = ((1000,), (1.0, 50.0)) if quick else ((1000, 100_000), (1.0, 50.0, 1000.0))
    figures = [row for d in (2, 3) for n in sizes for beta in betas for row in rows(d, n, beta)]
    table("Largest error of a velocity against a direct sum in float64", figures)
    write("precision", {"precision": figures})


if __name__ == "__main__":
    main()
