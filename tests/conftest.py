"""Every program that a test of the compiler lowers is verified after every pass, not only in the end as all are.

No test finds or leaves records in the user's store.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from te_lite.errors import UnsafeError
from te_lite.loops.stmt import Stmt
from te_lite.lowering.lower_facts import Facts
from te_lite.verify.verify import verify
from tests.amount import draw_some
from tests.small_searches import make_small

os.environ["ANSOR_CACHE"] = "off"
draw_some()
lowering = importlib.import_module("te_lite.lowering.lower")
FIRST = lowering.PASSES[0]


def verified(run: lowering.Pass) -> lowering.Pass:  # type: ignore[name-defined]
    def checked(facts: Facts, k: int, nest: Stmt) -> Stmt:
        after: Stmt = run(facts, k, nest)
        if after is nest and run is not FIRST:
            return after  # as it was verified
        func = lowering.as_function(facts, lowering.in_threads(facts, k, after), f"after {run.__name__}")
        try:
            verify(func)
        except UnsafeError as finding:
            if finding.law in ("races", "written"):
                return after  # the schedule's own fault, which the whole program is refused for; of another nest
            raise AssertionError(f"the compiler made a bad program: {finding}") from finding
        return after

    checked.__name__ = run.__name__
    return checked


OF_THE_COMPILER = ("te_lite", "codegen_c", "codegen_cuda", "arithmetic")
"""Folders whose programs are there for the sake of the passes; those of the others come out of the same passes."""


@pytest.fixture(autouse=True)
def verify_after_every_pass(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.path.parent.name in OF_THE_COMPILER and "unverified" not in request.keywords:
        monkeypatch.setattr(lowering, "PASSES", tuple(verified(p) for p in lowering.PASSES))


UNSTEADY = "PYTEST_CURRENT_TEST"


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, Any, Any]:
    """The environment is that of the test before, so its workers come from the process that the others came from."""
    os.environ.pop(UNSTEADY, None)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Generator[None, Any, Any]:
    """As for tests."""
    os.environ.pop(UNSTEADY, None)
    return (yield)


TESTS = Path(__file__).parent
LONGEST = {
    "whole_way", "test_cluster", "test_tutorial_network", "test_token", "test_installed", "test_examples",
    "test_determinism", "test_cli_vta", "test_sketches", "test_search_loop",
}  # fmt: skip
"""Folders and files of tests that last half a minute."""
CASES = pytest.StashKey[Counter[str]]()


@pytest.fixture(autouse=True)
def search_little(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on a GPU, where what a search finds is timed."""
    if request.node.get_closest_marker("gpu") is None:
        make_small(monkeypatch.setattr)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where only long tests are asked for, files that speak of none are not imported."""
    alone = str(config.option.markexpr).startswith("long and ")
    test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if alone and test and "mark.long" not in collection_path.read_text() else None


def pytest_collection(session: pytest.Session) -> None:
    """The second process imports what is tested from the last file on: each compiles half of what is not yet."""
    everything = session.config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if everything and os.environ.get("PYTEST_XDIST_WORKER") == "gw1":
        tested = [path for path in TESTS.rglob("test_*.py") if not pytest_ignore_collect(path, session.config)]
        for path in sorted(tested, reverse=True):
            with contextlib.suppress(Exception, pytest.skip.Exception):  # whoever collects them says it
                importlib.import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Of a function marked `one_in(n)` every n-th case is for `make test`; the others, more of the same, are slow."""
    mark = item.get_closest_marker("one_in")
    if mark is not None:
        function = item.nodeid.partition("[")[0]
        cases = item.config.stash.setdefault(CASES, Counter())
        if cases[function] % mark.args[0]:
            item.add_marker("slow")
        cases[function] += 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests come first: at the end one process would wait for them."""
    items.sort(key=lambda item: LONGEST.isdisjoint((item.path.parent.name, item.path.stem)))


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the collector of cycles need not go through it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
