"""A description as tensors of te_lite."""

from __future__ import annotations

from typing import Any

import te_lite as te
import te_lite.topi
from te_lite.expr.expr import compare
from te_lite.expr.reduction import reduce_axis

from .description import Dag, Expr, Stage

FOLDS = {"sum": te.sum, "prod": te.prod, "max": te.max, "min": te.min, "argmax": te.argmax, "argmin": te.argmin}


def tensors(dag: Dag) -> list[te.Tensor]:
    """The inputs and outputs, as a workload gives them."""
    known: dict[str, te.Tensor] = {i.name: te.placeholder(i.shape, i.dtype, i.name) for i in dag.inputs}
    for stage in dag.stages:
        made = _compute(stage, known)
        known.update(zip(stage.names, made if isinstance(made, tuple) else (made,), strict=True))
    return [known[name] for name in (*[i.name for i in dag.inputs], *dag.outputs)]


def _compute(stage: Stage, known: dict[str, te.Tensor]) -> Any:
    whole = [reduce_axis((0, n), name) for name, n in stage.reduce]

    def element(*axes: Any) -> Any:
        folded = whole
        if stage.extent is not None:
            own = dict(zip([name for name, _ in stage.axes], axes, strict=True))
            folded = [reduce_axis((0, expression(stage.extent, own, known)), stage.reduce[0][0]), *whole[1:]]
        names = [name for name, _ in (*stage.axes, *stage.reduce)]
        env = dict(zip(names, (*axes, *folded), strict=True))
        bodies = tuple([expression(e, env, known) for e in stage.body])
        if not stage.fold:
            return bodies if len(bodies) > 1 else bodies[0]
        where = None if stage.where is None else expression(stage.where, env, known)
        return FOLDS[stage.fold](bodies if len(bodies) > 1 else bodies[0], axis=folded, where=where)

    shape = [n for _, n in stage.axes]
    return te.compute(shape, element, name=stage.names[0], varargs_names=[name for name, _ in stage.axes])


def expression(e: Expr, env: dict[str, Any], known: dict[str, te.Tensor]) -> Any:
    """The expression of te_lite."""
    match e:
        case ("axis", name):
            return env[name]
        case ("const", value, dtype):
            return te.const(value, dtype)
        case ("load", name, *indices):
            return known[name](*[expression(i, env, known) for i in indices])
        case ("cast", dtype, a):
            return te.cast(dtype, expression(a, env, known))
    args = [expression(x, env, known) for x in e[1:] if isinstance(x, tuple)]
    match e[0]:
        case "call":
            return te.call(e[1], *args)
        case "not":
            return te.logical_not(*args)
        case "select":
            return te.select(*args)
        case "if":
            return te.if_then_else(*args)
        case "and":
            return te.logical_and(*args)
        case "or":
            return te.logical_or(*args)
        case "min":
            return te.minimum(*args)
        case "max":
            return te.maximum(*args)
        case "fmod":
            return te.topi.mod(*args)
        case "<" | "<=" | ">" | ">=" | "==" | "!=" as op:
            return compare(op, *args)
    a, b = args
    return {"+": a.__add__, "-": a.__sub__, "*": a.__mul__, "/": a.__truediv__, "//": a.__floordiv__, "%": a.__mod__}[
        e[0]
    ](b)
