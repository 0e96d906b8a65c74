"""Transform steps: small frozen values, with the letters and field order of TVM's records.

    step = Annotate AN | Fuse FU | Pragma PR | Reorder RE | Split SP | FollowSplit FSP | FollowFusedSplit FFSP
         | StorageAlign SA | ComputeAt CA | ComputeInline CI | ComputeRoot CR | CacheRead CHR | CacheWrite CHW
         | RFactor RF | FreePragma PRX | DoubleBuffer DBF | SetScope SSC | JoinReductions JRD | StorageOrder STO
         | Swizzled SWZ | Pipeline PIP | Reindex RIX | JoinAxes JAX | ComputeAlong CAL | PostponeDivision PDV
                                                                                  (ours from FreePragma on)

All ids are positions at the moment of the step.  A split length is a positive int, an int64 array with one lane
per candidate program, or None: a hole that is not decided yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

Length = int | np.ndarray | None

ANNOTATIONS = (
    "none", "unroll", "vectorize", "parallel", "vthread", "blockIdx.x", "threadIdx.x", "blockIdx.y", "threadIdx.y",
    "blockIdx.z", "threadIdx.z", "tensorize",
)  # fmt: skip


class StepBase:
    """What every step has."""

    __slots__ = ()
    tag: ClassVar[str]
    stage: int

    @property
    def lengths(self) -> tuple[Length, ...]:
        """The lengths of a split; other steps have none."""
        return ()

    @property
    def stages(self) -> tuple[int, ...]:
        """The stages that must be there: the one it works on, and the other one that it is about."""
        return tuple(
            [getattr(self, name) for name in ("stage", "target", "other", "total", "reader") if hasattr(self, name)]
        )


@dataclass(frozen=True, slots=True)
class Annotate(StepBase):
    """Mark a loop: parallel, vectorize, unroll, or a thread axis."""

    tag: ClassVar[str] = "AN"
    stage: int
    iter: int
    annotation: str


@dataclass(frozen=True, slots=True)
class Fuse(StepBase):
    """Make one loop of neighbouring ones."""

    tag: ClassVar[str] = "FU"
    stage: int
    iters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pragma(StepBase):
    """A pragma of TVM on a loop: `auto_unroll_max_step$16`, `tensor_core`."""

    tag: ClassVar[str] = "PR"
    stage: int
    iter: int
    text: str


@dataclass(frozen=True, slots=True)
class FreePragma(StepBase):
    """A pragma TVM's records do not know (`unroll_explicit$1`, ...); a letter of our own."""

    tag: ClassVar[str] = "PRX"
    stage: int
    iter: int
    text: str


@dataclass(frozen=True, slots=True)
class Reorder(StepBase):
    """The loops of a stage in another order; `order` lists their positions."""

    tag: ClassVar[str] = "RE"
    stage: int
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Split(StepBase):
    """`inner_to_outer`: lengths are the loops 1..n and loop 0 is the rest; else the loops 0..n-1.

    `extent` is advisory (0 = unknown): replay splits the real iterator and guards the tail.
    """

    tag: ClassVar[str] = "SP"
    stage: int
    iter: int
    extent: int
    lengths: tuple[Length, ...] = field()
    inner_to_outer: bool = True


@dataclass(frozen=True, slots=True)
class FollowSplit(StepBase):
    """Split like the `Split` at position `source` of the step list, into `n_split` + 1 loops."""

    tag: ClassVar[str] = "FSP"
    stage: int
    iter: int
    source: int
    n_split: int


@dataclass(frozen=True, slots=True)
class FollowFusedSplit(StepBase):
    """Split by the product over `sources` of their length number `level`."""

    tag: ClassVar[str] = "FFSP"
    stage: int
    iter: int
    sources: tuple[int, ...]
    level: int
    factor: bool


@dataclass(frozen=True, slots=True)
class StorageAlign(StepBase):
    """Rows of a buffer begin at `offset` modulo `factor` elements."""

    tag: ClassVar[str] = "SA"
    stage: int
    iter: int
    factor: int
    offset: int


@dataclass(frozen=True, slots=True)
class StorageOrder(StepBase):
    """The axes of a stage as its own storage has them, the last one contiguous; a letter of our own."""

    tag: ClassVar[str] = "STO"
    stage: int
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Swizzled(StepBase):
    """Let the 16-byte chunks of rows in shared memory trade places (see `swizzle.py`); a letter of our own."""

    tag: ClassVar[str] = "SWZ"
    stage: int


