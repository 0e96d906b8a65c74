"""Knobs of a convolution on VTA: whether they are a program, its results bit for bit, and its cycles on the machine."""

from types import ModuleType

import numpy as np

import te_lite as te
from te_lite.errors import TeError
from vta_sim.compiler.module import build
from vta_sim.core.kinds import Module
from vta_sim.sim import spans, text
from vta_sim.top import ConvKnobs, conv2d_packed, requantized, schedule_conv2d_packed

from ..core.verdict import Wrong, need

HINT = """Two threads, over channels or over rows, are enough to overlap; each needs a tile of its own in memory. Large
tiles read fewer inputs again. docs/vta.md, Which configurations are programs, lists what the sizes must obey."""
LIMIT = 49_500


def convolved(data: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The packed 3x3 convolution of padding 1 in NumPy, shifted by 8 and cut to 0 ... 127."""
    padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1), (0, 0), (0, 0))).astype(np.int64)
    taps = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    sums = np.einsum("nchwbiyx,ocyxji->nohwbj", taps, kernel.astype(np.int64))
    return np.asarray(np.clip(sums >> 8, 0, 127).astype(np.int8))


def check(answer: ModuleType) -> None:
    """A refused configuration gets the rule that refuses it; a slow one what its modules did."""
    knobs = vars(answer).get("KNOBS")
    names = ("tile_h", "tile_w", "tile_ci", "tile_co", "oc_nthread", "h_nthread")
    need(isinstance(knobs, dict) and set(knobs) == set(names), f"`KNOBS` must have {', '.join(names)}, and no more")
    assert isinstance(knobs, dict)
    data = te.placeholder((1, 4, 14, 14, 1, 16), name="data", dtype="int8")
    kernel = te.placeholder((4, 4, 3, 3, 16, 16), name="kernel", dtype="int8")
    output = requantized(conv2d_packed(data, kernel, strides=(1, 1), padding=(1, 1)))
    try:
        module = build(schedule_conv2d_packed(ConvKnobs(**knobs), output), [data, kernel, output])
    except TeError as error:
        raise Wrong(f"these knobs are no program: {error}") from error
    rng = np.random.default_rng(19)
    x, w = (rng.integers(-128, 128, t.shape, np.int8) for t in (data, kernel))
    y = np.empty(output.shape, np.int8)
    launch = module.launch(x, w, y)
    need(np.array_equal(y, convolved(x, w)), "the program is wrong, which no knobs should make it; please report it")
    timing = launch.timing()
    busy = {module: timing.busy(launch.columns)[module] for module in Module}
    if timing.cycles > LIMIT:
        print(text(spans(launch.columns, timing), width=100))
    shares = ", ".join(f"{m.name.lower()} {share:.0%}" for m, share in busy.items())
    told = f"{timing.cycles:,.0f} cycles, {LIMIT:,} are wanted; at work: {shares}"
    threads = knobs["oc_nthread"] * knobs["h_nthread"]
    need(timing.cycles <= LIMIT or threads > 1, f"{told}; with one virtual thread nothing overlaps")
    waits = busy[Module.COMPUTE] < 0.75
    need(
        timing.cycles <= LIMIT or not waits, f"{told}; threads overlap, but the tiles are so small that loads come late"
    )
    need(timing.cycles <= LIMIT, f"{told}; compute is busy: larger tiles give it fewer and longer instructions")
