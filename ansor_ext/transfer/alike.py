"""Which computations are alike: the same one up to its extents, so that programs of one are starts for another.

Two are alike when their texts differ in numbers only, they have the same outputs, and their tensors the same dtypes.
They are akin when that holds up to their last reductions, and what they compute of those is one output of as many axes:
in a network many convolutions differ only in what is added to them, and whether that is cut off at 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from ansor.core.tasks.task import SearchTask
from ansor.records.lines import Record
from ansor.records.notes import learn_workload, read_note
from ansor.records.store import SUFFIX, latest, place_of, stores
from ansor.records.store_files import told
from te_lite.computation.tensor import ComputeOp
from te_lite.computation.text import dag_text
from te_lite.errors import TeError
from te_lite.schedule.dag import ComputeDAG

_NUMBER = re.compile(r"\d+(\.\d+)?")


@lru_cache(maxsize=256)
def likeness(dag: ComputeDAG) -> str:
    """Equal for computations that are alike."""
    return f"{_without_numbers(str(dag))} {[op.dtype for op in dag.ops]} {sorted(_outputs(dag))}"


def _without_numbers(text: str) -> str:
    return _NUMBER.sub("#", text)


def _outputs(dag: ComputeDAG) -> set[int]:
    keys = {t.op.key for t in dag.outputs}
    return {k for k, op in enumerate(dag.ops) if op.key in keys}


@lru_cache(maxsize=256)
def epilogue(dag: ComputeDAG) -> frozenset[int] | None:
    """The stages between the last reduction and the one output; None where there are several, or a reduction is one."""
    needed = set[int]()
    for k in reversed(range(len(dag.ops))):
        if k in needed or dag.ops[k].reduce_axis:
            needed |= {k, *dag.access.read_from[k]}
    last = len(dag.ops) - 1
    return frozenset(set(range(last)) - needed) if needed and last not in needed and _outputs(dag) == {last} else None


@lru_cache(maxsize=256)
def kinship(dag: ComputeDAG) -> str:
    """Equal for computations that are akin."""
    rest = epilogue(dag)
    if rest is None:
        return likeness(dag)
    trunk, last = [op for k, op in enumerate(dag.ops) if k not in rest][:-1], dag.ops[-1]
    return f"{_without_numbers(dag_text(tuple(trunk)))} {[op.dtype for op in (*trunk, last)]} {len(last.axis)}"


def distance(a: ComputeDAG, b: ComputeDAG) -> float:
    """How far the shapes of two computations that are akin are from each other: 1 for an extent twice as long."""
    pairs = zip(_compared(a), _compared(b), strict=True)
    return float(sum(np.abs(np.log2(np.divide(s, t))).sum() for s, t in pairs))


def _compared(dag: ComputeDAG) -> list[tuple[int, ...]]:
    """The shapes of inputs and outputs, in the order of stages, without those that only one of two akin ones has."""
    left_out, outputs = epilogue(dag) or (), _outputs(dag)
    given = [k for k, op in enumerate(dag.ops) if k in outputs or not isinstance(op, ComputeOp)]
    return [dag.ops[k].shape for k in given if k not in left_out]


def stored_alike(task: SearchTask) -> Iterator[Record]:
    """The programs that the stores hold of computations like that of a task, its own among them, for its device.

    None where the stores are off, or this machine lacks the device or its compiler.
    """
    if not stores():
        return
    try:
        folder = place_of(task.compute_dag, task.target, task.layout_rewrite_option).folder.parent
    except TeError:
        return  # what is not there has no records
    wanted, text = likeness(task.compute_dag), _without_numbers(str(task.compute_dag))
    for path in [path for store in stores() for path in sorted((store / folder).glob(f"*/*{SUFFIX}"))]:
        line = told(path)
        note = read_note(line.encode())
        if note is not None and _without_numbers(str(note[1].get("text"))) == text:
            learn_workload(line.encode())
            yield from [pair for pair in latest(path) if likeness(pair[0].task.compute_dag) == wanted]
