"""Sketches of computations to which a rule does not apply whole: all of them have programs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import te_lite as te
from ansor.core.values.options import SketchOptions
from ansor.sketch import generate_sketches
from ansor.sketch.generate import extra_sketches
from ansor.sketch.predicates import NO_SPLIT
from ansor.space.sample import sample_rows
from ansor.space.spaces import mutate_place, random_space, random_variant
from ansor.space.states import concrete
from te_lite import Tensor
from te_lite.schedule.state import ATTACHED
from tests.ansor.sketch_cases import HARDWARE, dag_of, matmul

Made = list[Tensor]


def reduced_consumer() -> Made:
    """The consumer of an outer product, point by point, has a reduction of its own."""
    a, b, c = te.placeholder((7,), name="A"), te.placeholder((6,), name="B"), te.placeholder((5,), name="C")
    p = te.compute((7, 6), lambda i, j: a[i] * b[j], "P")
    r = te.reduce_axis((0, 5), "r")
    return [a, b, c, te.compute((7, 6), lambda i, j: te.max(p[i, j] * c[r], axis=r), "Q")]


def matmul_and(*whole: tuple[str, ...], argument: bool = False) -> Made:
    """A product and an exponential of it; `whole` are the axes of both that stay whole."""
    a, b = te.placeholder((16, 16), name="A"), te.placeholder((16, 16), name="B")
    r = te.reduce_axis((0, 16), "r")
    kept = [{NO_SPLIT: list(names)} if names else {} for names in whole]
    c = te.compute((16, 16), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "C", attrs=kept[0])
    d = te.compute((16, 16), lambda i, j: te.exp(c[i, j]), "D", attrs=kept[1])
    return [a, b, c, d] if argument else [a, b, d]


def pair_then_product() -> Made:
    """A tiled reduction reads an operation with two outputs."""
    a, b = te.placeholder((16, 16), name="A"), te.placeholder((16, 16), name="B")
    p, q = te.compute((16, 16), lambda i, j: (te.exp(a[i, j]), a[i, j] + 1.0), "P")
    r = te.reduce_axis((0, 16), "r")
    return [a, b, te.compute((16, 16), lambda i, j: te.sum(p[i, r] * q[i, r] * b[r, j], axis=r), "C")]


def argument_read(extent: int) -> Made:
    """An argument that is easily inlined; `extent` of its 16 elements are read."""
    x = te.placeholder((16,), name="X")
    p = te.compute((16,), lambda i: x[i] + 1.0, "P")
    return [x, p, te.compute((extent,), lambda i: p[i] * 2.0, "Q")]


def reduced_argument_read_in_parts() -> Made:
    """A long sum of each row is an argument; the consumer, row by row, reads some columns only."""
    x = te.placeholder((8, 4, 256), name="X")
    r = te.reduce_axis((0, 256), "r")
    p = te.compute((8, 4), lambda i, j: te.sum(x[i, j, r], axis=r), "P")
    return [x, p, te.compute((8, 2), lambda i, j: p[i, j + 1] * 2.0, "Q")]


CASES: dict[str, Callable[[], Made]] = {
    "reduced_consumer": reduced_consumer,
    "one_whole_in_producer": lambda: matmul_and(("i",), ()),
    "one_whole_in_consumer": lambda: matmul_and((), ("j",)),
    "different_axes_whole": lambda: matmul_and(("i",), ("j",)),
    "all_axes_whole": lambda: matmul_and(("i", "j"), ("i", "j")),
    "pair_then_product": pair_then_product,
    "argument_read": lambda: argument_read(16),
    "argument_read_in_parts": lambda: argument_read(7),
    "reduced_argument_read_in_parts": reduced_argument_read_in_parts,
    "tiled_argument": lambda: matmul_and((), (), argument=True),
}


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(5)
def test_every_sketch_has_programs(name: str, target: str) -> None:
    dag, hardware, rng = te.ComputeDAG(CASES[name]()), HARDWARE[target], np.random.default_rng(3)
    found = generate_sketches(dag, target, hardware)
    assert found
    for sketch in [*found, *extra_sketches(dag, target, hardware)]:
        for _ in range(3):
            variant = random_variant(random_space(sketch, rng, target, hardware), rng)
            for v in (variant, mutate_place(variant, rng) or variant):
                rows = sample_rows(v, 1, rng, target, hardware)
                assert len(rows) and te.lower(concrete(v, rows[0], target, hardware))


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_an_argument_is_still_fused_with_what_reads_all_of_it(target: str) -> None:
    found = generate_sketches(te.ComputeDAG(matmul_and((), (), argument=True)), target, HARDWARE[target])
    assert any(s.op.name == "C" and s.where == ATTACHED for sketch in found for s in sketch.stages)


@pytest.mark.parametrize("structure", ["SR", "RSS"])
def test_a_structure_without_levels_to_fuse_at(structure: str) -> None:
    options = SketchOptions(cpu_multi_level_tiling_structure=structure)
    relu = te.ComputeDAG(matmul_and((), ()))
    for dag in (relu, te.ComputeDAG(matmul(16, 16, 16)), dag_of("matmul")):
        assert generate_sketches(dag, "c", HARDWARE["c"], options=options)
