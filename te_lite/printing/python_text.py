"""Print a state as equivalent Python schedule code, with a name of its own for every tensor and loop."""

from __future__ import annotations

import keyword
import re
from dataclasses import replace

from ..computation.computation import Computation
from ..computation.tensor import ComputeOp, Operation, Tensor
from ..schedule.dag import PYTHON_CODE
from ..schedule.loop_value import UNIT, loop_names, names_after
from ..schedule.replay import apply
from ..schedule.state import MAX_NAME, State, clean_name, initial_state


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
                self.axes(stage.op, f"{self.names.tensor(stage.op)}.op")
        found = [tuple(self.lines)]
        for step in self.target.steps:
            self.lines, before = [], self.state
            self.state = apply(self.state, step)
            if step.inserts_at is not None:
                self.long.clear()
            step.python(self, before)
            found.append(tuple(self.lines))
        return found

    def fresh(self, base: str) -> str:
        return self.names.fresh(base)

    def tensor(self, state: State, k: int) -> str:
        """The name of what stage `k` computes."""
        return self.names.tensor(state.stages[k].op)

    def axes(self, op: Operation, source: str) -> None:
        axes = (*op.axis, *op.reduce_axis)
        if not axes:
            return
        for uid, axis in enumerate(axes):
            self.loops[op.key, uid] = self.names.fresh(f"{self.names.tensor(op)}_{clean_name(axis.name)}")
        left = "".join(f"{self.loops[op.key, u]}, " for u in range(len(axes))).strip()
        left = left if len(axes) == 1 else left.rstrip(",")
        right = f"tuple({source}.axis)" + (f" + tuple({source}.reduce_axis)" if op.reduce_axis else "")
        self.lines.append(f"{left} = {right}")

    def new_loop(self, k: int, uid: int) -> str:
        stage = self.state.stages[k]
        name = self.names.fresh(f"{self.names.tensor(stage.op)}_{clean_name(self._long_name(k, uid))}")
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

    def loop(self, state: State, k: int, position: int) -> str:
        stage = state.stages[k]
        return self.loops[stage.op.key, stage.leaf[position]]

    def line(self, text: str) -> None:
        self.lines.append(text)

    def call(self, k: int, text: str, names: str = "") -> None:
        """A call on stage `k`, whose results get `names`."""
        self.line(f"{names} = " * bool(names) + f"s[{self.tensor(self.state, k)}].{text}")


PYTHON_CODE.provide(python_schedule)
