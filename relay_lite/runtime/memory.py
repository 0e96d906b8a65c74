"""The memory of a network: which tensors lie where others were, while its plan is made.

Tensors that live at different times share bytes of one arena.  A request is a number of bytes and the steps during
which they are needed.  The largest requests are placed first, each at the lowest place where no request that lives at
the same time lies (known as greedy by size).  On networks such as ResNet or Inception the arena comes out at the lower
bound, the most bytes that live at one step, or a ninth above it, but for the gaps.

A result may be written over an argument that nobody reads any more (`take_over`), and memory of outputs is free until
these are written (`lie_in_outputs`).  Both put a value on the storage of another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansor.core.device.network_plan import TensorPlace
from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.types import TensorType

# ------------------------------------------------------------------------------------------------------------ one arena


@dataclass(frozen=True)
class Request:
    """`nbytes` bytes from step `first` to step `last`, both included."""

    nbytes: int
    first: int
    last: int

    def __post_init__(self) -> None:
        ok = self.nbytes >= 0 and self.first <= self.last
        law = "bytes must not be negative, and the first step not after the last"
        require(ok, GraphError, "memory request", law, nbytes=self.nbytes, first=self.first, last=self.last)

    def meets(self, other: Request) -> bool:
        """Both live at some step."""
        return self.first <= other.last and other.first <= self.last


def pack(requests: Sequence[Request], alignment: int) -> tuple[list[int], int]:
    """`(offsets, bytes of the arena)`: a place for each request, a multiple of `alignment`.

    Requests that live at the same time do not overlap, and at least `alignment` bytes lie between them: tensors whose
    sizes are multiples of a page would begin in the same sets of the caches otherwise, and their loads and stores be
    taken for one another (a tenth of the time of ResNet-18 on a processor).
    """
    sizes = [_room(r, alignment) for r in requests]
    order = sorted(range(len(requests)), key=lambda k: (-sizes[k], requests[k].first, k))
    offsets = _placed(requests, alignment, order)
    whole = [0 if offset is None else offset for offset in offsets]
    return whole, max([offset + size for offset, size in zip(whole, sizes, strict=True)], default=0)


def pack_into(requests: Sequence[Request], alignment: int, nbytes: int) -> list[int | None]:
    """A place within `nbytes` bytes for each request, as `pack` finds them; None for those that have no room there.

    Of requests of one size the last ones are placed first: of a chain of tensors, each needed at two steps, every
    second one from the end, so that all others may share another place with what comes behind.
    """
    order = sorted(range(len(requests)), key=lambda k: (-_room(requests[k], alignment), -requests[k].last, k))
    return _placed(requests, alignment, order, nbytes)


def _placed(
    requests: Sequence[Request], alignment: int, order: Sequence[int], nbytes: int | None = None
) -> list[int | None]:
    """The places of requests, found in an order; nothing ends behind `nbytes`, if there is such a limit."""
    sizes = [_room(r, alignment) for r in requests]
    offsets: list[int | None] = [None] * len(requests)
    placed: list[tuple[int, int]] = []
    for k in order:
        neighbours = sorted((offset, sizes[j]) for j, offset in placed if requests[j].meets(requests[k]))
        offset = _lowest_gap(neighbours, sizes[k])
        if nbytes is None or offset + requests[k].nbytes <= nbytes:
            placed.append((k, offset))
            offsets[k] = offset
    return offsets


def _room(request: Request, alignment: int) -> int:
    """The bytes of a request, up to the next multiple of the alignment, and a gap."""
    return (-(-request.nbytes // alignment) + 1) * alignment


def _lowest_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """The lowest offset where `size` bytes fit between the sorted `(offset, size)` blocks."""
    free = 0
    for offset, length in taken:
        if offset - free >= size:
            break
        free = max(free, offset + length)
    return free


# -------------------------------------------------------------------------------------------------- tensors and kernels


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

    `over` are pairs of a result and an argument that it may be written over.  It runs where all values of `guards` are
    what stands beside them.  Without a kernel it goes `back` so many calls.
    """

    kernel: str
    values: tuple[int, ...]
    results: tuple[int, ...]
    scratch: tuple[int, ...]
    over: tuple[tuple[int, int], ...] = ()
    guards: tuple[tuple[int, bool], ...] = ()
    back: int = 0


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
