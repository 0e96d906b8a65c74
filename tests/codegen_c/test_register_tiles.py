"""The description of register tiles is what the emitter does, and what the compiler makes of it."""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import te_lite as te
from ansor.features.held_sums import HeldSums
from codegen_c.emit import emit
from codegen_c.processor import PROCESSORS
from te_lite.loops.register_tile import VectorUnit
from te_lite.lowering.lower import lower
from tests.nonempty import nonempty
from tests.workloads import conv2d_nchw, conv2d_nhwc, depthwise, matmul, matmul_relu, softmax

from .compiled_loops import Counted, compiled, counted, innermost_loops
from .register_tiles import described, emitted, held_in, programs_of

Build = Callable[[], list[te.Tensor]]
FAMILIES = {"avx512vl": (VectorUnit.of(64), "skylake-avx512"), "avx2": (VectorUnit.of(32), "haswell")}

WORKLOADS: dict[str, Build] = {
    "product": lambda: matmul(128, 96, 64),
    "product of primes": lambda: matmul(127, 131, 61),
    "product of small integers": lambda: matmul(48, 56, 40, "int8", "int32"),
    "product of halves": lambda: matmul(48, 56, 40, "float16", "float32"),
    "product in halves": lambda: matmul(48, 56, 40, "float16"),
    "product of doubles": lambda: matmul(36, 200, 30, "float64"),
    "product with relu": lambda: matmul_relu(64, 96, 32),
    "convolution": lambda: conv2d_nchw(1, 14, 16, 32, 3, 1, 1),
    "strided convolution": lambda: conv2d_nchw(1, 13, 8, 24, 3, 2, 1),
    "channels last": lambda: conv2d_nhwc(1, 14, 16, 32, 3, 1, 1, 1),
    "one by one": lambda: conv2d_nhwc(1, 14, 64, 32, 1, 1, 0, 1),
    "depthwise": lambda: depthwise(1, 28, 16),
}


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.one_in(3)
def test_the_emitter_does_what_is_described(name: str) -> None:
    rng = np.random.default_rng(len(name))
    kept = 0
    for state in programs_of(WORKLOADS[name](), 3, rng):
        func = lower(state)
        for family, (unit, _) in FAMILIES.items():
            wanted = held_in(described(state, unit))
            assert emitted(func, PROCESSORS[family]) == wanted, (family, state.steps)
            kept += len(wanted)
    assert kept > 6


def test_sums_behind_a_guard_are_held_in_the_turns_inside() -> None:
    """Rows of 200 in iterations of 32: six iterations ask nothing, the last one asks, and the text counts seven."""
    for state in nonempty(programs_of(softmax(64, 200), 3, np.random.default_rng(5))):
        for family, (unit, _) in FAMILIES.items():
            found = emitted(lower(state), PROCESSORS[family])
            for held in nonempty(held_in(described(state, unit))):
                name = held.stage.replace(".", "_")
                steps = [x.steps for x in found if x.stage.replace(".", "_") == name and x.vectors == held.vectors]
                assert not steps or held.steps - 1 <= max(steps) <= held.steps


def vectors_made_of_elements(text: str) -> int:
    """The vectors of B that the step of a tile makes of single elements, by the text of its loop."""
    step = re.search(r"\n( *)for \(int64_t k\w* = [^\n]*\{\n((?:(?!for ).)*?_r0 \+=.*?)\n\1\}", text, re.S)
    assert step is not None
    return len(re.findall(r"\{B(?:_local)?\[", step[2]))


def test_vectors_over_the_edge_are_read_by_elements() -> None:
    """A tile that runs over the end of B reads there the last element instead, lane by lane."""
    exact = []
    for tensors in (matmul(127, 131, 61), matmul(96, 100, 32)):
        for state in programs_of(tensors, 6, np.random.default_rng(1)):
            for family, (unit, _) in FAMILIES.items():
                for held in described(state, unit).values():
                    if held.kept and held.vectorized:
                        made = vectors_made_of_elements(emit(lower(state), options=PROCESSORS[family]))
                        wanted = held.elements / held.pieces.width
                        assert made == 0 or wanted > 0
                        exact.append(abs(made - wanted) < 1e-6)
    assert len(exact) > 30 and np.mean(exact) > 0.8


def as_described(held: HeldSums, loops: list[Counted]) -> bool | None:
    """Whether an innermost loop that adds to the tile once reads what is described; None without such a loop.

    The compiler may have written out short reductions, whose steps then share what they read.
    """
    sums, vectors, elements = int(held.registers), int(held.loads), int(held.broadcasts)
    found = [x for x in loops if x.multiply_adds]
    assert found and all(x.multiply_adds % sums == 0 for x in found), (sums, found)
    once = [x for x in found if x.multiply_adds == sums]
    if held.spilled or not once:
        return None
    assert all(x.sums == sums for x in once), (sums, once)
    return all(vectors in (x.vectors, x.places) and x.elements == elements for x in once)


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump reads what was compiled")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instructions are those of x86")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["product", "one by one", "product of doubles"])
@pytest.mark.one_in(5)
def test_the_compiler_makes_of_it_what_is_described(name: str, family: str, tmp_path: Path) -> None:
    """Of vectors of 16 bytes and more, in tiles that divide: sums in registers, and each vector is read once.

    Now and then a compiler reads single elements as vectors and takes them apart.
    """
    unit, march = FAMILIES[family]
    seen: list[bool] = []
    for state in programs_of(WORKLOADS[name](), 8, np.random.default_rng(len(name))):
        for held in described(state, unit).values():
            plain = held.kept and held.vectorized and not held.elements and not held.pieces.looped
            if len(seen) < 4 and plain and min(held.pieces.lengths) * 4 >= 16:
                code = compiled(emit(lower(state), options=PROCESSORS[family]), march, tmp_path)
                found = as_described(held, [counted(loop) for loop in innermost_loops(code)])
                seen += [] if found is None else [found]
    assert len(seen) >= 3 and 3 * sum(seen) >= 2 * len(seen), seen
