"""The contract of every integrator: order, exact solutions, the sphere, the energy; steps rejected and landed."""

import diffrax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import erf

from mflandscape._results import name_of
from mflandscape.drifts import Attention, Perceptron
from mflandscape.flows import RK4, Euler, MaxSteps, MaxTime, Midpoint, Observe, SaveEvery, flow
from mflandscape.flows.adaptive import Adaptive
from mflandscape.measure import empirical

FIXED = {"euler": (Euler, 1), "midpoint": (Midpoint, 2), "rk4": (RK4, 4)}
SOLVERS = {"dopri5": diffrax.Dopri5, "tsit5": diffrax.Tsit5, "dopri8": diffrax.Dopri8}
DIRECTIONS = {2: "descent", 3: "ascent"}
SIGN = {"descent": -1, "ascent": 1}
BETA, END = 2.0, 1.0
rng = np.random.default_rng(5)
X = {d: np.linalg.norm(v := rng.normal(size=(3, d)), axis=1, keepdims=True) ** -1 * v for d in (2, 3)}
A, OMEGA = {d: rng.normal(size=(2, d)) for d in (2, 3)}, np.array([0.8, -0.5])


def equiangular(n, d, rho):
    """`n` unit vectors of `R^d` with all inner products rho."""
    if (n, d) == (2, 2):
        return np.array([[1.0, 0.0], [rho, np.sqrt(1 - rho * rho)]])
    values, vectors = np.linalg.eigh((1 - rho) * np.eye(n) + rho)
    return vectors * np.sqrt(values) @ vectors.T


def run(x, integrator, omega=OMEGA, dtype=np.float64, save=None):
    """To time 1, descent on the circle and ascent above: every method is compiled once for each dimension."""
    d = x.shape[1]
    drift = Attention(jnp.asarray(BETA)) + Perceptron(
        jnp.asarray(A[d], dtype), jnp.asarray(omega, dtype), activation="gelu"
    )
    return flow(
        drift,
        empirical(jnp.asarray(x, dtype)),
        direction=DIRECTIONS[d],
        integrator=integrator,
        stop=MaxTime(END) | MaxSteps(100),
        save=save,
        observe=Observe(energy=True),
    )


def reference(x, omega=OMEGA):
    """The same ODE in ambient coordinates, by SciPy's eighth-order method at its tightest tolerance."""
    n, d = x.shape

    def field(t, flat):
        x = flat.reshape(n, d)
        s = x @ A[d].T
        v = np.exp(BETA * (x @ x.T - 1)) @ x / n + (s * (1 + erf(s / np.sqrt(2))) / 2 * omega) @ A[d]
        return (SIGN[DIRECTIONS[d]] * (v - (x * v).sum(1, keepdims=True) * x)).ravel()

    return solve_ivp(field, (0, END), x.ravel(), method="DOP853", rtol=1e-13, atol=1e-14).y[:, -1].reshape(n, d)


def check_contract(sol, d, dtype=np.float64):
    assert name_of(sol.result) == "max_time"
    assert float(sol.time) == END
    tolerance = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(np.linalg.norm(sol.mu.x, axis=1), 1, atol=tolerance)
    energy = np.asarray(sol.series.energy)[: int(sol.looked)]
    assert len(energy) == int(sol.steps) + 1
    assert (SIGN[DIRECTIONS[d]] * np.diff(energy) >= -tolerance).all()
    assert abs(energy[-1] - energy[0]) > 1e-3


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("name", FIXED)
def test_order_of_fixed_steps(name, d):
    method, order = FIXED[name]
    exact, errors = reference(X[d]), []
    for dt in (0.1, 0.05, 0.025):
        sol = run(X[d], method(dt))
        check_contract(sol, d)
        assert int(sol.steps) == round(END / dt)
        assert int(sol.evaluations) == 1 + int(sol.steps) * order  # stages equal the order for these three
        errors.append(np.abs(np.asarray(sol.mu.x) - exact).max())
    slopes = np.log2(np.array(errors[:-1]) / errors[1:])
    assert abs(slopes[-1] - order) < 0.15, (errors, slopes)


