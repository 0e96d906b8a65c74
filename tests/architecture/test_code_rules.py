"""The rules of the code hold, and each tool that checks them bites on a bad file."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path

import pytest

from tests.architecture.imports import PACKAGES, ROOT, parsed
from tests.nonempty import nonempty

BIN = Path(sys.executable).parent


def tool(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(BIN / command[0]), *command[1:]], cwd=cwd, capture_output=True, text=True, check=False)


def sources() -> list[Path]:
    return [p for package in PACKAGES for p in sorted((ROOT / package).rglob("*.py"))]


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        pytest.param(("mypy",), marks=pytest.mark.long),
        ("lint-imports",),
    ],
    ids=" ".join,
)
def test_the_tree_is_clean(command: tuple[str, ...]) -> None:
    result = tool(*command)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Path]:
    """A copy of the packages to plant a bad file in."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    yield tmp_path


def test_import_linter_bites(copy: Path) -> None:
    (copy / "te_lite" / "errors.py").open("a").write("\nimport ansor.core.target.target\n")
    assert tool("lint-imports", cwd=copy).returncode != 0


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("import os\n", "F401"),
        ("def f(x=[]):\n    return x\n", "B006"),
        ("from typing import List\n\nx: List[int] = []\n", "UP006"),
        ("def f():\n    import json\n\n    return json\n", "PLC0415"),
        ("import sys\nimport os\nprint(os, sys)\n", "I001"),
        ("try:\n    pass\nexcept:\n    pass\n", "E722"),
        ("x = 1  " + "#" * 130 + "\n", "E501"),
    ],
)
def test_ruff_bites(copy: Path, code: str, rule: str) -> None:
    (copy / "te_lite" / "planted.py").write_text(code)
    result = tool("ruff", "check", "te_lite/planted.py", cwd=copy)
    assert result.returncode != 0 and rule in result.stdout


@pytest.mark.long
def test_mypy_bites(copy: Path) -> None:
    (copy / "te_lite" / "planted.py").write_text("def f(x: int) -> str:\n    return x\n\n\ndef g(y):\n    return y\n")
    result = tool("mypy", "-p", "te_lite.planted", cwd=copy)
    assert "return-value" in result.stdout and "no-untyped-def" in result.stdout


def test_ansor_imports_no_device() -> None:
    devices = ("pycuda", "codegen_c", "codegen_cuda", "relay_lite", "vta_sim")
    code = f"import sys, ansor; sys.exit(any(m.split('.')[0] in {devices} for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


FROZEN = (
    "expr.node", "expr.element", "loops.stmt", "schedule.step", "schedule.loop_steps",
    "schedule.place_steps", "schedule.stage_steps", "schedule.storage_steps",
    "schedule.state", "schedule.region",
    "bounds.reads",
)  # fmt: skip


@pytest.mark.parametrize("name", FROZEN)
def test_ir_nodes_are_frozen(name: str) -> None:
    module = import_module(f"te_lite.{name}")
    for cls in nonempty(cls for cls in vars(module).values() if isinstance(cls, type) and is_dataclass(cls)):
        assert cls.__dataclass_params__.frozen, cls  # type: ignore[attr-defined]


LINES_OF_A_FILE = 400

LINES_OF_A_FUNCTION = 55
USUAL_LINES = 15
"""Nine functions of ten have no more."""
TYPE_IGNORES = 40
FILES_IN_ANSOR = 4


def functions() -> list[tuple[str, int]]:
    """`path name` and the lines of every function."""
    return [
        (f"{path.relative_to(ROOT)} {node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for path in sources()
        for node in ast.walk(parsed(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_files_fit_their_budget() -> None:
    lengths = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in sources()}
    assert {f: n for f, n in lengths.items() if n > LINES_OF_A_FILE} == {}


def test_functions_fit_a_screen() -> None:
    found = functions()
    assert [(f, n) for f, n in found if n > LINES_OF_A_FUNCTION] == []
    usual = sorted(n for _, n in found)[int(0.9 * len(found))]
    print(f"{len(found)} functions, nine of ten have at most {usual} lines")
    assert usual <= USUAL_LINES


def test_few_types_are_ignored() -> None:
    count = sum(path.read_text().count("# type: ignore") for path in sources())
    print(f"{count} times # type: ignore")
    assert count <= TYPE_IGNORES


def test_who_marks_tests_as_long_is_their_file() -> None:
    """Where only long tests are asked for, other files are not looked at (`pytest_ignore_collect`)."""
    others = [path for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith("test_")]
    marking = [path.name for path in others if "mark.long" in path.read_text()]
    assert marking == ["conftest.py"]


def test_few_files_lie_outside_of_the_layers() -> None:
    assert len(list((ROOT / "ansor").glob("*.py"))) <= FILES_IN_ANSOR


@pytest.mark.parametrize("package", ["te_lite", "ansor", "ansor/core", "codegen_cuda", "relay_lite", "vta_sim"])
def test_every_layer_says_its_law(package: str) -> None:
    faces = [folder / "__init__.py" for folder in (ROOT / package).iterdir() if (folder / "__init__.py").exists()]
    texts = {face: ast.get_docstring(parsed(face.read_text())) or "" for face in faces}
    assert [str(face) for face, text in texts.items() if "\nLaw: " not in text] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_public_classes_are_explained(package: str) -> None:
    """By a docstring, or by an entry in the glossary."""
    glossary = ROOT / "docs" / "glossary.md"
    words = set(re.findall(r"\w+", glossary.read_text() if glossary.exists() else ""))
    silent = [
        f"{path.relative_to(ROOT)} {node.name}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(parsed(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        if not ast.get_docstring(node) and node.name not in words
    ]
    assert silent == []


def test_no_dangerous_loading() -> None:
    """Records, models and messages are data: nothing that executes them is used."""
    banned = {"pickle", "marshal", "shelve", "cloudpickle", "dill"}
    for path in nonempty(sources()):
        for node in nonempty(ast.walk(parsed(path.read_text()))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not banned & {n.split(".")[0] for n in names}, path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec"), f"{path}:{node.lineno}"


# older generators, with the reason
# documented weights come from numpy.random.seed
LEGACY = dict.fromkeys(("relay_lite/testing/init.py", "relay_lite/testing/resnet_v1.py"), ("RandomState",))


def test_randomness_is_an_argument() -> None:
    """No module-level generator is drawn from."""
    nodes = [(path, node) for path in sources() for node in ast.walk(parsed(path.read_text()))]
    attributes = ((p, n) for p, n in nodes if isinstance(n, ast.Attribute))
    for path, node in nonempty((p, n) for p, n in attributes if ast.unparse(n.value) in ("np.random", "numpy.random")):
        allowed = ("Generator", "default_rng", "SeedSequence", *LEGACY.get(str(path.relative_to(ROOT)), ()))
        assert node.attr in allowed, f"{path}:{node.lineno}"
    for path, line in nonempty((p, n) for p, n in nodes if isinstance(n, ast.Import)):
        assert "random" not in [a.name for a in line.names], f"{path}:{line.lineno}"
