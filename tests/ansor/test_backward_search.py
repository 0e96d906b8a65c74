"""The search on computations that read backward: its programs compute them, and its lanes are its programs.

The oracle is plain NumPy (`tests/backward_reads.py`).  `ANSOR_FUZZ` scales the number of random chains.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import ansor
import codegen_c
import te_lite as te
from ansor.analytical import CPU, GPUS, Machine, seconds
from ansor.sketch.generate import generate_sketches
from ansor.space.programs import Programs, programs
from ansor.space.sample import sample_rows
from ansor.space.spaces import random_space, random_variant
from ansor.space.states import concrete
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from te_lite.bounds.bounds import infer_bounds
from te_lite.meaning.interp import run
from te_lite.schedule.state import State
from te_lite.schedule.step import to_json
from tests.ansor.feature_values import HARDWARE, assert_lanes_are_states
from tests.backward_reads import Access, Axis, Case, Chain, Link, Op, case_of, random_case
from tests.nonempty import nonempty

PER_KIND = int(os.environ.get("ANSOR_FUZZ", "6"))
SEED = int(os.environ.get("ANSOR_FUZZ_SEED", "20261122"))
MACHINES: dict[str, Machine] = {"c": CPU("server", 4, 2.5e9, 64, 64), "cuda": GPUS["H200"]}


ROW, COLUMN, LAST = Axis(0), Axis(1), Axis(2)


def windows() -> Chain:
    """Sums of windows that begin at the end, of sums of a matrix, read backward by twos."""
    pairs = Link((19, 18), 2, (Access(0, (Op("-", 19, Op("+", ROW, LAST)), COLUMN), 2, False),), 1)
    window = Access(1, (Op("-", Op("+", ROW, 3), LAST), Op("-", 17, COLUMN)), 1, False)
    halves = Access(2, (Op("-", 15, Op("//", ROW, 2)), Op("%", Op("-", 5, COLUMN), 18)), 1, False)
    last = Link((16, 18), 0, (halves,), 3)
    return Chain("float32", (Link((20, 18), 0, (), 0), pairs, Link((16, 18), 4, (window,), 0), last))


def product() -> Chain:
    """Like a matrix product: rows of sums and columns of the input, both backward, and an output turned round."""
    pairs = Link((16, 8), 2, (Access(0, (Op("-", 7, COLUMN), Op("-", 16, Op("+", ROW, LAST))), 2, False),), 1)
    across = Access(1, (Op("-", 15, ROW), Op("-", 7, LAST)), 1, False)
    down = Access(0, (Op("-", 7, LAST), Op("-", 16, COLUMN)), 1, False)
    turned = Access(2, (Op("-", 15, ROW), Op("-", 11, COLUMN)), 1, False)
    last = Link((16, 12), 0, (turned,), 3)
    return Chain("float32", (Link((8, 17), 0, (), 0), pairs, Link((16, 12), 8, (across, down), 0), last))


def cases() -> Iterator[tuple[Case, int]]:
    """Cases, and how many variants of each sketch to draw."""
    for chain, count in ((windows(), 4), (product(), 2)):
        yield case_of(chain, np.random.default_rng(SEED)), count
    for number in range(PER_KIND // 6):
        yield random_case([SEED, 1, number]), 1


def states(case: Case, target: str, rng: np.random.Generator, count: int) -> Iterator[tuple[Programs, list[State]]]:
    """Two rows of `count` random variants of each sketch: as lanes, and as states."""
    hardware = HARDWARE[target]
    for sketch in generate_sketches(case.dag, ansor.Target(target), hardware):
        for _ in range(count):
            variant = random_variant(random_space(sketch, rng, target, hardware), rng)
            rows = sample_rows(variant, 2, rng, target, hardware)
            if len(rows):
                lanes = programs(variant, rows, target, hardware)
                yield lanes, [concrete(variant, row, target, hardware) for row in rows]


def compiled(func: te.LoweredFunc, args: Sequence[np.ndarray]) -> None:
    codegen_c.build(func)(*args)


def emulated(func: te.LoweredFunc, args: Sequence[np.ndarray]) -> None:
    run_program(emit(func), args)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["c", "cuda"])
def test_programs_of_the_search(target: str) -> None:
    native = compiled if target == "c" else emulated
    for number, (case, count) in enumerate(cases()):
        rng = np.random.default_rng([SEED, number])
        for turn, (lanes, found) in nonempty(enumerate(states(case, target, rng, count))):
            assert_lanes_are_states(lanes, dict(enumerate(found)), target)
            many = seconds(lanes, MACHINES[target])
            single = [float(seconds(Programs(infer_bounds(s)), MACHINES[target])[0]) for s in found]
            np.testing.assert_array_equal(many, single)
            for n, state in nonempty(enumerate(found)):
                where = f"{case.chain}, steps {[to_json(s) for s in state.steps]}"
                assert case.mismatch(te.lower(state), run) is None, where
                if n == turn == 0 and number < 2 and shutil.which("g++"):
                    assert case.mismatch(te.lower(state), native) is None, where
