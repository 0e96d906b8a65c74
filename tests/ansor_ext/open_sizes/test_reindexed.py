"""Reindexed copies over open axes: what a copy holds and where it ends, and the programs of a search that have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ansor
import codegen_c
import te_lite as te
from ansor.sketch.generate import extra_sketches
from te_lite.schedule.replay import replay
from tests.ansor_ext.open_sizes.programs import CASES
from tests.ansor_ext.open_sizes.test_open_sizes import check
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty

MOST = 20
TARGET = ansor.Target("c")
HARDWARE = ansor.HardwareParams(2, 64, 64, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("name", ["rows_by_matrix", "open_terms", "batches"])
@pytest.mark.parametrize("tile", [(), (0, 6), (0, 64), (-1, 3)])
def test_reindexed_operands(name: str, tile: tuple[int, ...]) -> None:
    """Whole and in tiles along either axis, at every size; a tile as long as the greatest size, too."""
    case = CASES[name](1, MOST)
    s = te.create_schedule(case.tensors[-1])
    product = next(op for op in s.state.ops if getattr(op, "reduce_axis", ()))
    rank = len(case.tensors[0].shape)
    s.reindex(case.tensors[0], "global", product.output(), tuple([tile[0] % rank, tile[1]]) if tile else ())
    func = te.lower(s, list(case.tensors))
    module = codegen_c.build(func)
    for n in nonempty((1, 2, 5, 6, 7, 12, 19, MOST)):
        check(case, func, (n, MOST + 1 - n)[: len(case.sizes)], module)


def product(n: Any) -> te.ComputeDAG:
    """Rows [n, 64] by a matrix [64, 128]: large enough for operands to be copied."""
    a, b, k = te.placeholder((n, 64), name="A"), te.placeholder((64, 128), name="B"), te.reduce_axis((0, 64), "k")
    return te.ComputeDAG([a, b, te.compute((n, 128), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")])


def test_programs_of_extra_rules() -> None:
    """What is drawn for a fixed size has a program for all of them, with copies and without."""
    rng, copies = np.random.default_rng(5), 0
    for sketch in nonempty(extra_sketches(product(512), TARGET, HARDWARE)):
        drawn = drawn_program(sketch, TARGET, HARDWARE, rng)
        assert drawn is not None
        copies += any(step.tag == "RIX" for step in drawn.steps)
        module = codegen_c.build(te.lower(replay(product(te.size_var("n", 1, 600)), drawn.steps)))
        for size in nonempty((1, 6, 512, 600)):
            a, b, c = [rng.standard_normal(shape).astype("float32") for shape in ((size, 64), (64, 128), (size, 128))]
            module(a, b, c)
            np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
    assert copies == 6
