"""Rings as the block emulator runs them: who has which tile in which phase, as a picture.

A tile is on its way from the request to the copy engine until all bytes have arrived, is full until a group begins to
multiply it, and is read by a group until that releases it.  What is shown is the order of what happens, not its time:
the emulator runs one thread after the other, and lets copies arrive when all others wait.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ansor.core.files.private_files import scratch_folder
from ansor.viz.boxes import PAD
from ansor.viz.svg import LINE, Svg, picture, rectangle, text
from codegen_cuda.emulation.emulator import run_program
from codegen_cuda.emulation.emulator_report import EmulatorError
from codegen_cuda.program.cuda_program import CudaProgram
from te_lite.errors import require

from .mma import WARPS

STEP, HIGH, LEFT, BARRIER_BYTES, GROUP = 13, 18, 60, 8, 32 * WARPS
STYLE = """
rect.way { fill: #fff; stroke: #888; stroke-dasharray: 2 2 }
rect.full { fill: #dcdcdc; stroke: #888 }
rect.read { fill: #444; stroke: #888 }
"""
KINDS = {"way": "on its way", "full": "full", "read": "read by a group of warps; the number is that of the iteration"}


@dataclass(frozen=True)
class Event:
    """What happens at a barrier: an arrival, a complete phase, or a group of warps that goes on behind one ("pass").

    `barrier` counts those of a block; `nbytes` are those that an arrival expects.
    """

    what: str
    group: int
    barrier: int
    phase: int
    nbytes: int


@dataclass(frozen=True)
class Span:
    """Events `first` to `last` in which a tile is in a state, in an iteration; of one group, or of all (-1)."""

    kind: str
    tile: int
    group: int
    iteration: int
    first: int
    last: int


def ring_events(program: CudaProgram, args: Sequence[np.ndarray], block: int = 0) -> list[Event]:
    """What happens at the barriers of a block while the emulator runs a program on arrays, in this order.

    Raises EmulatorError as `run_program` does, and for a program without barriers.
    """
    with scratch_folder("trace") as folder:
        file = Path(folder) / "events"
        os.environ["EMULATION_TRACE"] = str(file)
        try:
            run_program(program, args)
        finally:
            del os.environ["EMULATION_TRACE"]
        rows = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return _events([row for row in rows if int(row[1]) == block], program.name, block)


def _events(mine: Sequence[Sequence[str]], name: str, block: int) -> list[Event]:
    """The events of a block, as it writes them."""
    require(bool(mine), EmulatorError, name, "a block must wait at barriers in shared memory", block=block)
    start = min(int(row[3]) for row in mine)
    events = []
    for what, _, thread, at, phase, nbytes in mine:
        place = (int(at) - start) // BARRIER_BYTES
        events.append(Event(what, int(thread) // GROUP, place, int(phase), int(nbytes)))
    seen: dict[Event, None] = dict.fromkeys(events)  # threads of a group go on together
    return list(seen)


def ring_spans(events: Sequence[Event]) -> list[Span]:
    """The states of all tiles: barriers are `full` ones of each tile, then `empty` ones (`ring.py`)."""
    tiles = (max(e.barrier for e in events) + 1) // 2
    at = {(e.what, e.barrier, e.phase, e.group): k for k, e in enumerate(events)}
    complete = {(e.barrier, e.phase): k for k, e in enumerate(events) if e.what == "complete"}
    spans = []
    for k, e in enumerate(events):
        tile, iteration = e.barrier % tiles, e.phase * tiles + e.barrier % tiles
        if e.what == "arrive" and e.nbytes:
            spans.append(Span("way", tile, -1, iteration, k, complete[e.barrier, e.phase]))
        elif e.what == "pass" and e.barrier < tiles:
            spans.append(Span("full", tile, e.group, iteration, complete[e.barrier, e.phase], k))
            spans.append(Span("read", tile, e.group, iteration, k, at["arrive", tile + tiles, e.phase, e.group]))
    return spans


def draw_ring(program: CudaProgram, args: Sequence[np.ndarray], block: int = 0) -> Svg:
    """The tiles of a block's ring, one line each, from left to right while the emulator runs a program on arrays.

    Raises EmulatorError.
    """
    events = ring_events(program, args, block)
    spans = ring_spans(events)
    groups, tiles = 1 + max(s.group for s in spans), 1 + max(s.tile for s in spans)
    top, row = PAD + 2.0 * LINE, groups * HIGH + 6
    parts = [text(PAD, PAD + 12, f"the ring of block {block}", kind="head")]
    parts += [text(PAD, top + row * k + 13, f"tile {k}") for k in range(tiles)]
    parts += [shape for span in spans for shape in _shapes(span, groups, top + row * span.tile)]
    bottom = top + row * tiles + LINE
    parts += _legend(bottom)
    width = max(LEFT + STEP * len(events) + PAD, 520)
    return picture(width, bottom + LINE * len(KINDS), f"the ring of block {block}", parts, STYLE)


def _legend(y: float) -> Iterator[str]:
    for k, (kind, words) in enumerate(KINDS.items()):
        yield rectangle(kind, PAD, y + LINE * k - 10, STEP, 12)
        yield text(PAD + 20, y + LINE * k, words)


def _shapes(span: Span, groups: int, y: float) -> Iterator[str]:
    """A state as a box; of all groups in full height."""
    high, down = (HIGH * groups, 0) if span.group < 0 else (HIGH, HIGH * span.group)
    x, width = LEFT + STEP * span.first, STEP * (span.last - span.first)
    yield rectangle(span.kind, x, y + down, width, high, f"{span.kind}, iteration {span.iteration}")
    if span.kind == "read":
        yield text(x + width / 2, y + down + 12, str(span.iteration), "middle", "small light")
