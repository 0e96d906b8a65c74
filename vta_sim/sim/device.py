"""The accelerator as the runtime sees it: memory, and a start button.

A launch reads instructions from DRAM.  Memories on the chip and tokens in the queues outlive it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from te_lite.errors import require

from ..core.config import Config
from ..core.errors import MachineError
from ..isa.columns import Columns, columns
from .cycles import PYNQ, CycleModel, Timing, timing
from .dram import Dram
from .functional import execute
from .legal import check_transfers, check_uop_ranges
from .profiler import Counters, count
from .races import RaceDetector
from .sram import Sram
from .tokens import Queue, Waits, check_flags, order, waits

INSTRUCTION_BYTES = 16


@dataclass(frozen=True)
class Launch:
    """A program that ran: its instructions, who waited for whom, and the order in which they were executed."""

    columns: Columns
    waits: Waits
    order: list[int]

    @cached_property
    def counters(self) -> Counters:
        """What it moved and computed."""
        return count(self.columns)

    def timing(self, model: CycleModel = PYNQ) -> Timing:
        """How long it takes."""
        return timing(self.columns, self.waits, self.order, model)


class Device:
    """A machine with its memories.  `counters` adds up what its programs did since `clear_counters`.

    While `moves_tensors` is False nothing is moved or computed; programs are checked and counted all the same.  While
    `finds_races` is True a program is refused when it lacks a token that it needs (see `races`).
    """

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        self.dram = Dram()
        self.sram = Sram(self.config)
        self.counters = Counters()
        self.tokens: dict[Queue, int] = {}
        self.moves_tensors = True
        self.finds_races = False

    def clear_counters(self) -> None:
        """Begin to count anew."""
        self.counters = Counters()

    def launch(self, address: int, count: int, rng: np.random.Generator | None = None) -> Launch:
        """Run `count` instructions from a byte address.

        `rng` picks the module that may go on next; the result is the same unless the program lacks tokens.
        Raises IsaError, MachineError or DeadlockError; the memories then hold whatever was written before.
        """
        c = self._program(address, count)
        needs = waits(c, self.tokens)
        run = Launch(c, needs, order(c, needs, rng))
        if self.moves_tensors:
            races = RaceDetector(c, needs, run.order) if self.finds_races else None
            execute(c, run.order, self.sram, self.dram, races)
        self.tokens = needs.left
        self.counters = self.counters + run.counters
        return run

    def _program(self, address: int, count: int) -> Columns:
        """The instructions at an address.  Raises IsaError or MachineError when they are no legal program."""
        require(count > 0, MachineError, "launch", "a program needs at least one instruction", count=count)
        buffer, offset = self.dram.find(address, count * INSTRUCTION_BYTES)
        data = buffer.data[offset : offset + count * INSTRUCTION_BYTES]
        c = columns(self.config, data.copy().view(np.uint64).reshape(count, 2))
        check_flags(c)
        check_transfers(c)
        check_uop_ranges(c)
        return c
