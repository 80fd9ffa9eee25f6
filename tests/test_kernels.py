import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape.kernels import Exponential, KernelConvention, KernelTangent, relative_exponential, relative_logarithm

BETAS = [0.0, 1e-9, 0.1, 1.0, 5.0, 50.0, 1e4]
T = np.concatenate([np.linspace(-1, 1, 41), 1 - np.logspace(-16, -2, 15)])
betas = pytest.mark.parametrize("beta", BETAS)
both = pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
row = lambda t: jnp.asarray(t)[None, :]  # noqa: E731


def eps(dtype):
    return float(jnp.finfo(dtype).eps)


def exact(beta, t, order=0, shift=1.0, centred=True):
    """The kernel and its derivatives in extended precision."""
    beta, u = np.longdouble(beta), np.asarray(t, np.longdouble) - np.longdouble(shift)
    if order == 0:
        value = np.expm1(beta * u) / beta if beta > 0 else u
        return value + (0 if centred or beta == 0 else 1 / beta)
    return beta ** np.longdouble(order - 1) * np.exp(beta * u)


@betas
@both
@pytest.mark.parametrize("order", [0, 1, 2, 3])
@pytest.mark.parametrize("shift", [1.0, 2.5])
def test_profile_is_the_formula_in_extended_precision(beta, dtype, order, shift):
    t = np.asarray(T, dtype)
    got = Exponential(beta, shift, centred=True).profile(row(t), order)
    assert got.dtype == dtype
    beta = np.asarray(beta, dtype)  # what the kernel sees
    expected = np.asarray(exact(beta, t, order, shift), float)
    rtol = 4 * eps(dtype) * (1 + (min(float(beta) * 3.5, -np.log(float(jnp.finfo(dtype).tiny))) if order else 0))
    np.testing.assert_allclose(got[0], expected, rtol=rtol, atol=float(beta) ** max(order - 1, 0) * 1e-37)


@pytest.mark.parametrize("beta", BETAS[1:])
def test_the_constant_is_one_over_beta(beta):
    kernel = Exponential(beta)
    np.testing.assert_allclose(
        kernel.profile(row(T))[0], np.asarray(exact(beta, T, centred=False), float), atol=1e-15 / beta
    )
    assert float(kernel.profile(row([1.0]))[0, 0]) == 1 / beta
    assert float(kernel.centre().profile(row([1.0]))[0, 0]) == 0.0


def test_beta_zero_is_the_linear_kernel_without_its_infinite_constant():
    np.testing.assert_array_equal(Exponential(0.0).profile(row(T))[0], T - 1)
    np.testing.assert_array_equal(Exponential(0.0).profile(row(T), 1)[0], 1)
    np.testing.assert_array_equal(Exponential(0.0).profile(row(T), 2)[0], 0)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_all_derivatives_in_beta_at_zero(n):
    """`(e^{beta u} - 1)/beta` has n-th derivative `u^{n+1}/(n+1)` in beta at 0; (s - 1)^2 / 2 for n = 1."""
    f = lambda b: Exponential(b, centred=True).profile(row(T))[0]  # noqa: E731
    for _ in range(n):
        f = jax.jacfwd(f)
    np.testing.assert_allclose(f(jnp.asarray(0.0)), (T - 1) ** (n + 1) / (n + 1), rtol=1e-14)


@pytest.mark.parametrize("beta", [0.1, 0.24, 0.26, 1.0, 50.0])
def test_derivative_in_beta_is_the_closed_form(beta):
    """`d/dbeta (e^{beta u} - 1)/beta = (beta u e^{beta u} - expm1(beta u))/beta^2`, in extended precision."""
    got = jax.jacfwd(lambda b: Exponential(b, centred=True).profile(row(T))[0])(jnp.asarray(beta))
    b, u = np.longdouble(beta), np.asarray(T, np.longdouble) - 1
    expected = np.asarray((b * u * np.exp(b * u) - np.expm1(b * u)) / b**2, float)
    np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-17)


@betas
@pytest.mark.parametrize("order", [0, 1, 2])
def test_orders_are_derivatives_of_each_other(beta, order):
    kernel = Exponential(beta)
    derivative = jax.vmap(jax.grad(lambda t: kernel.profile(t[None, None], order)[0, 0]))(jnp.asarray(T))
    expected = np.asarray(kernel.profile(row(T), order + 1)[0])
    np.testing.assert_allclose(derivative, expected, rtol=1e-13, atol=1e-300 + 1e-16 * beta**order)


