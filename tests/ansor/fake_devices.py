"""A backend for tests: several devices that run the programs of `faulty_backend`, beside the host.

`$MODELS` lists the models of the devices, with commas between them.  Each run appends a line to the file `ran` in
`$FAULTS`: device, process, seconds at its begin and end.  The cost of a program follows from the program alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from ansor.core.tasks.measure_values import DeviceInfo
from te_lite.loops.stmt import LoweredFunc
from tests.ansor import faulty_backend


def place() -> Path:
    return Path(os.environ["FAULTS"])


class Program(faulty_backend.Program):
    def __init__(self, fault: str, device: int, directory: Path) -> None:
        super().__init__(fault.removesuffix("_once"))
        self.device = device
        self.directory = directory
        self.cost = float(json.loads((directory / "cost.json").read_text()))
        if fault.endswith("_once") and self.mark("tried"):
            self.fault = "good"

    def mark(self, name: str) -> bool:
        """Leave a file beside the program; whether it was there."""
        file = self.directory / name
        there = file.exists()
        file.touch()
        return there

    def run(self, args: Any) -> None:
        start = time.monotonic()
        with open(place() / "begun", "a") as f:
            f.write(f"{self.device}\n")
        if self.fault == "meet":
            meet(self.device)
        super().run(args)
        with open(place() / "ran", "a") as f:
            f.write(f"{self.device} {os.getpid()} {start} {time.monotonic()}\n")

    def time(self, args: Any, number: int, repeat: int, min_repeat_ms: int, flush: bool, best: float) -> list[float]:
        if self.fault == "jitter":
            time.sleep((self.cost * 1e5) % 0.03)
        super().time(args, number, repeat, min_repeat_ms, flush, best)
        return [self.cost] * repeat


def meet(device: int) -> None:
    """Wait until every device has a program under way."""
    (place() / f"here_{device}").touch()
    end = time.monotonic() + 60
    while len(list(place().glob("here_*"))) < len(os.environ["MODELS"].split(",")):
        if time.monotonic() > end:
            raise RuntimeError("the other devices have nothing to do")
        time.sleep(0.01)


class Device(faulty_backend.Device):
    def __init__(self, index: int) -> None:
        self.index = index

    def load(self, directory: str) -> Program:
        fault = json.loads((Path(directory) / "fault.json").read_text())
        return Program(fault, self.index, Path(directory))


class FakeDevices(faulty_backend.FaultyBackend):
    shares_host = False

    def devices(self) -> list[DeviceInfo]:
        return [DeviceInfo("c", k, model, "fake") for k, model in enumerate(os.environ["MODELS"].split(","))]

    def build(self, func: LoweredFunc, target: str, directory: str) -> None:
        super().build(func, target, directory)
        digest = hashlib.sha256(repr(func.body).encode()).digest()
        (Path(directory) / "cost.json").write_text(str(1e-3 + int.from_bytes(digest[:3], "big") * 1e-9))

    def open(self, index: int) -> Device:
        assert index < len(self.devices())
        return Device(index)


BACKEND = FakeDevices()
