"""What happens at the barriers of a ring on the block emulator, and how it is drawn; the ladder of schedules."""

from __future__ import annotations

import os
import shutil
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest

import te_lite as te
from ansor_ext.tensor_core.ring_picture import Event, draw_ring, ring_events, ring_spans
from benchmarks.ring_ladder import EMULATED, ladder, lowered
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from codegen_cuda.emulation.emulator_report import EmulatorError
from codegen_cuda.program.cuda_program import CudaProgram
from tests.ansor_ext.tensor_core.mma_schedules import RINGS, Ring
from tests.nonempty import nonempty

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
GROUPS, ITERATIONS, TILES = 2, 7, 4
PROGRAM = replace(
    RINGS["half, two groups, many columns"], sizes=(128, 128, 64 * ITERATIONS), tiles=TILES, blocks_at_once=1
)


def ready(program: Ring) -> tuple[CudaProgram, list[np.ndarray]]:
    tensors = program.tensors()
    a, b = program.inputs(np.random.default_rng(0))
    made = emit(te.lower(program.schedule(tensors), tensors))
    return made, [a, b, np.zeros(program.sizes[:2], program.out)]


def test_each_tile_is_fetched_filled_read_and_released_in_turn() -> None:
    spans = ring_spans(ring_events(*ready(PROGRAM)))
    assert "EMULATION_TRACE" not in os.environ
    found = {(s.kind, s.iteration, s.group): s for s in spans}
    groups, before = range(GROUPS), {tile: -1 for tile in range(TILES)}
    assert len(found) == len(spans) == ITERATIONS * (1 + 2 * GROUPS)
    for turn in nonempty(range(ITERATIONS)):
        way, full, read = [[found[kind, turn, g] for g in of] for kind, of in
                           (("way", [-1]), ("full", groups), ("read", groups))]  # fmt: skip
        assert {s.tile for s in (*way, *full, *read)} == {turn % TILES}
        assert before[turn % TILES] < way[0].first < way[0].last
        for a, b in nonempty(list(zip(full, read, strict=True))):
            assert way[0].last == a.first < a.last == b.first < b.last
        before[turn % TILES] = max(s.last for s in read)


def test_the_first_tiles_are_asked_for_before_anything_arrives() -> None:
    spans = ring_spans(ring_events(*ready(PROGRAM)))
    asked = [s.first for s in spans if s.kind == "way" and s.iteration < TILES]
    assert max(asked) < min(s.last for s in spans)


def test_a_ring_goes_on_from_part_to_part_of_the_result() -> None:
    """A block that computes two parts counts its iterations on."""
    spans = ring_spans(ring_events(*ready(replace(PROGRAM, sizes=(256, 128, 192)))))
    assert {s.iteration for s in spans} == set(range(6))


def test_what_is_drawn_has_a_box_for_each_state() -> None:
    made = ready(PROGRAM)
    drawn = ElementTree.fromstring(draw_ring(*made))
    boxes = [x for x in drawn.iter("{http://www.w3.org/2000/svg}rect") if x.get("class") in ("way", "full", "read")]
    assert len(boxes) == len(ring_spans(ring_events(*made))) + 3  # and the legend


def test_events_are_those_of_one_block() -> None:
    made = ready(replace(PROGRAM, sizes=(256, 128, 192), blocks_at_once=2))
    own = [ring_events(*made, block=block) for block in (0, 1)]
    assert own[0] == own[1] and Event("arrive", 2, 0, 0, 2 * 128 * 64 * 2) in own[0]


def test_a_program_without_barriers_is_refused() -> None:
    made = ready(replace(PROGRAM, engine=False, swizzled=True, turned=True))
    with pytest.raises(EmulatorError, match="a block must wait at barriers in shared memory, got block=0"):
        ring_events(*made)


@pytest.mark.parametrize("name", ladder(EMULATED, 3))
@pytest.mark.one_in(6)
def test_a_schedule_of_the_ladder_computes_its_product(name: str) -> None:
    program = ladder(EMULATED, 3)[name]
    a, b = program.inputs(np.random.default_rng(1))
    got = np.full(EMULATED[:2], np.nan, np.float16)
    run_program(emit(lowered(program)), [a, b, got])
    want = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(got - want).max() <= 2e-3 * np.abs(want).max()


def test_each_schedule_has_one_thing_more_than_the_one_before() -> None:
    texts = [emit(lowered(program)).source for program in ladder((4096, 4096, 4096), 132).values()]
    assert len(set(texts)) == len(texts)
    assert [("box_fetch" in text, "ring_open" in text) for text in texts] == [(False, False)] * 3 + [(True, True)] * 3