@pytest.mark.parametrize("beta", [0.0, 1e-9, 0.1, 5.0, 50.0])
@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("tabulated", [False, True])
def test_cosine_series_is_the_profile_on_the_circle(beta, order, tabulated):
    kernel = Exponential(beta, centred=True)
    kernel = kernel.tabulate(80) if tabulated else kernel
    angle = np.linspace(0, np.pi, 50)
    series = np.cos(np.outer(angle, np.arange(81))) @ np.asarray(kernel.cosine_series(80, order))
    np.testing.assert_allclose(series, kernel.profile(row(np.cos(angle)), order)[0], atol=1e-14 * max(1, beta) ** order)


def test_the_series_holds_the_constant_too():
    difference = Exponential(5.0).cosine_series(30) - Exponential(5.0).centre().cosine_series(30)
    np.testing.assert_allclose(difference, np.eye(31)[0] / 5, atol=1e-16)


def test_log_slope_is_the_logarithm_of_the_slope():
    np.testing.assert_allclose(
        Exponential(5.0).log_slope(row(T)), np.log(Exponential(5.0).profile(row(T), 1)), atol=1e-14
    )


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf, -np.inf, -1e-300])
def test_impossible_betas_are_refused(bad):
    with pytest.raises(ValueError, match="beta = .*expected a finite inverse temperature beta >= 0"):
        Exponential(bad)


def test_beta_too_large_for_its_dtype_is_refused():
    with pytest.raises(ValueError, match="beta = inf"), np.errstate(over="ignore"):
        Exponential(jnp.asarray(np.float64(1e39).astype(np.float32)))


def test_a_vector_of_betas_is_refused():
    with pytest.raises(ValueError, match=r"beta of shape \(2,\).*sweep or vmap"):
        Exponential(np.ones(2))


@pytest.mark.parametrize("beta", [5, np.int64(5), np.float32(5), np.array(5)])
def test_numbers_of_any_kind_become_a_float64_beta(beta):
    assert Exponential(beta).beta.dtype == jnp.float64


def test_integer_arrays_become_floats_and_float_arrays_keep_their_dtype():
    assert Exponential(jnp.asarray(5)).beta.dtype == jnp.float64
    assert Exponential(jnp.asarray(5, jnp.float32)).beta.dtype == jnp.float32


# A change of beta alone, of the shift alone, of both; None where a parameter does not move.
TANGENTS = {"beta": (1.0, None), "shift": (None, 1.0), "both": (0.5, -2.0)}


def moved(kernel, tangent, h):
    beta, shift = (float(leaf) + h * (t or 0.0) for leaf, t in zip((kernel.beta, kernel.shift), tangent, strict=True))
    return Exponential(beta, shift, centred=kernel.centred)


def along(kernel, tangent):
    as_array = lambda t: None if t is None else jnp.asarray(t)  # noqa: E731
    return KernelTangent(kernel, eqx.tree_at(lambda k: (k.beta, k.shift), kernel, tuple(map(as_array, tangent))))


@pytest.mark.parametrize("name", TANGENTS)
@pytest.mark.parametrize("beta", [0.3, 5.0])
@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("centred", [True, False])
def test_a_kernel_tangent_is_the_finite_difference(name, beta, order, centred):
    kernel, tangent, h = Exponential(beta, 1.0, centred=centred), TANGENTS[name], 1e-3
    d = {s: np.asarray(moved(kernel, tangent, s * h).profile(row(T), order)) for s in (-2, -1, 1, 2)}
    expected = (8 * (d[1] - d[-1]) - (d[2] - d[-2])) / (12 * h)
    got = along(kernel, tangent).profile(row(T), order)
    np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-9 * abs(expected).max())


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_tangents_series_is_its_profile(order):
    tangent = along(Exponential(5.0), (1.0, None))
    angle = np.linspace(0, np.pi, 30)
    series = np.cos(np.outer(angle, np.arange(41))) @ np.asarray(tangent.cosine_series(40, order))
    np.testing.assert_allclose(series, tangent.profile(row(np.cos(angle)), order)[0], atol=1e-13)


