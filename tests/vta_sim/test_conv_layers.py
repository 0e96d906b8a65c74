"""Ten convolutions of ResNet-18, compiled: published counts of what they move, published times, and their numbers."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from tests.vta_sim.conv import BEST, LAYERS, Layer, tiles_of
from tests.vta_sim.packed import ConvProgram
from vta_sim import Device
from vta_sim.core.kinds import Opcode
from vta_sim.sim import PYNQ, Launch
from vta_sim.top import ConvKnobs

# bytes of inputs, weights, micro-ops, outputs; products, ALU operations, instructions
COUNTS = {
    "C2": (487424, 258048, 472, 200704, 451584, 37632, 270),
    "C3": (422912, 294912, 752, 100352, 225792, 18816, 162),
    "C4": (366080, 32768, 136, 100352, 25088, 18816, 162),
    "C5": (430080, 294912, 808, 100352, 451584, 18816, 258),
    "C6": (401408, 294912, 1480, 50176, 225792, 9408, 138),
    "C7": (179712, 65536, 136, 50176, 25088, 9408, 138),
    "C8": (200704, 589824, 1480, 50176, 451584, 9408, 234),
    "C9": (100352, 1179648, 2768, 25088, 225792, 4704, 126),
    "C10": (86528, 131072, 136, 25088, 25088, 4704, 126),
    "C11": (50176, 2359296, 2768, 25088, 451584, 4704, 222),
}
ONES = tiles_of(1, 1, 1, 1, 1, 1)
OTHER_COUNTS = [
    ("C2", ONES, (7054336, 115605504, 20, 200704, 451584, 37632, 225803), 53.2),
    ("C8", ONES, (6553600, 115605504, 20, 50176, 451584, 9408, 169355), 50.9),
    ("C10", ONES, (401408, 6422528, 20, 25088, 25088, 4704, 84683), 9.24),
    ("C11", tiles_of(7, 7, 1, 1, 1, 1), (802816, 2359296, 124, 25088, 451584, 4704, 3275), None),
    ("C2", tiles_of(1, 56, 1, 4, 1, 1), (594944, 2064384, 64, 200704, 451584, 37632, 1019), None),
]
# model ms, measured ms, iterations of GEMM instructions with resets
TIMES = {
    "C2": (5.668, 5.699331, 464128),
    "C3": (2.988, 2.9655326, 232064),
    "C4": (1.346, 1.3487228, 31360),
    "C5": (5.166, 5.1833916, 457856),
    "C6": (2.688, 2.6690964, 228928),
    "C7": (1.021, 1.0287708, 28224),
    "C8": (4.929, 4.933592, 454720),
    "C9": (3.928, 3.9937316, 227360),
    "C10": (1.050, 1.0809022, 26656),
    "C11": (7.369, 7.3480856, 453152),
}


def counts(launch: Launch) -> tuple[int, ...]:
    c = launch.counters
    assert c.acc_load_nbytes == 0
    traffic = (c.inp_load_nbytes, c.wgt_load_nbytes, c.uop_load_nbytes, c.out_store_nbytes)
    return (*traffic, c.gemm_counter, c.alu_counter, len(launch.order))


def launched(layer: Layer, tiles: ConvKnobs) -> Launch:
    """Counted, but not computed."""
    device = Device()
    device.moves_tensors = False
    launch = ConvProgram(device, layer, tiles).run()
    assert device.counters == launch.counters
    device.clear_counters()
    assert set(device.counters.as_dict().values()) == {0} and not device.sram.uop.any()
    return launch


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.one_in(3)
def test_best_tiles(name: str) -> None:
    """Numbers, without a race and in random order, counters, instructions, and modelled time."""
    device = Device()
    device.finds_races = True
    program = ConvProgram(device, LAYERS[name], BEST[name])
    expected = program.fill(np.random.default_rng(1))
    launch = program.run(np.random.default_rng(2))
    np.testing.assert_array_equal(program.result(), expected)
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


# One tile of output channels: the published program clears rows by micro-ops, the compiler by a loop: 6 fewer
FEWER_UOPS = {("C11", tiles_of(7, 7, 1, 1, 1, 1)): 24}


@pytest.mark.parametrize(
    ("name", "tiles", "expected", "megacycles"),
    [pytest.param(*row, marks=[pytest.mark.slow] if row[2][-1] > 80_000 else []) for row in OTHER_COUNTS],
)
def test_counts_at_other_tiles(
    name: str, tiles: ConvKnobs, expected: tuple[int, ...], megacycles: float | None
) -> None:
    launch = launched(LAYERS[name], tiles)
    uops = expected[2] - FEWER_UOPS.get((name, tiles), 0)
    assert counts(launch) == (*expected[:2], uops, *expected[3:])
    if megacycles is not None:
        assert launch.timing().cycles / 1e6 == pytest.approx(megacycles, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "tiles", "cycles"),
    [
        ("C8", tiles_of(14, 14, 1, 4, 1, 1), 703_868),
        ("C2", tiles_of(8, 56, 1, 2, 1, 1), 728_358),
        ("C11", tiles_of(7, 7, 1, 16, 1, 1), 1_185_161),
        ("C8", BEST["C8"], 492_928),
        ("C2", BEST["C2"], 566_753),
        ("C11", BEST["C11"], 736_904),
    ],
)
def test_virtual_threads_hide_latency(name: str, tiles: ConvKnobs, cycles: int) -> None:
    assert round(launched(LAYERS[name], tiles).timing().cycles) == pytest.approx(cycles, abs=1)


STREAMS = [
    (Layer(7, 32, 64, 3, 1, 1), tiles_of(7, 7, 1, 2, 2, 1), "3af513f8e89f"),
    (Layer(10, 48, 64, 3, 1, 1), tiles_of(5, 10, 1, 2, 2, 2), "e557c197b908"),
    (Layer(11, 32, 64, 5, 2, 2), tiles_of(6, 3, 1, 2, 2, 1), "c19612cb7964"),
    (Layer(13, 32, 32, 1, 0, 2), tiles_of(1, 7, 1, 2, 1, 1), "a97b67d2f992"),
    (Layer(8, 32, 48, 3, 1, 1), tiles_of(2, 8, 1, 3, 1, 4), "752842febe38"),
    (LAYERS["C2"], BEST["C2"], "3f69cebabf69"),
    (LAYERS["C3"], BEST["C3"], "eab78456e891"),
    (LAYERS["C4"], BEST["C4"], "d4d53b250a5f"),
    (LAYERS["C5"], BEST["C5"], "18d85cd96fc5"),
    (LAYERS["C6"], BEST["C6"], "f2640a57cf4b"),
    (LAYERS["C7"], BEST["C7"], "a3056c40e8a0"),
    (LAYERS["C8"], BEST["C8"], "0f12d2484a75"),
    (LAYERS["C9"], BEST["C9"], "f24fcbdd18e2"),
    (LAYERS["C10"], BEST["C10"], "ad5d8bebd989"),
    (LAYERS["C11"], BEST["C11"], "a886d5ac2344"),
]
"""Programs that were equal, instruction by instruction, to ones written by hand with the tokens that threads need."""


@pytest.mark.parametrize(("layer", "tiles", "digest"), STREAMS)
def test_instructions_stay(layer: Layer, tiles: ConvKnobs, digest: str) -> None:
    words = launched(layer, tiles).columns.words
    assert hashlib.sha256(words.tobytes()).hexdigest()[:12] == digest
