"""The tensors and kernels of a network while its plan is made, and which tensors lie where others were.

A result may be written over an argument that nobody reads any more (`take_over`), and memory of outputs is free until
these are written (`lie_in_outputs`).  Both put a value on the storage of another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansor.core.device.network_plan import TensorPlace

from ..ir.types import TensorType
from .memory import Request, pack_into

SMALL = 1 << 22
"""Bytes of a tensor whose kernel may leave room for another one; larger ones fill a device by themselves."""


@dataclass
class Value:
    """A tensor; `origin` is the value whose storage it uses, itself as a rule.

    It begins at byte `start` of that one.  One that the steps of a loop with states read or share keeps its room for
    `apart` more steps when it is not needed any more, all those of the loop, so that this loop and the next may run
    together.
    """

    type: TensorType
    origin: int
    kind: str = "arena"
    first: int = 0
    last: int = 0
    start: int = 0
    apart: int = 0

    @property
    def nbytes(self) -> int:
        return nbytes_of(self.type)


@dataclass(frozen=True)
class KernelCall:
    """A call of a kernel by the numbers of values: its arguments, what it writes of them, and its scratch memory.

    `over` are pairs of a result and an argument that it may be written over.
    """

    kernel: str
    values: tuple[int, ...]
    results: tuple[int, ...]
    scratch: tuple[int, ...]
    over: tuple[tuple[int, int], ...] = ()


def nbytes_of(kind: TensorType) -> int:
    """The bytes of a tensor."""
    return TensorPlace("", kind.shape, kind.dtype, 0).nbytes


def take_over(values: Sequence[Value], calls: Sequence[KernelCall]) -> None:
    """Let results be written over arguments, where these are read for the last time and belong to nobody else.

    An argument in the arena that becomes an output lies in the output's memory from its beginning.  A small one that
    other steps read, too, stays: its reader could not run beside them.
    """
    writers = Counter([values[r].origin for call in calls for r in call.results])
    readers = Counter([
        v for call in calls for v in {values[a].origin for a in call.values} - {values[r].origin for r in call.results}
    ])  # fmt: skip
    for k, call in enumerate(calls):
        uses = Counter([values[a].origin for a in call.values])
        for result, argument in call.over:
            r, x = values[result], values[argument].origin
            ends = uses[x] == 1 and values[x].last == k and values[x].kind == "arena" and not values[x].apart
            begins = r.origin == result and r.first == k and writers[result] == 1 and not r.apart
            alike = r.nbytes == values[argument].nbytes == values[x].nbytes
            alone = readers[x] == 1 or r.nbytes > SMALL
            if ends and begins and alike and alone and r.kind in ("arena", "output"):
                _move(values, result, x)
                values[x].last, values[x].kind = max(r.last, k), r.kind
                readers[x] = readers[result]


def lie_in_outputs(values: Sequence[Value], requests: Mapping[int, Request], alignment: int) -> None:
    """Let values of the arena, each with its request, lie in outputs that are written after they are needed."""
    left = dict(requests)
    outputs = [k for k, v in enumerate(values) if v.origin == k and v.kind == "output"]
    for output in sorted(outputs, key=lambda k: -values[k].nbytes):
        early = [k for k, r in left.items() if r.last < values[output].first]
        placed = pack_into([left[k] for k in early], alignment, values[output].nbytes)
        for k, offset in zip(early, placed, strict=True):
            if offset is not None:
                _move(values, k, output, offset)
                del left[k]


def _move(values: Sequence[Value], value: int, other: int, offset: int = 0) -> None:
    """Let a value, and all on its storage, lie in that of another one, from a byte on."""
    for v in values:
        if v.origin == value:
            v.origin, v.start = other, v.start + offset
