"""One contract for every evaluator: `Dense` is checked against NumPy, every other one against `Dense`."""

import functools
import importlib.util

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mflandscape import Blocked, CircleFourier, Dense, sphere
from mflandscape.interactions import SphereFourier, SphereNonuniformFFT
from mflandscape.kernels import Exponential

BETAS = [0.0, 0.1, 5.0, 50.0, 1e4]
SIZES = (9, 23)  # targets and sources: no multiple of any block
# A new evaluator is tested by being listed: name -> (evaluator good to a beta in a dtype, dimensions, largest beta
# that it takes a test no more than seconds to reach)
EVALUATORS = {
    "dense": (lambda beta, dtype: Dense(), (2, 5), 1e4),
    "blocked": (lambda beta, dtype: Blocked(7), (2, 5), 1e4),
    "circle_fourier": (lambda beta, dtype: CircleFourier.for_beta(beta, dtype), (2,), 1e4),
    "sphere_fourier": (lambda beta, dtype: SphereFourier.for_beta(beta, dtype), (3,), 50.0),
}
if importlib.util.find_spec("jax_finufft"):
    EVALUATORS["sphere_fourier_nufft"] = (lambda beta, dtype: SphereNonuniformFFT.for_beta(beta, dtype), (3,), 50.0)
CASES = [(name, d) for name, (_, dims, _) in EVALUATORS.items() for d in dims]
DIRECT = [Dense(), Blocked(7)]
both = pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
cases = pytest.mark.parametrize("name,d", CASES)
others = pytest.mark.parametrize("name,d", [case for case in CASES if case[0] != "dense"])
FAST = [("dense", 5), ("blocked", 5), ("circle_fourier", 2)]
fast = pytest.mark.parametrize("name,d", FAST)
fast_or_large = pytest.mark.parametrize("name,d", [*FAST, ("sphere_fourier", 3)])


def make(name, beta=50.0, dtype=jnp.float64):
    return EVALUATORS[name][0](beta, dtype)


def betas_of(name):
    return [beta for beta in BETAS if beta <= EVALUATORS[name][2]]


@functools.cache
def data(d, dtype=jnp.float64, c=2):
    """Targets, sources (one of them a target), signed charges (some zero), and a direction for each."""
    m, n = SIZES
    key = jax.random.split(jax.random.key(d), 6)
    x = sphere.uniform(key[0], m, d, dtype)
    y = sphere.uniform(key[1], n, d, dtype).at[0].set(x[0])
    q = jax.random.normal(key[2], (n, c), dtype).at[3].set(0.0) / n
    return (x, y, q), tuple(jax.random.normal(k, v.shape, dtype) for k, v in zip(key[3:], (x, y, q), strict=True))


def potential(interaction, order=0):
    """As a function of everything that may move, points along the sphere; beta first."""
    on = sphere.retract
    return lambda beta, x, y, q: interaction.apply(Exponential(beta, centred=True), on(x), on(y), q, order)


@functools.partial(jax.jit, static_argnames="order")
def summed(interaction, beta, x, y, q, order=0):
    return potential(interaction, order)(beta, x, y, q)


def agree(got, expected, dtype=jnp.float64, beta=1.0):
    """1e-12 in float64; in float32 the rounding 1e-7 of an inner product is multiplied by beta."""
    tolerance = 1e-12 if dtype == jnp.float64 else 1e-6 * (1 + beta)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * (1 + float(jnp.abs(b).max())))


