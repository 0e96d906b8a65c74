"""The machine: memories, tokens, what instructions do, how long they take, and the device that runs programs.

Law: does what the bits say; knows no runtime and no schedule.
"""

from __future__ import annotations

from .cycles import PYNQ, CycleModel, Timing, timing
from .device import Device, Launch
from .dram import Buffer, Dram
from .profiler import Counters
from .sram import Sram
from .timeline import Span, picture, spans, text

__all__ = [
    "PYNQ",
    "Buffer",
    "Counters",
    "CycleModel",
    "Device",
    "Dram",
    "Launch",
    "Span",
    "Sram",
    "Timing",
    "picture",
    "spans",
    "text",
    "timing",
]
