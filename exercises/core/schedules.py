"""What checks ask of a schedule: does it compute the right thing, and what do its loops look like."""

from __future__ import annotations

from typing import Any

import numpy as np

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.features import INDEX, SCHEMA, state_features
from te_lite.bounds.bounds import infer_bounds
from te_lite.errors import TeError
from te_lite.meaning.interp import run
from te_lite.meaning.reference import evaluate, random_inputs

from .verdict import Wrong, need

CORES = HardwareParams(num_cores=4, vector_unit_bytes=32, cache_line_bytes=64, target="c")
"""The machine that features are counted for: four cores, vectors of 8 floats, lines of 64 bytes."""


def state_of(schedule: Any) -> Any:
    """The state of what the learner gave back."""
    need(isinstance(schedule, te.Schedule), f"give the schedule back (`return s`), not {type(schedule).__name__}")
    return schedule.state


def needs_right(state: Any, tensors: list[Any], rng: np.random.Generator) -> None:
    """Run a program by the interpreter and compare with the computation in float64.

    Raises Wrong for other values, and for what the interpreter refuses: races, accesses out of bounds.
    """
    inputs = random_inputs(tensors, rng)
    *args, out = tensors
    got = np.full(out.shape, np.nan, out.dtype)
    try:
        run(te.lower(state, tensors), [*(inputs[t] for t in args), got])
    except TeError as error:
        raise Wrong(f"the program is refused: {error}") from error
    want = evaluate(tensors, inputs, dtype="float64")[out]
    need(np.allclose(got, want, rtol=1e-4, atol=1e-4), "the program does not compute what the tensors say")


def loops(state: Any, name: str) -> list[tuple[str, int, str]]:
    """The loops of a stage, outermost first: name, extent, annotation."""
    stages = infer_bounds(state).state.stages
    (stage,) = [s for s in stages if s.op.name == name]
    return [(it.name, int(it.extent or 0), it.annotation) for it in stage.iters]


def feature(state: Any, row: int, name: str) -> float:
    """A feature of a stage (rows are the stages that are computed) as a plain number."""
    value = float(state_features(state, CORES)[row, INDEX[name]])
    return value if SCHEMA[INDEX[name]].scale == "none" else 2**value - 1


def product(n: int, terms: int, m: int) -> list[Any]:
    """A, B and C of a matrix product of shapes (n, terms) and (terms, m)."""
    a, b = te.placeholder((n, terms), name="A"), te.placeholder((terms, m), name="B")
    k = te.reduce_axis((0, terms), name="k")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]
