"""The sketches of TVM for common workloads: same number, same order, same text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ansor.core.target.hardware import HardwareParams
from ansor.sketch import generate_sketches
from benchmarks import workloads as benchmarks
from te_lite import ComputeDAG

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "sketches.json").read_text())
TARGETS = {"cpu": "c", "llvm": "c", "cuda": "cuda"}
HARDWARE = {
    "c": HardwareParams(4, 64, 64, 0, 0, 0, 0, 0),
    "cuda": HardwareParams(-1, 16, 64, 49152, 2**31 - 1, 1024, 8, 32),
}


def dag_of(name: str, args: list[Any]) -> ComputeDAG:
    functions = {**benchmarks.OPERATORS, **benchmarks.WORKLOADS}
    return ComputeDAG(functions[name](*args))


def without_symbols(text: str) -> str:
    """Extents that depend on other loops print as `(0,...)`."""
    return re.sub(r"for (rv\d) \(0,.*\)", r"for \1 (0,...)", text)


@pytest.mark.parametrize("entry", GOLDEN, ids=lambda e: f"{e['workload']}-{e['args'][0]}-{e['args'][-1]}-{e['target']}")
def test_sketches_equal_golden(entry: dict[str, Any]) -> None:
    dag = dag_of(entry["workload"], entry["args"])
    assert str(dag) == entry["dag"]
    target = TARGETS[entry["target"]]
    texts = [str(s) for s in generate_sketches(dag, target, HARDWARE[target])]
    expected = entry["programs"]
    if entry["workload"] == "global_avg_pool":
        texts, expected = [[without_symbols(t) for t in ts] for ts in (texts, expected)]
    assert texts == expected
