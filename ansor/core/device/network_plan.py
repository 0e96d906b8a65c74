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
from te_lite.expr.expr import DTYPES

from ..errors import GraphError
from ..values.checks import network_limit, require_tensor, tensor_limit
from ..values.json_values import items, record, size, sizes, text
from .plan_order import require_order

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

    It is passed over unless the bools in the storages `where` are true, and those in `unless` false.
    """

    kernel: str
    storages: tuple[int, ...]
    written: tuple[int, ...]
    where: tuple[int, ...] = ()
    unless: tuple[int, ...] = ()

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
        for step in self.steps:
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


def plan_from_json(data: Any) -> ExecutionPlan:
    """Read what `ExecutionPlan.to_json` gave.

    Raises GraphError for anything else, for more memory than `sizes.network_limit`, and where a step would read what
    nothing wrote, or overwrite what is still read.
    """
    facts = record(data, ("storages", "steps", "inputs", "params", "outputs", "arena_bytes"), "plan")
    storages = [record(s, ("kind", "nbytes", "offset"), "storage") for s in items(facts["storages"], "storages")]
    steps = [record(s, ("kernel", "storages", "written"), "step") for s in items(facts["steps"], "steps")]
    plan = ExecutionPlan(
        tuple([_storage(s) for s in storages]),
        tuple([Step(text(s["kernel"], "kernel"), sizes(s["storages"], "storages"), sizes(s["written"], "written"),
                    *[sizes(s.get(name, ()), name) for name in ("where", "unless")]) for s in steps]),
        _places(facts["inputs"]), _places(facts["params"]), _places(facts["outputs"]),
        size(facts["arena_bytes"], "arena_bytes"),
    )  # fmt: skip
    total = plan.arena_bytes + sum(s.nbytes for s in plan.storages[: plan.externals])
    law = f"all its memory may have {network_limit()} bytes, {network_limit() // tensor_limit()} ANSOR_TENSOR_BYTES"
    require(total <= network_limit(), GraphError, "plan", law, bytes=total)
    require_order(plan)
    return plan


def _storage(s: Mapping[str, Any]) -> Storage:
    of = None if s.get("of") is None else size(s["of"], "of")
    return Storage(text(s["kind"], "kind"), size(s["nbytes"], "nbytes"), size(s["offset"], "offset"), of)


def _places(value: Any) -> tuple[TensorPlace, ...]:
    found = [record(t, ("name", "shape", "dtype", "storage"), "tensor") for t in items(value, "tensors")]
    for t in found:
        require(t["dtype"] in DTYPES, GraphError, "plan", f"dtypes are {', '.join(DTYPES)}", dtype=t["dtype"])
        require_tensor(sizes(t["shape"], "shape"), t["dtype"], "plan")
    names = [text(t["name"], "name") for t in found]
    require(len(set(names)) == len(names), GraphError, "plan", "names must differ", names=names)
    return tuple([TensorPlace(name, sizes(t["shape"], "shape"), t["dtype"], size(t["storage"], "storage"))
                  for name, t in zip(names, found, strict=True)])  # fmt: skip
