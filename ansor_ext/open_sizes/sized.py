"""A computation with open extents at some sizes: numbers in place of the sizes, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from te_lite.computation.derive import map_bodies
from te_lite.computation.tensor import ComputeOp, Operation, Tensor
from te_lite.errors import ExprError, require
from te_lite.expr.expr import INDEX, Const, Expr, IterVar, Load, Reduce, SizeVar, Var
from te_lite.expr.visit import substitute, transform
from te_lite.schedule.dag import ComputeDAG


def sized(dag: ComputeDAG, sizes: Mapping[SizeVar, int]) -> ComputeDAG:
    """The computation at these sizes; its stages are in the same order, so steps fit both.

    Raises ExprError where a size is missing or out of its bounds.
    """
    for v in dag.sizes:
        least, most = v.range
        n = sizes.get(v)
        ok = isinstance(n, int) and least <= n <= most
        require(ok, ExprError, "sizes", f"{v.name} must be {least} to {most}", got=n)
    made = _Sized({v: sizes[v] for v in dag.sizes})
    for op in dag.ops:
        made.ops[op.key] = made.op(op)
    return ComputeDAG([made.tensor(t) for t in dag.tensors])


class _Sized:
    """Operations at some sizes, by the keys of the open ones."""

    def __init__(self, sizes: Mapping[SizeVar, int]) -> None:
        self.sizes = sizes
        self.ops: dict[Any, Operation] = {}

    def tensor(self, t: Tensor) -> Tensor:
        return self.ops[t.op.key].output(t.value_index)

    def op(self, op: Operation) -> Operation:
        key = ("at", op.key, tuple(self.sizes.values()))
        attrs = {name: self.attribute(value) for name, value in op.attrs.items()}
        if not isinstance(op, ComputeOp):
            extents = tuple([self.sizes.get(d, d) for d in op.extents])
            return replace(op, extents=extents, key=key, attrs=attrs)  # type: ignore[type-var]
        env: dict[Var, Expr] = {v: Const(n) for v, n in self.sizes.items()}
        axis, reduce_axis = self.axes(op.axis, env), self.axes(op.reduce_axis, env)
        body = map_bodies(op, lambda e: self.body(e, env, reduce_axis))
        return replace(op, axis=axis, body=body, key=key, attrs=attrs, reduce_axis=reduce_axis)

    def axes(self, axes: Sequence[IterVar], env: dict[Var, Expr]) -> tuple[IterVar, ...]:
        """Axes of their own for the operation; `env` learns them."""
        for v in axes:
            end = substitute(v.extent, env) if isinstance(v.extent, Expr) else v.extent
            env[v] = IterVar(v.name, INDEX, int(end.value) if isinstance(end, Const) else end, v.kind)
        return tuple([env[v] for v in axes])  # type: ignore[misc]

    def body(self, e: Expr, env: Mapping[Var, Expr], axes: tuple[IterVar, ...]) -> Expr:
        def moved(x: Expr) -> Expr | None:
            match x:
                case Load(tensor=tensor, indices=indices):
                    return Load(self.tensor(tensor), tuple([transform(i, moved) for i in indices]))
                case Var():
                    return env.get(x)
            return None

        e = transform(e, moved)
        return replace(e, axes=axes) if isinstance(e, Reduce) else e

    def attribute(self, value: Any) -> Any:
        """An attribute, with the tensors that it names."""
        if isinstance(value, list | tuple):
            return [self.attribute(v) for v in value]
        return self.tensor(value) if isinstance(value, Tensor) else value