@dataclass(frozen=True, slots=True)
class ComputeAt(StepBase):
    """Compute a stage inside a loop of another one."""

    tag: ClassVar[str] = "CA"
    stage: int
    target: int
    target_iter: int


@dataclass(frozen=True, slots=True)
class ComputeInline(StepBase):
    """Put the expression of a stage where it is read."""

    tag: ClassVar[str] = "CI"
    stage: int


@dataclass(frozen=True, slots=True)
class ComputeRoot(StepBase):
    """Compute a stage on its own."""

    tag: ClassVar[str] = "CR"
    stage: int


@dataclass(frozen=True, slots=True)
class CacheRead(StepBase):
    """A stage that copies `stage` to `scope`, read by `readers`."""

    tag: ClassVar[str] = "CHR"
    stage: int
    scope: str
    readers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reindex(StepBase):
    """A stage of what `reader` reads of `stage`, with the axes of its read (ours); `tile`: one of them, a length."""

    tag: ClassVar[str] = "RIX"
    stage: int
    scope: str
    reader: int
    tile: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class JoinAxes(StepBase):
    """One axis that counts through `count` axes of a stage, from number `first` on, the last one fastest (ours)."""

    tag: ClassVar[str] = "JAX"
    stage: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class CacheWrite(StepBase):
    """A stage in `scope` that computes what `stage` then copies out."""

    tag: ClassVar[str] = "CHW"
    stage: int
    scope: str


@dataclass(frozen=True, slots=True)
class RFactor(StepBase):
    """Make a space axis, at place `factor_iter`, of a part of a reduction."""

    tag: ClassVar[str] = "RF"
    stage: int
    iter: int
    factor_iter: int


@dataclass(frozen=True, slots=True)
class DoubleBuffer(StepBase):
    """Fetch the next tile of a shared copy while this one is used; a letter of our own (see `double_buffer.py`)."""

    tag: ClassVar[str] = "DBF"
    stage: int


@dataclass(frozen=True, slots=True)
class Pipeline(StepBase):
    """Fetch the tiles of a shared copy `tiles` - 1 turns before they are used; a letter of our own."""

    tag: ClassVar[str] = "PIP"
    stage: int
    tiles: int


@dataclass(frozen=True, slots=True)
class SetScope(StepBase):
    """Keep what the stage computes in `scope`; a letter of our own."""

    tag: ClassVar[str] = "SSC"
    stage: int
    scope: str


@dataclass(frozen=True, slots=True)
class JoinReductions(StepBase):
    """One reduction of pairs for `stage` and `other`, which refers to it; a letter of our own (see `online.py`)."""

    tag: ClassVar[str] = "JRD"
    stage: int
    other: int


@dataclass(frozen=True, slots=True)
class ComputeAlong(StepBase):
    """Compute a reduction along a loop of `target`, whose terms refer to it; a letter of our own (see `carried.py`)."""

    tag: ClassVar[str] = "CAL"
    stage: int
    target: int
    target_iter: int


@dataclass(frozen=True, slots=True)
class PostponeDivision(StepBase):
    """Divide the sum `total` instead of the factors `stage` of its terms; a letter of our own (see `carried.py`)."""

    tag: ClassVar[str] = "PDV"
    stage: int
    total: int


Step = (
    Annotate
    | Fuse
    | Pragma
    | Reorder
    | Split
    | FollowSplit
    | FollowFusedSplit
    | StorageAlign
    | StorageOrder
    | Swizzled
    | ComputeAt
    | ComputeInline
    | ComputeRoot
    | CacheRead
    | Reindex
    | JoinAxes
    | CacheWrite
    | RFactor
    | FreePragma
    | DoubleBuffer
    | Pipeline
    | SetScope
    | JoinReductions
    | ComputeAlong
    | PostponeDivision
)
NewStage = CacheRead | Reindex | CacheWrite | RFactor | JoinReductions | PostponeDivision


def inserts_at(step: NewStage) -> int:
    """The stage that a new one comes right before or after: those with higher numbers have one more from then on."""
    return step.total if isinstance(step, PostponeDivision) else step.stage


STEP_KINDS: dict[str, type[Step]] = {kind.tag: kind for kind in Step.__args__}
