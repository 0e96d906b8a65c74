"""Extensions can be deleted: all of them, and each folder alone with those that need it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from sysconfig import get_path

import numpy as np
import pytest

import ansor
from ansor.core.tasks.catalog import CATALOG
from ansor.sketch import generate_sketches
from ansor.sketch.generate import extra_sketches
from te_lite.extensions import BY_NAME, EXTENSIONS, with_needs
from tests.architecture.imports import PACKAGES, ROOT, Import, Tree
from tests.drawn_programs import drawn_program

CORE_TESTS = (
    "tests/ansor/test_sketch_golden.py", "tests/ansor/test_sketch_structure.py", "tests/ansor/test_policy.py",
    "tests/ansor/test_records.py", "tests/ansor/test_end_to_end.py",
)  # fmt: skip
MARKS = "not slow and not long and not gpu and not torch"


@lru_cache(maxsize=1)
def imports() -> list[Import]:
    """All imports of the product."""
    return Tree.of(ROOT).imports()


def test_nobody_imports_extensions() -> None:
    found = [i for i in imports() if i.target.startswith("ansor_ext")]
    others = {i.source for i in found if not i.source.startswith("ansor_ext")}
    assert found and others == set()


def test_the_table_has_every_folder_and_every_offer_is_a_function() -> None:
    folders = {path.parent.name for path in (ROOT / "ansor_ext").glob("*/__init__.py")}
    assert folders == set(BY_NAME)
    for extension in EXTENSIONS:
        assert (ROOT / "ansor_ext" / extension.name / "README.md").is_file()
        for offer in (*extension.sketches, *extension.programs, *extension.parts, *extension.steps):
            module, _, function = offer.where.partition(":")
            text = (ROOT / "ansor_ext" / extension.name / f"{module}.py").read_text()
            assert re.search(rf"^(def|class) {function}\b", text, re.MULTILINE), function


def test_a_folder_imports_only_those_that_it_needs() -> None:
    """Beyond these, an offer imports what it says it needs `also`."""
    found = [i for i in imports() if i.source.count(".") == 2 and i.source.startswith("ansor_ext")]
    assert len(found) > 100
    for i in found:
        here, module = i.source.split(".")[1:]
        extension = BY_NAME[here]
        offers = (*extension.sketches, *extension.programs, *extension.parts)
        also = {name for offer in offers if offer.where.startswith(f"{module}:") for name in offer.also}
        needed = with_needs(here).union(*map(with_needs, also))
        assert not i.target.startswith("ansor_ext.") or i.target.split(".")[1] in needed, i


def without(folder: Path, gone: set[str]) -> Path:
    """A copy of the packages and tests, without some extensions and their tests."""
    dropped = {ROOT / at / name for at in ("ansor_ext", "tests/ansor_ext") for name in gone}
    if gone == set(BY_NAME):
        dropped = {ROOT / "ansor_ext", ROOT / "tests" / "ansor_ext"}

    def ignored(at: str, names: list[str]) -> set[str]:
        return {name for name in names if name == "__pycache__" or Path(at, name) in dropped}

    for name in (*PACKAGES, "tests", "benchmarks"):
        if ROOT / name not in dropped:
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def write_records(path: Path) -> None:
    """A program of a product with tiles that are fetched ahead, and one without."""
    task = ansor.SearchTask(workload_key=CATALOG["matmul"].key((64, 64, 64)), target="cuda -arch=sm_90")
    ahead = extra_sketches(task.compute_dag, task.target, task.hardware_params, rules=["double_buffer"])
    ordinary = generate_sketches(task.compute_dag, task.target, task.hardware_params)
    result, rng = ansor.MeasureResult((1e-3,), 0, "", 1.0, 1), np.random.default_rng(0)
    programs = [drawn_program(s, task.target, task.hardware_params, rng) for s in (ahead[0], ordinary[0])]
    inputs = [ansor.MeasureInput(task, program) for program in programs]
    assert ["DBF" in [step.tag for step in inp.steps] for inp in inputs] == [True, False]
    path.write_text("\n".join([ansor.dump_record_to_string(inp, result) for inp in inputs]) + "\n")


def runs(folder: Path, *command: str) -> None:
    """Raise AssertionError, with what it printed, where a Python command fails in a folder.

    Python reads no `.pth` files then (`-S`): an editable installation would find what the copy lacks.
    """
    paths = [str(folder), *{get_path("purelib"), get_path("platlib")}]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "ANSOR_CACHE": "off"}
    command = (sys.executable, "-S", *command)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_each_can_be_deleted(name: str, tmp_path: Path) -> None:
    gone = {other for other in BY_NAME if name in with_needs(other)}
    folder = without(tmp_path / "copy", {name})
    write_records(folder / "records.json")
    runs(folder, "tests/architecture/without_extensions.py", *sorted(gone))


@pytest.mark.long
def test_all_can_be_deleted(tmp_path: Path) -> None:
    folder = without(tmp_path / "copy", set(BY_NAME))
    assert not (folder / "ansor_ext").exists()
    write_records(folder / "records.json")
    runs(folder, "tests/architecture/without_extensions.py", *sorted(BY_NAME))
    runs(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", MARKS, *CORE_TESTS)
