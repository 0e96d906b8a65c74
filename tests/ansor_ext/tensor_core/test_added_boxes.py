"""Arrays that products are added to, in a ring: fetched in boxes of results, or read ahead; rings of few iterations."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import te_lite as te
from codegen_cuda import CudaProgram, emit
from codegen_cuda.emulation.emulator import run_program
from codegen_cuda.emulation.emulator_report import EmulatorError
from tests.ansor_ext.tensor_core.mma_schedules import Ring, Tiled
from tests.ansor_ext.tensor_core.test_ring import HALF, ROUNDED, Onto, emulated, lowered


class OntoHalves(Ring):
    """One that is added to an array of other elements than those of the result."""

    source = "float16"

    def tensors(self) -> list[te.Tensor]:
        a, b, c = Tiled.tensors(self)
        z = te.placeholder(c.shape, name="Z", dtype=self.source)
        sums = lambda i, j: c[i, j] + te.cast("float32", z[i, j])  # noqa: E731
        return [a, b, z, te.compute(c.shape, lambda i, j: te.cast(self.out, sums(i, j)))]


class OntoBfloats(OntoHalves):
    """Elements of as many bytes as those of a result of halves."""

    source = "bfloat16"


def assert_added(of: Ring, source: str, execute: Callable[..., object]) -> None:
    """Against float64, with a result that holds NaN; `source` is the dtype of what is added."""
    rng, shape = np.random.default_rng(1), of.sizes[:2]
    a, b = of.inputs(np.random.default_rng(0))
    z, out = rng.standard_normal(shape).astype(source), np.full(shape, np.nan, of.out)
    execute(a, b, z, out)
    want = a.astype("float64") @ b.astype("float64").T + z
    size = np.abs(a).astype("float64") @ np.abs(b).astype("float64").T + 8
    assert (np.abs(out - want) <= 3e-5 * size + ROUNDED[of.out] * np.abs(want)).all()


def on_emulator(made: CudaProgram) -> Callable[..., object]:
    return lambda *arrays: run_program(made, list(arrays))


def wide(of: type[Ring], columns: int, blocks: int, tiles: int, **given: object) -> Ring:
    made = replace(HALF, block=(64, columns, 64), warp=(16, columns), turned=True, blocks_at_once=blocks, tiles=tiles)
    return of(**{**vars(made), **given})


@emulated
@pytest.mark.parametrize("columns", [48, 160])
def test_an_array_of_other_elements_is_read_before_products(columns: int) -> None:
    """Where a block computes one part, and threads have registers for both."""
    for blocks, tiles, ahead in ((64, 2, True), (2, 2, False)):
        of = wide(OntoHalves, columns, blocks, tiles, sizes=(70, 200, 136))
        text = (made := emit(lowered(of))).source
        assert ("ahead[" in text) == ahead and "arrived" not in text
        assert not ahead or text.index("ahead[") < text.index("wgmma_wait_for_last();\n")
        assert_added(of, "float16", on_emulator(made))


class Biased(Ring):
    """One whose rows have a factor each, and columns a bias."""

    def tensors(self) -> list[te.Tensor]:
        a, b, c = Tiled.tensors(self)
        rows, columns = [te.placeholder((n,), name=name) for n, name in zip(c.shape, "RZ", strict=True)]
        value = lambda i, j: te.cast(self.out, c[i, j] * rows[i] + columns[j])  # noqa: E731
        return [a, b, rows, columns, te.compute(c.shape, value, name="D")]


BIASED = {
    "one part": wide(Biased, 48, 64, 2, sizes=(70, 200, 136)),
    "groups in turns": wide(Biased, 192, 2, 3, sizes=(200, 392, 136), out="float16"),
    "two groups, three boxes": wide(Biased, 192, 1, 3, sizes=(130, 392, 136), out="float16", block=(128, 192, 64)),
    "B as it is": wide(Biased, 64, 2, 4, sizes=(200, 136, 136), turned=False, out="float16"),
}


@emulated
@pytest.mark.parametrize("name", BIASED)
def test_what_is_of_a_row_or_a_column_is_read_before_the_products_of_a_part(name: str) -> None:
    of = BIASED[name]
    made = emit(lowered(of))
    body = made.source.split("__global__")[-1]
    assert body.count("ahead[") and body.index("ahead_1[") < body.index("wgmma_") < body.rindex("ahead_1[")
    assert not {"R[", "Z["} & set(re.findall(r"\b[RZ]\[", body[body.index("wgmma_") :]))
    a, b = of.inputs(np.random.default_rng(0))
    right = b.T if of.turned else b
    rng, shape = np.random.default_rng(1), of.sizes[:2]
    rows, columns = [rng.standard_normal(n).astype("float32") for n in shape]
    out = np.full(shape, np.nan, of.out)
    run_program(made, [a, b, rows, columns, out])
    want = (a.astype("float64") @ right.astype("float64")) * rows[:, None] + columns
    size = np.abs(a).astype("float64") @ np.abs(right).astype("float64") * np.abs(rows[:, None]) + 8
    assert (np.abs(out - want) <= 3e-5 * size + ROUNDED[of.out] * np.abs(want)).all()


def test_a_box_of_a_part_waits_for_the_one_before_the_last() -> None:
    """Three boxes, of which two are in shared memory: the first waits for all, as the last is where it goes."""
    body = emit(lowered(BIASED["two groups, three boxes"])).source.split("__global__")[-1]
    assert body.count("boxes_read<1>();") == 1 and body.count("boxes_read<0>();") == 2
    assert emit(lowered(BIASED["groups in turns"])).source.count("boxes_read<1>();") == 1


@emulated
def test_elements_of_as_many_bytes_are_not_taken_for_those_of_the_result() -> None:
    """A box holds elements of one kind; its bytes mean another number in another one."""
    of = wide(OntoBfloats, 64, 2, 4, sizes=(70, 192, 136), out="float16")
    made = emit(lowered(of))
    assert "arrived" not in made.source and "box_store_2d" in made.source
    assert_added(of, "bfloat16", on_emulator(made))


class Shifted(Ring):
    """One that is added, but in its first rows, to rows of an array further up."""

    def tensors(self) -> list[te.Tensor]:
        a, b, c = Tiled.tensors(self)
        z = te.placeholder(c.shape, name="Z", dtype=self.out)
        value = lambda i, j: te.if_then_else(i >= 8, c[i, j] + z[i - 8, j], c[i, j])  # noqa: E731
        return [a, b, z, te.compute(c.shape, value, name="D")]


def test_what_a_condition_guards_is_not_read_ahead_of_it() -> None:
    source = emit(lowered(wide(Shifted, 64, 64, 2, sizes=(70, 192, 136)))).source
    assert "ahead[" not in source and "Z[" in source


@emulated
def test_a_block_of_more_columns_than_there_are_reads_no_sums_that_it_lacks() -> None:
    of = wide(Ring, 96, 2, 3, sizes=(70, 80, 136), out="float16")
    a, b = of.inputs(np.random.default_rng(0))
    out = np.full((70, 80), np.nan, "float16")
    run_program(emit(lowered(of)), [a, b, out])
    exact = a.astype("float64") @ b.astype("float64").T
    assert (np.abs(out - exact) <= ROUNDED["float16"] * np.abs(exact) + 1e-3).all()


ONTO = {
    "one part": wide(Onto, 48, 64, 2, sizes=(70, 200, 136)),
    "groups in turns": wide(Onto, 128, 2, 3, sizes=(200, 256, 136), out="float16"),
    "two groups": wide(Onto, 96, 1, 4, sizes=(130, 296, 136), out="float16", block=(128, 96, 64)),
    "one iteration a part": wide(Onto, 64, 2, 4, sizes=(328, 192, 64), out="float16"),
    "one iteration, two groups": wide(Onto, 64, 5, 2, sizes=(136, 640, 64), block=(128, 64, 64)),
    "fewer places than boxes": wide(Onto, 256, 1, 5, sizes=(70, 512, 328)),
}


@emulated
@pytest.mark.parametrize("name", ONTO)
def test_an_array_that_is_added_is_fetched_in_boxes(name: str) -> None:
    """Before the products of a part, into the places of its results."""
    of = ONTO[name]
    text = (made := emit(lowered(of))).source
    assert "ahead[" not in text and len({m.argument for m in made.kernels[0].maps}) == 4
    assert ("ring_expect(arrived" in text[text.index("box_store_2d(map") :]) == (name == "fewer places than boxes")
    assert_added(of, of.out, on_emulator(made))


def test_a_ring_goes_on_in_tiles_of_other_parts() -> None:
    """With as many as there is room for, where a part has few iterations."""
    for blocks, terms, tiles in ((2, 64, 8), (2, 128, 8), (64, 128, 2), (2, 328, 4)):
        source = emit(lowered(wide(Ring, 64, blocks, 4, sizes=(328, 256, terms)))).source
        assert f"ring_open(barriers + 0, {tiles}, 4);" in source, (blocks, terms)


SPOILT_BOXES = {
    "boxes that are not waited for": ("ring_await(arrived", "//"),
    "the parity of the part before": ("((0 + round_1) & 1)", "((1 + round_1) & 1)"),
    "boxes that are still stored": ("boxes_read<0>();\n          ring_expect(", "ring_expect("),
    "boxes of the next columns": ("boxes + ((int)threadIdx.y >> 2) * 4096, arrived", "boxes + 0, arrived"),
}


@emulated
@pytest.mark.parametrize("name", SPOILT_BOXES)
def test_spoilt_boxes_are_caught(name: str) -> None:
    old, new = SPOILT_BOXES[name]
    of = ONTO["one iteration a part"]
    made = emit(lowered(of))
    assert old in made.source
    try:
        assert_added(of, of.out, on_emulator(replace(made, source=made.source.replace(old, new))))
    except (EmulatorError, AssertionError):
        return
    raise AssertionError(name)
