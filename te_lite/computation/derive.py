"""Operations that a schedule derives from others: cache stages and the two halves of an rfactor.

The same derivation of the same operation gives the same object, so replaying a step list twice gives equal states and
shares all analysis.  For that the last `REMEMBERED` results of each kind of derivation are kept: many times more than
the sketches and programs in use at a time derive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from ..expr.expr import (
    INDEX,
    Expr,
    IterVar,
    Load,
    Reduce,
    Var,
    as_expr,
    if_then_else,
    logical_and,
)
from ..expr.visit import substitute, transform
from .tensor import ComputeOp, Tensor

REMEMBERED = 2**13

Loops = tuple[tuple[str, int, Var], ...]


def cache_name(base: str, scope: str, taken: Sequence[str]) -> str:
    """`A.shared`, or `A.d.shared` when that name is taken."""
    while f"{base}.{scope}" in taken:
        base += ".d"
    return f"{base}.{scope}"


@lru_cache(maxsize=REMEMBERED)
def cache_read_op(source: Tensor, scope: str, name: str) -> ComputeOp:
    """A copy of `source` in `scope` with axes `ax0, ax1, ...`."""
    axis = tuple([IterVar(f"ax{k}", INDEX, d, "spatial") for k, d in enumerate(source.shape)])
    return ComputeOp(name, axis, (Load(source, axis),), ("CHR", source.op.key, name), scope=scope)


@lru_cache(maxsize=REMEMBERED)
def redirect_reads(op: ComputeOp, old: Tensor, new: Tensor) -> ComputeOp:
    """`op` (same key) reading `new` wherever it read `old`."""

    def swap(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.tensor == old:
            return Load(new, tuple([transform(i, swap) for i in e.indices]))
        return None

    return replace(op, body=map_bodies(op, lambda e: transform(e, swap)))


@lru_cache(maxsize=REMEMBERED)
def in_scope(op: ComputeOp, scope: str) -> ComputeOp:
    """`op` (same key), kept in `scope`."""
    return replace(op, scope=scope)


def map_bodies(op: ComputeOp, f: Callable[[Expr], Expr]) -> tuple[Expr, ...]:
    """Apply `f` to the bodies; the outputs of one reduction share their rewritten sources."""
    first = op.reduction
    if first is None:
        return tuple([f(e) for e in op.body])
    new = f(first)
    assert isinstance(new, Reduce)
    return tuple([_output(new, k) for k in range(op.num_outputs)])


def _output(e: Reduce, k: int) -> Reduce:
    return e if e.value_index == k else Reduce(e.combiner, e.sources, e.axes, e.condition, k, e.init)


def cache_write_ops(op: ComputeOp, scope: str, name: str, taken: Sequence[object]) -> tuple[ComputeOp, ComputeOp]:
    """`(cache, copy)`: the computation moved to `<op>.<scope>` with axes `<axis>.c`, and the copy out of it.

    `taken` are the keys of the operations of the program: a cache that was factored since gave up its name only.
    """
    key: tuple[object, ...] = ("CHW", op.key, name)
    while key in taken:
        key = ("CHW", key, name)
    return _cache_write_ops(op, scope, name, key)


@lru_cache(maxsize=REMEMBERED)
def _cache_write_ops(op: ComputeOp, scope: str, name: str, key: object) -> tuple[ComputeOp, ComputeOp]:
    axis = tuple([IterVar(f"{v.name}.c", INDEX, v.extent, "spatial") for v in op.axis])
    reduce_axis = tuple([IterVar(v.name, INDEX, v.extent, "reduce") for v in op.reduce_axis])
    env: dict[Var, Expr] = dict(zip((*op.axis, *op.reduce_axis), (*axis, *reduce_axis), strict=True))
    reduce_axis = tuple([_with_extent(v, env) for v in reduce_axis])
    env.update(zip(op.reduce_axis, reduce_axis, strict=True))

    def move(e: Expr) -> Expr:
        return _reduce_over(e, env, reduce_axis) if isinstance(e, Reduce) else substitute(e, env)

    cache = ComputeOp(name, axis, map_bodies(op, move), key, op.tag, op.attrs, reduce_axis, scope)
    body = tuple([Load(cache.output(k), op.axis) for k in range(op.num_outputs)])
    return cache, ComputeOp(op.name, op.axis, body, op.key, scope=op.scope)


def _with_extent(v: IterVar, env: dict[Var, Expr]) -> IterVar:
    if not isinstance(v.extent, Expr):
        return v
    return IterVar(v.name, v.dtype, substitute(v.extent, env), v.kind)


def _reduce_over(e: Reduce, env: dict[Var, Expr], axes: tuple[IterVar, ...], extra: Expr | None = None) -> Reduce:
    condition = _inside_first(extra, None if e.condition is None else substitute(e.condition, env))
    sources = tuple([substitute(s, env) for s in e.sources])
    return Reduce(e.combiner, sources, axes, condition, e.value_index, e.init)


def rfactor_ops(
    op: ComputeOp,
    values: dict[IterVar, Expr],
    loops: Loops,
    factored: int,
    position: int,
    condition: Expr | None,
) -> tuple[ComputeOp, ComputeOp]:
    """`(rf, repl)`: partial results along the loop `factored`, and their reduction.

    `loops` are the reduction loops `(name, extent, variable)` in order, `values` the reduction axes in terms of
    their variables, `condition` what must hold for a point of the loops to be inside (None: always).
    The factored axis stands at `position` among the axes of `<op>.rf`.
    """
    rf = _partial_op(op, values, loops, factored, position, condition)
    name, extent, _ = loops[factored]
    axis = tuple([IterVar(f"ax{k}", INDEX, v.extent, "spatial") for k, v in enumerate(op.axis)])
    red = IterVar(f"{name}.v", INDEX, extent, "reduce")
    index = (*axis[:position], red, *axis[position:])
    sources = tuple([Load(rf.output(k), index) for k in range(op.num_outputs)])
    body = tuple([Reduce(_reduction(op).combiner, sources, (red,), None, k) for k in range(op.num_outputs)])
    return rf, ComputeOp(f"{op.name}.repl", axis, body, op.key, reduce_axis=(red,))


def _reduction(op: ComputeOp) -> Reduce:
    assert op.reduction is not None, f"{op.name} is no reduction"
    return op.reduction


def _partial_op(
    op: ComputeOp, values: dict[IterVar, Expr], loops: Loops, factored: int, position: int, condition: Expr | None
) -> ComputeOp:
    """The first of `rfactor_ops`."""
    name, extent, _ = loops[factored]
    axis = tuple([IterVar(v.name, INDEX, v.extent, "spatial") for v in op.axis])
    split = IterVar(name, INDEX, extent, "spatial")
    inner = [split if k == factored else IterVar(n, INDEX, e, "reduce") for k, (n, e, _) in enumerate(loops)]
    loop_env: dict[Var, Expr] = dict(zip([v for _, _, v in loops], inner, strict=True))
    env: dict[Var, Expr] = dict(zip(op.axis, axis, strict=True))
    env.update({v: substitute(e, loop_env) for v, e in values.items()})
    guard = None if condition is None else substitute(condition, {**loop_env, **env})
    rest = tuple([v for v in inner if v is not split])
    body = _partial_body(op, env, rest, guard)
    key = ("RF", op.key, name, position, tuple([e for _, e, _ in loops]))
    return ComputeOp(f"{op.name}.rf", (*axis[:position], split, *axis[position:]), body, key, op.tag, op.attrs, rest)


def _partial_body(
    op: ComputeOp, env: dict[Var, Expr], rest: tuple[IterVar, ...], guard: Expr | None
) -> tuple[Expr, ...]:
    """The bodies over the reduction axes that are left."""
    if not rest:
        return _unreduced(_reduction(op), env, guard)
    partial = _reduce_over(_reduction(op), env, rest, guard)
    return tuple([_output(partial, k) for k in range(op.num_outputs)])


def _unreduced(e: Reduce, env: dict[Var, Expr], guard: Expr | None) -> tuple[Expr, ...]:
    """Sources as plain values where nothing is left to reduce; the identity where the condition fails."""
    condition = _inside_first(guard, None if e.condition is None else substitute(e.condition, env))
    out = []
    for source, identity in zip(e.sources, e.combiner.identity, strict=True):
        value = substitute(source, env)
        out.append(value if condition is None else if_then_else(condition, value, as_expr(identity)))
    return tuple(out)


def _inside_first(inside: Expr | None, condition: Expr | None) -> Expr | None:
    """Both, if any: what `condition` reads from memory has no value at a point that is not `inside`."""
    both = [e for e in (inside, condition) if e is not None]
    return logical_and(*both) if both else None