def test_a_tangent_of_a_tangent_is_the_second_derivative():
    first = along(Exponential(2.0, centred=True), (1.0, None))
    second = KernelTangent(
        first, KernelTangent(along(first.kernel, (1.0, None)).tangent, jax.tree.map(jnp.zeros_like, first.tangent))
    )
    f = lambda b: Exponential(b, centred=True).profile(row(T))  # noqa: E731
    np.testing.assert_allclose(
        second.profile(row(T)), jax.jacfwd(jax.jacfwd(f))(jnp.asarray(2.0)), rtol=1e-12, atol=1e-15
    )


U = np.concatenate([[0.0], np.outer([-1, 1], np.logspace(-300, 1.5, 60)).ravel(), [0.4999, 0.5001, -0.4999, -0.5001]])
RELATIVE = {
    "exponential": (relative_exponential, lambda u: np.expm1(u) / u, U, lambda n: 1 / (n + 1)),
    "logarithm": (relative_logarithm, lambda u: np.log1p(u) / u, U[U > -0.9], lambda n: (-1) ** n * 1.0 / (n + 1)),
}


@pytest.mark.parametrize("name", RELATIVE)
@both
def test_relative_functions_are_exact_to_rounding(name, dtype):
    fn, reference, u, _ = RELATIVE[name]
    u = np.asarray(u, dtype)
    safe = np.where(u == 0, 1, u).astype(np.longdouble)
    got = fn(jnp.asarray(u))
    assert got.dtype == dtype
    np.testing.assert_allclose(got, np.where(u == 0, 1, reference(safe)).astype(float), rtol=4 * eps(dtype))


@pytest.mark.parametrize("name", RELATIVE)
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_relative_functions_have_their_taylor_derivatives_at_zero(name, n):
    """n-th derivative at 0: `1/(n+1)` for the exponential, `(-1)^n n!/(n+1)` for the logarithm."""
    fn, _, _, coefficient = RELATIVE[name]
    f = fn
    for _ in range(n):
        f = jax.grad(f)
    factor = float(np.prod(np.arange(1, n + 1))) if name == "logarithm" else 1.0
    assert float(f(jnp.asarray(0.0))) == pytest.approx(factor * coefficient(n), rel=1e-14)


@pytest.mark.parametrize("name,edge", [("exponential", 0.5), ("logarithm", 0.1)])
@pytest.mark.parametrize("sign", [-1, 1])
def test_derivatives_do_not_jump_where_the_series_ends(name, edge, sign):
    f = jax.grad(jax.grad(RELATIVE[name][0]))
    near, far = f(jnp.asarray(sign * edge * (1 - 1e-9))), f(jnp.asarray(sign * edge * (1 + 1e-9)))
    assert float(near) == pytest.approx(float(far), rel=1e-8 if name == "exponential" else 1e-7)


def test_shifted_convention_changes_nothing():
    convention = KernelConvention("shifted")
    convention.check(1e300, np.float64)
    assert float(convention.perceptron_factor(jnp.asarray(50.0))) == 1.0
    assert float(convention.energy_factor(50.0)) == 1.0
    assert "shifted" in convention.sentence


@pytest.mark.parametrize("beta", [0.0, 1.0, 12.0])
def test_exponential_convention_is_the_theorems_kernel(beta):
    """`e^{beta t}/beta` is `energy_factor` times the shifted kernel; the perceptron's weights carry the inverse."""
    convention = KernelConvention("exponential")
    assert float(convention.energy_factor(beta) * convention.perceptron_factor(jnp.asarray(beta))) == pytest.approx(1)
    if beta > 0:
        shifted = Exponential(beta).profile(row(T))[0]
        np.testing.assert_allclose(
            convention.energy_factor(beta) * shifted, np.exp(beta * T) / beta, rtol=0, atol=1e-15 * np.exp(beta)
        )
    assert "exponential" in convention.sentence and "e^-beta" in convention.sentence


@both
def test_exponential_convention_refuses_an_overflow_and_nothing_less(dtype):
    convention, limit = KernelConvention("exponential"), float(np.log(np.finfo(dtype).max))
    convention.check(limit * 0.999, dtype)
    with pytest.raises(ValueError, match="overflows float.*limit.*use the shifted kernel"):
        convention.check(limit * 1.001, dtype)


def test_unknown_conventions_are_refused():
    with pytest.raises(ValueError, match="kernel 'gaussian': expected one of shifted, exponential"):
        KernelConvention("gaussian")
