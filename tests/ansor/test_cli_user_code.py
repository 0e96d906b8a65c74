"""The command line with Python of the user's own: workloads of a file or module, and `--import`."""

from __future__ import annotations

import importlib
import sys
import uuid
from pathlib import Path

import pytest

import ansor
from ansor.cli.main import main
from ansor.cli.user_code import workload_key
from ansor.core.tasks import workloads

TEXT = """
import te_lite as te
from NAME_helper import K

def product(n, m=4, *, tag=0):
    a, b = te.placeholder((n, K), name="A"), te.placeholder((K, m), name="B")
    k = te.reduce_axis((0, K), name="k")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]

def two(n, m):
    return product(n, m)

def broken(n):
    return [te.placeholder((n,), name="A")].no_such_thing

def element(a):
    return lambda i: a[i, i]

def misread(n):
    a = te.placeholder((n,), name="A"); return [a, te.compute((n,), element(a), name="B")]
def empty(n): assert n < 0

def long(n):
    raise ValueError("one\\ntwo")

def library(n):
    return __import__("json").loads("x")
"""


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The stem of a new file, in an empty folder that is the current one, with a workload and a helper beside it."""
    stem = f"mine_{uuid.uuid4().hex[:8]}"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    function = f"product_{stem}"
    Path(f"{stem}.py").write_text(TEXT.replace("NAME", stem).replace("product", function))
    Path(f"{stem}_helper.py").write_text("K = 5\n")
    importlib.invalidate_caches()
    return stem


@pytest.mark.long
def test_a_workload_of_a_file(name, faults, capsys):
    faults(["good"])
    assert main(["tune", f"{name}.py:product_{name}", "--args", "n=3", "--trials", "2"]) == 0
    assert f"best of product_{name}.json: product_{name}(3) for c: 1 ms" in capsys.readouterr().out
    task = ansor.SearchTask(f"product_{name}", (3,), target="c")
    assert task.apply_best(f"product_{name}.json")[1][0].shape == (3, 5)


@pytest.mark.parametrize("form", ["{}", "./{}.py", "../{}.py"])
@pytest.mark.parametrize(("args", "key"), [("3, m=5", "3, 5"), ("3", "3"), ("m=5,n=2", "2, 5"), ("(1,2)", "[1, 2]")])
def test_its_key(name, form, args, key, tmp_path, monkeypatch):
    if form.startswith(".."):
        (tmp_path / "below").mkdir()
        monkeypatch.chdir(tmp_path / "below")
    assert workload_key(f"{form.format(name)}:product_{name}", args) == f'["product_{name}", {key}]'


def test_other_commands_know_it_by_an_import(name, record, capsys, monkeypatch):
    """The log is written by a process that knows the workload, and read by one that does not."""
    with open(f"{name}.py", "a") as file:
        file.write(f"\nimport ansor\nansor.register_workload(product_{name})\n")
    key = workload_key(f"{name}.py:product_{name}", "13")
    task = ansor.SearchTask(workload_key=key, target="c")
    ansor.save_records("log.json", [ansor.MeasureInput(task, task.compute_dag.init_state)], [record()[1]])
    del sys.modules[name]
    monkeypatch.setattr(workloads, "_FUNCTIONS", {})
    monkeypatch.setattr(workloads, "_DAGS", {})
    assert main(["best", "log.json", "--print", "schedule"]) == 2
    capsys.readouterr()
    assert main(["best", "log.json", "--print", "schedule", "--import", name]) == 0
    assert "C.op.axis" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["NAME.py:nothing"], "NAME.py: has no function 'nothing'; its functions are product_NAME, two, broken"),
        (["NAME.py:product_NAME"], "--args: missing a required argument: 'n'; NAME.py:product_NAME takes (n, m=4"),
        (["NAME.py:product_NAME", "--args", "1,2,3"], "--args: too many positional arguments"),
        (["NAME.py:product_NAME", "--args", "1)(2"], "--args: numbers, texts and tuples with commas between them"),
        (["NAME.py:product_NAME", "--args", "open('x')"], "--args: numbers, texts and tuples with commas between them"),
        (["NAME.py:product_NAME", "--args", "1,tag=2"], "--args: arguments that have only names cannot be recorded"),
        (
            ["NAME.py:broken", "--args", "1"],
            "'broken': its function fails for the arguments [1]: NAME.py, line 14: AttributeError: 'list' object has",
        ),
        (["NAME.py:misread", "--args", "4"], "[4]: NAME.py, line 17: A: 1 index is needed, as in A[i], got indices=2"),
        (["NAME.py:empty", "--args", "4"], "[4]: NAME.py, line 21: AssertionError\n"),
        (["NAME.py:long", "--args", "4"], "[4]: NAME.py, line 24: ValueError: one two\n"),
        (["NAME.py:library", "--args", "4"], "[4]: NAME.py, line 27: JSONDecodeError: Expecting value"),
        (["matmul", "--import", "twice.py"], "twice.py, line 4: workload 'NAME_twice': another function is"),
        (["NAME.py:brokn"], "has no function 'brokn'; did you mean broken? its functions are"),
        (
            ["NAME.py"],
            "a function in it must be named, as in NAME.py:product_NAME; its functions are product_NAME, two",
        ),
        (["NAME.py::broken"], "NAME.py::broken: one colon stands between a file or module and its function"),
        (["NAME.py:two", "--args", "(5,7)"], "(5, 7) is one argument, a tuple; write 5,7"),
        (["nowhere.py:f"], "nowhere.py: there is no such file"),
        (["no_such_module:f"], "no_such_module: cannot be imported: ModuleNotFoundError"),
        (["NAME.py:product_NAME", "--shape", "3"], "--shape: a function of your own takes --args"),
        (["matmul", "--args", "3"], "--args: a workload of the catalogue takes --shape"),
        (["abacus"], "'abacus': is no workload; they are conv2d, matmul"),
        (["matmul", "--import", "fails.py"], "fails.py: cannot be imported: fails.py, line 2: ZeroDivisionError"),
        (["matmul", "--import", "exits.py"], "exits.py: cannot be imported: exits.py, line 1: SystemExit: 3"),
        (["matmul", "--import", "folder/json.py"], "another module has the name of this file; rename it"),
    ],
)
def test_mistakes_are_one_sentence(name, refused, words, text):
    Path("fails.py").write_text("x = 1\nx / 0\n")
    Path("twice.py").write_text(
        f"import ansor\nansor.register_workload('{name}_twice', lambda: 1)\n\n"
        f"ansor.register_workload('{name}_twice', print)\n"
    )
    Path("exits.py").write_text("raise SystemExit(3)\n")
    Path("folder").mkdir()
    Path("folder/json.py").write_text("")
    refused(["tune", *[w.replace("NAME", name) for w in words], "--trials", "1"], text.replace("NAME", name))
    assert not Path("exits.json").exists() and not list(Path().glob("*.json"))
