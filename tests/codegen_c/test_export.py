"""Exported C programs: a C program calls them, Python without this package calls them, `load_module` reads them."""

from __future__ import annotations

import importlib
import json
import platform
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ansor
import te_lite as te
from ansor.cli.main import main
from ansor.core.device.export import entry_of, export_program
from ansor.core.files.sealed_folder import DIGEST, signed
from ansor.core.target import registry
from codegen_c.compile import compiler_command
from te_lite.loops.names import identifier, is_reserved
from tests.nonempty import nonempty
from tests.relay_lite.hostile_exports import changed_json

N, M, K = 13, 12, 5
MAIN = """
#include "matmul.h"
#include <stdio.h>

int main(void) {
  static float a[13 * 5], b[5 * 12], c[13 * 12];
  for (int i = 0; i < 13 * 5; ++i) a[i] = (float)(i % 7 - 3);
  for (int i = 0; i < 5 * 12; ++i) b[i] = (float)(i % 5 - 2);
  matmul(a, b, c);
  for (int i = 0; i < 13; ++i)
    for (int j = 0; j < 12; ++j) {
      float sum = SCALE;
      for (int k = 0; k < 5; ++k) sum += a[i * 5 + k] * b[k * 12 + j];
      if (sum != c[i * 12 + j]) { printf("%d %d: %g, not %g\\n", i, j, c[i * 12 + j], sum); return 1; }
    }
  return matmul_seconds(3, a, b, c) > 0 ? 0 : 2;
}
"""
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of two workloads."""
    place = tmp_path_factory.mktemp("export") / "log.json"
    for name, shape in (("matmul", (N, M, K)), ("softmax", (4, 8))):
        task = ansor.SearchTask(name, shape, target="c")
        states = ansor.SketchPolicy(task, ansor.RandomModel(0), seed=0, verbose=0).ask(1)
        result = ansor.MeasureResult((1e-3,), 0, "", 0.1, 0)
        ansor.save_records(place, [ansor.MeasureInput(task, s) for s in states], [result])
    return place


@pytest.fixture(scope="module")
def exported(log: Path) -> Path:
    assert main(["export", str(log), str(log.parent / "made"), "--workload", "matmul"]) == 0
    return log.parent / "made"


def test_the_folder(exported: Path) -> None:
    files = {"matmul.c", "matmul.h", "matmul.py", "libmatmul.so", "manifest.json"}
    assert {p.name for p in exported.iterdir()} == files
    facts = json.loads((exported / "manifest.json").read_text())
    assert facts["workload"] == f'["matmul", {N}, {M}, {K}]' and facts["measured_seconds"] == 1e-3
    assert facts["arguments"][2] == {"name": "C", "dtype": "float32", "shape": [N, M], "written": True}


@pytest.mark.parametrize("part", ["matmul.c", "libmatmul.so"])
def test_a_c_program_calls_it(exported: Path, tmp_path: Path, part: str) -> None:
    """Built from source or linked with the library; planted in the oracle: a sum that begins elsewhere."""
    flags = (exported / "matmul.c").read_text().partition("gcc ")[2].partition(" -fPIC")[0].split()
    (tmp_path / "main.c").write_text(MAIN)
    for begin, code in (("0.0f", 0), ("1.0f", 1)):
        command = [*compiler_command(), *flags, f"-DSCALE={begin}", "main.c", f"-I{exported}", str(exported / part)]
        done = subprocess.run(
            [*command, "-lm", f"-Wl,-rpath,{exported}", "-o", "main"], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert subprocess.run([str(tmp_path / "main")], capture_output=True).returncode == code


def test_the_header_is_strict_c_and_cpp(exported: Path, tmp_path: Path) -> None:
    commands = ([*compiler_command(), *STRICT, "-x", "c"], ["g++", "-Wall", "-Werror", "-x", "c++"])
    for command in nonempty(command for command in commands if shutil.which(command[0]) is not None):
        subprocess.run([*command, "-fsyntax-only", str(exported / "matmul.h")], check=True)


SCRIPT = """
import importlib.util, sys
sys.path[:] = [p for p in sys.path if "site-packages" not in p] + {paths!r}
assert importlib.util.find_spec("ansor") is None and importlib.util.find_spec("te_lite") is None
import numpy as np
from matmul import ARGUMENTS, matmul
a, b = np.arange({n} * {k}, dtype="float32").reshape({n}, {k}), np.ones(({k}, {m}), "float32")
c = np.full(({n}, {m}), np.nan, "float32")
matmul(a, b, c)
assert np.array_equal(c, a @ b), c
for wrong in ((a, b, c.T.copy()), (a, b.astype("float64"), c), (a, b), (a, np.asfortranarray(b), c)):
    try:
        matmul(*wrong)
    except ValueError:
        continue
    raise AssertionError(wrong)
