"""A backend for tests, for a worker in this process: matrix products in NumPy, on devices that count what is moved.

A program is a directory with a file `fault.json`, as those of `faulty_backend`.  Two devices: number 0 checks its
arrays itself, number 1 cannot.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ansor.core.device.backend import Backend
from te_lite.loops.stmt import LoweredFunc

COUNTS: Counter[str] = Counter()
"""Calls, and bytes moved, since it was cleared."""
BESTS: list[float] = []
"""What each timing was told to be the best time."""


@dataclass
class Held:
    """An array on the device."""

    values: np.ndarray


class Program:
    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.calls = 0

    def run(self, args: list[Held]) -> None:
        COUNTS["run"] += 1
        a, b, c = [x.values for x in args]
        c[...] = a @ b
        if "wrong" in self.fault and (self.calls or "later" not in self.fault):
            c[0, 0] += 1
        if "scribble" in self.fault:
            a[0, 0] += 1
        self.calls += 1

    def time(
        self, args: list[Held], number: int, repeat: int, min_repeat_ms: int, flush: bool, best: float = 0.0
    ) -> list[float]:
        BESTS.append(best)
        self.run(args)
        return [json.loads(self.fault.partition(" ")[2] or "1e-3")] * repeat


class PlainDevice:
    def put(self, array: np.ndarray) -> Held:
        COUNTS["put"] += 1
        return Held(array.copy())

    def write(self, handle: Held, array: np.ndarray) -> None:
        COUNTS["write"] += 1
        handle.values[...] = array

    def get(self, handle: Held) -> np.ndarray:
        COUNTS["get"] += 1
        return handle.values.copy()

    def load(self, directory: str) -> Program:
        return Program(json.loads((Path(directory) / "fault.json").read_text()))


class CheckingDevice(PlainDevice):
    free = 1 << 40

    def free_bytes(self) -> int:
        return self.free

    def fill(self, handle: Held, value: np.ndarray) -> None:
        COUNTS["fill"] += 1
        handle.values[...] = value

    def same(self, handle: Held, other: Held) -> bool:
        COUNTS["same"] += 1
        return handle.values.tobytes() == other.values.tobytes()

    def judges(self, dtype: str) -> bool:
        return dtype == "float32"

    def within(self, handle: Held, low: Held, high: Held, nan: Held) -> bool:
        COUNTS["within"] += 1
        return bool(((handle.values >= low.values) & (handle.values <= high.values)).all())


class CountingBackend(Backend):
    kind = "c"

    def source(self, func: LoweredFunc, target: str) -> str:
        return ""

    def build(self, func: LoweredFunc, target: str, directory: str) -> None: ...

    def open(self, index: int) -> Any:
        return CheckingDevice() if index == 0 else PlainDevice()


BACKEND = CountingBackend()
