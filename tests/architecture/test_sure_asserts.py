"""No test can pass without having asserted anything, and the lint that says so tells good tests from bad ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.architecture.imports import ROOT
from tests.architecture.sure_asserts import ADVICE, files, unsure
from tests.nonempty import nonempty


def test_every_test_asserts_something() -> None:
    found = [f"{path.relative_to(ROOT)}:{said}" for path in nonempty(files(ROOT / "tests")) for said in unsure(path)]
    assert found == [], "\n" + "\n".join(found)


BEFORE = """
import itertools
from enum import Enum

import numpy as np
import pytest

from te_lite.errors import TeError
from tests.amount import some
from tests.nonempty import nonempty
from tests.strategies import given, st

class Kind(Enum):
    A = 1
    B = 2

class Checked:
    def check(self):
        assert self

NAMES = ("a", "b")
TABLE = {name: made(name) for name in NAMES}
PICKED = [name for name in NAMES if name > "a"]

def check(x):
    assert x

def check_all(xs):
    for x in xs:
        assert x

def assert_all(xs):
    for x in xs:
        assert x

def cases():
    yield from NAMES

def drawn(x):
    assert x is not None
    return x

@pytest.fixture
def xs(): ...
"""


def judged(tmp_path: Path, body: str, before: str = "") -> list[str]:
    """What the lint says of a test with these lines."""
    path = tmp_path / "test_it.py"
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    path.write_text(f"{BEFORE}\n{before}def test_it(xs, f, x):\n{lines}\n")
    return unsure(path)


@pytest.mark.parametrize(
    "body",
    [
        "for x in xs:\n    assert x",
        "for x in f():\n    assert x",
        "for x in xs[:1]:\n    check(x)",
        "for x in f(1)[::2]:\n    np.testing.assert_array_equal(x, 1)",
        "for x in xs:\n    with pytest.raises(ValueError):\n        f(x)",
        "for name in NAMES:\n    for x in f(name):\n        assert x",
        "for name in NAMES:\n    if f(name):\n        continue\n    assert name",
        "for name in NAMES[2:]:\n    assert name",
        "for name in PICKED:\n    assert name",
        "for n in range(len(xs)):\n    assert n",
        "for n in range(0):\n    assert n",
        "for x, name in zip(xs, NAMES):\n    assert x",
        "for n, x in enumerate(sorted(xs)):\n    assert x",
        "NAMES = f()\nfor name in NAMES:\n    assert name",
        "for part in f:\n    assert part",
        "assert all(x > 0 for x in xs)",
        "assert all([x > 0 for x in xs]) and all(y for y in f())",
        "assert not any(x > 0 for x in xs)",
        "assert all(n for n in NAMES if f(n))",
        "if f():\n    assert x",
        "if f():\n    assert x\nelse:\n    f(x)",
        "if f():\n    return\nassert x",
        "with f():\n    if x:\n        return\nassert x",
        "while f():\n    assert x",
        "try:\n    f()\nexcept TeError as error:\n    assert str(error)",
        "try:\n    f()\nexcept TeError:\n    return\nassert x",
        "match x:\n    case 1:\n        assert f()",
        "check_all(xs)",
        "assert_all(xs)",
        "y = drawn(x)\nfor x in xs:\n    assert x == y",
        "def inner(y):\n    for z in y:\n        assert z\ninner(xs)",
        "for x in xs:\n    assert x\npytest.skip() if f() else None",
        "found = [x for x in xs if x]\nfor x in found:\n    Checked().check()\n    assert x",
    ],
)
def test_what_may_assert_nothing_is_found(tmp_path: Path, body: str) -> None:
    (said,) = judged(tmp_path, body)
    number, rest = said.split(" ", 1)
    assert int(number) > 0 and rest == f"test_it: {ADVICE}" and "nonempty(...)" in ADVICE


@pytest.mark.parametrize(
    "body",
    [
        "assert x",
        "for x in xs:\n    assert x\nassert len(xs) == 3",
        "for x in nonempty(xs):\n    assert x",
        "for x in nonempty(x for x in xs if x):\n    assert x",
        "for name in NAMES:\n    assert name",
        "for name in NAMES[1:]:\n    assert name",
        "for name, value in TABLE.items():\n    assert value",
        "for kind in Kind:\n    assert kind",
        "for name in cases():\n    assert name",
        "for a, b in itertools.product(NAMES, range(3)):\n    assert a",
        "for n, (a, b) in enumerate(zip(NAMES, 'cd', strict=True), 1):\n    assert a",
        "for n in range(some(30, 10)):\n    assert n",
        "for n in range(2, 5):\n    assert n",
        "for n in range(5, 1, -1):\n    assert n",
        "for n in range(len(NAMES) - 1):\n    assert n",
        "for x in (*xs, 1):\n    assert x",
        "both = [*NAMES, *xs]\nfor x in both[:2]:\n    assert x",
        "made = [f(name) for name in NAMES]\nfor x in made:\n    assert x",
        "assert all(x > 0 for x in nonempty(xs))",
        "assert all(f(name) for name in NAMES)",
        "assert xs and all(x > 0 for x in xs)",
        "assert not any(f(name) for name in NAMES)",
        "if f():\n    assert x\nelse:\n    check(x)",
        "if f():\n    pytest.skip('no compiler')\nassert x",
        "if f():\n    assert x\n    return\nassert not x",
        "if f(x):\n    raise AssertionError(x)",
        "if f(x):\n    pytest.fail('it is so')",
        "while True:\n    assert x",
        "try:\n    f()\nexcept TeError as error:\n    assert str(error)\nelse:\n    assert x",
        "try:\n    f()\nfinally:\n    assert x",
        "match x:\n    case 1:\n        assert f()\n    case _:\n        assert x",
        "with pytest.raises(TeError):\n    f(x)",
        "with pytest.raises(TeError) if x else nullcontext():\n    f(x)",
        "check(x)",
        "check_all(xs)\ncheck(xs)",
        "checked = Checked()\nchecked.check()",
        "def inner(y):\n    assert y\ninner(x)",
        "np.testing.assert_allclose(x, 1)",
        "subprocess.run(['x'], check=True)",
        "f(x)",
        "for x in xs:\n    f(x)",
    ],
)
def test_what_surely_asserts_is_let_pass(tmp_path: Path, body: str) -> None:
    """Tests without any assert are none of its business: they demand that nothing is raised."""
    assert judged(tmp_path, body) == []


def test_what_hypothesis_draws_is_not_always_empty(tmp_path: Path) -> None:
    body = "for x in xs:\n    assert x"
    assert judged(tmp_path, body, "@given(st.lists(st.integers()))\n") == []
    assert judged(tmp_path, body, "@pytest.mark.slow\n") != []


def test_tests_of_classes_and_helpers_of_other_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(
        "from tests.codegen_c.c_programs import check\n\n\n"
        "class TestIt:\n"
        "    def all_of(self, xs):\n        for x in xs:\n            assert x\n\n"
        "    def one(self, x):\n        assert x\n\n"
        "    def test_all(self, xs):\n        self.all_of(xs)\n\n"
        "    def test_one(self, x):\n        self.one(x)\n\n"
        "    def test_program(self, xs):\n        for x in xs:\n            check(x, [], [])\n"
    )
    assert [said.split(" ", 1)[0] for said in unsure(path)] == ["12", "18"]


@pytest.mark.parametrize("items", [[1, 2, 3], iter([1, 2, 3]), {1: "a", 2: "b", 3: "c"}.keys(), range(1, 4)])
def test_nonempty_gives_all_items(items: Iterable[int]) -> None:
    assert list(nonempty(items)) == [1, 2, 3]


@pytest.mark.parametrize("items", [[], iter(()), {}.values(), (x for x in [1] if x > 1)])
def test_nonempty_refuses_nothing_at_once(items: Iterable[int]) -> None:
    with pytest.raises(AssertionError, match=r"^what this test goes through is empty, so nothing was tested$"):
        nonempty(items)
