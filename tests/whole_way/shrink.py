"""The smallest description that still fails in the same way: fewer stages, simpler expressions, shorter axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from . import description as d
from .bounded import promoted
from .description import Dag, Expr, Input, Stage


def smaller(dag: Dag) -> Iterator[Dag]:
    """Descriptions that are simpler by one step; some have no meaning."""
    for stage in dag.stages:
        outputs = tuple([o for o in dag.outputs if o not in stage.names])
        if outputs and len(outputs) < len(dag.outputs):
            yield d.needed(replace(dag, outputs=outputs))
    for stage in dag.stages[:-1]:
        yield d.needed(replace(dag, outputs=stage.names))
        yield _given(dag, stage)
    for k, stage in enumerate(dag.stages):
        for other in _smaller_stages(stage, dag):
            yield d.needed(replace(dag, stages=(*dag.stages[:k], other, *dag.stages[k + 1 :])))
    for k, given in enumerate(dag.inputs):
        for other in _smaller_inputs(given):
            yield replace(dag, inputs=(*dag.inputs[:k], other, *dag.inputs[k + 1 :]))


def _given(dag: Dag, stage: Stage) -> Dag:
    """`dag` with the results of a stage as inputs."""
    dtypes = dtypes_of(dag)
    shape = tuple([n for _, n in stage.axes])
    inputs = tuple([Input(name, shape, dtypes[name]) for name in stage.names])
    return d.needed(replace(dag, inputs=(*dag.inputs, *inputs), stages=tuple([s for s in dag.stages if s != stage])))


def _smaller_stages(stage: Stage, dag: Dag) -> Iterator[Stage]:
    if stage.where is not None:
        yield replace(stage, where=None)
    if stage.extent is not None:
        yield replace(stage, extent=None)
    for name, n in (*stage.axes, *stage.reduce):
        for m in {1, n // 2, n - 1} - {0, n}:
            axes = [tuple([(v, m if v == name else e) for v, e in group]) for group in (stage.axes, stage.reduce)]
            yield replace(stage, axes=axes[0], reduce=axes[1])
    dtypes = dtypes_of(dag)
    for k, body in enumerate(stage.body):
        for simpler in _simpler(body, dtypes):
            yield replace(stage, body=(*stage.body[:k], simpler, *stage.body[k + 1 :]))


def _smaller_inputs(given: Input) -> Iterator[Input]:
    if given.values != "small":
        yield replace(given, values="small")
    for k, n in enumerate(given.shape):
        for m in {1, n // 2, n - 1} - {0, n}:
            yield replace(given, shape=(*given.shape[:k], m, *given.shape[k + 1 :]))


def _simpler(e: Expr, dtypes: dict[str, str]) -> Iterator[Expr]:
    """`e` with one part replaced by an operand of its dtype, or by a constant."""
    own = dtype_of(e, dtypes)
    for x in d.operands(e):
        if dtype_of(x, dtypes) == own:
            yield x
    if e[0] not in ("const", "axis"):
        yield ("const", {"bool": True}.get(own, 1.0 if own.startswith("float") else 0), own)
    for k, x in enumerate(e):
        if isinstance(x, tuple):
            for y in _simpler(x, dtypes):
                yield (*e[:k], y, *e[k + 1 :])


def dtypes_of(dag: Dag) -> dict[str, str]:
    """The dtype of every tensor."""
    out = {i.name: i.dtype for i in dag.inputs}
    for stage in dag.stages:
        out.update({name: dtype_of(e, out) for name, e in zip(stage.names, stage.body, strict=True)})
    return out


def dtype_of(e: Expr, dtypes: dict[str, str]) -> str:
    """The dtype of an expression."""
    match e:
        case ("axis", _):
            return "int32"
        case ("const", _, dtype):
            return str(dtype)
        case ("cast", dtype, _):
            return str(dtype)
        case ("load", name, *_):
            return dtypes[name]
        case ("call", function, *_):
            return "bool" if function == "isnan" else _widest(d.operands(e), dtypes)
        case ("select" | "if", _, a, _):
            return dtype_of(a, dtypes)
        case ("<" | "<=" | ">" | ">=" | "==" | "!=" | "and" | "or" | "not", *_):
            return "bool"
    return _widest(d.operands(e), dtypes)


def _widest(operands: tuple[Expr, ...], dtypes: dict[str, str]) -> str:
    return promoted(*[dtype_of(x, dtypes) for x in operands])


def text_of(dag: Dag) -> str:
    """One line a tensor."""
    lines = [f"    {i.name}: {i.dtype}{list(i.shape)} {i.values}" for i in dag.inputs]
    for s in dag.stages:
        axes = ", ".join(f"{name} < {n}" for name, n in s.axes)
        folded = f"{s.fold} over {', '.join(f'{name} < {n}' for name, n in s.reduce)} of " if s.fold else ""
        where = "" if s.where is None else f" where {text(s.where)}"
        folded = folded if s.extent is None else f"{folded}({s.reduce[0][0]} < {text(s.extent)}) "
        lines.append(f"    {', '.join(s.names)}[{axes}] = {folded}{'; '.join(map(text, s.body))}{where}")
    return "\n".join([*lines, f"    -> {', '.join(dag.outputs)}"])


def text(e: Expr) -> str:
    """An expression in a line."""
    match e:
        case ("axis", name):
            return str(name)
        case ("const", value, dtype):
            return str(value) if dtype == "int32" else f"{dtype}({value})"
        case ("load", name, *indices):
            return f"{name}[{', '.join(map(text, indices))}]"
        case ("cast", dtype, a):
            return f"{dtype}({text(a)})"
        case ("call", function, *args):
            return f"{function}({', '.join(map(text, args))})"
        case (op, a, b) if not str(op).isalpha():
            return f"({text(a)} {op} {text(b)})"
    return f"{e[0]}({', '.join(map(text, d.operands(e)))})"