@both
@pytest.mark.parametrize("d", [2, 3, 5])
def test_dense_is_the_double_loop(d, dtype):
    (x, y, q), _ = data(d, dtype)
    orders = jax.jit(lambda beta: [potential(Dense(), order)(beta, x, y, q) for order in range(3)])
    u = np.asarray(x, float) @ np.asarray(y, float).T - 1
    for beta in BETAS:
        k = np.expm1(beta * u) / beta if beta > 0 else u
        profiles = [k, np.exp(beta * u), beta * np.exp(beta * u)]
        for order, (got, profile) in enumerate(zip(orders(jnp.asarray(beta, dtype)), profiles, strict=True)):
            assert got.dtype == dtype
            atol = (1e-15 if dtype == jnp.float64 else 3e-7) * (1 + beta) ** order
            np.testing.assert_allclose(got, profile @ np.asarray(q, float), rtol=0, atol=atol)


@functools.cache
def first_order(name, d, dtype):
    """Value, k', JVP along everything, JVP along each alone, VJP: for all betas at once (`vmap`), in one trace."""
    (x, y, q), moves = data(d, dtype)
    interaction, traces = make(name, betas_of(name)[-1], dtype), []
    cotangent = jnp.cos(jnp.arange(SIZES[0] * 2, dtype=dtype)).reshape(SIZES[0], 2)

    def at(beta):
        traces.append(beta)
        primals, tangents = (beta, x, y, q), (jnp.asarray(0.3, dtype), *moves)
        value, change = jax.jvp(potential(interaction), primals, tangents)
        slope = potential(interaction, 1)(*primals)
        return value, slope, change, jax.vjp(potential(interaction), *primals)[1](cotangent)

    results = jax.jit(jax.vmap(at))(jnp.asarray(betas_of(name), dtype))
    assert len(traces) == 1
    return results


@others
@both
@pytest.mark.parametrize("which", range(4), ids=["value", "slope", "jvp", "vjp"])
def test_values_and_derivatives_agree_with_dense_at_every_beta(name, d, dtype, which):
    got, expected = first_order(name, d, dtype)[which], first_order("dense", d, dtype)[which]
    for i, beta in enumerate(betas_of(name)):
        agree(*(jax.tree.map(lambda leaf: leaf[i], tree) for tree in (got, expected)), dtype, beta)  # noqa: B023


@pytest.mark.parametrize("beta", BETAS)
@both
def test_the_modes_chosen_for_a_beta_suffice_for_it(beta, dtype):
    (x, y, q), _ = data(2, dtype)
    circle, args = CircleFourier.for_beta(beta, dtype), (jnp.asarray(beta, dtype), x, y, q)
    agree(summed(circle, *args, order=1), summed(Dense(), *args, order=1), dtype, beta)


@pytest.mark.parametrize(
    "smaller,larger", [(Blocked(1), Dense()), (Blocked(), Dense()), (CircleFourier(30, 7), CircleFourier(30))]
)
def test_the_size_of_a_block_changes_nothing(smaller, larger):
    """Neither values nor gradients, with points that fill no whole number of blocks."""
    (x, y, q), _ = data(2)

    def total(interaction):
        f = lambda *a: jnp.sum(jnp.sin(potential(interaction)(jnp.asarray(5.0), *a)))  # noqa: E731
        return jax.jit(jax.value_and_grad(f, argnums=(0, 1)))(x, y, q)

    agree(total(smaller), total(larger))


@functools.cache
def second_order(name, d):
    """Forward over reverse, and forward over forward, as beta, charges and points (along the sphere) all move."""
    (x, y, q), (dx, dy, dq) = data(d, c=1)
    primals, tangents = (x, y, q), (sphere.tangent(x, dx), sphere.tangent(y, dy), dq)
    interaction = make(name)

    @jax.jit
    def at(beta):
        args, moves = (beta, *primals), (jnp.asarray(0.3), *tangents)
        f = lambda *a: jnp.sum(jnp.sin(potential(interaction)(*a)))  # noqa: E731
        along = lambda *a: jax.jvp(f, a, moves)[1]  # noqa: E731
        product = jax.jvp(jax.grad(f, argnums=(0, 1, 2, 3)), args, moves)[1]
        return product, jax.jvp(along, args, moves)[1], sum(map(jnp.vdot, product, moves))

    return at(jnp.asarray(0.0)), at(jnp.asarray(50.0))


