"""The environment is read in one place, which says what each variable means."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ansor.core.target.hardware import host_cores
from te_lite import environment
from te_lite.errors import TeError

ROOT = Path(__file__).parent.parent.parent
# what hands an environment to other processes, or sets what a foreign library reads when it is loaded
WRITERS = {
    "ansor/measure/fresh_processes.py",
    "ansor/measure/worker_server.py",
    "ansor/cluster/engine.py",
    "ansor/cluster/host.py",
    "ansor/cluster/keeper.py",
    "ansor/cluster/member.py",
    "codegen_cuda/emulation/emulator_build.py",
}


def test_nothing_else_reads_the_environment():
    readers = set()
    for package in ("te_lite", "ansor", "codegen_c", "codegen_cuda", "relay_lite", "vta_sim"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Attribute)
                    and node.attr in ("environ", "getenv")
                    and ast.unparse(node.value) == "os"
                ):
                    readers.add(str(path.relative_to(ROOT)))
    assert readers - WRITERS == {"te_lite/environment.py"}


def test_the_page_lists_every_variable():
    rows = [f"| `{v.name}` | {v.default or '-'} | {v.meaning} |" for v in environment.VARIABLES]
    page = (ROOT / "docs" / "environment.md").read_text()
    assert [line for line in page.splitlines() if line.startswith("| `")] == rows


@pytest.mark.parametrize(("value", "number"), [("3", 3), ("4,2", 4), ("", None)])
def test_numbers(monkeypatch, value, number):
    monkeypatch.setenv("CODEGEN_C_THREADS", value)
    assert environment.CODEGEN_C_THREADS.positive == number


@pytest.mark.parametrize("value", ["0", "-1", "two", "\u00b2"])
def test_what_is_no_number_is_said(monkeypatch, value):
    monkeypatch.setenv("TVM_NUM_THREADS", value)
    with pytest.raises(TeError, match=f"TVM_NUM_THREADS: a positive whole number is needed, or none, got '{value}'"):
        host_cores()


def test_an_empty_text_is_the_default(monkeypatch):
    monkeypatch.setenv("CXX", "")
    assert environment.CXX.text == "g++"


def test_a_default_does_not_count_as_set(monkeypatch: pytest.MonkeyPatch) -> None:
    variable = environment.Variable("ANSOR_TEST_OF_DEFAULTS", "nothing", "7")
    monkeypatch.delenv(variable.name, raising=False)
    with variable.unless_set("9"):
        assert variable.text == "9"
    assert variable.text == "7"
    monkeypatch.setenv(variable.name, "8")
    with variable.unless_set("9"):
        assert variable.text == "8"