@pytest.mark.parametrize(("name", "d"), [(name, d) for d in (2, 3) for name in (*FIXED, *SOLVERS)][:-2])
def test_equiangular_particles_follow_the_scalar_equation(name, d):
    """`rho' = s (2/n) e^{beta (rho - 1)} (1 - rho) ((n - 1) rho + 1)`: n particles at equal mutual angles stay so."""
    n = d
    s = SIGN[DIRECTIONS[d]]

    def scalar(t, rho):
        return s * 2 / n * np.exp(BETA * (rho - 1)) * (1 - rho) * ((n - 1) * rho + 1)

    rho = solve_ivp(scalar, (0, END), [0.3], method="DOP853", rtol=1e-13, atol=1e-14).y[0, -1]
    x = np.concatenate([equiangular(n, d, 0.3), equiangular(n, d, 0.3)[: 3 - n]])[:n]
    integrator = FIXED[name][0](0.025) if name in FIXED else Adaptive(SOLVERS[name](scan_kind="bounded"), 1e-9, 1e-11)
    sol = run(x, integrator, omega=np.zeros(2))
    gram = np.asarray(sol.mu.x) @ np.asarray(sol.mu.x).T
    errors = {"euler": 2e-2, "midpoint": 2e-4, "rk4": 1e-8}
    off = gram[~np.eye(n, dtype=bool)]
    assert np.ptp(off) < 1e-13
    assert abs(rho - 0.3) > 0.1
    np.testing.assert_allclose(off, rho, atol=errors.get(name, 1e-8))


@pytest.mark.parametrize(("name", "d"), [("dopri5", 2), ("dopri5", 3), ("tsit5", 2), ("dopri8", 2)])
def test_adaptive_error_follows_the_tolerance(name, d):
    solver, exact = SOLVERS[name](scan_kind="bounded"), reference(X[d])
    sols = {
        rtol: run(X[d], Adaptive(solver, rtol, rtol / 100)) for rtol in ((1e-4, 1e-9) if name == "dopri5" else (1e-9,))
    }
    for rtol, sol in sols.items():
        check_contract(sol, d)
        assert int(sol.evaluations) == 1 + int(sol.steps) * (1 + solver.tableau.num_stages)
        assert np.abs(np.asarray(sol.mu.x) - exact).max() < 10 * rtol
    if len(sols) == 2:
        assert int(sols[1e-4].steps) < int(sols[1e-9].steps) < 100
        assert np.abs(np.asarray(sols[1e-4].mu.x) - exact).max() > 1e-9  # the loose tolerance is not ignored


def test_rejected_steps_are_counted_and_move_nothing():
    """A particle enters the active half of a strong ReLU: the error estimate jumps and steps are refused."""
    kick = Perceptron(jnp.array([[0.0, -1.0]]), jnp.array([30.0]))
    mu = empirical(np.stack([np.cos(v := np.array([0.3, 0.5, 0.6])), np.sin(v)], axis=1))
    integrator = Adaptive(rtol=1e-6)
    sol = flow(Attention(1.0) + kick, mu, stop=MaxTime(10.0) | MaxSteps(200), integrator=integrator, save=SaveEvery(1))
    assert name_of(sol.result) == "max_time"
    taken = int(sol.saved)
    assert taken == int(sol.steps) + 1
    times, x = np.asarray(sol.times)[:taken], np.asarray(sol.x)[:taken]
    rejected = np.diff(times) == 0
    assert 1 <= rejected.sum() < taken / 2
    np.testing.assert_array_equal(x[1:][rejected], x[:-1][rejected])
    assert (np.abs(np.diff(x, axis=0)).max((1, 2))[~rejected] > 0).all()


@pytest.mark.parametrize(
    "integrator", [Euler(0.05), RK4(0.05), Adaptive(rtol=1e-4, atol=1e-5)], ids=["euler", "rk4", "adaptive"]
)
def test_float32(integrator):
    sol = run(X[3], integrator, dtype=np.float32)
    assert {v.dtype.name for v in (sol.mu.x, sol.time, sol.energy, sol.residual)} == {"float32"}
    assert name_of(sol.result) == "max_time"
    np.testing.assert_allclose(np.linalg.norm(sol.mu.x, axis=1), 1, atol=1e-6)
    error = np.abs(np.asarray(sol.mu.x) - reference(X[3])).max()
    assert error < (2e-5 if isinstance(integrator, RK4) else 0.03)


@pytest.mark.parametrize(
    "solver", [diffrax.Kvaerno5(), diffrax.ImplicitEuler(), diffrax.Euler(), diffrax.SemiImplicitEuler()]
)
def test_solvers_refused(solver):
    with pytest.raises(ValueError, match="expected an explicit Runge-Kutta solver"):
        Adaptive(solver)


@pytest.mark.parametrize("tolerances", [(0.0, 1e-8), (1e-6, -1.0), (np.nan, 1e-8)])
def test_tolerances_refused(tolerances):
    with pytest.raises(ValueError, match="expected both positive"):
        Adaptive(None, *tolerances)


def test_an_adaptive_run_needs_a_step_limit():
    with pytest.raises(ValueError, match="step limit"):
        flow(Attention(1.0), empirical(X[3]), stop=MaxTime(1.0), integrator=Adaptive())