@pytest.mark.parametrize("name", [name for name in EVALUATORS if name != "dense"])
def test_second_derivatives_agree_with_dense(name):
    d = EVALUATORS[name][1][0]
    for a, b in zip(jax.tree.leaves(second_order(name, d)), jax.tree.leaves(second_order("dense", d)), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * (1 + float(jnp.abs(b).max())))


@pytest.mark.parametrize("name", EVALUATORS)
def test_forward_over_reverse_is_forward_over_forward(name):
    for _, forward, reverse in second_order(name, EVALUATORS[name][1][0]):
        np.testing.assert_allclose(reverse, forward, rtol=1e-11, atol=1e-13)


@fast
def test_taylor_slope_of_the_gradient_is_two(name, d):
    """Along a curve on the sphere, beta and q moving too: `|f(h) - f(0) - h f'(0)|` falls as `h^2`."""
    (x, y, q), (dx, dy, dq) = data(d)
    dx, dy, interaction = sphere.tangent(x, dx), sphere.tangent(y, dy), make(name)

    def curve(h, beta):
        moved = (sphere.exp(x, h * dx), sphere.exp(y, h * dy), q + h * dq)
        return jnp.sum(jnp.sin(potential(interaction)(beta + h, *moved)))

    gradient = jax.jit(jax.value_and_grad(curve))
    for beta in jnp.asarray([0.0, 5.0, 50.0]):
        value, slope = gradient(jnp.zeros(()), beta)
        steps = jnp.asarray([4e-4, 2e-4, 1e-4])
        errors = [abs(gradient(h, beta)[0] - value - h * slope) for h in steps]
        assert np.polyfit(np.log(steps), np.log(errors), 1)[0] == pytest.approx(2, abs=0.05)


@fast
def test_jit_is_eager(name, d):
    (x, y, q), _ = data(d)
    agree(summed(make(name), jnp.asarray(5.0), x, y, q), potential(make(name))(jnp.asarray(5.0), x, y, q))


@cases
def test_massless_sources_count_for_nothing(name, d):
    (x, y, q), _ = data(d)
    f = functools.partial(summed, make(name), jnp.asarray(5.0), x)
    np.testing.assert_array_equal(f(y, q), f(y.at[3].set(y[4]), q))  # data() gives source 3 no charge
    assert float(jnp.abs(f(y, 0 * q)).max()) == 0.0


@cases
def test_linear_in_signed_charges(name, d):
    (x, y, q), (_, _, p) = data(d)
    f = functools.partial(summed, make(name), jnp.asarray(5.0), x, y)
    agree(f(2 * q - 3 * p), 2 * f(q) - 3 * f(p))


@cases
def test_pairing_is_symmetric(name, d):
    """`<p, apply(x, y, q)> = <apply(y, x, p), q>`: the transpose in q is the sum the other way."""
    (x, y, q), _ = data(d)
    p = jnp.sin(jnp.arange(2.0 * SIZES[0])).reshape(-1, 2)
    f = functools.partial(summed, make(name), jnp.asarray(5.0))
    np.testing.assert_allclose(jnp.vdot(p, f(x, y, q)), jnp.vdot(f(y, x, p), q), rtol=1e-13)


@fast_or_large
@both
def test_prepared_kernels_give_the_same(name, d, dtype):
    (x, y, q), _ = data(d, dtype)
    interaction, kernel = make(name, 50.0, dtype), Exponential(50.0, centred=True)
    agree(interaction.apply(interaction.prepare(kernel), x, y, q), interaction.apply(kernel, x, y, q), dtype, 50.0)


