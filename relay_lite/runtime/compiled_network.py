"""What a compiled network consists of: its plan, its parameters, its sources and its machine code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansor.core.nd import aligned_copy

from ..ir.nodes import Array, Function
from .execution_plan import ExecutionPlan


@dataclass(frozen=True)
class KernelCode:
    """A kernel as source text; `scratch` are the bytes of its arguments after those of the group.

    `facts` is what a launch needs to know, as JSON.
    """

    name: str
    source: str
    scratch: tuple[int, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class CompiledNetwork:
    """Plan, parameters, sources and machine code of a network.

    `target` is its text and `kind` the kind; `values` the parameters by name; `kernels` the source and launch facts of
    every kernel by name; `sources` and `binaries` further files; `machine` what the binaries were made for; `graph`
    the fused graph (None for a network that was loaded).
    """

    target: str
    kind: str
    plan: ExecutionPlan
    values: Mapping[str, Array]
    kernels: Mapping[str, KernelCode]
    sources: Mapping[str, str]
    binaries: Mapping[str, bytes]
    machine: Mapping[str, Any]
    graph: Function | None = None
    _held: dict[str, Array] = field(default_factory=dict, repr=False)

    def aligned_value(self, name: str) -> Array:
        """A parameter at an address that is a multiple of 64 bytes; executors on the processor share it."""
        if name not in self._held:
            made = aligned_copy(self.values[name])
            made.setflags(write=False)
            self._held[name] = made
        return self._held[name]
