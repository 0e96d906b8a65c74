"""Resources of compiled kernels: registers, spills, stack and shared memory, from the report of `ptxas -v`."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class KernelResources:
    """One kernel: `registers` of a thread; the rest in bytes.

    `stack` is local memory of a thread (0 when all arrays are registers), `shared` the static shared memory.
    """

    name: str
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int

    @property
    def spills(self) -> int:
        """Bytes of spilled registers, stores and loads."""
        return self.spill_stores + self.spill_loads


def parse_resources(log: str) -> tuple[KernelResources, ...]:
    """The kernels of a compiler log, by name; empty when ptxas was not asked with `-v`."""
    parts = _ENTRY.split(log)
    found = [_kernel(name, text) for name, text in zip(parts[1::2], parts[2::2], strict=True)]
    return tuple(sorted(found, key=lambda k: k.name))


def _kernel(name: str, text: str) -> KernelResources:
    registers, stack, shared = _REGISTERS.search(text), _STACK.search(text), _SHARED.search(text)
    frame, stores, loads = (0, 0, 0) if stack is None else [int(x) for x in stack.groups()]
    return KernelResources(
        name, int(registers[1]) if registers else 0, frame, stores, loads, int(shared[1]) if shared else 0
    )
