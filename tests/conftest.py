"""Every test runs in float64, with strict dtype promotion, ranks that must agree, and warnings as errors; two
virtual CPU devices; NumPy's linear algebra on one thread, for the workers share the cores.
"""

import os
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["MFLANDSCAPE_CACHE"] = "off"
# `make test` spends its time compiling, a third less of it with the plainer of the compiler's code generators; `make
# test-slow` compiles as users do. A flag unknown to another release would end the process.
if "FAST_COMPILATION" in os.environ and version("jaxlib") == "0.10.1":
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 2)


@pytest.fixture(autouse=True, scope="module")
def _forget_compiled_programs():
    """Thousands of compiled programs in one process exhaust the memory maps the system allows."""
    yield
    jax.clear_caches()


# Cases that compile long, by words of their names; `make test-slow` runs them.
_LONG = (
    ("test_implicit", "implicit_adjoint_ends"),
    ("test_implicit", "unrolled_is_finite", "2-descent-9"),
    ("test_interactions", "float32", "fourier"),
    ("test_interactions", "forward_over_reverse", "sphere_fourier"),
    ("test_interactions", "second_derivatives", "sphere_fourier"),
    ("test_interactions", "second_derivatives", "blocked"),
    ("test_interactions", "soft_maximum_derivatives", "fourier"),
    ("test_interactions", "prepared_kernels", "sphere_fourier"),
    ("test_interaction_memory", "sphere_fourier-jvp"),
    ("test_circle_fourier", "many_points", "gpu"),
    ("test_circle_fourier", "many_points", "512-None"),
    ("test_cli.py", "interrupted_and_resumed"),
    ("test_cli_minimise", "json_of_one"),
    ("test_cli_refine", "json_has"),
    ("test_experiment", "float32_is_followed"),
    ("test_experiment", "every_choice", "rk4"),
    ("test_experiment", "every_choice", "dopri5"),
    ("test_experiment", "noise_depends"),
    ("test_experiment", "biases[False]"),
    ("test_minimiser", "a_strong_neuron"),
    ("test_minimiser", "uniform_measure[50.0]"),
    ("test_adjoints", "sphere-rk4"),
    ("test_adjoints", "forward_over_reverse[sphere-euler-blocked]"),
    ("test_adjoints", "memory_of_unrolled"),
    ("test_tiled", "first_and_second", "tiled]"),
    ("test_tiled", "many_dimensions", "float64-tiled"),
    ("test_ensemble.py", "share_of_useful", "1-2-0.95"),
    ("test_second_order", "lanczos_beside_dense"),
    ("test_refine", "published_ends", "1.0]"),
    ("test_classify", "one_atom_in_a_well[-3.0-strictly SOPD-True-3]"),
    ("test_search", "no_point", "3-relu"),
    ("test_maximisers", "search_agrees", "3]"),
    ("test_modes", "count_on_spheres", "[3]"),
    ("test_special", "reverse_mode_is_forward_mode[0.0]"),
    ("test_special", "fourier_coefficients", "100000.0"),
    ("test_integrators", "follows_the_tolerance", "-3]"),
    ("test_store_damage", "killed_at_ten"),
    ("test_minimiser", "on_a_sphere"),
    ("test_minimiser", "what_is_not_a_certificate"),
    ("test_implicit", "over_a_grid_of_betas"),
    ("test_search", "what_is_not_proved"),
    ("test_rosenbrock", "order_of_a_step[modes"),
    ("test_classify", "one_atom_in_a_well[-0.5-strictly SOPD-False-3]"),
    ("test_cli_minimise", "its_own_units"),
    ("test_animate", "an_mp4"),
    ("test_tiled", "first_and_second", "fused]"),
    ("test_interaction_memory", "circle_fourier-jvp"),
    ("test_sphere_fourier", "at_the_poles[rotated]"),
    ("test_experiment", "points_file_keeps"),
    ("test_circle_fourier", "third_derivatives"),
    ("test_sphere_fourier", "not_rotated"),
    ("test_tiled", "logarithm"),
    ("test_rosenbrock", "stages"),
    ("test_published_experiments", "s1_asc_relu"),
    ("test_benchmarks", "compares_evaluators"),
    ("test_benchmarks", "orders_of_methods"),
    ("test_benchmarks", "memory_and_roofline"),
    ("test_benchmarks", "fresh_processes"),
    ("test_nufft", "at_the_poles[rotated]"),
    ("test_nufft", "2-float32"),
)


def pytest_collection_modifyitems(items):
    """Marks them slow; words that no longer name a case are an error, where all files were collected."""
    idle = set(_LONG)
    for item in items:
        named = [words for words in _LONG if all(word in item.nodeid for word in words)]
        idle.difference_update(named)
        if named:
            item.add_marker(pytest.mark.slow)
    everything = {path.name for path in Path(__file__).parent.glob("test_*.py")}
    if idle and {item.path.name for item in items} >= everything:
        raise pytest.UsageError(f"no test has these words: {sorted(idle)}; rename or remove them in conftest.py")