def exact_soft_maximum(beta, x, y, w):
    """`(1/beta) log sum_j w_j e^{beta u_ij}`, the largest term taken out, in extended precision."""
    u = np.asarray(x, np.longdouble) @ np.asarray(y, np.longdouble).T - 1
    w = np.asarray(w, np.longdouble) / np.asarray(w, np.longdouble).sum()
    if beta == 0:
        return (u @ w).astype(float)
    top = u.max(1)
    return (top + np.log1p(np.expm1(np.longdouble(beta) * (u - top[:, None])) @ w) / beta).astype(float)


WEIGHTS = np.where(np.arange(SIZES[1]) == 3, 0, 1) / (SIZES[1] - 1)


@cases
@both
def test_soft_maximum_is_the_logarithm_of_the_mean(name, d, dtype):
    """On both sides of 1/2 too, where direct sums change method."""
    (x, y, _), _ = data(d, dtype)
    interaction, w, betas = make(name, 5.0, dtype), jnp.asarray(WEIGHTS, dtype), [0.0, 1e-6, 1e-3, 0.1, 0.49, 0.51, 5.0]
    each = lambda beta: interaction.soft_maximum(Exponential(beta, centred=True), x, y, w)  # noqa: E731
    got = jax.jit(lambda betas: jax.lax.map(each, betas))(jnp.asarray(betas, dtype))
    assert got.dtype == dtype
    expected = [exact_soft_maximum(beta, x, y, WEIGHTS) for beta in betas]
    # a spectral sum is exact to rounding of 1, and Z is as small as e^-10
    single = 5e-6 if make(name) in DIRECT else 1e-3
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12 if dtype == jnp.float64 else single)


@pytest.mark.parametrize("interaction", DIRECT, ids=["dense", "blocked"])
@both
def test_direct_soft_maximum_does_not_underflow_far_away(interaction, dtype):
    """Sources near the pole, targets at its antipode, beta = 1e4: the sum is e^-20000."""
    angle = np.linspace(0, 0.1, 20)
    y = jnp.asarray(np.stack([np.sin(angle), 0 * angle, np.cos(angle)], axis=1), dtype)
    x, w, kernel = -y[:5], jnp.full(20, 0.05, dtype), Exponential(1e4, centred=True)
    f = lambda x: interaction.soft_maximum(kernel, x, y, w)  # noqa: E731
    np.testing.assert_allclose(f(x), exact_soft_maximum(1e4, x, y, w), rtol=1e-14 if dtype == jnp.float64 else 1e-6)
    gradient = jax.grad(lambda x: jnp.sum(f(x)))(x)
    u = 1e4 * (np.asarray(x, float) @ np.asarray(y, float).T)
    share = np.exp(u - u.max(1, keepdims=True))
    expected = share / share.sum(1, keepdims=True) @ np.asarray(y, float)
    np.testing.assert_allclose(gradient, expected, atol=1e-11 if dtype == jnp.float64 else 2e-3)


@pytest.mark.parametrize("interaction", DIRECT, ids=["dense", "blocked"])
def test_gradients_of_a_batched_soft_maximum_stay_finite(interaction):
    """Under vmap both branches are computed: the one not taken must not spoil the gradient with a NaN."""
    y = sphere.from_angle(jnp.linspace(3.0, 3.3, 16))
    x = sphere.from_angle(jnp.linspace(-0.3, 0.3, 16))

    def total(betas, x, y, w):
        f = lambda b: interaction.soft_maximum(Exponential(b, centred=True), x, y, w)  # noqa: E731
        return jnp.sum(jax.vmap(f)(betas))

    gradients = jax.jit(jax.grad(total, argnums=(0, 1, 2)))(
        jnp.asarray([0.0, 1e-4, 1.0, 37.0, 1e4]), x, y, jnp.full(16, 1 / 16)
    )
    assert all(bool(jnp.isfinite(g).all()) for g in gradients)


