"""The uniform measure by a quadrature: what minimises where there is no perceptron, and how well it does."""

import math

import numpy as np

from ..special import fourier_modes
from ..theory import eigenvalues


def uniform_quadrature(beta: float, d: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Points `(N, d)` and weights `(N,)` that integrate the kernel as the uniform measure does, and by how much `U`
    can differ from its constant value.

    Equispaced points on the circle; on `S^2` Gauss-Legendre latitudes times equispaced longitudes. Both are exact up
    to a degree L chosen by the kernel's tail; beyond, the addition theorem bounds `|U - U_uniform|` by
    `sum_{l > L} dim_l Lambda_l / beta`. At most about 9 sqrt(beta) + 8 points on the circle, half its square on `S^2`.

    Raises:
        ValueError: d > 3, where no such quadrature is built in.
    """
    if d > 3:
        raise ValueError(f"d = {d}: a quadrature of the uniform measure is built in for d = 2 and d = 3")
    degree = fourier_modes(beta, np.float64) + 4
    if d == 2:
        turn = 2 * math.pi * np.arange(degree + 1) / (degree + 1)
        x, w = np.stack([np.cos(turn), np.sin(turn)], axis=1), np.full(degree + 1, 1 / (degree + 1))
    else:
        z, latitudes = np.polynomial.legendre.leggauss(degree // 2 + 1)
        turn = 2 * math.pi * np.arange(degree + 1) / (degree + 1)
        z, turn, w = (v.ravel() for v in np.broadcast_arrays(z[:, None], turn[None, :], latitudes[:, None]))
        rho = np.sqrt(1 - z * z)
        x, w = np.stack([rho * np.cos(turn), rho * np.sin(turn), z], axis=1), w / w.sum()
    beyond = np.arange(degree + 1, 2 * degree + 40)
    dimension = np.full(len(beyond), 2) if d == 2 else 2 * beyond + 1
    return x, w, float(np.sum(dimension * eigenvalues(beta, d, beyond))) / beta if beta > 0 else 0.0
