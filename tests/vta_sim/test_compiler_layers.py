"""Compiled convolutions of ResNet-18: their numbers, and the published counts, times and instructions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.vta_sim.conv import BEST, LAYERS, ConvProgram, Layer, Tiles
from tests.vta_sim.packed import conv_of, knobs_of
from tests.vta_sim.test_conv_layers import COUNTS, OTHER_COUNTS, TIMES, counts
from vta_sim import CommandQueue, Device
from vta_sim.compiler import compile_schedule
from vta_sim.compiler.module import Module
from vta_sim.core.kinds import Opcode
from vta_sim.isa.instruction import Instruction, Load, Store
from vta_sim.sim import PYNQ, Launch
from vta_sim.top import schedule_conv2d_packed


def module(layer: Layer, tiles: Tiles, moves_tensors: bool = True) -> Module:
    """A compiled convolution on a machine that finds races."""
    conv = conv_of(layer)
    tensors = conv.requantized()
    device = Device()
    device.finds_races, device.moves_tensors = True, moves_tensors
    return Module(compile_schedule(schedule_conv2d_packed(knobs_of(tiles), tensors[-1]), tensors), device)


def launched(layer: Layer, tiles: Tiles) -> Launch:
    """Counted, but not computed."""
    conv = conv_of(layer)
    data, weights = conv.fill(np.random.default_rng(0))
    out = np.zeros((1, layer.co, layer.out, layer.out, 1, 16), np.int8)
    return module(layer, tiles, moves_tensors=False).launch(data, weights, out)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.one_in(3)
def test_best_tiles(name: str) -> None:
    """Numbers, counters, instructions, and modelled time at the best published tiles."""
    conv = conv_of(LAYERS[name])
    data, weights = conv.fill(np.random.default_rng(1))
    expected = conv.result(data, weights)
    out = np.full_like(expected, -77)
    launch = module(LAYERS[name], BEST[name]).launch(data, weights, out, rng=np.random.default_rng(2))
    np.testing.assert_array_equal(out, expected)
    assert counts(launch) == COUNTS[name]
    model_ms, measured_ms, gemm = TIMES[name]
    c = launch.columns
    assert c.iterations[c.opcode == Opcode.GEMM].sum() == gemm
    ms = launch.timing(PYNQ).ms
    assert ms == pytest.approx(model_ms, abs=6e-4) and abs(ms / measured_ms - 1) < 0.029


def test_model_error_over_the_ten_layers() -> None:
    """Within 2% of the measured times, root mean square."""
    errors = [launched(LAYERS[name], BEST[name]).timing().ms / TIMES[name][1] - 1 for name in LAYERS]
    assert np.sqrt(np.mean(np.square(errors))) < 0.012


# One tile of output channels: the hand-written program clears rows by micro-ops, the compiler by a loop: 6 fewer
FEWER_UOPS = {("C11", Tiles(7, 7, 1, 1, 1, 1)): 24}
SMALL_COUNTS = [row for row in OTHER_COUNTS if row[2][-1] < 80_000]


@pytest.mark.parametrize(("name", "tiles", "expected", "megacycles"), SMALL_COUNTS)
def test_counts_at_other_tiles(name: str, tiles: Tiles, expected: tuple[int, ...], megacycles: float | None) -> None:
    launch = launched(LAYERS[name], tiles)
    uops = expected[2] - FEWER_UOPS.get((name, tiles), 0)
    assert counts(launch) == (*expected[:2], uops, *expected[3:])
    if megacycles is not None:
        assert launch.timing().cycles / 1e6 == pytest.approx(megacycles, rel=2e-3)


def program(layer: Layer, tiles: Tiles) -> list[Instruction]:
    """The compiled instructions, on buffers where the program written by hand has its own."""
    conv = conv_of(layer)
    tensors = conv.requantized()
    compiled = compile_schedule(schedule_conv2d_packed(knobs_of(tiles), tensors[-1]), tensors)
    device = Device()
    queue = CommandQueue(device)
    compiled.emit(queue, [device.dram.alloc(arg.size) for arg in compiled.args])
    return [plain(i) for i in queue.program]


def plain(i: Instruction) -> Instruction:
    """The instruction, with the distance of its rows left out where it has one row."""
    if isinstance(i.op, Load | Store) and i.op.y_size == 1:
        return Instruction(replace(i.op, x_stride=0), i.deps)
    return i


@pytest.mark.parametrize(
    ("layer", "tiles"),
    [
        (Layer(7, 32, 64, 3, 1, 1), Tiles(7, 7, 1, 2, 2, 1)),
        (Layer(10, 48, 64, 3, 1, 1), Tiles(5, 10, 1, 2, 2, 2)),
        (Layer(11, 32, 64, 5, 2, 2), Tiles(6, 3, 1, 2, 2, 1)),
        (Layer(13, 32, 32, 1, 0, 2), Tiles(1, 7, 1, 2, 1, 1)),
        (Layer(8, 32, 48, 3, 1, 1), Tiles(2, 8, 1, 3, 1, 4)),
        *((LAYERS[name], BEST[name]) for name in LAYERS),
    ],
)
def test_same_instructions_as_written_by_hand(layer: Layer, tiles: Tiles) -> None:
    """Instruction by instruction, addresses and tokens included."""
    by_hand = ConvProgram(Device(), layer, tiles)
    by_hand.queue_all()
    assert program(layer, tiles) == [plain(i) for i in by_hand.queue.program]
