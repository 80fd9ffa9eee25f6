"""One contract for every drift; attention and perceptrons against closed forms in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

from mflandscape import (
    Attention,
    Blocked,
    CircleFourier,
    FreePerceptron,
    Measure,
    Perceptron,
    SoftmaxAttention,
    empirical,
    first_variation,
    sphere,
    velocity,
)
from mflandscape.drifts import AbstractEnergy, AbstractPotential, defect, prepare

N = 11
both = pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])


def weights(d, j=4):
    rng = np.random.default_rng(3)
    return {
        "a": rng.normal(size=(j, d)),
        "omega": rng.normal(size=j),
        "bias": 0.3 * rng.normal(size=j),
        "w": rng.normal(size=(j, d)),
    }


def symmetric(d, seed):
    b = np.random.default_rng(seed).normal(size=(d, d))
    return (b + b.T) / 2


def perceptron(d, activation="gelu"):
    v = weights(d)
    return Perceptron(v["a"], v["omega"], v["bias"], activation)


def free(d):
    v = weights(d)
    return FreePerceptron(v["a"], v["w"], v["bias"], "tanh")


# A new drift is tested by being listed: name -> drift for points of dimension d, built in float64.
DRIFTS = {
    "attention": lambda d: Attention(5.0),
    "attention_at_zero": lambda d: Attention(0.0),
    "attention_blocked": lambda d: Attention(5.0, interaction=Blocked(4)),
    "attention_without_self": lambda d: Attention(5.0, self_interaction=False),
    "attention_with_matrix": lambda d: Attention(3.0, matrix=symmetric(d, 0)),
    "softmax": lambda d: SoftmaxAttention(5.0),
    "softmax_with_matrix": lambda d: SoftmaxAttention(3.0, matrix=symmetric(d, 0)),
    "perceptron": perceptron,
    "free_perceptron": free,
    "two_heads": lambda d: Attention(3.0, matrix=symmetric(d, 0)) + Attention(1.0, matrix=symmetric(d, 1)),
    "transformer": lambda d: Attention(5.0) + perceptron(d),
    "softmax_transformer": lambda d: SoftmaxAttention(5.0) + perceptron(d),
    "free_transformer": lambda d: Attention(5.0) + free(d),
}
CIRCLE = {
    "attention_circle": lambda d: Attention(5.0, interaction=CircleFourier.for_beta(5.0)),
    "softmax_circle": lambda d: SoftmaxAttention(5.0, interaction=CircleFourier.for_beta(5.0)),
}
CASES = [(name, 3) for name in DRIFTS] + [(name, 2) for name in (*CIRCLE, "softmax", "transformer")]
every = pytest.mark.parametrize("name,d", CASES)
build = lambda name, d: {**DRIFTS, **CIRCLE}[name](d)  # noqa: E731


def cloud(d, dtype=jnp.float64, n=N):
    """Points with unequal weights, one of them massless."""
    w = np.arange(n) / (n * (n - 1) / 2)
    return empirical(sphere.uniform(jax.random.key(1), n, d, dtype), jnp.asarray(w, dtype))


def value(x, w, beta, b, shift):
    """`1/2 sum_ij w_i w_j e^{beta (x_i B x_j - shift)}/beta`, by a double loop."""
    return (
        sum(w[i] * w[j] * np.exp(beta * (x[i] @ b @ x[j] - shift)) / beta for i in range(len(w)) for j in range(len(w)))
        / 2
    )


def differences(f, x, h=1e-4):
    """Gradient of `f(x)` by fourth-order finite differences, entry by entry."""
    grad = np.zeros(x.shape)
    for index in np.ndindex(*x.shape):
        e = np.zeros(x.shape)
        e[index] = h
        grad[index] = (8 * (f(x + e) - f(x - e)) - (f(x + 2 * e) - f(x - 2 * e))) / (12 * h)
    return grad


@jax.jit
def everything(drift, mu):
    """Velocity of the drift and of the prepared drift, defect; value and potential of those that have them."""
    energies = (drift(mu),) if isinstance(drift, AbstractEnergy) else ()
    potentials = (drift.potential(mu.x, mu),) if isinstance(drift, AbstractPotential) else ()
    return velocity(drift, mu, "ascent"), velocity(prepare(drift), mu), defect(drift, mu), *energies, *potentials


@every
@both
def test_a_drift_built_in_float64_follows_the_points_dtype(name, d, dtype):
    drift, mu = build(name, d), cloud(d, dtype)
    out = everything(drift, mu)
    assert {leaf.dtype for leaf in out} == {jnp.dtype(dtype)}
    exact = everything(drift, Measure(mu.x.astype(float), mu.w.astype(float)))
    for got, expected in zip(out[:2] + out[3:], exact[:2] + exact[3:], strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-13 if dtype == jnp.float64 else 1e-4)
    np.testing.assert_allclose(out[1], -out[0], rtol=0, atol=1e-13 if dtype == jnp.float64 else 1e-5)
    assert float(out[2]) <= 1


@pytest.mark.parametrize("name,d", [case for case in CASES if not case[0].startswith("free")])
def test_the_field_is_the_finite_difference_of_the_potential(name, d):
    drift, mu = build(name, d), cloud(d)
    potential = jax.jit(lambda x: jnp.sum(first_variation(drift, sphere.retract(x), mu)))
    expected = differences(lambda x: float(potential(jnp.asarray(x))), np.asarray(mu.x[:4]))
    np.testing.assert_allclose(everything(drift, mu)[0][:4], expected, atol=1e-9)


@pytest.mark.parametrize("name,d", [case for case in CASES if "matrix" not in case[0] and case[0] != "two_heads"])
def test_rotating_everything_rotates_the_velocity(name, d):
    drift, mu = build(name, d), cloud(d)
    q = jnp.linalg.qr(jax.random.normal(jax.random.key(9), (d, d)))[0]
    turned = jax.tree.map(lambda leaf: leaf @ q if leaf.ndim == 2 else leaf, drift)
    expected = everything(drift, mu)[0] @ q
    np.testing.assert_allclose(everything(turned, mu.at(mu.x @ q))[0], expected, atol=1e-13)


@every
def test_massless_particles_move_and_move_no_one(name, d):
    drift, mu = build(name, d), cloud(d)  # particle 0 is massless
    v = everything(drift, mu)[0]
    assert float(jnp.abs(v[0]).max()) > 1e-3
    np.testing.assert_array_equal(everything(drift, mu.at(mu.x.at[0].set(-mu.x[1])))[0][1:], v[1:])


@pytest.mark.parametrize("d", [2, 3, 5])
@pytest.mark.parametrize("beta", [0.1, 5.0, 50.0])
def test_attention_is_the_double_sum(d, beta):
    mu = cloud(d)
    assert float(Attention(beta)(mu)) == pytest.approx(
        value(np.asarray(mu.x), np.asarray(mu.w), beta, np.eye(d), 1.0), rel=1e-13
    )
    x, w = np.asarray(mu.x), np.asarray(mu.w)
    gradient = np.exp(beta * (x @ x.T - 1)) @ (w[:, None] * x)
    np.testing.assert_allclose(
        velocity(Attention(beta), mu, "ascent"), gradient - np.sum(gradient * x, 1, keepdims=True) * x, atol=1e-15
    )


def test_two_heads_with_different_matrices():
    """The sum of two attentions is the explicit double sum, and its velocity that sum's finite difference over the
    weight.
    """
    d, heads = 3, [(3.0, symmetric(3, 0)), (1.5, symmetric(3, 1))]
    mu = cloud(d)
    energy = sum((Attention(beta, matrix=b) for beta, b in heads[1:]), start=Attention(heads[0][0], matrix=heads[0][1]))
    shifts = [np.abs(np.linalg.eigvalsh(b)).max() for _, b in heads]

    def total(x):
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
        return sum(value(x, np.asarray(mu.w), beta, b, s) for (beta, b), s in zip(heads, shifts, strict=True))

    assert float(energy(mu)) == pytest.approx(total(np.asarray(mu.x)), rel=1e-13)
    massive = np.asarray(mu.w) > 0
    expected = differences(total, np.asarray(mu.x))[massive] / np.asarray(mu.w)[massive, None]
    np.testing.assert_allclose(velocity(energy, mu, "ascent")[massive], expected, atol=1e-9)


def test_the_identity_matrix_changes_nothing():
    mu = cloud(3)
    with_matrix = Attention(5.0, matrix=np.eye(3))
    np.testing.assert_allclose(with_matrix(mu), Attention(5.0)(mu), rtol=1e-14)
    np.testing.assert_allclose(velocity(with_matrix, mu), velocity(Attention(5.0), mu), atol=1e-15)


def test_the_matrix_may_be_differentiated():
    mu, e = cloud(3), jnp.asarray(symmetric(3, 2))
    f = jax.jit(lambda h: Attention(2.0, matrix=jnp.eye(3) + h * e)(mu))
    assert np.isfinite(jax.grad(lambda b: Attention(2.0, matrix=b)(mu))(jnp.eye(3))).all()
    slope = jax.grad(lambda h: Attention(2.0, matrix=jnp.diag(jnp.asarray([1.0, 2.0, 3.0])) + h * e)(mu))(0.0)
    f = lambda h: float(Attention(2.0, matrix=np.diag([1.0, 2.0, 3.0]) + h * np.asarray(e))(mu))  # noqa: E731
    assert float(slope) == pytest.approx((f(1e-5) - f(-1e-5)) / 2e-5, rel=1e-7)


def test_self_interaction_is_a_constant_and_moves_nothing():
    mu, beta = cloud(3), 5.0
    with_self, without = Attention(beta), Attention(beta, self_interaction=False)
    assert float(with_self(mu) - without(mu)) == pytest.approx(float(jnp.sum(mu.w**2)) / (2 * beta), rel=1e-12)
    np.testing.assert_array_equal(velocity(with_self, mu), velocity(without, mu))


@pytest.mark.parametrize("beta", [0.0, 1e-8, 0.1, 5.0])
def test_centred_energies_leave_out_their_constant_and_reach_zero(beta):
    mu, b = cloud(3), max(beta, 1e-300)
    u = np.asarray(mu.x) @ np.asarray(mu.x).T - 1
    expected = np.asarray(mu.w) @ (np.expm1(b * u) / b) @ np.asarray(mu.w) / 2
    np.testing.assert_allclose(Attention(beta, centred=True)(mu), expected, rtol=1e-14)
    if beta > 1e-3:
        np.testing.assert_allclose(Attention(beta)(mu), expected + 1 / (2 * beta), rtol=1e-14)


@pytest.mark.parametrize("matrix", [None, np.diag([2.0, -1.0, 0.5])])
@pytest.mark.parametrize("beta", [0.0, 1e-4, 5.0, 50.0])
def test_softmax_field_is_the_gradient_over_the_normaliser(matrix, beta):
    """`P sum_j w_j e^{beta x.By_j} B y_j / sum_j w_j e^{beta x.By_j}`."""
    mu, b = cloud(3), np.eye(3) if matrix is None else matrix
    x, w = np.asarray(mu.x), np.asarray(mu.w)
    share = w * np.exp(beta * (x @ b @ x.T - 2))
    g = share @ x @ b / share.sum(1, keepdims=True)
    got = velocity(SoftmaxAttention(beta, matrix=matrix), mu, "ascent")
    np.testing.assert_allclose(got, g - np.sum(g * x, 1, keepdims=True) * x, atol=1e-13)


@pytest.mark.parametrize("beta", [0.1, 5.0, 50.0])
@pytest.mark.parametrize("interaction", [None, CircleFourier.for_beta(50.0)], ids=["dense", "circle_fourier"])
def test_the_circle_in_the_published_angle_form(beta, interaction):
    """`(1/N) sum_j e^{beta(cos(th_j - th_i) - 1)} sin(th_j - th_i) + sum_j omega_j sigma(a_j.x) (a_j . t)`. [MATH,
    section 3]
    """
    theta = np.random.default_rng(0).uniform(0, 2 * np.pi, 30)
    a, omega = weights(2)["a"], weights(2)["omega"]
    gap = theta[None, :] - theta[:, None]
    x, t = np.stack([np.cos(theta), np.sin(theta)], 1), np.stack([-np.sin(theta), np.cos(theta)], 1)
    expected = (
        np.mean(np.exp(beta * (np.cos(gap) - 1)) * np.sin(gap), axis=1) + (np.maximum(x @ a.T, 0) * (t @ a.T)) @ omega
    )
    drift = Attention(beta, interaction=interaction) + Perceptron(a, omega)
    v = velocity(drift, empirical(jnp.asarray(x)), "ascent")
    np.testing.assert_allclose(np.sum(np.asarray(v) * t, axis=1), expected, atol=2e-14)


SIGMAS = {
    "relu": (lambda s: np.maximum(s, 0), lambda s: np.maximum(s, 0) ** 2),
    "gelu": (
        lambda s: s * ndtr(s),
        lambda s: (s**2 - 1) * ndtr(s) + s * np.exp(-(s**2) / 2) / np.sqrt(2 * np.pi) + 0.5,
    ),
    "tanh": (np.tanh, lambda s: 2 * np.log(np.cosh(s))),
    "custom": (np.sin, lambda s: 2 - 2 * np.cos(s)),
}


@pytest.mark.parametrize("name", SIGMAS)
@pytest.mark.parametrize("biased", [True, False])
def test_perceptrons_are_their_closed_forms(name, biased):
    mu, v = cloud(3), weights(3)
    bias = v["bias"] if biased else None
    activation = jnp.sin if name == "custom" else name
    sigma, phi = SIGMAS[name]
    x, s = np.asarray(mu.x), np.asarray(mu.x) @ v["a"].T + (v["bias"] if biased else 0)
    gradient_form, free_form = (
        Perceptron(v["a"], v["omega"], bias, activation),
        FreePerceptron(v["a"], v["w"], bias, activation),
    )
    assert float(gradient_form(mu)) == pytest.approx(np.asarray(mu.w) @ phi(s) @ v["omega"] / 2, rel=1e-13)
    for drift, g in [(gradient_form, sigma(s) * v["omega"] @ v["a"]), (free_form, sigma(s) @ v["w"])]:
        np.testing.assert_allclose(velocity(drift, mu, "ascent"), g - np.sum(g * x, 1, keepdims=True) * x, atol=1e-14)


def test_a_free_perceptron_with_vectors_omega_a_is_the_gradient_form():
    mu, v = cloud(3), weights(3)
    vectors = FreePerceptron(v["a"], v["omega"][:, None] * v["a"], v["bias"], "softplus")
    np.testing.assert_allclose(
        velocity(vectors, mu), velocity(Perceptron(v["a"], v["omega"], v["bias"], "softplus"), mu), atol=1e-14
    )


def test_integer_vectors_do_not_truncate_the_outputs():
    np.testing.assert_array_equal(Perceptron(np.eye(2, dtype=int), np.array([0.5, 1.5])).omega, [0.5, 1.5])


def test_sums_know_what_they_are():
    energy, potential, field = (
        Attention(1.0) + perceptron(2),
        SoftmaxAttention(1.0) + perceptron(2),
        Attention(1.0) + free(2),
    )
    assert isinstance(energy, AbstractEnergy)
    assert isinstance(potential, AbstractPotential) and not isinstance(potential, AbstractEnergy)
    assert not isinstance(field, AbstractPotential)
    assert len((energy + field).terms) == 4  # sums are flat
    mu = cloud(2)
    np.testing.assert_allclose(velocity(field, mu), velocity(Attention(1.0), mu) + velocity(free(2), mu), atol=1e-15)


def test_a_drift_is_added_to_drifts_only():
    with pytest.raises(TypeError, match="unsupported operand"):
        Attention(1.0) + 3


@pytest.mark.parametrize("field", [free(2), Attention(1.0) + free(2)], ids=["alone", "in a sum"])
def test_a_free_perceptron_has_no_potential(field):
    with pytest.raises(ValueError, match="has no potential: a first variation needs a sum of potentials"):
        first_variation(field, cloud(2).x, cloud(2))


def test_batched_over_beta_scale_and_starts_with_one_trace():
    traces = []

    def f(beta, scale, x):
        traces.append(beta)
        mu = empirical(x)
        energy = Attention(beta) + Perceptron(weights(3)["a"], scale * weights(3)["omega"], activation="gelu")
        return energy(mu), velocity(energy, mu)

    betas, scales = jnp.asarray([0.1, 5.0, 50.0]), jnp.asarray([0.5, 1.0, 2.0])
    x = jnp.stack([sphere.uniform(jax.random.key(i), 8, 3) for i in range(3)])
    values, velocities = jax.jit(jax.vmap(f))(betas, scales, x)
    assert len(traces) == 1
    for i in range(3):
        one = f(betas[i], scales[i], x[i])
        np.testing.assert_allclose(values[i], one[0], rtol=1e-13)
        np.testing.assert_allclose(velocities[i], one[1], atol=1e-14)


def test_too_few_modes_and_lost_digits_show_in_the_defect():
    mu = cloud(2)
    short, enough = CircleFourier(5), CircleFourier.for_beta(50.0)
    assert float(defect(Attention(50.0, interaction=short) + perceptron(2), mu)) > 1
    assert float(defect(Attention(50.0, interaction=enough) + perceptron(2), mu)) <= 1
    alone = empirical(jnp.asarray([[1.0, 0.0], [-1.0, 0.0]]), np.array([1.0, 0.0]))
    assert float(SoftmaxAttention(50.0, interaction=enough).defect(alone)) > 1
    assert float(SoftmaxAttention(50.0).defect(alone)) == 0


BAD = {
    "negative beta": (lambda: Attention(-1.0), "beta = -1.*beta >= 0"),
    "nan beta": (lambda: SoftmaxAttention(np.nan), "beta = nan"),
    "oblong matrix": (lambda: Attention(1.0, matrix=np.ones((2, 3))), r"matrix of shape \(2, 3\).*symmetric"),
    "asymmetric matrix": (
        lambda: Attention(1.0, matrix=np.array([[1.0, 1.0], [0.0, 1.0]])),
        r"not finite and symmetric.*\(B \+ B\^T\)/2",
    ),
    "nan matrix": (lambda: SoftmaxAttention(1.0, matrix=np.full((2, 2), np.nan)), "not finite and symmetric"),
    "matrix without self": (lambda: Attention(1.0, matrix=np.eye(2), self_interaction=False), "diagonal terms"),
    "matrix on the circle": (
        lambda: Attention(1.0, matrix=np.eye(2), interaction=CircleFourier(9)),
        "matrix B.*Dense or Blocked",
    ),
    "softmax matrix on the circle": (
        lambda: SoftmaxAttention(1.0, matrix=np.eye(2), interaction=CircleFourier(9)),
        "matrix B",
    ),
    "matrix of another d": (
        lambda: velocity(Attention(1.0, matrix=np.eye(2)), cloud(3)),
        r"shape \(2, 2\).*dimension 3",
    ),
    "circle of another d": (
        lambda: velocity(Attention(1.0, interaction=CircleFourier(9)), cloud(3)),
        "dimension 3.*d = 2",
    ),
    "neurons of another d": (
        lambda: velocity(Attention(1.0) + perceptron(2), cloud(3)),
        "dimension 2 for points of dimension 3",
    ),
    "free of another d": (lambda: velocity(free(2), cloud(3)), "dimension 2 for points of dimension 3"),
    "flat a": (lambda: Perceptron(np.ones(3), np.ones(3)), r"a of shape \(3,\).*\(J, d\)"),
    "no neuron": (lambda: Perceptron(np.ones((0, 3)), np.ones(0)), "at least one neuron"),
    "omega": (lambda: Perceptron(np.ones((2, 3)), np.ones(3)), r"omega of shape \(3,\): expected \(2,\)"),
    "bias": (lambda: Perceptron(np.ones((2, 3)), np.ones(2), np.ones(3)), r"bias of shape \(3,\): expected \(2,\)"),
    "w": (lambda: FreePerceptron(np.ones((2, 3)), np.ones((3, 2))), r"w of shape \(3, 2\): expected \(2, 3\)"),
    "nan a": (lambda: Perceptron(np.full((2, 3), np.nan), np.ones(2)), "a has entries that are not finite"),
    "inf omega": (lambda: Perceptron(np.ones((2, 3)), np.array([1, np.inf])), "omega has entries that are not finite"),
    "activation": (lambda: Perceptron(np.ones((2, 3)), np.ones(2), activation="rellu"), "did you mean 'relu'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_what_was_got_and_expected(case):
    construct, words = BAD[case]
    with pytest.raises(ValueError, match=words):
        construct()
