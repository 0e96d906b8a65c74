"""Kernels are taken from the one module that has all of them, or from one each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from codegen_cuda.driver.device import DeviceProgram

KERNEL = {"arguments": [0], "dynamic_bytes": 0, "grid": [1, 1, 1], "block": [1, 1, 1]}
FACTS = {"arguments": 1, "scratch_bytes": [], "kernels": [{"name": f"kernel{k}", **KERNEL} for k in range(3)]}


def loaded(*cubins: bytes) -> list[Any]:
    """The module and the name of each kernel."""

    def module(cubin: bytes) -> Any:
        return SimpleNamespace(
            get_function=lambda name: SimpleNamespace(made=(cubin, name), prepare=lambda types: None)
        )

    device: Any = SimpleNamespace(cuda=SimpleNamespace(module_from_buffer=module))
    program = DeviceProgram(device, cubins, FACTS)
    calls = program.launches([SimpleNamespace(pointer=8)])
    return [function.made for function, *_ in calls]


def test_kernels_come_from_their_modules() -> None:
    assert loaded(b"all") == [(b"all", "kernel0"), (b"all", "kernel1"), (b"all", "kernel2")]
    assert loaded(b"a", b"b", b"c") == [(b"a", "kernel0"), (b"b", "kernel1"), (b"c", "kernel2")]
    with pytest.raises(ValueError, match="shorter"):
        loaded(b"a", b"b")
