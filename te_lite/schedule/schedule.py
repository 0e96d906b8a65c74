"""The schedule people write by hand: a thin builder over the immutable state.

    s = te.create_schedule(C.op)
    xo, xi = s[C].split(C.op.axis[0], factor=32)
    s[C].reorder(xo, yo, xi)
    print(te.lower(s, [A, B, C]))

Every call appends one step (step.py) to `s.state`; loops are handles that are resolved to positions when a step is
made.  Names of primitives are those of TVM's te (Halide says compute_at, loopy says precompute).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..computation.tensor import ComputeOp, Operation, PlaceholderOp, Tensor
from ..errors import ScheduleError, require
from ..expr.dtype import python_number
from ..expr.expr import IterVar
from ..expr.spelling import Primitives
from ..extensions import installed_part, installed_parts
from .dag import ComputeDAG
from .loop_steps import Annotate, FreePragma, Fuse, Pragma, Reorder, Split
from .place_steps import ComputeAt, ComputeInline, ComputeRoot
from .replay import apply
from .stage_steps import CacheRead, CacheWrite, RFactor
from .state import Iter, Stage, State
from .step import KINDS, Step, from_json, kind_of
from .storage_steps import SetScope, StorageAlign, StorageOrder

MAX_FACTOR = 2**31 - 1
THREAD_TAGS = tuple(f"{kind}.{d}" for kind in ("blockIdx", "threadIdx") for d in "xyz") + ("vthread",)


@dataclass(frozen=True)
class ThreadAxis:
    """A thread axis to bind loops to: `blockIdx.x`, `threadIdx.x`, `vthread`, ..."""

    tag: str
    extent: int | None = None


def thread_axis(dom: Any = None, tag: str = "", name: str = "") -> ThreadAxis:
    """A thread axis by its tag; called as `thread_axis("threadIdx.x")` or `thread_axis((0, 64), "threadIdx.x")`.

    An axis with a domain is bound only to loops of that extent.  `cthread` is another word for `vthread`.
    """
    if isinstance(dom, str):
        dom, tag = None, dom
    tag = "vthread" if tag == "cthread" else tag
    law = f"the tag must be one of {', '.join(THREAD_TAGS)}"
    require(tag in THREAD_TAGS, ScheduleError, "thread_axis", law, tag=tag)
    ok = dom is None or (isinstance(dom, tuple | list) and len(dom) == 2 and dom[0] == 0 and is_positive(dom[1]))
    require(ok, ScheduleError, "thread_axis", "a domain is (0, extent)", domain=dom)
    return ThreadAxis(tag, None if dom is None else dom[1])


def is_positive(x: Any) -> bool:
    """Whether it is an extent or a factor: an integer from 1 on that fits 32 bits."""
    return isinstance(x, int) and not isinstance(x, bool) and 0 < x <= MAX_FACTOR


@dataclass(frozen=True)
class Loop:
    """What people hold of a loop in a schedule: iterator `uid`, called `name`, of the operation `key`.

    In a state a loop is an `Iter`, in a lowered program a `For`.
    """

    key: Any
    uid: int
    name: str


Axis = Loop | IterVar


class Part(Primitives):
    """A part of a schedule, with the primitives that kinds of steps, and extensions, bring."""

    def __getattr__(self, name: str) -> Any:
        for letters, kind in KINDS.items():
            if kind.primitive == f"{self._written}.{name}":
                return partial(kind_of(letters).primitive, self)
        brought = installed_part(f"{self._written}.{name}")
        return super().__getattr__(name) if brought is None else partial(brought, self)

    @classmethod
    def _known(cls) -> list[str]:
        names = [*[kind.primitive for kind in KINDS.values()], *installed_parts()]
        brought = [name.rpartition(".") for name in names]
        return sorted([*super()._known(), *[name for part, _, name in brought if part == cls._written]])


class Schedule(Part, written="s"):
    """A growing list of steps on the computation of a DAG."""

    def __init__(self, start: State | ComputeDAG) -> None:
        self.state = start.init_state if isinstance(start, ComputeDAG) else start

    def apply(self, step: Step) -> None:
        self.state = apply(self.state, step)

    def stage_id(self, target: Tensor | Operation | StageHandle) -> int:
        """The current stage number of a tensor, an operation or a stage handle."""
        named = target.op if isinstance(target, Tensor) else target
        key = named.key if isinstance(named, Operation | StageHandle) else None
        for k, stage in enumerate(self.state.stages):
            if stage.op.key == key:
                return k
        raise ScheduleError(f"{target!r}: is not part of this schedule")

    def __getitem__(self, target: Tensor | Operation) -> StageHandle:
        return StageHandle(self, self.state.stages[self.stage_id(target)].op.key)

    @property
    def stages(self) -> list[StageHandle]:
        return [StageHandle(self, s.op.key) for s in self.state.stages]

    def cache_read(self, tensor: Tensor, scope: str, readers: Sequence[Tensor | Operation]) -> Tensor:
        """Read `tensor` through a copy in `scope` for the given readers; returns the copy.

        A scope with a name (`local.acc_buffer`, `fragment.m16n8k16_f16_f32.a`) takes two steps: a copy in `local`,
        which is then put there.
        """
        k = self.stage_id(tensor)
        listed: list[Any] = list(readers) if isinstance(readers, list | tuple) else [readers]
        ids = sorted(self.stage_id(r) for r in listed)
        special = "." in scope
        self.apply(CacheRead(k, "local" if special else scope, tuple(ids)))
        if special:
            self.apply(SetScope(k + 1, scope))
        return self.state.stages[k + 1].op.output()

    def cache_write(self, tensor: Any, scope: str) -> Any:
        """Compute in `scope`, as for `cache_read`, and copy out; returns the cache (a list when given a list)."""
        tensors = list(tensor) if isinstance(tensor, list | tuple) else [tensor]
        stages = {self.stage_id(t) for t in tensors}
        names = [t.name for t in tensors]
        require(len(stages) == 1, ScheduleError, "cache_write", "needs tensors of one operation", tensors=names)
        k = stages.pop()
        special = "." in scope
        self.apply(CacheWrite(k, "local" if special else scope))
        if special:
            self.apply(SetScope(k, scope))
        caches = [self.state.stages[k].op.output(t.value_index) for t in tensors]
        return caches if isinstance(tensor, list | tuple) else caches[0]

    def rfactor(self, tensor: Tensor, axis: Axis, factor_axis: int = 0) -> Any:
        """Factor a reduction loop out into an axis of partial results; returns `<op>.rf`."""
        k = self.stage_id(tensor)
        rank = len(self.state.stages[k].op.axis)
        self.apply(RFactor(k, self[tensor].position(axis), factor_axis if factor_axis >= 0 else rank + 1 + factor_axis))
        op = self.state.stages[k].op
        return op.output() if op.num_outputs == 1 else [op.output(i) for i in range(op.num_outputs)]

    def __str__(self) -> str:
        return str(self.state)


class StageHandle(Part, written="s[C]"):
    """The primitives of one stage."""

    def __init__(self, schedule: Schedule, key: Any) -> None:
        self.schedule = schedule
        self.key = key

    @property
    def id(self) -> int:
        return self.schedule.stage_id(self)

    @property
    def stage(self) -> Stage:
        return self.schedule.state.stages[self.id]

    @property
    def op(self) -> Operation:
        """The current operation (rewritten by caches and rfactor)."""
        return self.stage.op

    @property
    def leaf_iter_vars(self) -> list[Loop]:
        """Handles on the current loops, outermost first."""
        return [Loop(self.key, it.uid, it.name) for it in self.stage.iters]

    def _iter(self, axis: Axis) -> Iter:
        stage = self.stage
        if isinstance(axis, Loop):
            known = axis.key == self.key and axis.uid < len(stage.vars) and stage.vars[axis.uid].name == axis.name
            require(known, ScheduleError, stage.op.name, "the loop belongs to another stage", loop=axis.name)
            return stage.vars[axis.uid]
        for uid, v in enumerate((*stage.op.axis, *stage.op.reduce_axis)):
            if v is axis:
                return stage.vars[uid]
        loops = ", ".join([it.name for it in stage.iters])
        raise ScheduleError(f"{stage.op.name}: {self._misnamed(axis)}; its loops are {loops}")

    def _misnamed(self, axis: object) -> str:
        """Why something is no axis of the stage."""
        if not isinstance(axis, IterVar):
            return f"a loop is needed, an axis of it or what split or fuse gave, got {axis!r}"
        ops = [stage.op for stage in self.schedule.state.stages]
        owners = [op.name for op in ops if any(v is axis for v in (*op.axis, *op.reduce_axis))]
        return f"has no axis {axis.name!r}" + (f", which is an axis of {owners[0]}" if owners else "")

    def position(self, axis: Axis) -> int:
        """The place of a loop among the current loops."""
        it, stage = self._iter(axis), self.stage
        loops = [v.name for v in stage.iters]
        require(it.uid in stage.leaf, ScheduleError, stage.op.name, f"{it.name} is split or fused already", loops=loops)
        return stage.position(it.uid)

    def _loops(self, uids: Sequence[int]) -> tuple[Loop, ...]:
        return tuple([Loop(self.key, u, self.stage.vars[u].name) for u in uids])

    def split(self, axis: Axis, factor: int | None = None, nparts: int | None = None) -> tuple[Loop, Loop]:
        """Split a loop into `(outer, inner)`.

        Before: `for i in 0..n`.  After `factor=f`: `for i.0 in 0..ceil(n/f): for i.1 in 0..f`, guarded when f does
        not divide n; `nparts=p` makes the outer loop p long instead.
        """
        given = [python_number(x) for x in (factor, nparts) if x is not None]
        name = f"split {self.op.name}.{self._iter(axis).name}"
        require(len(given) == 1, ScheduleError, name, "either factor or nparts is needed", factor=factor, nparts=nparts)
        got = {"nparts" if factor is None else "factor": given[0]}
        require(is_positive(given[0]), ScheduleError, name, "a positive integer is needed", **got)
        position, extent = self.position(axis), self._iter(axis).extent
        advisory = extent if isinstance(extent, int) else 0
        self.schedule.apply(Split(self.id, position, advisory, (given[0],), factor is not None))
        outer, inner = self._loops(self.stage.leaf[position : position + 2])
        return outer, inner

    def tile(self, x: Axis, y: Axis, x_factor: int, y_factor: int) -> tuple[Loop, Loop, Loop, Loop]:
        """Split two loops and reorder to `xo, yo, xi, yi`."""
        xo, xi = self.split(x, factor=x_factor)
        yo, yi = self.split(y, factor=y_factor)
        self.reorder(xo, yo, xi, yi)
        return xo, yo, xi, yi

    def fuse(self, *axes: Axis) -> Loop:
        """One loop that counts through neighbouring loops, the last one fastest."""
        self.schedule.apply(Fuse(self.id, tuple([self.position(a) for a in axes])))
        return self._loops([len(self.stage.vars) - 1])[0]

    def reorder(self, *axes: Axis) -> None:
        """Put the given loops, among the places they hold now, into the given order."""
        wanted = [self.position(a) for a in axes]
        names = [self._iter(a).name for a in axes]
        once = len(set(wanted)) == len(wanted)
        require(once, ScheduleError, f"reorder {self.op.name}", "a loop is named twice", loops=names)
        order = list(range(len(self.stage.leaf)))
        for place, source in zip(sorted(wanted), wanted, strict=True):
            order[place] = source
        self.schedule.apply(Reorder(self.id, tuple(order)))

    def _annotate(self, axis: Axis, annotation: str) -> None:
        self.schedule.apply(Annotate(self.id, self.position(axis), annotation))

    def bind(self, axis: Axis, thread: ThreadAxis | str) -> None:
        """Run the loop's iterations on the threads of an axis."""
        thread = thread if isinstance(thread, ThreadAxis) else thread_axis(thread)
        it = self._iter(axis)
        fits = thread.extent is None or it.extent is None or it.extent == thread.extent
        law = f"the axis has {thread.extent} threads"
        require(fits, ScheduleError, f"bind {self.op.name}.{it.name} to {thread.tag}", law, extent=it.extent)
        self._annotate(axis, thread.tag)

    def vectorize(self, axis: Axis) -> None:
        """Run the loop's iterations as lanes of one vector."""
        self._annotate(axis, "vectorize")

    def unroll(self, axis: Axis) -> None:
        """Write the loop's iterations out."""
        self._annotate(axis, "unroll")

    def parallel(self, axis: Axis) -> None:
        """Run the loop's iterations on the cores."""
        self._annotate(axis, "parallel")

    def pragma(self, axis: Axis, name: str, value: Any = None) -> None:
        """`auto_unroll_max_step` sets the unrolling limit of the stage; other pragmas are kept as they are."""
        position = self.position(axis)
        if name == "auto_unroll_max_step":
            self.schedule.apply(Pragma(self.id, position, f"{name}${value}"))
        else:
            self.schedule.apply(FreePragma(self.id, position, name if value is None else f"{name}${value}"))

    def storage_align(self, axis: Axis, factor: int, offset: int) -> None:
        """Make the stride of an axis of the stage's storage `offset` modulo `factor` elements.

        Arguments of the program keep the strides their caller gave them.
        """
        self.schedule.apply(StorageAlign(self.id, self.position(axis), factor, offset))

    def storage_order(self, *order: int) -> None:
        """Store the stage's axes in this order (numbers, as for `np.transpose`); the last one is contiguous."""
        self.schedule.apply(StorageOrder(self.id, order))

    def compute_at(self, target: StageHandle, axis: Axis) -> None:
        """Compute the stage inside a loop of its consumer, as much of it as is needed there."""
        self.schedule.apply(ComputeAt(self.id, *self.inside(target, axis, "compute_at")))

    def inside(self, target: StageHandle, axis: Axis, primitive: str) -> tuple[int, int]:
        """The numbers of a stage, and of a loop of it, that the stage is to be computed at."""
        ok = isinstance(target, StageHandle)
        require(ok, ScheduleError, f"{primitive} {self.op.name}", "the target must be a stage, s[...]", target=target)
        return target.id, target.position(axis)

    def compute_inline(self) -> None:
        """Put the stage's expression where it is read."""
        self.schedule.apply(ComputeInline(self.id))

    def step(self, letters: str, *fields: Any) -> None:
        """Append a step on the stage by its letters and its other fields, as records have them."""
        self.schedule.apply(from_json([letters, self.id, *fields]))

    def set_scope(self, scope: str) -> None:
        """Keep what the stage computes in `scope`: `global`, `shared`, `local`, or a memory `local.<name>`."""
        self.schedule.apply(SetScope(self.id, scope))

    def tensorize(self, axis: Axis) -> None:
        """Let one instruction of the target do what the loop, and all inside, does."""
        self._annotate(axis, "tensorize")

    def compute_root(self) -> None:
        """Compute the whole stage before its consumers."""
        self.schedule.apply(ComputeRoot(self.id))


def create_schedule(ops: Operation | Tensor | Sequence[Operation | Tensor]) -> Schedule:
    """A schedule of the computation of `ops` with nothing done to it yet."""
    items: list[Any] = list(ops) if isinstance(ops, list | tuple) else [ops]
    for x in items:
        ok = isinstance(x, Tensor | ComputeOp | PlaceholderOp)
        require(ok, ScheduleError, "create_schedule", "operations or tensors are needed", got=x)
    outputs = [
        t for x in items for t in ([x] if isinstance(x, Tensor) else [x.output(k) for k in range(x.num_outputs)])
    ]
    found = ComputeDAG(list(dict.fromkeys(outputs)))
    inputs = [op.output() for op in found.ops if not isinstance(op, ComputeOp)]
    return Schedule(ComputeDAG(list(dict.fromkeys([*inputs, *outputs]))))