"""


def test_the_loader_needs_numpy_only(exported: Path) -> None:
    """In an isolated process that finds the folder and NumPy, and not this package."""
    site = str(Path(np.__file__).parent.parent)
    code = SCRIPT.format(paths=[str(exported), site], n=N, m=M, k=K)
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_loader_says_what_it_needs(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(exported))
    matmul = importlib.import_module("matmul").matmul
    a, b, c = np.ones((N, K), "float32"), np.ones((K, M), "float32"), np.empty((N, M), "float32")
    for arrays in ((), (a, b), (a, b, c, c)):
        with pytest.raises(ValueError, match=rf"^3 arrays are needed \(A, B, C\), got {len(arrays)}$"):
            matmul(*arrays)
    with pytest.raises(ValueError, match=r"^B must be a C-contiguous float32 array of shape "):
        matmul(a, b.tolist(), c)
    matmul(a, b, c)
    assert (c == K).all()


def test_load_module(exported: Path, log: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a, b, c = rng.random((N, K), "float32"), rng.random((K, M), "float32"), np.empty((N, M), "float32")
    func = ansor.load_module(exported)
    func(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    assert func.entry_name == "matmul" and "void matmul(" in func.source and func.time(a, b, c).results[0] > 0
    with pytest.raises(te.TeError, match="argument 2"):
        func(a, b, c[:-1])
    task = ansor.SearchTask("matmul", (N, M, K), target="c")
    task.export_best(log, tmp_path / "again")
    again = np.empty_like(c)
    ansor.load_module(tmp_path / "again")(a, b, again)
    assert np.array_equal(again, c)


DTYPES = ("bool", "int8", "uint16", "int64", "float16", "bfloat16", "float64")


def test_every_dtype(tmp_path: Path) -> None:
    arrays = [te.placeholder((3, 4), dtype=dtype, name=f"x*{k}") for k, dtype in enumerate(DTYPES)]
    copies = [te.compute((3, 4), lambda i, j, a=a: a[i, j], name=f"y{k}") for k, a in enumerate(arrays)]
    dag = te.ComputeDAG([*arrays, *copies])
    export_program(dag.init_state, dag.tensors, "c", tmp_path / "made", "copies")
    func = ansor.load_module(tmp_path / "made")
    given = [np.arange(12).reshape(3, 4).astype(te_dtype(d)) for d in DTYPES]
    made = [np.zeros((3, 4), te_dtype(d)) for d in DTYPES]
    func(*given, *made)
    for x, y in zip(given, made, strict=True):
        assert np.array_equal(x, y)
    header = [*compiler_command(), "-fsyntax-only", "-Werror", "-x", "c", str(tmp_path / "made" / "copies.h")]
    subprocess.run(header, check=True)


def te_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(name)


@given(st.text(max_size=8) | st.sampled_from(["sum", "lambda", "random", "np", "exp", "double", "ARGUMENTS", "numpy"]))
def test_names_are_free_in_c_and_python(name: str) -> None:
    entry = entry_of(name)
    assert entry == identifier(entry) and not is_reserved(entry) and entry.isidentifier()
    assert entry not in (*dir(__builtins__), "lambda", "random", "np", "ARGUMENTS", "numpy")


def changed(folder: Path, **changes: Any) -> None:
    file = folder / "manifest.json"
    facts = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps(signed({name: value for name, value in facts.items() if name != DIGEST})))


LISTED: dict[str, Any] = {"bytes": 1, DIGEST: ""}
SPOILED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no manifest": (lambda d: (d / "manifest.json").unlink(), "so it is no exported program"),
    "a network": (lambda d: changed(d, format="relay_lite network"), "is not that of a program"),
    "a path outside": (lambda d: changed(d, files={"../x": LISTED}), "must list files of the folder"),
    "an absolute path": (lambda d: changed(d, files={"/etc/passwd": LISTED}), "must list files of the folder"),
    "no files": (lambda d: changed(d, files={}), "the manifest lists no such file, got file='matmul.c'"),
    "an entry with a path": (lambda d: changed(d, entry="../matmul"), "an identifier of C is needed"),
    "a missing entry": (lambda d: changed(d, entry="matmu"), "lists no such file"),
    "an unknown kind": (lambda d: changed(d, kind="os"), "no backend is known"),
    "a shape": (lambda d: changed(d, arguments=[{"name": "A", "dtype": "float32", "shape": [-1], "written": False}]),
                "an integer of at least 0"),
    "a dtype": (lambda d: changed(d, arguments=[{"name": "A", "dtype": "O", "shape": [1], "written": False}]),
                "dtypes are"),
    "another machine": (lambda d: changed(d, machine={"system": "VMS"}), "was compiled for 'VMS'; build it here"),
    "a cut library": (lambda d: (d / "libmatmul.so").write_bytes(b"\x7fELF"), "libmatmul.so must have"),
    "a changed source": (lambda d: (d / "matmul.c").write_text(" " * (d / "matmul.c").stat().st_size), "its digest"),
}  # fmt: skip


@pytest.mark.parametrize("what", SPOILED)
def test_a_spoiled_folder_is_refused(exported: Path, tmp_path: Path, what: str) -> None:
    spoil, law = SPOILED[what]
    shutil.copytree(exported, tmp_path / "made")
    spoil(tmp_path / "made")
    with pytest.raises(ansor.ExportError, match=law) as error:
        ansor.load_module(tmp_path / "made")
    assert str(error.value).startswith("program ") and "\n" not in str(error.value)


def test_changed_manifests_are_refused_or_programs(exported: Path, tmp_path: Path) -> None:
    """Whatever its digest says is signed anew, so that every value is reached."""
    shutil.copytree(exported, tmp_path / "made")
    facts, loaded = json.loads((exported / "manifest.json").read_text()), 0
    for seed in range(300):
        spoiled = changed_json(random.Random(seed), facts)
        if isinstance(spoiled, dict):
            spoiled = signed({name: value for name, value in spoiled.items() if name != DIGEST})
        (tmp_path / "made" / "manifest.json").write_text(json.dumps(spoiled))
        try:
            assert callable(ansor.load_module(tmp_path / "made"))
            loaded += 1
        except ansor.ExportError as error:
            assert "\n" not in str(error), seed
    assert 0 < loaded < 150


@pytest.mark.parametrize(
    ("words", "law"),
    [
        ([], r"its arguments by --workload .*; the workloads are matmul\(13, 12, 5\) for c, softmax\(4, 8\) for c"),
        (["--workload", "conv"], "has no workload 'conv'; its workloads are matmul, softmax"),
        (["--workload", "matmul", "--target", "cuda"], "are for c, got 'cuda'"),
    ],
)  # fmt: skip
def test_what_is_asked_for_must_be_there(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], law: str
) -> None:
    assert main(["export", str(log), str(tmp_path / "made"), *words]) in (1, 2)
    error = capsys.readouterr().err
    assert re.search(law, error) and error.count("\n") == 1
    assert not (tmp_path / "made").exists()


def test_a_folder_that_holds_something_is_left_alone(exported: Path, log: Path, capsys: Any) -> None:
    before = (exported / "manifest.json").read_bytes()
    assert main(["export", str(log), str(exported), "--workload", "softmax"]) == 2
    assert "the folder must be new or empty" in capsys.readouterr().err
    assert (exported / "manifest.json").read_bytes() == before
    for file, law in ((log, "there is a file of this name, and a folder is needed"), ("mine.py", "given by --import")):
        assert main(["export", str(log), str(file), "--workload", "softmax"]) == 2
        assert law in capsys.readouterr().err


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names a processor of x86")
def test_the_processor_of_the_target_is_that_of_the_library(log: Path, tmp_path: Path) -> None:
    """Its vectors, the flag in the source's first line, and the code; a processor that nobody knows is refused."""
    texts = {}
    for target in ("c", "c -march=x86-64"):
        assert main(["export", str(log), str(tmp_path / target), "--workload", "matmul", "--target", target]) == 0
        texts[target] = (tmp_path / target / "matmul.c").read_text()
    assert "-march=native" in texts["c"] and "-march=x86-64 " in texts["c -march=x86-64"]
    one, other = [(tmp_path / target / "libmatmul.so").read_bytes() for target in texts]
    assert one != other
    assert main(["export", str(log), str(tmp_path / "foo"), "--workload", "matmul", "--target", "c -march=foo"]) == 2


def test_a_target_that_cannot_be_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    ansor.register_backend("toy", "examples.seams.custom_backend")
    task = ansor.SearchTask("matmul", (N, M, K), target="c")
    with pytest.raises(ansor.ExportError, match="target 'toy': its programs cannot be exported"):
        export_program(task.compute_dag.init_state, task.compute_dag.tensors, "toy", tmp_path / "made", "matmul")
