"""The architecture that programs are compiled for: the target's, else that of the first device."""

from __future__ import annotations

from functools import lru_cache

from .device import architecture


@lru_cache(maxsize=1)
def _device_architecture() -> str:
    return architecture()


def target_architecture(target: str) -> str:
    """The architecture to compile for: `-arch=sm_90` of the target's text, else the first device's."""
    for word in target.split():
        if word.startswith("-arch="):
            return word.removeprefix("-arch=")
    return _device_architecture()
