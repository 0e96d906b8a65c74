"""The architecture that programs are compiled for: the target's, else that of the first device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansor.core.errors import GraphError
from te_lite.errors import require

from .device import architecture


def target_architecture(target: str) -> str:
    """The architecture to compile for: `-arch=sm_90` of the target's text, else the first device's."""
    for word in target.split():
        if word.startswith("-arch="):
            return word.removeprefix("-arch=")
    return architecture()


def with_architecture(target: str) -> str:
    """The target's text with the architecture that it is compiled for."""
    word = f"-arch={target_architecture(target)}"
    return target if word in target.split() else f"{target} {word}"


def check_architecture(subject: str, facts: Mapping[str, Any], index: int) -> None:
    """Raise GraphError when device `index` cannot run machine code made for `facts`, DeviceError without a device."""
    made, here = str(facts.get("architecture")), architecture(index)
    law = f"was compiled for {made}; build it for this device"
    require(runs_on(made, here), GraphError, subject, law, device=here)


def runs_on(made: str, here: str) -> bool:
    """Whether a device of architecture `here` runs machine code for `made`: `sm_86` runs that for `sm_80`."""
    numbers = [x.removeprefix("sm_") for x in (made, here)]
    whole = all(x.isdigit() for x in numbers)
    return made == here or (whole and numbers[0][:-1] == numbers[1][:-1] and int(numbers[0]) <= int(numbers[1]))
