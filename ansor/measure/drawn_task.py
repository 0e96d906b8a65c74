"""A task whose arrays are so large that they are on the device only: drawn there, and looked at there.

Inputs are a hash of their indices (`te_lite/meaning/drawn.py`), so that a program that has changed one is found by
computing them again.  Outputs of few elements are compared with what the definition says of each, others as
`beside_reference.py` says.  What a trial costs on the host does not depend on the extents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from te_lite import ComputeDAG
from te_lite.computation.tensor import ComputeOp, Tensor
from te_lite.errors import require
from te_lite.expr.dtype import computed
from te_lite.expr.expr import Call, Reduce
from te_lite.expr.intrinsics import CALLS
from te_lite.expr.visit import walk
from te_lite.meaning.drawn import DrawnArray
from te_lite.meaning.reference_fold import summed_product

from ..core.device.backend import Array, Device, DrawsArrays
from ..core.errors import MeasureError
from .array_checks import OnDevice
from .beside_reference import BesideReference
from .check import Accepted, poison_value
from .parts import Parts
from .prepared import packed_array
from .rounding import reduction_length
from .samples import Definition, Samples, samples_of

LARGE_BYTES = 1 << 28
LARGE_WORK = 1 << 24
"""Points of all operations that the host evaluates in a second or two."""
PRODUCTS = 64
"""Points of a sum of products that take as long as one other: the host has a library for them."""
KEPT_LAYOUTS = 4
RunReference = Callable[[Device, Sequence[Any]], None]


def may_be_drawn(dag: ComputeDAG, folder: Path) -> bool:
    """Whether a task is so large that its inputs are better drawn on the device; `folder` has those that are given."""
    given = any((folder / f"{k}.npy").exists() for k, t in enumerate(dag.tensors) if t in dag.inputs)
    return not given and (sum(map(_nbytes, dag.tensors)) > LARGE_BYTES or _work(dag) > LARGE_WORK)


def _nbytes(tensor: Tensor) -> int:
    return prod(tensor.shape) * np.dtype(tensor.dtype).itemsize


def _work(dag: ComputeDAG) -> float:
    """Points of all operations, by how long the host takes for one."""
    return sum([_weight(op) * prod(op.shape) * reduction_length(op) for op in dag.ops if isinstance(op, ComputeOp)])


def _weight(op: ComputeOp) -> float:
    if isinstance(op.body[0], Reduce) and len(summed_product(op.body[0])) > 1:
        return 1 / PRODUCTS
    calls = [e.func for body in op.body for e in walk(body) if isinstance(e, Call)]
    return max([CALLS[func].slow for func in calls], default=1)


def drawing_device(device: Device, dag: ComputeDAG) -> DrawsArrays | None:
    """The device, if it draws the inputs of a task and judges its outputs itself."""
    if not isinstance(device, DrawsArrays):
        return None
    fits = all(device.draws(t.dtype) for t in dag.inputs) and all(device.judges(t.dtype) for t in dag.outputs)
    return device if fits else None


def bytes_needed(dag: ComputeDAG, samples: Mapping[int, Samples]) -> int:
    """The memory of a task's arrays on the device, and of the outputs of the reference program."""
    whole = {k for k, known in samples.items() if known.whole}
    again = [t for k, t in enumerate(dag.tensors) if t in dag.outputs and k not in whole]
    return sum(map(_nbytes, [*dag.tensors, *again]))


class OutputCheck(Protocol):
    """Looks at one output on the device."""

    def wrong(self, handle: Any) -> str:
        """What is wrong with it, as `check.mismatch` says it; empty when nothing is."""


class WithinBounds:
    """Knows what is right for every element."""

    def __init__(self, device: DrawsArrays, samples: Samples, shape: tuple[int, ...]) -> None:
        right = samples.right
        nan = None if right.nan is None else right.nan.reshape(shape)
        self._right = Accepted(right.low.reshape(shape), right.high.reshape(shape), nan)
        self._checks = OnDevice(device)
        self._kept = self._checks.keep_bounds(self._right)

    def wrong(self, handle: Any) -> str:
        return self._checks.wrong(handle, self._right, self._kept)


@dataclass(frozen=True)
class DrawnLoan:
    """An input as it is drawn."""

    name: str
    handle: Any
    drawn: DrawnArray
    device: DrawsArrays

    def put_back(self) -> bool:
        """Whether a program has changed it; it is as before when this returns."""
        changed = not self.device.drawn(self.handle, self.drawn.key)
        if changed:
            self.device.draw(self.handle, self.drawn.key)
        return changed


@dataclass(frozen=True)
class PackedLoan:
    """An input in another order, which the host has, too."""

    name: str
    handle: Any
    array: Array
    kept: Any
    checks: OnDevice
    device: DrawsArrays

    def put_back(self) -> bool:
        """As of DrawnLoan."""
        changed = not self.checks.same(self.handle, self.array, self.kept)
        if changed:
            self.device.write(self.handle, self.array)
        return changed


