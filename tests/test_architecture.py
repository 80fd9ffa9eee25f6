"""The floors of the package, its size and its promises at import, read from the syntax trees."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "mflandscape"
FILES = sorted(ROOT.rglob("*.py"))
# A file imports only from floors below its own; files of one name (a package) may import each other.
FLOORS = (
    ("_types", "_results", "_numerics", "_options"),
    ("sphere", "special", "activations"),
    ("measure",),
    ("kernels", "clusters", "transport"),
    ("modes", "interactions"),
    ("drifts",),
    ("gradient",),
    ("theory",),
    ("stationary",),
    ("flows",),
    ("ensemble", "weights", "starts", "meanfield"),
    ("_spec_checks", "distributed"),
    ("spec",),
    ("published", "presets", "store"),
    ("experiment", "sweep"),
    ("records",),
    ("runner",),
    ("plotting", "checks"),
    ("paper",),
    ("cli",),
    ("__init__",),
)
FLOOR = {name: height for height, names in enumerate(FLOORS) for name in names}
HEAVY = ("diffrax", "optax", "scipy", "matplotlib", "xarray", "zarr", "plotly", "click", "rich", "typer")
UNFINISHED = ("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error")


@cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def dotted(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room(module):
    return module.split(".")[0] or "__init__"


MODULES = {dotted(path): path for path in FILES}


def nodes(root):
    """All nodes but those for type checkers only."""
    for node in ast.iter_child_nodes(root):
        if not (isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"):
            yield node
            yield from nodes(node)


def imported(path):
    """Modules of the package that a file imports, lazily too."""
    package = path.relative_to(ROOT).parts[:-1]
    for node in nodes(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*package[: len(package) + 1 - node.level], *(node.module or "").split(".")]
            module = ".".join(part for part in base if part)
            inner = [f"{module}.{alias.name}".strip(".") for alias in node.names]
            yield from (name if name in MODULES else module for name in inner)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
            assert not [name for name in names if name.split(".")[0] == "mflandscape"], f"{path}: relative imports"


def test_every_file_has_a_floor():
    assert {room(name) for name in MODULES} == set(FLOOR)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_imports_from_lower_floors_only(path):
    own = room(dotted(path))
    for module in imported(path):
        assert room(module) == own or FLOOR[room(module)] < FLOOR[own], f"{path.name} imports {module}"


def test_imports_have_no_cycle():
    left = {name: set(imported(path)) - {name} for name, path in MODULES.items()}
    while left:
        free = [name for name, needs in left.items() if not needs & set(left)]
        assert free, f"a cycle among {sorted(left)}"
        left = {name: needs for name, needs in left.items() if name not in free}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_are_short_and_finished(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    assert not [word for word in UNFINISHED if word in text]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 80, f"{node.name} is too long"


def documented(body, prefix=""):
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield prefix + node.name, ast.get_docstring(node)
            if isinstance(node, ast.ClassDef):
                yield from documented(node.body, f"{node.name}.")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_public_names_are_documented(path):
    assert ast.get_docstring(tree(path)) or not tree(path).body
    assert [name for name, text in documented(tree(path).body) if not text] == []


def test_importing_the_package_loads_nothing_heavy():
    code = f"import sys, mflandscape; print([m for m in {HEAVY!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT.parent)
    assert found.stdout.strip() == "[]"


def test_public_names_are_few_and_exist():
    import mflandscape

    imports = [node for node in nodes(tree(ROOT / "__init__.py")) if isinstance(node, ast.ImportFrom)]
    public = [alias.asname or alias.name for node in imports for alias in node.names]
    lazy = [name for name in dir(mflandscape) if name not in vars(mflandscape)]
    assert 0 < len(set(public) | set(lazy)) <= 50
    assert [name for name in (*public, *lazy) if getattr(mflandscape, name, None) is None] == []
