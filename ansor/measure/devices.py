"""The devices of this machine, and which of them a runner drives.

Every target kind has devices with numbers from 0 on (`Backend.devices`).  Costs of different models do not compare, so
a runner drives devices of one model only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from te_lite.errors import require

from ..core.device.backend import backend
from ..core.errors import MeasureError, TaskError
from ..core.tasks.measure_values import DeviceInfo

ALL = "all"
Wanted = str | tuple[int, ...]


def list_devices(kind: str) -> list[DeviceInfo]:
    """The devices of a target kind on this machine.  Raises the backend's error when there are none."""
    return backend(kind).devices()


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