@dataclass
class DrawnTask:
    """The arrays of a task, by argument number: inputs, all handles, and the looks at outputs; `TaskArrays`."""

    task: str
    dag: ComputeDAG
    device: DrawsArrays
    inputs: Mapping[int, DrawnArray]
    handles: list[Any]
    checks: Mapping[int, OutputCheck]
    nbytes: int
    _packed: dict[tuple[Any, ...], PackedLoan] = field(default_factory=dict)

    def lend(self, packed: Sequence[Any]) -> dict[int, DrawnLoan | PackedLoan]:
        lent: dict[int, DrawnLoan | PackedLoan] = {
            k: DrawnLoan(self.dag.tensors[k].name, self.handles[k], drawn, self.device)
            for k, drawn in self.inputs.items()
        }
        return lent | {k: self._in_order(k, digits) for k, digits in packed}

    def _in_order(self, k: int, digits: Sequence[Any]) -> PackedLoan:
        """An input in the order of `digits`; those of the last few orders are kept."""
        key = (k, *map(tuple, digits))
        if key not in self._packed:
            while len(self._packed) >= KEPT_LAYOUTS:
                del self._packed[next(iter(self._packed))]
            array, checks = packed_array(self.inputs[k].whole(), digits), OnDevice(self.device)
            handle = self.device.put(array)
            name = self.dag.tensors[k].name
            self._packed[key] = PackedLoan(name, handle, array, checks.keep(array), checks, self.device)
        return self._packed[key]

    def arguments(self, lent: Mapping[int, Any]) -> list[Any]:
        return [lent[k].handle if k in lent else handle for k, handle in enumerate(self.handles)]

    def take_back(self, lent: Mapping[int, Any]) -> list[str]:
        return [one.name for one in lent.values() if one.put_back()]

    def poison_outputs(self) -> None:
        for k in self.checks:
            self.device.fill(self.handles[k], poison_value(self.dag.tensors[k].dtype))

    def wrong_outputs(self) -> list[str]:
        found = {k: check.wrong(self.handles[k]) for k, check in self.checks.items()}
        return [f"output {self.dag.tensors[k].name}: {text}" for k, text in found.items() if text]


def drawn_task(
    task: str, definition: Definition, samples: Mapping[int, Samples], device: DrawsArrays, run: RunReference,
    parts: Parts | None, folder: Path,
) -> DrawnTask:  # fmt: skip
    """The arrays of a task on the device; `definition` is that of its computation, or of `parts`, where it has some.

    `run` runs the reference program of the same, which is needed where samples are not all, and for parts, after which
    `samples` are taken, and kept in `folder`.
    Raises MeasureError when they do not fit, or the reference program is wrong.
    """
    dag = definition.dag
    needed, free = bytes_needed(dag, samples), device.free_bytes()
    law = "its arrays and those of the reference program must fit into the memory of the device"
    require(needed <= free, MeasureError, "task", law, needed_bytes=needed, free_bytes=free)
    handles = [device.empty(t.shape, t.dtype) for t in dag.tensors]
    for k, drawn in definition.inputs.items():
        device.draw(handles[k], drawn.key)
    found = list(handles)
    referenced = [k for k, t in enumerate(dag.tensors) if t in dag.outputs and not (k in samples and samples[k].whole)]
    for k in referenced:
        found[k] = device.empty(dag.tensors[k].shape, dag.tensors[k].dtype)
        device.fill(found[k], poison_value(dag.tensors[k].dtype))
    if referenced:
        run(device, found)
    if parts:
        know_parts(definition, parts, device, found, folder)
        samples = samples_of(definition, folder, len(parts.found))
    checks: dict[int, OutputCheck] = {
        k: WithinBounds(device, known, dag.tensors[k].shape) if known.whole
        else BesideReference(device, definition, k, known, found[k])
        for k, known in samples.items()
    }  # fmt: skip
    own = len(handles) - (len(parts.found) if parts else 0)
    return DrawnTask(task, dag, device, definition.inputs, handles[:own], checks, needed)


def know_parts(definition: Definition, parts: Parts, device: DrawsArrays, handles: Sequence[Any], folder: Path) -> None:
    """Let `definition` know the parts of long reductions, as the reference program has computed them.

    A part may be off by what is accepted at samples of the parts.  A program may have added up all terms in one chain:
    roundings, which are taken to be independent, grow by the root of their number.
    Raises MeasureError when the parts are wrong.
    """
    tensors = parts.dag.tensors
    for k, count in enumerate(parts.count, len(tensors) - len(parts.count)):
        known = definition.samples(k, folder)
        look = BesideReference(device, definition, k, known, handles[k])
        values = device.get(handles[k])
        wide = values.astype(computed(tensors[k].dtype)).astype(np.float64)
        error = (look.slope * np.abs(wide) + look.floor) * np.sqrt(count)
        open_ends = not np.isfinite(known.right.low.astype(np.float64)).all() or known.right.nan is not None
        definition.know(tensors[k], wide, np.full_like(wide, np.inf) if open_ends else error)
