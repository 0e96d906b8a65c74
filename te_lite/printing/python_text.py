"""Print a state as equivalent Python schedule code, with a name of its own for every tensor and loop."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterable
from dataclasses import replace

from ..computation.computation import Computation
from ..computation.tensor import ComputeOp, Operation, Tensor
from ..expr.lanes import product
from ..schedule.dag import PYTHON_CODE
from ..schedule.loop_value import UNIT, loop_names, names_after
from ..schedule.replay import apply
from ..schedule.state import MAX_NAME, SplitRel, State, clean_name, initial_state
from ..schedule.step import (
    Annotate,
    CacheRead,
    CacheWrite,
    ComputeAlong,
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    DoubleBuffer,
    FollowFusedSplit,
    FollowSplit,
    FreePragma,
    Fuse,
    JoinAxes,
    JoinReductions,
    NewStage,
    Pipeline,
    PostponeDivision,
    Pragma,
    Reindex,
    Reorder,
    RFactor,
    SetScope,
    Split,
    Step,
    StorageAlign,
    StorageOrder,
    Swizzled,
)


def python_names(dag: Computation) -> dict[str, Tensor]:
    """The names the printed code uses for the tensors of a DAG; bind them before executing it."""
    names = _Names()
    return {names.tensor(op): op.output() for op in dag.ops}


def python_schedule(state: State) -> str:
    """Code that turns `s = te.create_schedule(...)` into `state`.

    It expects the names of `python_names(state.dag)`, `s` and `te`.
    """
    return "\n".join([line for lines in python_steps(state) for line in lines]) + "\n"


def python_steps(state: State) -> list[tuple[str, ...]]:
    """The lines of `python_schedule`: those that name the axes of the computation, then those of each step."""
    return _Printer(state).run()


class _Names:
    """Python names by operation key, made unique by a number."""

    def __init__(self) -> None:
        self.of: dict[object, str] = {}
        self.taken: set[str] = {"s", "te", "tuple"}
        self.last: dict[str, int] = {}

    def fresh(self, base: str) -> str:
        """A name of its own that begins with `base`, as far as that is a short identifier."""
        base = re.sub(r"\W", "_", base[:MAX_NAME], flags=re.ASCII)
        base = base if base.isidentifier() and not keyword.iskeyword(base) else f"_{base}"
        name, n = base, self.last.get(base, 0)
        while name in self.taken:
            n += 1
            name = f"{base}_{n}"
        self.last[base] = n
        self.taken.add(name)
        return name

    def tensor(self, op: Operation) -> str:
        if op.key not in self.of:
            self.of[op.key] = self.fresh(clean_name(op.name))
        return self.of[op.key]


class _Printer:
    def __init__(self, state: State) -> None:
        self.target = state
        self.state = initial_state(state.dag)
        self.names = _Names()
        for op in state.dag.ops:
            self.names.tensor(op)
        self.loops: dict[tuple[object, int], str] = {}
        self.long: dict[int, tuple[int, dict[int, str]]] = {}
        self.lines: list[str] = []

    def run(self) -> list[tuple[str, ...]]:
        for stage in self.state.stages:
            if isinstance(stage.op, ComputeOp):
                self._axes(stage.op, f"{self._tensor(stage.op)}.op")
        found = [tuple(self.lines)]
        for step in self.target.steps:
            self.lines, before = [], self.state
            self.state = apply(self.state, step)
            self._step(before, step)
            found.append(tuple(self.lines))
        return found

    def _tensor(self, op: Operation) -> str:
        return self.names.tensor(op)

    def _axes(self, op: Operation, source: str) -> None:
        axes = (*op.axis, *op.reduce_axis)
        if not axes:
            return
        for uid, axis in enumerate(axes):
            self.loops[op.key, uid] = self.names.fresh(f"{self._tensor(op)}_{clean_name(axis.name)}")
        left = "".join(f"{self.loops[op.key, u]}, " for u in range(len(axes))).strip()
        left = left if len(axes) == 1 else left.rstrip(",")
        right = f"tuple({source}.axis)" + (f" + tuple({source}.reduce_axis)" if op.reduce_axis else "")
        self.lines.append(f"{left} = {right}")

    def _new_loop(self, k: int, uid: int) -> str:
        stage = self.state.stages[k]
        name = self.names.fresh(f"{self._tensor(stage.op)}_{clean_name(self._long_name(k, uid))}")
        self.loops[stage.op.key, uid] = name
        return name

    def _long_name(self, k: int, uid: int) -> str:
        """The name that TE gives an iterator (`loop_names`): those of a stage are known up to some relation."""
        stage = self.state.stages[k]
        known, names = self.long.get(k) or (0, loop_names(replace(stage, relations=())))
        for it in stage.vars[len(names) :]:
            names[it.uid] = UNIT
        for rel in stage.relations[known:]:
            names.update(names_after(names, rel))
        self.long[k] = len(stage.relations), names
        return names[uid]

    def _loop(self, state: State, k: int, position: int) -> str:
        stage = state.stages[k]
        return self.loops[stage.op.key, stage.leaf[position]]

    def _call(self, k: int, text: str) -> None:
        self.lines.append(f"s[{self._tensor(self.state.stages[k].op)}].{text}")

    def _step(self, before: State, step: Step) -> None:
        k = step.stage
        match step:
            case Split() | FollowSplit() | FollowFusedSplit():
                self._split(before, step)
            case Fuse(iters=iters):
                parts = [self._loop(before, k, p) for p in iters]
                self._assign(self._new_loop(k, len(self.state.stages[k].vars) - 1), k, f"fuse({', '.join(parts)})")
            case Reorder():
                order = [self._loop(self.state, k, p) for p in range(len(self.state.stages[k].leaf))]
                self._call(k, f"reorder({', '.join(order)})")
            case Annotate(iter=p, annotation=annotation):
                self._call(k, _annotation_call(self._loop(before, k, p), annotation))
            case Pragma(iter=p) | FreePragma(iter=p) if p >= len(before.stages[k].leaf):
                pass
            case Pragma(iter=p, text=text):
                loop = self._loop(before, k, p)
                self._call(k, f'pragma({loop}, "auto_unroll_max_step", {text.partition("$")[2]})')
                self._call(k, f'pragma({loop}, "unroll_explicit", True)')
            case FreePragma(iter=p, text=text):
                name, dollar, value = text.partition("$")
                words = [self._loop(before, k, p), json.dumps(name)] + ([json.dumps(value)] if dollar else [])
                self._call(k, f"pragma({', '.join(words)})")
            case StorageAlign(iter=p, factor=factor, offset=offset):
                self._call(k, f"storage_align({self._loop(before, k, p)}, {factor}, {offset})")
            case StorageOrder(order=order):
                self._call(k, f"storage_order({', '.join(map(str, order))})")
            case Swizzled():
                self._call(k, "swizzle()")
            case ComputeAt(target=target, target_iter=p):
                at = self._loop(before, target, p)
                self._call(k, f"compute_at(s[{self._tensor(before.stages[target].op)}], {at})")
            case ComputeAlong(target=target, target_iter=p):
                at = self._loop(before, target, p)
                self._call(k, f"compute_along(s[{self._tensor(before.stages[target].op)}], {at})")
            case ComputeInline():
                self._call(k, "compute_inline()")
            case ComputeRoot():
                self._call(k, "compute_root()")
            case DoubleBuffer():
                self._call(k, "double_buffer()")
            case Pipeline(tiles=tiles):
                self._call(k, f"pipeline({tiles})")
            case SetScope(scope=scope):
                self._call(k, f'set_scope("{scope}")')
            case JoinAxes():
                self._join_axes(before, step)
            case CacheRead() | Reindex() | CacheWrite() | RFactor() | JoinReductions() | PostponeDivision():
                self._new_stage(before, step)

    def _assign(self, names: str, k: int, call: str) -> None:
        self.lines.append(f"{names} = s[{self._tensor(self.state.stages[k].op)}].{call}")

    def _split(self, before: State, step: Split | FollowSplit | FollowFusedSplit) -> None:
        """One call a length, innermost first (or outermost first for nparts)."""
        k = step.stage
        stage = self.state.stages[k]
        rel = stage.relations[-1]
        assert isinstance(rel, SplitRel)
        lengths, inner_to_outer, children = rel.lengths, rel.inner_to_outer, rel.children
        rest = self._loop(before, k, step.iter)
        if not lengths:
            self.loops[stage.op.key, children[0]] = rest
        word = "factor" if inner_to_outer else "nparts"
        order: Iterable[int] = range(len(lengths) - 1, -1, -1) if inner_to_outer else range(len(lengths))
        for done, j in enumerate(order):
            last = done == len(lengths) - 1
            own = self._new_loop(k, children[j + 1] if inner_to_outer else children[j])
            if last:
                other = self._new_loop(k, children[0] if inner_to_outer else children[-1])
            else:
                other = self.names.fresh(f"{rest}_{'o' if inner_to_outer else 'i'}")
            pair = f"{other}, {own}" if inner_to_outer else f"{own}, {other}"
            self._assign(pair, k, f"split({rest}, {word}={product([lengths[j]])})")
            rest = other

    def _new_stage(self, before: State, step: NewStage) -> None:
        old = self._tensor(before.stages[step.stage].op)
        self.long.clear()
        match step:
            case CacheRead():
                self._copy(step.stage, f's.cache_read({old}, "{step.scope}", [{self._named(before, step.readers)}])')
            case Reindex():
                tile = f", {step.tile}" if step.tile else ""
                self._copy(step.stage, f's.reindex({old}, "{step.scope}", {self._named(before, [step.reader])}{tile})')
            case CacheWrite():
                self._cache_write(step, old)
            case RFactor():
                self._rfactor(before, step, old)
            case JoinReductions():
                self._join_reductions(before, step, old)
            case PostponeDivision():
                self._postpone_division(before, step, old)

    def _join_axes(self, before: State, step: JoinAxes) -> None:
        old, new = self._tensor(before.stages[step.stage].op), self.state.stages[step.stage].op
        self.lines.append(f"{self._tensor(new)} = s.join_axes({old}, {step.first}, {step.count})")
        self._axes(new, f"{self._tensor(new)}.op")

    def _named(self, before: State, stages: Iterable[int]) -> str:
        return ", ".join([self._tensor(before.stages[k].op) for k in stages])

    def _copy(self, stage: int, call: str) -> None:
        """A copy of `stage`, which comes after it."""
        new = self.state.stages[stage + 1].op
        self.lines.append(f"{self._tensor(new)} = {call}")
        self._axes(new, f"{self._tensor(new)}.op")

    def _cache_write(self, step: CacheWrite, old: str) -> None:
        new, copy = self.state.stages[step.stage].op, self.state.stages[step.stage + 1].op
        self.lines.append(f'{self._tensor(new)}, = s.cache_write([{old}], "{step.scope}")')
        self._axes(new, f"{self._tensor(new)}.op")
        self._axes(copy, f"s[{old}].op")

    def _rfactor(self, before: State, step: RFactor, old: str) -> None:
        new, repl = self.state.stages[step.stage].op, self.state.stages[step.stage + 1].op
        call = f"s.rfactor({old}, {self._loop(before, step.stage, step.iter)}, {step.factor_iter})"
        name = self._tensor(new)
        self.lines.append(f"{name} = {call}" if new.num_outputs == 1 else f"{name} = {call}[0]")
        self._axes(new, f"{name}.op")
        self._axes(repl, f"s[{old}].op")

    def _join_reductions(self, before: State, step: JoinReductions, old: str) -> None:
        new, other = self.state.stages[step.stage].op, self._tensor(before.stages[step.other].op)
        name = self._tensor(new)
        self.lines.append(f"{name} = s.join_reductions({old}, {other})[0]")
        self._axes(new, f"{name}.op")
        for k, text in ((step.stage, old), (step.other, other)):
            self._axes(self.state.stages[k + 1].op, f"s[{text}].op")

    def _postpone_division(self, before: State, step: PostponeDivision, old: str) -> None:
        new, total = self.state.stages[step.total].op, self._tensor(before.stages[step.total].op)
        self.lines.append(f"{self._tensor(new)} = s.postpone_division({old}, {total})")
        self._axes(new, f"{self._tensor(new)}.op")
        self._axes(self.state.stages[step.total + 1].op, f"s[{total}].op")


def _annotation_call(loop: str, annotation: str) -> str:
    if annotation in ("vectorize", "parallel", "unroll", "tensorize"):
        return f"{annotation}({loop})"
    return f'bind({loop}, te.thread_axis("{annotation}"))'


PYTHON_CODE.provide(python_schedule)
