"""The devices of this machine, and which of them a runner drives.

Every target kind has devices with numbers from 0 on.  A backend that can tell them apart lists them
(`ListsDevices`); one that cannot has a single one, the processor.  Costs of different models do not compare, so a
runner drives devices of one model only.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansor.errors import MeasureError, TaskError
from ansor.hardware import host_cores
from ansor.registry import backend
from te_lite.errors import require

ALL = "all"
Wanted = str | tuple[int, ...]


@dataclass(frozen=True)
class DeviceInfo:
    """A device: its target kind, its number, its model, and a line of numbers for people."""

    kind: str
    index: int
    model: str
    detail: str = ""

    @property
    def label(self) -> str:
        """How records and displays call it: `cuda 1 (NVIDIA H200)`."""
        return f"{self.kind} {self.index} ({self.model})"


@dataclass(frozen=True)
class DeviceUse:
    """What a device did in `seconds`: `trials` candidates, which kept it busy for `busy` seconds.

    `lost` counts the worker processes that died or hung on it.
    """

    device: str
    trials: int
    busy: float
    seconds: float
    lost: int

    @property
    def rate(self) -> float:
        """Trials per second."""
        return self.trials / max(self.seconds, 1e-9)

    @property
    def share(self) -> float:
        """The part of the time in which it was busy, from 0 to 1."""
        return min(1.0, self.busy / max(self.seconds, 1e-9))

    def to_json(self) -> dict[str, Any]:
        """Everything, rounded to milliseconds."""
        return {
            "device": self.device, "trials": self.trials, "busy_s": round(self.busy, 3),
            "seconds": round(self.seconds, 3), "lost_workers": self.lost,
        }  # fmt: skip


def list_devices(kind: str) -> list[DeviceInfo]:
    """The devices of a target kind on this machine.  Raises the backend's error when there are none."""
    found = getattr(backend(kind), "devices", None)
    if found is None:
        return [DeviceInfo(kind, 0, processor(), f"{host_cores()} cores")]
    listed: list[DeviceInfo] = found()
    return listed


def processor() -> str:
    """The model of this machine's processor."""
    info = Path("/proc/cpuinfo")
    for line in info.read_text(errors="replace").splitlines() if info.exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def wanted_devices(owner: str, given: Any) -> Wanted:
    """`"all"`, or numbers of devices.  Raises TaskError for anything else, and for a number that occurs twice."""
    law = f"devices must be {ALL!r} or a list of different device numbers"
    if given == ALL:
        return ALL
    ok = isinstance(given, Sequence) and not isinstance(given, str) and len(given) > 0
    ok = ok and all(isinstance(k, int) and not isinstance(k, bool) and k >= 0 for k in given)
    require(ok and len(set(given)) == len(given), TaskError, owner, law, devices=given)
    return tuple(given)


def choose_devices(kind: str, wanted: Wanted) -> list[DeviceInfo]:
    """The devices of a kind that are wanted.

    Raises MeasureError when one is missing or they are not of one model, and the backend's error when there are none.
    """
    there = {d.index: d for d in list_devices(kind)}
    numbers = list(there) if wanted == ALL else [int(k) for k in wanted]
    for k in numbers:
        require(k in there, MeasureError, f"target {kind!r}", f"its devices are {sorted(there)}", device=k)
    chosen = [there[k] for k in numbers]
    models = sorted({d.model for d in chosen})
    law = "the devices of one runner must be of one model, or their costs do not compare"
    require(len(models) == 1, MeasureError, f"target {kind!r}", law, models=models)
    return chosen
