"""The plan of a compiled network: what runs in which order, and where every tensor lives.  Plain data, kept as JSON.

Storages are numbered.  Those of inputs, parameters and outputs come first and have memory of their own; the others lie
in the arena, where tensors that live at different times share bytes; the last ones are parts of others, such as what
one step of a loop reads and writes.  A step runs one kernel on storages.  A reshape is no step: its result is a tensor
on the storage of its argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from te_lite.errors import require

from ..errors import GraphError

KINDS = ("input", "param", "output", "arena", "part")


@dataclass(frozen=True)
class Storage:
    """`nbytes` bytes; `offset` is where they begin in the arena (0 for those outside it).

    Those of a part begin at that byte of the storage `of`.
    """

    kind: str
    nbytes: int
    offset: int = 0
    of: int | None = None


@dataclass(frozen=True)
class TensorPlace:
    """A tensor with a name, and its storage by number."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    storage: int

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Step:
    """One call of a kernel; `storages` are its arguments in order, scratch memory last, and `written` some of them.

    It is passed over unless the bools in the storages `where` are true, and those in `unless` false.  A step without a
    kernel, of the name "", goes on with the step `back` places before it.
    """

    kernel: str
    storages: tuple[int, ...]
    written: tuple[int, ...]
    where: tuple[int, ...] = ()
    unless: tuple[int, ...] = ()
    back: int = 0

    @property
    def used(self) -> tuple[int, ...]:
        """All storages that it reads or writes."""
        return (*self.storages, *self.where, *self.unless)


@dataclass(frozen=True)
class KernelCode:
    """A kernel as source text; `scratch` are the bytes of its arguments after those of the group.

    `facts` is what a launch needs to know, as JSON.  `over` are pairs of arguments by number, a result and what may lie
    where it lies: each element is read for the last time where it is written over.  Plans are made of them, so
    they are not exported.
    """

    name: str
    source: str
    scratch: tuple[int, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    over: tuple[tuple[int, int], ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class ExecutionPlan:
    """Raises GraphError when the parts do not fit each other."""

    storages: tuple[Storage, ...]
    steps: tuple[Step, ...]
    inputs: tuple[TensorPlace, ...]
    params: tuple[TensorPlace, ...]
    outputs: tuple[TensorPlace, ...]
    arena_bytes: int

    def __post_init__(self) -> None:
        kinds = [s.kind for s in self.storages]
        require(set(kinds) <= set(KINDS), GraphError, "plan", f"storages are {', '.join(KINDS)}", kinds=set(kinds))
        sections = [k if k in ("arena", "part") else "" for k in kinds]
        law = "storages outside the arena come first, and parts last"
        require(sections == sorted(sections), GraphError, "plan", law, kinds=kinds)
        law = "parts, and nothing else, say what they are parts of"
        require(all((s.of is not None) == (s.kind == "part") for s in self.storages), GraphError, "plan", law)
        for s in self.storages[self.externals :]:
            if s.kind == "part":
                self._require_part(s)
                continue
            inside = s.offset >= 0 and s.offset + s.nbytes <= self.arena_bytes
            require(inside, GraphError, "plan", f"the arena has {self.arena_bytes} bytes", storage=s)
        for place in self.tensors:
            ok = 0 <= place.storage < self.externals and place.nbytes == self.storages[place.storage].nbytes
            require(ok, GraphError, "plan", "a named tensor fills a storage outside the arena", tensor=place)
        for k, step in enumerate(self.steps):
            ok = not step.back if step.kernel else 0 < step.back <= k and not step.storages
            require(ok, GraphError, "plan", "a step has a kernel, or goes back to one before it", step=step)
            ok = all(0 <= s < len(self.storages) for s in step.used) and set(step.written) <= set(step.storages)
            ok = ok and all(self.storages[s].nbytes == 1 for s in (*step.where, *step.unless))
            require(ok, GraphError, "plan", f"there are {len(self.storages)} storages", step=step)

    def _require_part(self, part: Storage) -> None:
        whole = self.storages[part.of] if part.of is not None and 0 <= part.of < len(self.storages) else None
        law = "a part lies inside a storage that is none"
        ok = whole is not None and whole.kind != "part" and 0 <= part.offset <= whole.nbytes - part.nbytes
        require(ok, GraphError, "plan", law, part=part, whole=whole)

    @cached_property
    def externals(self) -> int:
        """How many storages have memory of their own."""
        return sum(s.kind not in ("arena", "part") for s in self.storages)

    def place(self, storage: int) -> tuple[int | None, int]:
        """Where a storage begins: a storage outside the arena, None for the arena itself, and the byte in it."""
        found = self.storages[storage]
        if found.kind == "part" and found.of is not None:
            whole, start = self.place(found.of)
            return whole, start + found.offset
        return (None, found.offset) if storage >= self.externals else (storage, 0)

    @property
    def tensors(self) -> tuple[TensorPlace, ...]:
        """The tensors with a name: inputs, parameters, outputs."""
        return (*self.inputs, *self.params, *self.outputs)

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON; only parts say what they are parts of."""
        made = asdict(self)
        made["storages"] = [{k: v for k, v in s.items() if v is not None} for s in made["storages"]]
        return made
