"""How people write a workload: the two kinds of operations, and `placeholder` and `compute`, which declare them."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import is_
from typing import Any, overload

from ..errors import ExprError, require, require_name
from ..expr.dtype import DTYPE_LAW, python_number
from ..expr.element import Before, Carried, Combiner, Operation, Tensor
from ..expr.expr import DTYPES, INDEX, Cast, Const, Expr, ExprLike, IterVar, Load, Reduce, SizeVar, Var, as_expr
from ..expr.misuse import writing
from ..expr.node import same
from ..expr.visit import post_walk, walk

__all__ = ["ComputeOp", "Operation", "PlaceholderOp", "Tensor", "compute", "make_compute", "placeholder"]

_fresh_key = itertools.count()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PlaceholderOp(Operation):
    """An input: `name`, `extents`, `dtype`."""

    name: str
    extents: tuple[Any, ...] = field()
    dtype: str = field()
    key: Any
    attrs: Mapping[str, Any] = field(default_factory=dict)
    axis: tuple[IterVar, ...] = ()
    reduce_axis: tuple[IterVar, ...] = ()

    def output_dtype(self, index: int) -> str:
        return self.dtype

    def __repr__(self) -> str:
        return f"placeholder({self.name}, {list(self.extents)}, {self.dtype})"


@dataclass(frozen=True, eq=False, repr=False)
class ComputeOp(Operation):
    """One value per point of `axis` and output: `body[k]` gives output `k`.

    A reduction has `Reduce` nodes as bodies, all over the same `reduce_axis` and with the same sources.
    """

    name: str
    axis: tuple[IterVar, ...]
    body: tuple[Expr, ...]
    key: Any
    tag: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    reduce_axis: tuple[IterVar, ...] = ()
    scope: str = ""

    @property
    def extents(self) -> tuple[Any, ...]:
        return tuple([v.extent for v in self.axis])

    @property
    def num_outputs(self) -> int:
        return len(self.body)

    def output_dtype(self, index: int) -> str:
        return self.body[index].dtype

    @property
    def reduction(self) -> Reduce | None:
        """The reduction this operation computes, or None."""
        first = self.body[0]
        return first if isinstance(first, Reduce) else None

    @cached_property
    def carried(self) -> tuple[Carried, ...]:
        """What bodies read of the elements before, where it `scans`."""
        return tuple(dict.fromkeys([e for body in self.body for e in walk(body) if isinstance(e, Carried)]))

    @property
    def scans(self) -> bool:
        return bool(self.carried)

    def input_tensors(self) -> tuple[Tensor, ...]:
        """The tensors that are read, in the order of their first use."""
        seen: dict[Tensor, None] = {}
        for body in self.body[:1] if self.reduction is not None else self.body:
            for node in post_walk(body):
                if isinstance(node, Load):
                    seen.setdefault(node.tensor)
        return tuple(seen)

    def __repr__(self) -> str:
        return f"compute({self.name}, {list(self.extents)}, {self.dtype})"


# --------------------------------------------------------------------------------------------- declarations


def _shape(shape: Any, subject: str) -> tuple[Any, ...]:
    dims = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    out = [
        dim if isinstance(dim, SizeVar) else python_number(dim.value if isinstance(dim, Const) else dim) for dim in dims
    ]
    for value in out:
        ok = isinstance(value, SizeVar) or (isinstance(value, int) and not isinstance(value, bool) and value > 0)
        require(ok, ExprError, subject, "every dimension must be a positive integer or a size_var", shape=dims)
    return tuple(out)


def placeholder(shape: Sequence[int], dtype: str = "float32", name: str = "placeholder") -> Tensor:
    """Declare an input tensor.

    Raises ExprError for a shape that is not made of positive integers, an unknown dtype and a name that is no text.
    """
    require_name("placeholder", name)
    require(dtype in DTYPES, ExprError, name, DTYPE_LAW, dtype=dtype)
    return PlaceholderOp(name, _shape(shape, name), dtype, next(_fresh_key)).output()


def _axis_names(fcompute: Callable[..., Any], rank: int, varargs_names: Sequence[str] | None) -> list[str]:
    names = []
    var_positional = False
    for p in inspect.signature(fcompute).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            var_positional = True
        elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty:
            names.append(p.name)
    if var_positional:
        extra = list(varargs_names or [f"i{k}" for k in range(len(names), rank)])
        names += extra[: rank - len(names)]
    return names


@overload
def compute(
    shape: Sequence[int],
    fcompute: Callable[..., ExprLike],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Tensor: ...


@overload
def compute(
    shape: Sequence[int],
    fcompute: Callable[..., Sequence[ExprLike]],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> tuple[Tensor, ...]: ...


def compute(
    shape: Sequence[int],
    fcompute: Callable[..., ExprLike | Sequence[ExprLike]],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """Declare a tensor by the expression of its element.

    `fcompute` takes one index per dimension and gives an expression, or a tuple of expressions for several
    outputs (then a tuple of tensors is returned).  Axis names are the parameter names (`i0, i1, ...` for `*i`).
    A reduction of a stored dtype, which is rounded once, becomes two operations, `NAME.sum` and `NAME`; one output of
    such a reduction of several is a tensor by itself, where others are given with all outputs.
    Raises ExprError when the number of parameters and of dimensions differ, or axis names repeat.
    """
    require_name("compute", name)
    law = "the element is written as a function of its indices, such as lambda i, j: a[i, j] + 1"
    require(callable(fcompute), ExprError, name, law, got=fcompute)
    dims = _shape(shape, name)
    names = _axis_names(fcompute, len(dims), varargs_names)
    require(len(names) == len(dims), ExprError, name, "one index per dimension is needed", shape=dims, indices=names)
    axis = tuple([IterVar(n, INDEX, d, "spatial") for n, d in zip(names, dims, strict=True)])
    with writing():
        value = fcompute(*axis)
    law = "the function must give the expression of an element (a def needs its return)"
    require(value is not None, ExprError, name, law, got=value)
    body = tuple([as_expr(e) for e in (value if isinstance(value, tuple | list) else (value,))])
    _check_axes(name, axis, body)
    op = _declare(name, axis, body, tag, attrs or {})
    return op.output() if len(op.body) == 1 else tuple(op.output(k) for k in range(len(op.body)))


def _declare(
    name: str, axis: tuple[IterVar, ...], body: tuple[Expr, ...], tag: str, attrs: Mapping[str, Any]
) -> ComputeOp:
    """The operation; a reduction whose values are converted (`bfloat16(sum(...))`) is one of its own before it.

    That one has `tag` and `attrs`, which speak of what it reads.
    """
    found = tuple([e for e in map(_unconverted, body) if isinstance(e, Reduce)])
    one = found[0] if len(body) == len(found) == 1 else None
    reductions = found if one is None else tuple([replace(one, value_index=k) for k in range(len(one.sources))])
    if len(found) < len(body) or all(map(is_, found, body)):
        return make_compute(name, axis, reductions if len(found) == len(body) else body, next(_fresh_key), tag, attrs)
    folded = make_compute(f"{name}.{reductions[0].combiner.name}", axis, reductions, next(_fresh_key), tag, attrs)
    points = tuple([replace(v) for v in axis])
    values = tuple([_converted(e, folded.output(r.value_index)[points]) for e, r in zip(body, found, strict=True)])
    return make_compute(name, points, values, next(_fresh_key))


def _unconverted(e: Expr) -> Expr:
    return _unconverted(e.a) if isinstance(e, Cast) else e


def _converted(e: Expr, value: Expr) -> Expr:
    """The conversions of `e` applied to another value."""
    return Cast(e.dtype, _converted(e.a, value)) if isinstance(e, Cast) else value


def _check_axes(name: str, axis: tuple[IterVar, ...], body: tuple[Expr, ...]) -> None:
    """Every axis in the bodies must be one of the operation or of its reduction."""
    for e in body:
        known = {*axis, *(v for r in walk(e) if isinstance(r, Reduce) for v in r.axes)}
        for v in walk(e):
            if isinstance(v, IterVar) and v not in known:
                reduced = f"{v.name} is a reduction axis that nothing reduces over; write te.sum(..., axis={v.name})"
                other = f"{v.name} is an axis of another operation; its own are {', '.join(a.name for a in axis)}"
                raise ExprError(f"{name}: {reduced if v.kind == 'reduce' else other}")


def make_compute(
    name: str,
    axis: tuple[IterVar, ...],
    body: tuple[Expr, ...],
    key: Any,
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    scope: str = "",
) -> ComputeOp:
    """A checked `ComputeOp`: reductions stand at the top of the body only, axis names are unique."""
    _check_bodies(name, body)
    _check_carried(name, axis, body)
    reduce_axis = body[0].axes if isinstance(body[0], Reduce) else ()
    names = [v.name for v in (*axis, *reduce_axis)]
    for n in names:
        law = "iterator names inside one compute must be unique; name each one, as in te.reduce_axis((0, n), 'k')"
        require(names.count(n) == 1, ExprError, name, law, name=n)
    return ComputeOp(name, axis, body, key, tag, attrs or {}, reduce_axis, scope)


def _check_carried(name: str, axis: tuple[IterVar, ...], body: tuple[Expr, ...]) -> None:
    """Raise ExprError for what is carried of other outputs than there are, of two scans, or along no axis."""
    carried = [e for e in {id(e): e for x in body for e in walk(x)}.values() if isinstance(e, Carried)]
    own = {e.now for e in carried if isinstance(e, Before)} | {e for e in carried if not isinstance(e, Before)}
    fits = all(e.output < len(body) and e.dtype == body[e.output].dtype for e in carried)
    law = "what a scan carries are the elements of its own outputs"
    ok = fits and len({e.output for e in own}) == len(own) and (axis or not carried)
    require(ok, ExprError, name, law, got=[e.name for e in carried])


def _check_bodies(name: str, body: tuple[Expr, ...]) -> None:
    for e in body:
        nested = sum(isinstance(x, Reduce) for x in walk(e)) - isinstance(e, Reduce)
        law = "a reduction must be the whole body of a compute; give it a te.compute of its own, and read that"
        require(nested == 0, ExprError, name, law)
        alike = isinstance(body[0], Reduce) == isinstance(e, Reduce)
        require(alike, ExprError, name, "either all outputs are reductions or none")
    reductions = [e for e in body if isinstance(e, Reduce)]
    for k, e in enumerate(reductions):
        one = e.combiner is reductions[0].combiner and e.value_index == k and len(e.sources) == len(reductions)
        alike = one and (e.axes, e.condition) == (reductions[0].axes, reductions[0].condition)
        law = "several reductions of one compute are the outputs of one reducer; give each a te.compute of its own"
        require(alike and all(map(same, e.sources, reductions[0].sources)), ExprError, name, law)
    if reductions:
        _check_combiner(name, reductions[0].combiner)


def _check_combiner(name: str, combiner: Combiner) -> None:
    """Raise ExprError for a reducer that reads more than its operands: stages that are made of one have other axes."""
    own = {*combiner.lhs, *combiner.rhs}
    for e in (*combiner.result, *combiner.identity):
        read = [x for x in walk(e) if isinstance(x, Load | Var) and x not in own]
        law = "a reducer combines its two operands, and reads nothing else; what it shall use is one more value of both"
        require(not read, ExprError, name, law, reads=read)
