"""The modules of te_lite: their reading order, the hooks between them, and the memories they keep.

The reading orders of the other packages that give one are held, too.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import te_lite
from te_lite.errors import TeError
from te_lite.hooks import Hook
from tests.nonempty import nonempty

HOME = Path(te_lite.__file__).parent
HOMES = [HOME, HOME.parent / "codegen_cuda", HOME.parent / "ansor" / "core"]
FOLDERS = [p.parent for home in HOMES for p in sorted(home.rglob("__init__.py"))]


def name_of(path: Path) -> str:
    """The module of a file or a package folder."""
    return ".".join(path.relative_to(HOME.parent).parts).removesuffix(".py").removesuffix(".__init__")


MODULES = {name_of(p) for p in HOME.rglob("*.py")}
IN_ORDER = {name_of(p) for home in HOMES for p in home.rglob("*.py")}


def reading_order(folder: Path) -> list[str]:
    """The modules and folders that the docstring of a package names, in order."""
    doc = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    lines = re.findall(r"^ {4}[a-zA-Z ]+? {2,}([a-z_0-9, ]+)$", doc, re.MULTILINE)
    return [name for line in lines for name in line.split(", ")]


def imports(path: Path) -> Iterator[str]:
    """Every module of its package that a file imports anywhere, also for types only."""
    package = name_of(path.parent).split(".")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{module}.{alias.name}" if f"{module}.{alias.name}" in IN_ORDER else module
        elif isinstance(node, ast.Import):
            yield from [alias.name for alias in node.names]


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_the_reading_order_names_every_module_once(folder: Path) -> None:
    inside = [p.stem for p in folder.glob("*.py") if p.stem != "__init__"]
    inside += [p.parent.name for p in folder.glob("*/__init__.py")]
    assert sorted(reading_order(folder)) == sorted(inside)


def files_of(path: Path) -> list[Path]:
    """The files of a folder, or of a module."""
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_no_module_imports_one_that_is_read_later(folder: Path) -> None:
    package = name_of(folder)
    place = {f"{package}.{name}": k for k, name in enumerate(reading_order(folder))}
    found = [
        (own, file, target)
        for name, own in place.items()
        for file in files_of(folder / name.rpartition(".")[2])
        for target in imports(file)
    ]
    for own, file, target in nonempty(found):
        assert target != package, f"{file} imports its face"
        beside = next((k for other, k in place.items() if f"{target}.".startswith(f"{other}.")), own)
        assert beside <= own, f"{file} imports {target}, which is read later"


@pytest.mark.parametrize("module", ["expr.node", "schedule.dag", "schedule.state", "loops.stmt"])
def test_whoever_imports_one_module_gets_all_methods(module: str) -> None:
    code = f"""
import te_lite.{module}
from te_lite.schedule.dag import ComputeDAG
from te_lite.lowering.lower import lower
from te_lite.computation.tensor import compute, placeholder
a = placeholder((4, 6), name="a")
dag = ComputeDAG([a, compute((4, 6), lambda i, j: a[i, j] + 1.0, "b"), a + a, -a])
state = dag.infer_bound_from_state(dag.init_state)
schedule, tensors = dag.apply_steps_from_state(state)
assert "for i (0,4)" in str(state) and "= tuple(b.op.axis)" in dag.print_python_code_from_state(state)
assert "func main" in str(lower(schedule, tensors, "main")) and repr(a[1, 2]) == "a[1, 2]"
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=HOME.parent, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_a_hook_that_nobody_filled_says_so() -> None:
    hook: Hook[[int], str] = Hook("the text of a number")
    with pytest.raises(TeError, match="the text of a number"):
        hook(1)
    hook.provide(str)
    assert hook(1) == "1"


EMPTY = {"{}", "[]", "dict()", "list()", "set()", "defaultdict(list)", "OrderedDict()", "WeakKeyDictionary()"}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_every_memory_is_bounded(name: str) -> None:
    """What a module remembers is kept by `lru_cache`, with a size; none has an empty container to fill."""
    module = import_module(name)
    for key, value in vars(module).items():
        if isinstance(value, functools._lru_cache_wrapper):
            assert value.cache_parameters()["maxsize"] is not None, key
    assert module.__file__ is not None
    for node in ast.parse(Path(module.__file__).read_text()).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            assert ast.unparse(node.value) not in EMPTY, ast.unparse(node)
