"""Nobody imports in a circle, neither modules nor folders, in whatever way; and the counting of it bites."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.architecture.budget import table
from tests.architecture.deferred import DEFERRED, WHEN_CALLED
from tests.architecture.imports import (
    PACKAGES,
    ROOT,
    Import,
    Kind,
    Tree,
    lines,
    module_cycles,
    parsed,
    room_cycles,
    touching,
    typing_blocks,
)
from tests.architecture.test_code_rules import copy, tool

__all__ = ["copy"]


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree.of(ROOT)


@pytest.fixture(scope="module")
def imports(tree: Tree) -> list[Import]:
    return tree.imports()


def test_no_cycles(tree: Tree, imports: list[Import]) -> None:
    """Imports in functions, under TYPE_CHECKING, by name, and those of faces included."""
    assert module_cycles(imports) == []
    assert room_cycles(tree, imports) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_typing_blocks(package: str) -> None:
    assert typing_blocks(ROOT, package) == []


def test_all_files_are_counted(tree: Tree, imports: list[Import]) -> None:
    assert len(tree.files) > 500 and len({i.source for i in imports}) > 400
    assert {m.split(".")[0] for m in tree.files} == set(PACKAGES)


# ------------------------------------------------------------------------------------------- deferred imports


def deferred_in(module: str, path: Path) -> Iterator[tuple[str, str]]:
    """(module, imported module) of every import in a function, and of every `import_module`."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for function in ast.walk(parsed(path.read_text())):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            match node:
                case ast.Import(names=names):
                    yield from ((module, alias.name) for alias in names)
                case ast.ImportFrom(module=name, level=level):
                    base = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                    yield module, ".".join([*base, *([name] if name else [])])
                case ast.Call(
                    func=ast.Attribute(attr="import_module") | ast.Name(id="import_module"), args=[first, *_]
                ):
                    yield module, first.value if isinstance(first, ast.Constant) else "<module>"


def test_the_table_of_deferred_imports_is_that_of_the_code(tree: Tree) -> None:
    found = {pair for module, path in tree.files.items() for pair in deferred_in(module, path)}
    assert found - set(DEFERRED) == set()
    assert set(DEFERRED) - found == set()


def test_no_import_of_our_own_is_deferred(imports: list[Import]) -> None:
    assert [i for i in imports if i.kind is Kind.DEFERRED] == []


def names_when_called(path: Path) -> Iterator[tuple[str, str]]:
    """(module, function) of every function that is imported when it is called."""
    for node in ast.walk(parsed(path.read_text())):
        match node:
            case ast.Call(func=ast.Name(id="when_called"), args=[ast.Constant(str(module)), ast.Constant(str(name))]):
                yield module, name


def test_what_is_imported_when_it_is_called_has_a_reason(tree: Tree) -> None:
    found = {pair for path in tree.files.values() for pair in names_when_called(path)}
    assert {module for module, _ in found} == {module for modules in WHEN_CALLED.values() for module in modules}
    for module, name in found:
        assert callable(getattr(import_module(module), name)), (module, name)


@pytest.mark.parametrize("package", ["ansor", "te_lite"])
def test_names_that_come_later_are_there(package: str) -> None:
    module = import_module(package)
    assert set(module.__all__) <= set(dir(module)) and not hasattr(module, "no_such_name")
    for name in module.__all__:
        assert getattr(module, name) is not None


MOST_MODULES, MOST_OF_A_TUNE, MOST_OF_EXTENSIONS = table()["modules that `import ansor` loads"], 253, 40
UNUSED = tuple([f"ansor.{name}" for name in ["autotvm", "cli", "cluster", "offline", "report", "scheduler", "viz"]])
TUNE = """
import json, sys
import ansor, te_lite as te
def ours():
    return sorted(m for m in sys.modules if m.split(".")[0] in json.loads(sys.argv[1]))
imported = ours()
if len(sys.argv) > 2:
    a, k = te.placeholder((16, 16)), te.reduce_axis((0, 16))
    product = te.compute((16, 16), lambda i, j: te.sum(a[i, k] * a[k, j], axis=k))
    task = ansor.SearchTask(compute_dag=[a, product], target="c")
    task.tune(ansor.TuningOptions(2, verbose=0, measure_callbacks=[ansor.RecordToFile(sys.argv[2])]))
print(json.dumps([imported, ours()]))
"""


def loaded_by(*args: str) -> tuple[list[str], list[str]]:
    """The modules of ours that `import ansor` loads, and those that are there in the end."""
    command = [sys.executable, "-c", TUNE, json.dumps(PACKAGES), *args]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    before, after = json.loads(run.stdout.splitlines()[-1])
    return before, after


def test_import_ansor_loads_few_modules() -> None:
    imported, _ = loaded_by()
    assert len(imported) <= MOST_MODULES
    assert not [m for m in imported if m.startswith(UNUSED)]


@pytest.mark.long
def test_a_tune_loads_little_beside_its_backend(tmp_path: Path) -> None:
    """Nothing that every search needs is put off into the first one."""
    imported, after = loaded_by(str(tmp_path / "log.json"))
    core = [m for m in after if not m.startswith("ansor_ext")]
    assert len(core) <= MOST_OF_A_TUNE and 0 < len(after) - len(core) <= MOST_OF_EXTENSIONS
    more = [m for m in core if m not in imported and not m.startswith(("codegen_c", "ansor.core"))]
    of_extensions = ["ansor.records.store_files"]
    of_the_backend = ["te_lite.loops.c_text", "te_lite.loops.names", "te_lite.loops.stored_text", "te_lite.timing"]
    assert more == sorted(of_extensions + of_the_backend)