@fast_or_large
def test_soft_maximum_derivatives_agree_with_finite_differences(name, d):
    (x, y, _), (dx, dy, _) = data(d)
    interaction, w, h = make(name, 5.0), jnp.asarray(WEIGHTS), 1e-3
    dx, dy = sphere.tangent(x, dx), sphere.tangent(y, dy)

    def curve(h, beta):
        kernel = Exponential(beta + h, centred=True)
        return interaction.soft_maximum(kernel, sphere.exp(x, h * dx), sphere.exp(y, h * dy), w)

    value_and_slope = jax.jit(lambda h, beta: jax.jvp(lambda h: curve(h, beta), (h,), (jnp.ones(()),)))
    for beta in jnp.asarray([0.0, 0.1, 4.0]):
        f = lambda s: value_and_slope(jnp.asarray(s * h), beta)[0]  # noqa: B023, E731
        expected = (8 * (f(1) - f(-1)) - (f(2) - f(-2))) / (12 * h)
        np.testing.assert_allclose(value_and_slope(jnp.zeros(()), beta)[1], expected, atol=1e-8)


@both
def test_series_tail_says_when_there_are_too_few_modes(dtype):
    kernel = Exponential(jnp.asarray(50.0, dtype))
    enough = CircleFourier.for_beta(50.0, dtype)
    assert 0 < float(enough.series_tail(kernel)) <= 1
    assert float(CircleFourier(enough.modes - 3).series_tail(kernel)) > 1
    assert float(CircleFourier(1).series_tail(kernel)) > 1e6
    assert float(Dense().series_tail(kernel)) == float(Blocked().series_tail(kernel)) == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64, "float64"])
def test_modes_suffice_for_the_largest_of_many_betas(dtype):
    assert CircleFourier.for_beta(np.array([0.0, 50.0, 5.0]), dtype) == CircleFourier.for_beta(50.0, dtype)


def test_softmax_defect_flags_a_normaliser_that_has_lost_its_digits():
    """Two opposite halves are fine; a massless point facing the whole mass sees e^{-2 beta}."""
    y, even = sphere.equispaced(4), jnp.full(4, 0.25)
    lonely = jnp.asarray([1.0, 0.0, 0.0, 0.0])
    circle = CircleFourier.for_beta(50.0)
    assert float(circle.softmax_defect(Exponential(50.0), y, even)) < 1
    assert float(circle.softmax_defect(Exponential(50.0), y, lonely)) > 1
    assert float(Dense().softmax_defect(Exponential(50.0), y, lonely)) == 0


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, jax.grad])
def test_a_traced_beta_cannot_choose_the_number_of_modes(transform):
    with pytest.raises(
        ValueError, match="traced beta: the number of modes is a shape; choose it outside jit.*largest beta"
    ):
        transform(lambda b: b * CircleFourier.for_beta(b).modes)(
            jnp.ones(3) if transform is jax.vmap else jnp.asarray(5.0)
        )


BAD = {
    "dimension": (lambda: CircleFourier(9).check(3, False), "dimension 3.*d = 2; use Dense or Blocked"),
    "matrix": (lambda: CircleFourier(9).check(2, True), "matrix B.*use Dense or Blocked"),
    "no modes": (lambda: CircleFourier(0), "modes = 0"),
    "no block": (lambda: CircleFourier(9, 0), "block = 0"),
    "no tile": (lambda: Blocked(0), "block = 0.*at least 1"),
    "negative beta": (lambda: CircleFourier.for_beta(-1.0), "beta = -1.*finite inverse temperatures"),
    "nan beta": (lambda: CircleFourier.for_beta(np.array([1.0, np.nan])), "finite inverse temperatures"),
    "infinite beta": (lambda: CircleFourier.for_beta(np.inf), "finite inverse temperatures"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_an_evaluator_cannot_take_is_refused(case):
    build, words = BAD[case]
    with pytest.raises(ValueError, match=words):
        build()


def test_an_evaluator_holds_no_arrays():
    assert all(not jax.tree.leaves(eqx.filter(make(name), eqx.is_array)) for name in EVALUATORS)
