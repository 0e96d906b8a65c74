"""From a group to its machine code: taken from the store of kernels, or chosen, lowered, verified and compiled now.

What is kept of a kernel is all that a network needs of it: source, machine code, and how it is called.  Its name in the
store is made of the computation, the recorded program if there is one, and the code that made it (`KernelStore`), so
that a kernel from the store is the one that would be made now.  The compiler works in other threads, while the next
kernel is chosen in this one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Set
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ansor.core.device.network_backend import NetworkBackend
from ansor.core.device.network_plan import KernelCode
from ansor.core.files.kernel_store import KernelStore, source_digest
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.layout.packing import PackedLayout
from te_lite.errors import require
from te_lite.loops.stmt import LoweredFunc
from te_lite.printing.dag_json import dag_to_json
from te_lite.schedule.step import to_json

from ..ir.errors import GraphError
from ..ir.nodes import Function
from ..ir.types import fields_of
from ..op.lower_group import recurrence_of
from ..runtime.assemble import GroupKernel
from ..transform.layout_rewrite import PackedLayouts, take_packed
from .group_programs import Wanted, arguments_of, choose_program, results_of

PACKAGES = ("te_lite", "ansor", "relay_lite")
"""What makes source text of a group, beside the package of the backend."""


@dataclass(frozen=True, eq=False)
class Parts:
    """All of a kernel but its machine code: the group, which takes some parameters packed (`layouts`, by position)."""

    function: Function
    layouts: PackedLayouts
    code: KernelCode
    arguments: tuple[int, ...]
    results: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.code.name

    @property
    def call(self) -> GroupKernel:
        """How the plan of a network calls it."""
        return GroupKernel(self.name, self.arguments, self.results, self.code.scratch, self.code.over)

    def to_json(self) -> dict[str, Any]:
        """What the store keeps of it."""
        code, layouts = self.code, {k: [x.shape, x.names, x.digits] for k, x in self.layouts.items()}
        return {
            "name": code.name, "source": code.source, "scratch": code.scratch, "facts": code.facts,
            "over": code.over, "layouts": layouts, "arguments": self.arguments, "results": self.results,
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Kernel(Parts):
    """A kernel; `machine_code` waits for the compiler, and raises what the backend's `compile` raises."""

    machine_code: Callable[[], bytes]


@dataclass(frozen=True)
class Maker:
    """Makes the kernels of a network; the compiler runs in the threads of `pool`."""

    backend: NetworkBackend
    target: Target
    pool: Executor

    @cached_property
    def store(self) -> KernelStore | None:
        return self.backend.store()

    @cached_property
    def made_by(self) -> list[Any]:
        """What decides a kernel beside its group, its record and the compiler."""
        target = str(self.target)
        packages = (*PACKAGES, type(self.backend).__module__.partition(".")[0])
        hardware = HardwareParams().completed(self.target).to_json()
        return [target, hardware, self.backend.machine(target), np.__version__, *map(source_digest, packages)]

    def __call__(self, need: Wanted, taken: Set[str]) -> Kernel:
        """The kernel of a group, its name none of `taken`.  Raises as `choose_program` and the backend do."""
        if self.store is None:
            return self._made(need, taken, None)
        place = self.store.place(self.made_by, _facts(need, taken))
        kept = self.store.read(place)
        if kept is None:
            return self._made(need, taken, place)
        need.unwanted()
        return _from_bytes(need, kept)

    def _made(self, need: Wanted, taken: Set[str], place: Path | None) -> Kernel:
        """The kernel that a worker made under a name that is free, else that which is chosen now, compiled."""
        ahead = need.ahead()
        if ahead is None or ahead.kernel is None or ahead.kernel.name in taken:
            return self._chosen(need, taken, place)
        arguments, results = arguments_of(need.function, need.group), results_of(need.function, need.group)
        return self._compiled(Parts(need.function, {}, ahead.kernel, arguments, results), None, place)

    def _chosen(self, need: Wanted, taken: Set[str], place: Path | None) -> Kernel:
        target = str(self.target)
        program = choose_program(need, self.target, lambda func: self.backend.accept(func, target), taken)
        code = self.backend.code(program.func, target)
        parts = Parts(program.function, program.layouts, code, program.arguments, program.results)
        return self._compiled(parts, program.func, place)

    def whole(self, function: Function) -> Kernel:
        """The kernel of a function that is a whole loop.  Raises GraphError for one that the backend does not run."""
        loop = recurrence_of(function)
        code = None if loop is None else self.backend.recurrence(loop, str(self.target))
        require(code is not None, GraphError, f"kernel {function.attrs.get('name')}", "no kernel runs this whole loop")
        assert code is not None
        given, made = len(function.params), len(fields_of(function.body.type))
        places = tuple(range(given + made))
        return self._compiled(Parts(function, {}, code, places, places[given:]), None, None)

    def _compiled(self, parts: Parts, func: LoweredFunc | None, place: Path | None) -> Kernel:
        """A kernel that a thread compiles, and writes to the store."""
        facts = parts.to_json()

        def compiled() -> bytes:
            made = self.backend.compile(func, parts.code, str(self.target))
            if self.store is not None and place is not None:
                self.store.write(place, json.dumps(facts).encode() + b"\n" + made)
            return made

        waiting = self.pool.submit(compiled)
        return Kernel(parts.function, parts.layouts, parts.code, parts.arguments, parts.results, waiting.result)


def _facts(need: Wanted, taken: Set[str]) -> list[Any]:
    """All that decides which program a group gets, its name, and how that is called; JSON."""
    group, parameters = need.group, len(need.function.params)
    steps = None if need.recorded is None else [to_json(step) for step in need.recorded.steps]
    names = sorted([n for n in taken if re.fullmatch(rf"{re.escape(group.name)}(_packed)?(_\d+)?", n)])
    return [group.name, names, parameters, group.inputs, need.weights, dag_to_json(group.dag), steps]


def _from_bytes(need: Wanted, kept: bytes) -> Kernel:
    """What `Maker` kept, for the group that needs it."""
    text, _, made = kept.partition(b"\n")
    facts = json.loads(text)
    layouts = {int(k): _layout(*parts) for k, parts in facts["layouts"].items()}
    over = tuple([(result, given) for result, given in facts["over"]])
    code = KernelCode(facts["name"], facts["source"], tuple(facts["scratch"]), facts["facts"], over)
    function = take_packed(need.function, layouts) if layouts else need.function
    return Kernel(function, layouts, code, tuple(facts["arguments"]), tuple(facts["results"]), lambda: made)


def _layout(shape: list[int], names: list[str], digits: list[list[int]]) -> PackedLayout:
    return PackedLayout(tuple(shape), tuple(names), tuple([(d, extent) for d, extent in digits]))
