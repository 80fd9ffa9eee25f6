"""Convex quadratic programs over the simplex: the best masses on given points."""

import numpy as np

_REGULAR = 1e-15  # of the largest entry, on the diagonal: coinciding points make the matrix singular


def simplex_minimum(k: np.ndarray, c: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """Masses `m >= 0` of sum 1 that minimise `m.K m / 2 + c.m`, `K (P, P)` positive semidefinite on sum 0.

    Primal active set: solve on the masses in play, step as far as they stay positive, let in the point of lowest
    first variation `K m + c`. At the solution all first variations are at least those in play, to rounding. Cost O(s^3)
    a round, s the masses in play; `start (P,)` are masses to begin from (a feasible guess saves rounds).
    """
    k = k + np.diag(np.full(len(c), _REGULAR * max(1e-300, float(np.ptp(k)))))
    m = np.zeros(len(c)) if start is None else start.copy()
    if start is None:
        m[np.argmin(c + np.diag(k) / 2)] = 1.0
    active = m > 0
    best = np.inf
    for _ in range(20 * len(c)):
        m, active = _descend(k, c, m, active)
        u = k @ m + c
        level = float(m @ u)
        value = (level + float(m @ c)) / 2
        outside = np.where(active, np.inf, u - level)
        entering = int(np.argmin(outside))
        rounding = 4e-16 * (float(np.max(np.abs(u))) + 1e-300)
        if not outside[entering] < -rounding or value > best + rounding:
            break
        best = min(best, value)
        active[entering] = True
    return np.maximum(m, 0) / np.maximum(m, 0).sum()


def _descend(k: np.ndarray, c: np.ndarray, m: np.ndarray, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The minimum on the masses in play, those that reach 0 on the way put out of play."""
    for _ in range(len(c) + 1):
        inside = np.flatnonzero(active)
        target = _stationary(k[np.ix_(inside, inside)], c[inside])
        if (target > 0).all():
            m = np.zeros_like(m)
            m[inside] = target
            return m, active
        falls = target <= 0
        now = m[inside]
        ratio = np.where(falls, now / np.where(falls, np.maximum(now - target, 1e-300), 1), np.inf)
        now = now + min(1.0, ratio.min()) * (target - now)
        now[ratio <= ratio.min()] = 0
        m = np.zeros_like(m)
        m[inside] = np.maximum(now, 0)
        active = m > 0
    return m, active


def _stationary(k: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Masses of sum 1, of any sign, on which the first variation is constant."""
    n = len(c)
    bordered = np.ones((n + 1, n + 1))
    bordered[:n, :n], bordered[n, n] = k, 0
    try:
        return np.linalg.solve(bordered, np.append(-c, 1.0))[:n]
    except np.linalg.LinAlgError:
        return np.linalg.lstsq(bordered, np.append(-c, 1.0), rcond=None)[0][:n]
