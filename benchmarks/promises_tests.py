"""The promises whose figures are those of tests: how many cases they try, and how many fail."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.core.errors import MeasureError
from te_lite.errors import RecordError, require
from tests.ansor.conftest import matmul
from tests.ansor.test_cost_model_degenerate import COSTS, feature_sets
from tests.ansor.test_records import hostile
from tests.codegen_cuda.golden_sketches import ENTRIES, sketches_of
from tests.conftest import lowering, verified
from tests.spoiled import spoiled
from tests.te_lite import test_seeded_bugs as bugs
from tests.te_lite.test_simplify import fuzz

ROOT = Path(__file__).parent.parent
HOSTILE, ARCHITECTURES, ANNOTATIONS = 500, 2, 17


def failures(*arguments: str) -> int:
    """How many of some tests of this checkout fail.  Raises MeasureError where pytest cannot run them."""
    counter = _Counter()
    words = ["-q", "-n", "0", "--no-header", f"--rootdir={ROOT}", "-c", f"{ROOT / 'pyproject.toml'}"]
    code = pytest.main([*words, *arguments], plugins=[counter])
    ran = code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    require(ran, MeasureError, "pytest", "the tests must run", arguments=arguments, code=int(code))
    return counter.failed


class _Counter:
    def __init__(self) -> None:
        self.failed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed += report.failed


def r7(folder: Path) -> dict[str, Any]:
    """Loading records never runs code."""
    task = ansor.SearchTask(matmul, (13, 11, 7), target="c")
    inp = ansor.MeasureInput(task, task.compute_dag.init_state)
    good = ansor.dump_record_to_string(inp, ansor.MeasureResult((0.001,), 0, "", 0.25, 1_700_000_000))
    lines, raw = list(_hostile_lines(good)), 0
    for line in lines:
        try:
            ansor.load_record_from_string(line)
        except RecordError:
            pass
        except Exception:
            raw += 1
    tests = failures(f"{ROOT}/tests/ansor/test_records.py", "-k", "hostile or huge or code")
    canaries = [p for place in (Path.cwd(), folder) for p in place.glob("canary")]
    return {"hostile_lines": len(lines), "raw_exceptions": raw, "executions": len(canaries), "failed_tests": tests}


def _hostile_lines(good: str) -> Iterator[bytes]:
    """Those of the test, and good ones with one part spoiled."""
    rng, written = np.random.default_rng(0), list(hostile(good))
    yield from written
    for _ in range(HOSTILE - len(written)):
        yield json.dumps(spoiled(json.loads(good), rng)).encode()


def r9(folder: Path) -> dict[str, Any]:
    """The fuzzer itself works: as in all tests, what is lowered is verified after every pass."""
    programs, seconds, missed = [], [], []
    for bug in bugs.BUGS:
        oracles, start = bugs.fresh_oracles(), time.monotonic()
        with pytest.MonkeyPatch.context() as patch:
            bug(patch)
            patch.setattr(lowering, "PASSES", tuple([verified(p) for p in lowering.PASSES]))
            found = bugs.programs_until_found(oracles)
        seconds.append(time.monotonic() - start)
        programs += [found] if found else []
        missed += [] if found else [bug.__name__]
    bugs.fresh_oracles()
    return {
        "planted": len(bugs.BUGS), "missed": missed, "median_programs": statistics.median(programs),
        "median_s": round(statistics.median(seconds), 2),
    }  # fmt: skip


def r10(folder: Path) -> dict[str, Any]:
    """Emitted CUDA compiles."""
    sketches = sum(len(sketches_of(entry)) for entry in ENTRIES)
    failed = failures("-m", "slow", f"{ROOT}/tests/codegen_cuda/test_sketches_compile.py")
    return {"sketches": sketches, "programs": sketches * ANNOTATIONS, "architectures": ARCHITECTURES,
            "failed_workloads": failed}  # fmt: skip


def r13(folder: Path) -> dict[str, Any]:
    """The simplifier is sound."""
    wrong = []
    for seed in range(10):
        try:
            fuzz(seed=100 + seed, count=10_000)
        except AssertionError as error:
            wrong.append(str(error)[:200])
    return {"expressions": 100_000, "wrong": wrong}


def r17(folder: Path) -> dict[str, Any]:
    """No training set breaks the search."""
    sets = len(list(feature_sets())) * len(COSTS)
    return {"training_sets": sets, "failed_tests": failures(f"{ROOT}/tests/ansor/test_cost_model_degenerate.py")}
