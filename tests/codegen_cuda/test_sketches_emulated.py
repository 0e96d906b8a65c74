"""Every CUDA sketch of the golden file, at a reduced shape, computes its workload: emitted, emulated, compared.

The reduced shapes are those where the same sketch rules fire, so the programs have the structure of the large ones.
"""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import te_lite as te
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from te_lite.schedule.step import to_json
from tests.codegen_cuda.golden_sketches import (
    ENTRIES,
    REDUCED,
    annotated,
    entry_name,
    reduced_args,
    sketches_of,
    step_kinds,
)
from tests.nonempty import nonempty
from tests.oracle import Oracle

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated"
)
each_entry = pytest.mark.parametrize("entry", ENTRIES, ids=entry_name)


def emulate_sketches(entry: dict[str, Any], seeds: range) -> None:
    """Random programs of every sketch against the float64 reference."""
    sketches = sketches_of(entry, reduced_args(entry))
    oracle = Oracle(sketches[0].dag, np.random.default_rng(0))
    for k, sketch in nonempty(enumerate(sketches)):
        for seed in nonempty(seeds):
            state = annotated(sketch, k, seed)
            args = oracle.arguments()
            run_program(emit(te.lower(state)), args)
            assert oracle.compare(args) is None, [to_json(s) for s in state.steps]


@each_entry
def test_reduced_shapes_have_the_same_sketches(entry: dict[str, Any]) -> None:
    """Same number of sketches, made by the same kinds of steps; no workload is an exception."""
    small, large = sketches_of(entry, reduced_args(entry)), sketches_of(entry)
    assert list(map(step_kinds, small)) == list(map(step_kinds, large))


def test_every_reduced_shape_is_used() -> None:
    assert len(REDUCED) == len(ENTRIES) == len({(e["workload"], *e["args"]) for e in ENTRIES})


@needs_compiler
@each_entry
@pytest.mark.one_in(3)
def test_every_sketch_computes_its_workload(entry: dict[str, Any]) -> None:
    emulate_sketches(entry, range(3))


@needs_compiler
@pytest.mark.slow
@each_entry
def test_twenty_annotations_of_every_sketch_compute_it(entry: dict[str, Any]) -> None:
    emulate_sketches(entry, range(3, 20))
