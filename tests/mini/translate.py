"""Computations of the engine in the words of `mini_ansor`, and its step lists back."""

from __future__ import annotations

from typing import Any

import te_lite.expr.expr as te
from mini_ansor import expr as mini
from te_lite.computation.tensor import ComputeOp
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.state import State
from te_lite.schedule.step import to_json

DTYPES = {"float32": "float32", "int32": "int32", "bool": "bool"}


def mini_args(dag: ComputeDAG) -> list[mini.Op]:
    """The arguments of a computation of the engine.  Raises ValueError for what `mini_ansor` cannot say."""
    done: dict[object, mini.Op] = {}
    for op in dag.ops:
        taken = [o.key for o in done.values()]
        key = next(name for name in [op.name, *[f"{op.name}_{n}" for n in range(99)]] if name not in taken)
        if isinstance(op, ComputeOp):
            done[op.key] = _computed(op, key, done)
        else:
            axes = tuple([mini.Axis(f"i{d}", n) for d, n in enumerate(op.shape)])
            done[op.key] = mini.Op(op.name, axes, None, _dtype(op.output().dtype), key)
    return [done[t.op.key] for t in dag.tensors]


def _dtype(name: str) -> str:
    if name not in DTYPES:
        raise ValueError(f"mini_ansor has no {name}")
    return DTYPES[name]


def _computed(op: ComputeOp, key: str, done: dict[object, mini.Op]) -> mini.Op:
    if op.num_outputs != 1:
        raise ValueError(f"{op.name}: several outputs")
    if not all(isinstance(v.extent, int) for v in op.reduce_axis):
        raise ValueError(f"{op.name}: mini_ansor has no extent that depends on other axes")
    axes = {v: mini.Axis(v.name, v.length) for v in (*op.axis, *op.reduce_axis)}
    body = _expr(op.body[0], axes, done)
    attrs = tuple(
        sorted((name, tuple(map(str, value))) for name, value in op.attrs.items() if isinstance(value, tuple | list))
    )
    return mini.Op(op.name, tuple(axes[v] for v in op.axis), body, _dtype(op.output().dtype), key, attrs)


def _expr(e: te.Expr, axes: dict[Any, mini.Axis], done: dict[object, mini.Op]) -> mini.Expr:
    def of(x: te.Expr) -> mini.Expr:
        return _expr(x, axes, done)

    match e:
        case te.IterVar():
            return axes[e]
        case te.Const(value=value, dtype=dtype):
            return mini.Const(value, _dtype(dtype))
        case te.Binary(op=op, a=a, b=b) | te.Compare(op=op, a=a, b=b) | te.Logical(op=op, a=a, b=b):
            return mini.Call(op, (of(a), of(b)), of(a).dtype if op in mini.ARITHMETIC else "bool")
        case te.Not(a=a):
            return mini.Call("!", (of(a),), "bool")
        case te.Select(cond=c, a=a, b=b) | te.Call(func="if_then_else", args=(c, a, b)):
            return mini.Call("select", (of(c), of(a), of(b)), of(a).dtype)
        case te.Cast(dtype=dtype, a=a):
            return mini.Call("cast", (of(a),), _dtype(dtype))
        case te.Call(func=func, args=args, dtype=dtype):
            return mini.Call(func, tuple(map(of, args)), _dtype(dtype))
        case te.Load(tensor=tensor, indices=indices):
            return mini.Load(done[tensor.op.key], tuple(map(of, indices)))
        case te.Reduce() if e.condition is None and len(e.sources) == 1 and not e.init:
            return mini.Reduce(_fold(e), of(e.sources[0]), tuple(axes[v] for v in e.axes))
    raise ValueError(f"mini_ansor has no {e!r}")


def _fold(e: te.Reduce) -> str:
    if e.combiner.name not in mini.FOLDS:
        raise ValueError(f"mini_ansor has no reduction by {e.combiner.name}")
    return e.combiner.name


def steps_of(state: State) -> list[list[Any]]:
    """The steps of a state of the engine as in records, with None for lengths that are not decided."""
    out = []
    for step in state.steps:
        if isinstance(step, Split):
            out.append([step.tag, step.stage, step.iter, step.extent, list(step.lengths), int(step.inner_to_outer)])
        else:
            out.append(to_json(step))
    return out
