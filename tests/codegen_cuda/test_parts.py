"""Recordings in parts: which are launched in which order, and whose kernels are exchanged; without a GPU."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from ansor.core.device.network_plan import ExecutionPlan, Step, Storage
from codegen_cuda.networks.launch_ways import PLAIN
from codegen_cuda.networks.network import CudaExecutor
from codegen_cuda.networks.parts import Recording

BACK = {2: 2, 5: 4, 7: 1, 9: 7}
"""Steps that go back, and how far: two turns in another one, of which one follows on its end, and one behind."""


def plan(back: dict[int, int], steps: int) -> ExecutionPlan:
    made = [Step("", (), (), (0,), back=back[k]) if k in back else Step("k", (1,), (1,)) for k in range(steps)]
    return ExecutionPlan((Storage("input", 1), Storage("output", 4)), tuple(made), (), (), (), 0)


def test_a_recording_does_not_keep_its_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory of the device is given back when the last who uses a network lets go of it, not at some collection."""
    monkeypatch.setattr(CudaExecutor, "_recorded", lambda self, way, part: Graph(part, []))
    monkeypatch.setattr(CudaExecutor, "_goes_back", lambda self, step, stream: self.answer)
    executor: Any = object.__new__(CudaExecutor)
    executor.plan, executor.answer = plan(BACK, 10), False
    executor.made = executor.recorded(PLAIN)
    executor.made.launch()
    gone = weakref.ref(executor)
    del executor
    assert gone() is None


@dataclass
class Graph:
    """Steps, two kernels each."""

    steps: range
    log: list[Any]
    kernels: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kernels = [2 * k + half for k in self.steps for half in range(2)]

    def launch(self, stream: int | None) -> None:
        self.log += [(k, stream) for k in self.steps]

    def exchange(self, kernel: int, values: list[int]) -> None:
        self.log.append((self.kernels[kernel], values))


def in_order(back: dict[int, int], steps: int, taken: Iterator[bool]) -> list[int]:
    k, out = 0, []
    while k < steps:
        if k not in back:
            out.append(k)
        elif next(taken):
            k -= back[k] + 1
        k += 1
    return out


@pytest.mark.parametrize("back, steps", [({}, 4), ({1: 1}, 2), (BACK, 11), (BACK, 10), ({2: 1, 3: 3}, 5)])
def test_the_order_of_parts(back: dict[int, int], steps: int) -> None:
    answers = [True, True, False, True, False, False, True, False, True, True] + [False] * 20
    log, asked = list[Any](), iter(answers)
    made = Recording(plan(back, steps), lambda part: Graph(part, log), lambda step, stream: next(asked))  # type: ignore[arg-type, return-value]
    made.launch(7)
    assert log == [(k, 7) for k in in_order(back, steps, iter(answers))] and len(log) >= steps - len(back)
    log.clear()
    kernels = [2 * k + half for k in range(steps) if k not in back for half in range(2)]
    for number in range(len(kernels)):
        made.exchange(number, [number])
    assert log == [(kernel, [number]) for number, kernel in enumerate(kernels)]