# -------------------------------------------------------------------------------------------------- it bites


def planted(root: Path, files: dict[str, str]) -> tuple[Tree, list[Import]]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in path.relative_to(root).parents:
            if folder.parts:
                (root / folder / "__init__.py").touch()
        path.write_text(text)
    tree = Tree.of(root)
    return tree, tree.imports()


WAYS = {
    "top": "from ansor.core.high import f",
    "relative": "from .high import f",
    "of the module": "from . import high",
    "plain": "import ansor.core.high",
    "in a function": "def g():\n    from .high import f\n    return f",
    "in a method": "class A:\n    async def g(self):\n        from .high import f\n        return f",
    "under TYPE_CHECKING": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .high import f",
    "by name": "import importlib\ndef g():\n    return importlib.import_module('ansor.core.high')",
    "by another name": "from importlib import import_module as load\nhigh = load('ansor.core.high')",
    "in an expression": "f = lambda: __import__('ansor.core.high')",
    "under a condition": "try:\n    from .high import f\nexcept ImportError:\n    f = None",
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_import_is_seen(tmp_path: Path, way: str) -> None:
    high = "from .low import g\n"
    _, found = planted(tmp_path, {"ansor/core/low.py": WAYS[way], "ansor/core/high.py": high})
    assert module_cycles(found) == [("ansor.core.high", "ansor.core.low")]
    (up,) = [i for i in found if i.source == "ansor.core.low"]
    kinds = {"under TYPE_CHECKING": Kind.TYPING, "in a function": Kind.DEFERRED, "in a method": Kind.DEFERRED}
    named = Kind.NAMED if way in ("by name", "by another name", "in an expression") else Kind.TOP
    assert up.kind is kinds.get(way, named)


def test_faces_are_imported_on_the_way(tmp_path: Path) -> None:
    """core.low imports a leaf of space, whose face imports core.high, which imports core.low: a cycle by the face."""
    files = {
        "ansor/space/leaf.py": "", "ansor/core/high.py": "from . import low\n",
        "ansor/core/low.py": "from ansor.space.leaf import f\n", "ansor/space/__init__.py": "import ansor.core.high\n",
    }  # fmt: skip
    tree, found = planted(tmp_path, files)
    assert module_cycles(found) == [("ansor.core.high", "ansor.core.low", "ansor.space")]
    assert room_cycles(tree, found) == [("ansor/core", "ansor/space")]


def test_the_face_of_folders_is_above_their_files(tmp_path: Path) -> None:
    """A face may gather from its folders; its files may not know what the folders import from them."""
    files = {
        "ansor/core/a.py": "", "ansor/core/inner/b.py": "from ..a import f\n",
        "ansor/core/__init__.py": "from .inner.b import g\n",
    }  # fmt: skip
    tree, found = planted(tmp_path, files)
    assert room_cycles(tree, found) == []
    tree, found = planted(tmp_path, {**files, "ansor/core/c.py": "from .inner.b import g\n"})
    assert room_cycles(tree, found) == [("ansor/core", "ansor/core/inner")] and module_cycles(found) == []


def test_the_registry_may_name_what_is_above_it(tmp_path: Path) -> None:
    call = "def g(front_end):\n    return front_end('relay_lite.extract', 'ansor.core.high')\n"
    high = "from .target import registry\nfrom . import low\n"
    files = {"ansor/core/target/registry.py": "M = {'c': 'ansor.core.high'}\n", "ansor/core/low.py": call}
    _, found = planted(
        tmp_path, {**files, "ansor/core/high.py": high, "relay_lite/extract.py": "import ansor.core.low"}
    )
    assert module_cycles(found) == []


UPWARD = {
    "errors": "from ansor.policy import callbacks\n",
    "host.hints": "def late():\n    import ansor.policy.callbacks\n",
}


@pytest.mark.long
def test_upward_imports_are_refused_and_counted(copy: Path) -> None:
    """In a copy of the tree, at the top and in a function: import-linter names both, and there is a cycle."""
    for module, code in UPWARD.items():
        path = copy / "ansor" / "core" / f"{module.replace('.', '/')}.py"
        path.write_text(f"{path.read_text()}\n\n{code}")
    result = tool("lint-imports", cwd=copy)
    assert result.returncode != 0 and "The layers inside ansor BROKEN" in result.stdout
    assert all(f"ansor.core.{module} -> ansor.policy.callbacks" in result.stdout for module in UPWARD)
    tree = Tree.of(copy)
    found = tree.imports()
    assert all(module_cycles([i for i in found if i.source != f"ansor.core.{module}"]) for module in UPWARD)
    (cycle,) = touching(module_cycles(found), "ansor")
    assert {"ansor.core.errors", "ansor.core.host.hints", "ansor.policy.callbacks"} <= set(cycle)
    (rooms,) = touching(room_cycles(tree, found), "ansor")
    assert {"ansor/core", "ansor/policy"} <= set(rooms)


@pytest.mark.long
def test_the_table_is_printed() -> None:
    printed = "\n".join(lines())
    assert all(f"\n{package} " in printed for package in PACKAGES) and "TYPE_CHECKING" in printed
