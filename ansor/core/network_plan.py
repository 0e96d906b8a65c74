"""The plan of a compiled network: what runs in which order, and where every tensor lives.  Plain data, kept as JSON.

Storages are numbered.  Those of inputs, parameters and outputs come first and have memory of their own; the others lie
in the arena, where tensors that live at different times share bytes.  A step runs one kernel on storages.  A reshape
is no step: its result is a tensor on the storage of its argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import prod
from typing import Any

import numpy as np

from te_lite.errors import require

from .errors import GraphError

KINDS = ("input", "param", "output", "arena")


@dataclass(frozen=True)
class Storage:
    """`nbytes` bytes; `offset` is where they begin in the arena (0 for those outside it)."""

    kind: str
    nbytes: int
    offset: int = 0


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
    """One call of a kernel; `storages` are its arguments in order, scratch memory last, and `written` some of them."""

    kernel: str
    storages: tuple[int, ...]
    written: tuple[int, ...]


@dataclass(frozen=True)
class KernelCode:
    """A kernel as source text; `scratch` are the bytes of its arguments after those of the group.

    `facts` is what a launch needs to know, as JSON.
    """

    name: str
    source: str
    scratch: tuple[int, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)


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
        outside = all(k != "arena" for k in kinds[: self.externals])
        require(outside, GraphError, "plan", "storages of the arena come last", kinds=kinds)
        for s in self.storages[self.externals :]:
            inside = s.offset >= 0 and s.offset + s.nbytes <= self.arena_bytes
            require(inside, GraphError, "plan", f"the arena has {self.arena_bytes} bytes", storage=s)
        for place in self.tensors:
            ok = 0 <= place.storage < self.externals and place.nbytes == self.storages[place.storage].nbytes
            require(ok, GraphError, "plan", "a named tensor fills a storage outside the arena", tensor=place)
        for step in self.steps:
            ok = all(0 <= s < len(self.storages) for s in step.storages) and set(step.written) <= set(step.storages)
            require(ok, GraphError, "plan", f"there are {len(self.storages)} storages", step=step)

    @property
    def externals(self) -> int:
        """How many storages have memory of their own."""
        return sum(s.kind != "arena" for s in self.storages)

    @property
    def tensors(self) -> tuple[TensorPlace, ...]:
        """The tensors with a name: inputs, parameters, outputs."""
        return (*self.inputs, *self.params, *self.outputs)

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON."""
        return asdict(self)


def plan_from_json(data: Mapping[str, Any]) -> ExecutionPlan:
    """Read what `ExecutionPlan.to_json` gave.  Raises GraphError for anything else."""
    try:
        return ExecutionPlan(
            tuple([Storage(str(s["kind"]), int(s["nbytes"]), int(s["offset"])) for s in data["storages"]]),
            tuple([Step(str(s["kernel"]), _numbers(s["storages"]), _numbers(s["written"])) for s in data["steps"]]),
            _places(data["inputs"]), _places(data["params"]), _places(data["outputs"]), int(data["arena_bytes"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise GraphError(f"plan: the JSON is not that of a plan, {type(error).__name__} {error}") from error


def _numbers(items: Any) -> tuple[int, ...]:
    return tuple(map(int, items))


def _places(items: Any) -> tuple[TensorPlace, ...]:
    return tuple([TensorPlace(str(t["name"]), _numbers(t["shape"]), str(t["dtype"]), int(t["storage"]))
                  for t in items])  # fmt: skip
