"""The smallest description that still fails in the same way: fewer stages, simpler expressions, shorter axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from . import description as d
from .batch import Job, run_batch
from .description import Dag, Expr, Input, Stage
from .farm import farm
from .numpy_oracle import evaluate, random_inputs
from .outcome import Finding

DRAWS = 8
"""Draws of programs of a smaller description: the one that failed is not a program of it."""
MOST_TRIES = 150


def shrunk(dag: Dag, finding: Finding, seed: int, limit: float) -> Dag:
    """A description that fails as `finding` does; `dag` itself where nothing smaller was found to."""
    draws = [seed, *range(DRAWS - 1)]
    tries = 0
    progress = True
    while progress and tries < MOST_TRIES:
        progress = False
        for smaller in _smaller(dag):
            tries += 1
            if tries > MOST_TRIES:
                break
            if _fails(smaller, finding, draws, limit):
                dag, progress = smaller, True
                break
    return dag


def _fails(dag: Dag, finding: Finding, draws: list[int], limit: float) -> bool:
    try:
        evaluate(dag, random_inputs(dag))
    except (IndexError, ValueError, AssertionError):
        return False
    targets = (finding.target,) if finding.target in ("c", "cuda") else ("c", "cuda")
    jobs = [Job(seed, dag, targets, 2) for seed in draws]
    for outcome in farm(run_batch, jobs, 1, 4, limit):
        if any((f.kind, f.phase) == (finding.kind, finding.phase) and _alike(f, finding) for f in outcome.findings):
            return True
    return False


def _alike(a: Finding, b: Finding) -> bool:
    """Exceptions must be the same; of wrong results no more is known than that they are wrong."""
    return a.signature == b.signature if a.kind in ("exception", "compiler", "verifier") else True


def _smaller(dag: Dag) -> Iterator[Dag]:
    for name in dag.outputs:
        outputs = tuple([o for o in dag.outputs if o != name])
        if outputs:
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
        case ("call", function, x, *_):
            return "bool" if function == "isnan" else dtype_of(x, dtypes)
        case ("select" | "if", _, a, _):
            return dtype_of(a, dtypes)
        case ("<" | "<=" | ">" | ">=" | "==" | "!=" | "and" | "or" | "not", *_):
            return "bool"
    return dtype_of(e[1], dtypes)


def shown(dag: Dag, finding: Finding, seed: int) -> str:
    """A report that can be run."""
    lines = [f"--- seed {seed}: {finding.kind} in {finding.phase} ({finding.target})", f"    {finding.text}"]
    lines += [f"    {i.name}: {i.dtype}{list(i.shape)} {i.values}" for i in dag.inputs]
    for s in dag.stages:
        folded = f" {s.fold} over {dict(s.reduce)}" if s.fold else ""
        where = "" if s.where is None else f" where {text(s.where)}"
        lines.append(f"    {', '.join(s.names)}{list(dict(s.axes).items())} ={folded} {'; '.join(map(text, s.body))}{where}")
    return "\n".join([*lines, f"    -> {', '.join(dag.outputs)}", d.to_json(dag)])


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
