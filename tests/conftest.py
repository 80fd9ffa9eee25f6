"""Every test runs in float64, with strict dtype promotion, ranks that must agree, and warnings as errors; two
virtual CPU devices; NumPy's linear algebra on one thread, for the workers share the cores.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["MFLANDSCAPE_CACHE"] = "off"

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
    ("test_interactions", "float32", "sphere_fourier"),
    ("test_interactions", "forward_over_reverse", "sphere_fourier"),
    ("test_circle_fourier", "many_points", "gpu"),
    ("test_sphere_fourier", "not_rotated"),
    ("test_tiled", "logarithm"),
    ("test_rosenbrock", "stages"),
    ("test_published_experiments", "s1_asc_relu"),
    ("test_benchmarks", "compares_evaluators"),
    ("test_benchmarks", "orders_of_methods"),
    ("test_benchmarks", "memory_and_roofline"),
    ("test_benchmarks", "fresh_processes"),
)


def pytest_collection_modifyitems(items):
    """Marks them slow."""
    for item in items:
        if any(all(word in item.nodeid for word in words) for words in _LONG):
            item.add_marker(pytest.mark.slow)
