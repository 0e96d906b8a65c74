"""Ten convolutions of ResNet-18: published counts of what they move, published times, and their numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.vta_sim.conv import BEST, LAYERS, ConvProgram, Layer, Tiles, reference
from vta_sim import Device
from vta_sim.core.kinds import Opcode
from vta_sim.sim import PYNQ, Launch

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
ONES = Tiles(1, 1, 1, 1, 1, 1)
OTHER_COUNTS = [
    ("C2", ONES, (7054336, 115605504, 20, 200704, 451584, 37632, 225803), 53.2),
    ("C8", ONES, (6553600, 115605504, 20, 50176, 451584, 9408, 169355), 50.9),
    ("C10", ONES, (401408, 6422528, 20, 25088, 25088, 4704, 84683), 9.24),
    ("C11", Tiles(7, 7, 1, 1, 1, 1), (802816, 2359296, 124, 25088, 451584, 4704, 3275), None),
    ("C2", Tiles(1, 56, 1, 4, 1, 1), (594944, 2064384, 64, 200704, 451584, 37632, 1019), None),
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


@pytest.fixture(scope="module")
def launches() -> dict[str, Launch]:
    """The ten layers at their best tiles, counted but not computed."""
    out = {}
    for name, layer in LAYERS.items():
        device = Device()
        device.moves_tensors = False
        out[name] = ConvProgram(device, layer, BEST[name]).run()
        assert not device.sram.uop.any()
    return out


@pytest.mark.parametrize("name", LAYERS)
def test_counts_at_the_best_tiles(name: str, launches: dict[str, Launch]) -> None:
    assert counts(launches[name]) == COUNTS[name]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tiles", "expected", "megacycles"), OTHER_COUNTS)
@pytest.mark.one_in(4)
def test_counts_at_other_tiles(name: str, tiles: Tiles, expected: tuple[int, ...], megacycles: float | None) -> None:
    device = Device()
    device.moves_tensors = False
    launch = ConvProgram(device, LAYERS[name], tiles).run()
    assert counts(launch) == expected
    if megacycles is not None:
        assert launch.timing().cycles / 1e6 == pytest.approx(megacycles, rel=2e-3)
    assert device.counters == launch.counters
    device.clear_counters()
    assert set(device.counters.as_dict().values()) == {0}


def test_times_of_the_best_tiles(launches: dict[str, Launch]) -> None:
    """The model gives the published figures of the fit, and those lie near the measured times."""
    errors = []
    for name, (model_ms, measured_ms, gemm) in TIMES.items():
        c = launches[name].columns
        assert c.iterations[c.opcode == Opcode.GEMM].sum() == gemm
        ms = launches[name].timing(PYNQ).ms
        assert ms == pytest.approx(model_ms, abs=6e-4)
        errors.append(ms / measured_ms - 1)
    assert np.sqrt(np.mean(np.square(errors))) < 0.012 and max(map(abs, errors)) < 0.029


@pytest.mark.parametrize(
    ("name", "tiles", "cycles"),
    [
        ("C8", Tiles(14, 14, 1, 4, 1, 1), 703_868),
        ("C2", Tiles(8, 56, 1, 2, 1, 1), 728_358),
        ("C11", Tiles(7, 7, 1, 16, 1, 1), 1_185_161),
        ("C8", BEST["C8"], 492_928),
        ("C2", BEST["C2"], 566_753),
        ("C11", BEST["C11"], 736_904),
    ],
)
def test_virtual_threads_hide_latency(name: str, tiles: Tiles, cycles: int) -> None:
    device = Device()
    device.moves_tensors = False
    assert round(ConvProgram(device, LAYERS[name], tiles).run().timing().cycles) == pytest.approx(cycles, abs=1)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.one_in(3)
def test_results_at_the_best_tiles(name: str) -> None:
    program = ConvProgram(Device(), LAYERS[name], BEST[name])
    data, weights = program.fill(np.random.default_rng(1))
    program.run()
    np.testing.assert_array_equal(program.result(), reference(program.layer, data, weights))


@pytest.mark.parametrize(
    ("layer", "tiles"),
    [
        (Layer(10, 48, 32, 3, 1, 1), Tiles(5, 5, 1, 1, 2, 2)),
        (Layer(11, 16, 64, 5, 2, 2), Tiles(6, 3, 1, 2, 2, 1)),
        (Layer(9, 32, 32, 1, 0, 2), Tiles(1, 5, 1, 2, 1, 1)),
        (Layer(7, 32, 64, 3, 0, 1), Tiles(1, 5, 1, 4, 1, 1)),
        (Layer(13, 16, 32, 7, 3, 2), Tiles(7, 7, 1, 1, 2, 1)),
        (Layer(8, 32, 64, 3, 1, 1), Tiles(4, 8, 1, 2, 2, 2)),
    ],
)
def test_results_of_other_layers(layer: Layer, tiles: Tiles) -> None:
    program = ConvProgram(Device(), layer, tiles)
    data, weights = program.fill(np.random.default_rng(2))
    program.run()
    np.testing.assert_array_equal(program.result(), reference(layer, data, weights))
