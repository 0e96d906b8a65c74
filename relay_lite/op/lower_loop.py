"""A loop as the values that one kernel keeps from step to step (`ansor/core/values/recurrence.py`), where it is such a
loop.

What a step computes is read at one point: row and column of a state.  Slices, joins and whatever else moves elements
become indices there, and a loop is refused whose indices are those of other points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from ansor.core.values.recurrence import Held, Recurrence, Sliced, Written
from te_lite import ComputeOp, Tensor
from te_lite.expr.element import Buffer
from te_lite.expr.expr import BufferLoad, Expr, Load, Reduce, Var, as_expr
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import substitute, transform, walk

from ..ir import nodes
from ..ir.nodes import Call, Function, FunctionCall, Loop, tensor_type
from ..ir.types import TupleType
from ..ir.visit import is_op, post_order
from ..ir.visit import substitute as with_nodes
from .lower_group import LoweredGroup, lower_group

MOST_READS = 256
"""Reads of tensors on the way to all results of a step, each counted as often as it is written out."""
DTYPE = "float32"


class _Other(Exception):
    """A loop that is no recurrence."""


def whole_loop(function: Function) -> Loop | None:
    """The loop that is all of a function, whose arguments are its parameters; None for any other function."""
    body = function.body
    return body if isinstance(body, Loop) and body.args == function.params else None


def recurrence_of(function: Function) -> Recurrence | None:
    """A function that is a whole loop as a recurrence, None where it is none."""
    loop = whole_loop(function)
    product = None if loop is None else _product(loop)
    if loop is None or product is None:
        return None
    try:
        return _recurrence(str(function.attrs.get("name", "loop")), loop, product)
    except _Other:
        return None


def _product(loop: Loop) -> Call | None:
    """The one product of a step, of (rows, width) with a weight that stays; None for loops of other kinds."""
    nodes_of_step = post_order(loop.function.body)
    if loop.states == 0 or any(isinstance(node, Loop | FunctionCall) for node in nodes_of_step):
        return None
    found = [node for node in nodes_of_step if is_op(node, "nn.dense", "nn.matmul")]
    plain = all(not (n.attrs.get("transpose_a") or n.attrs.get("transpose_b")) for n in found)
    if len(found) != 1 or not plain:
        return None
    stays = loop.function.params[loop.sliced + loop.states :]
    return found[0] if any(found[0].args[1] is v for v in stays) else None


@dataclass
class _Step:
    """The step of a loop at the point (row, column)."""

    loop: Loop
    product: Call
    row: Var = field(default_factory=lambda: Var("row"))
    column: Var = field(default_factory=lambda: Var("column"))
    reads: int = 0
    known: dict[tuple[Tensor, int], Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.batch, self.width = self.product.args[0].shape
        _needed(self.batch > 0 and self.product.shape[1] % self.width == 0)
        params, loop = self.loop.function.params, self.loop
        self.ranges = Simplifier({self.row: (0, self.batch - 1), self.column: (0, self.width - 1)})
        kinds = [tensor_type(e) for e in (*params, *_fields(loop))]
        _needed(all(t.dtype == DTYPE for t in kinds))
        points = [t.shape for t in (*kinds[loop.sliced : loop.sliced + loop.states], *kinds[len(params) :])]
        _needed(all(len(s) == 2 and s[0] % self.batch == 0 and s[1] == self.width for s in points))
        self.arguments = [Buffer(f"p{k}", DTYPE, tensor_type(a).shape) for k, a in enumerate(loop.args)]
        self.gates = [_one(f"gate{g}") for g in range(self.product.shape[1] // self.width)]
        self.states = {
            k: [_one(f"state{k}_{part}") for part in range(self.parts(params[k]))]
            for k in range(loop.sliced, loop.sliced + loop.states)
        }

    def parts(self, e: nodes.Expr) -> int:
        """How many times as many rows a tensor has as the product."""
        return e.shape[0] // self.batch

    def place(self, part: int) -> tuple[Expr, Expr]:
        """The indices of the point in a part of a tensor."""
        return self.ranges.simplify(self.row + part * self.batch), self.column

    def lowered(self, body: nodes.Expr) -> LoweredGroup:
        """What gives values of the step, from its parameters and the product, the last one."""
        stands = nodes.Var("product", tensor_type(self.product))
        group = Function((*self.loop.function.params, stands), with_nodes(body, {id(self.product): stands}))
        return lower_group(group, "cuda")

    def at(self, group: LoweredGroup, tensor: Tensor, part: int) -> Expr:
        """The element at the point in a part of a tensor of a group; the same for the same tensor."""
        if (tensor, part) not in self.known:
            self.known[tensor, part] = self._value(group, tensor, self.place(part))
        return self.known[tensor, part]

    def _value(self, group: LoweredGroup, tensor: Tensor, indices: tuple[Expr, ...]) -> Expr:
        op = tensor.op
        if not isinstance(op, ComputeOp):
            return self._leaf(group.inputs[group.tensors.index(tensor)], indices)
        body = op.body[tensor.value_index]
        _needed(not isinstance(body, Reduce))

        def read(e: Expr) -> Expr | None:
            if not isinstance(e, Load):
                return None
            self.reads += 1
            _needed(self.reads <= MOST_READS)
            return self._value(group, e.tensor, tuple([self.ranges.simplify(i) for i in e.indices]))

        return transform(self.ranges.simplify(substitute(body, dict(zip(op.axis, indices, strict=True)))), read)

    def _leaf(self, k: int, indices: tuple[Expr, ...]) -> Expr:
        """An element of a parameter, or of the product behind them."""
        if k == len(self.loop.function.params):
            places = [(self.row, self.column + g * self.width) for g in range(len(self.gates))]
            return self._one_of(self.gates, places, indices)
        if k in self.states:
            return self._one_of(self.states[k], [self.place(p) for p in range(len(self.states[k]))], indices)
        return BufferLoad(self.arguments[k], self.flat(indices, self.loop.function.params[k].shape))

    def _one_of(self, values: list[Buffer], places: Sequence[tuple[Expr, Expr]], indices: tuple[Expr, ...]) -> Expr:
        for value, place in zip(values, places, strict=True):
            if all(self.ranges.prove(a == b) for a, b in zip(place, indices, strict=True)):
                return BufferLoad(value, as_expr(0))
        raise _Other

    def flat(self, indices: tuple[Expr, ...], shape: tuple[int, ...]) -> Expr:
        """An index into the elements of a tensor."""
        found = as_expr(0)
        for index, extent in zip(indices, shape, strict=True):
            found = found * extent + index
        return self.ranges.simplify(found)


def _recurrence(name: str, loop: Loop, product: Call) -> Recurrence:
    step, body = _Step(loop, product), loop.function.body
    read, made = step.lowered(nodes.Tuple((product.args[0],))), step.lowered(body)
    operand = step.at(read, read.outputs[0], 0)
    own = {value for values in step.states.values() for value in values}
    _needed(all(e.buffer in own for e in walk(operand) if isinstance(e, BufferLoad)))
    held, written = list[Held](), list[Written]()
    for n, (after, made_field) in enumerate(zip(made.outputs, _fields(loop), strict=True)):
        k, result, size = loop.sliced + n, len(loop.args) + n, prod(made_field.shape)
        for part in range(step.parts(made_field)):
            index, value = step.flat(step.place(part), made_field.shape), step.at(made, after, part)
            if n < loop.states:
                held.append(Held(step.states[k][part], BufferLoad(step.arguments[k], index), value))
                written.append(Written(result, None, index, BufferLoad(held[-1].value, as_expr(0))))
            else:
                written.append(Written(result, size, index, value))
    types = loop.type.fields if isinstance(loop.type, TupleType) else ()
    given = [Buffer(f"r{n}", DTYPE, kind.shape) for n, kind in enumerate(types)]
    turns = loop.turns or ((loop.steps, 1),) * loop.sliced
    sliced = [Sliced(k, prod(loop.function.params[k].shape), *turn) for k, turn in enumerate(turns)]
    weight = next(k for k, v in enumerate(loop.function.params) if v is product.args[1])
    return Recurrence(
        name, loop.steps, loop.backwards, step.batch, step.width, step.row, step.column,
        (*step.arguments, *given), tuple(sliced), weight, is_op(product, "nn.dense"),
        tuple(step.gates), tuple(held), operand, tuple(written),
    )  # fmt: skip


def _fields(loop: Loop) -> tuple[nodes.Expr, ...]:
    body = loop.function.body
    assert isinstance(body, nodes.Tuple)
    return body.fields


def _one(name: str) -> Buffer:
    return Buffer(name, DTYPE, (1,), "local")


def _needed(ok: bool) -> None:
    if not ok:
        raise _Other
