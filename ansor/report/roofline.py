"""How far the best program of a task is from what its machine could do: operations and bytes that must be moved."""

from __future__ import annotations

from dataclasses import dataclass

from te_lite.errors import TeError

from ..analytical.machine import machine_of
from ..core.tasks.task import SearchTask
from ..core.values.checks import nbytes


@dataclass(frozen=True)
class Roof:
    """The nominal figures of a machine: operations and bytes of memory per second."""

    name: str
    flops: float
    bandwidth: float

    def at(self, intensity: float) -> float:
        """The operations per second that are possible with so many operations a byte."""
        return min(self.flops, intensity * self.bandwidth)


@dataclass(frozen=True)
class Work:
    """What a task has to do at least: operations, and bytes of its inputs and outputs, each counted once."""

    flops: float
    bytes: float

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flops / self.bytes


def work_of(task: SearchTask) -> Work | None:
    """The work of a task; None for a computation that is not known here, or has no operations to count."""
    try:
        dag = task.compute_dag
    except TeError:
        return None
    moved = sum(nbytes(t.shape, t.dtype) for t in [*dag.inputs, *dag.outputs])
    return Work(dag.flop_ct, moved) if dag.flop_ct > 0 and moved > 0 else None


def roof_of(task: SearchTask) -> Roof | None:
    """The machine that a task is for, by nominal figures; None where none are known."""
    try:
        machine = machine_of(task.target, task.hardware_params)
    except TeError:
        return None
    return Roof(machine.name, machine.flops, machine.dram)
