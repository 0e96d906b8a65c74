"""The data of a task in a worker: what a program is given, and what is asked of its arrays afterwards.

A task of moderate size is held by the host as well (`HeldTask`); one that is too large for that is drawn and judged on
the device (`drawn_task.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from te_lite import ComputeDAG

from ..core.device.backend import Array, Device
from ..layout.packing import PackedLayout
from .array_checks import ArrayChecks
from .check import Accepted


class TaskArrays(Protocol):
    """The arrays of a task, `task` being its key.  What `lend` gives is handed back with each question."""

    task: str
    device: Any

    @property
    def nbytes(self) -> int:
        """The memory that is taken where there is least of it."""

    def lend(self, packed: Sequence[Any]) -> Mapping[int, Any]:
        """The inputs for a program by argument number; those that `packed` lists are packed for it."""

    def arguments(self, lent: Mapping[int, Any]) -> list[Any]:
        """The device arrays that a program takes."""

    def take_back(self, lent: Mapping[int, Any]) -> list[str]:
        """The names of the inputs that a program has changed; they are as before when this returns."""

    def poison_outputs(self) -> None:
        """What a program does not write shows."""

    def wrong_outputs(self) -> list[str]:
        """A sentence for each output that is not what the reference says."""


@dataclass(frozen=True)
class Lent:
    """An input as a program gets it: the array on the device, and what it must still hold afterwards.

    `kept` is what the checks keep of it.
    """

    name: str
    handle: Any
    array: Array
    kept: Any


@dataclass
class HeldTask:
    """A task whose data the host has, by argument number: inputs, what is right for the outputs, arrays on the device.

    `kept` is what `checks` keep of inputs and bounds.
    """

    task: str
    dag: ComputeDAG
    device: Device
    inputs: Mapping[int, Array]
    right: Mapping[int, Accepted]
    handles: list[Any]
    checks: ArrayChecks
    kept: Mapping[int, Any]

    @property
    def nbytes(self) -> int:
        """The memory that it takes on the host."""
        return data_bytes(self.inputs, self.right)

    def lend(self, packed: Sequence[Any]) -> dict[int, Lent]:
        lent = {
            k: Lent(self.dag.tensors[k].name, self.handles[k], array, self.kept[k]) for k, array in self.inputs.items()
        }
        for k, digits in packed:
            array = packed_array(self.inputs[k], digits)
            lent[k] = Lent(lent[k].name, self.device.put(array), array, self.checks.keep(array))
        return lent

    def arguments(self, lent: Mapping[int, Lent]) -> list[Any]:
        return [lent[k].handle if k in lent else handle for k, handle in enumerate(self.handles)]

    def take_back(self, lent: Mapping[int, Lent]) -> list[str]:
        changed = [one for one in lent.values() if not self.checks.same(one.handle, one.array, one.kept)]
        for one in changed:
            self.device.write(one.handle, one.array)
        return [one.name for one in changed]

    def poison_outputs(self) -> None:
        for k in self.right:
            self.checks.poison(self.handles[k], self.dag.tensors[k])

    def wrong_outputs(self) -> list[str]:
        found = {k: self.checks.wrong(self.handles[k], right, self.kept[k]) for k, right in self.right.items()}
        return [f"output {self.dag.tensors[k].name}: {text}" for k, text in found.items() if text]


def data_bytes(inputs: Mapping[int, Array], right: Mapping[int, Accepted]) -> int:
    """The memory of a task's data on the host; they take as much on the device again, or twice that."""
    return sum(a.nbytes for a in inputs.values()) + sum(r.nbytes for r in right.values())


def packed_array(array: Array, digits: Sequence[Any]) -> Array:
    """An input in the order of `digits`, `[dimension, extent]` each."""
    layout = PackedLayout(array.shape, ("",) * array.ndim, tuple([(d, extent) for d, extent in digits]))
    return layout.pack(array)
