"""A group of operators as one computation: the tensor expressions of its operators put together.

The placeholders are called p0, p1, ... like the parameters of the group, so that groups of the same structure have
the same text and therefore the same workload key.

Operators that only move elements, one after the other, are one stage, in which the quotients and remainders that their
indices are of each other mostly cancel:

    slice, reshape, transpose, reshape of x [197, 2304]    ->    T_moved(h, i, k) = x[i, h*64 + k + 768]

A loop is the values that one kernel keeps from step to step (`ansor/core/values/recurrence.py`).  What a step computes
is read at one point: row and column of a state.  Slices, joins and whatever else moves elements
become indices there, and a loop is refused whose indices are those of other points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from ansor.core.values.recurrence import Held, Recurrence, Sliced, Written
from te_lite import ComputeDAG, ComputeOp, PlaceholderOp, Tensor, compute, const, placeholder, topi
from te_lite.errors import ExprError, require
from te_lite.expr.element import Buffer
from te_lite.expr.expr import BufferLoad, Expr, Load, Reduce, Var, as_expr
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import substitute, transform, walk
from te_lite.topi.tag import INJECTIVE
from te_lite.topi.utils import ax_compute

from ..ir import nodes
from ..ir.control import Loop
from ..ir.errors import GraphError
from ..ir.nodes import Call, Constant, Function, FunctionCall, Tuple, TupleGetItem, tensor_type
from ..ir.op_registry import OpPattern
from ..ir.types import TupleType
from ..ir.visit import is_op, post_order
from ..ir.visit import substitute as with_nodes

# ------------------------------------------------------------------------------------ operators that only move elements


def moved(tensor: Tensor) -> Tensor:
    """The tensor as one stage that reads where its elements come from; itself, where it is computed or an input."""
    found = _source(tensor)
    if found is None:
        return tensor
    axes, source, indices = tensor.op.axis, found.tensor, found.indices
    while (before := _source(source)) is not None:
        places: dict[Var, Expr] = dict(zip(source.op.axis, indices, strict=True))
        source, indices = before.tensor, tuple([substitute(i, places) for i in before.indices])
    simplifier = Simplifier({v: (0, v.length - 1) for v in axes})
    indices = tuple([simplifier.simplify(i) for i in indices])

    def element(*at: Expr) -> Expr:
        return source[tuple([substitute(i, dict(zip(axes, at, strict=True))) for i in indices])]

    return ax_compute(tensor.shape, element, "T_moved", INJECTIVE)


def _source(tensor: Tensor) -> Load | None:
    """What a stage that only moves elements reads."""
    op = tensor.op
    body = op.body[tensor.value_index] if isinstance(op, ComputeOp) else None
    return body if isinstance(body, Load) else None


# --------------------------------------------------------------------------------------------------------------- groups


@dataclass(frozen=True)
class LoweredGroup:
    """A primitive function as tensor expressions.

    tensors: the inputs, in the order in which the computation meets them, then the outputs, in the order of the
    function's result; a kernel takes its buffers in this order.
    inputs: for each input tensor, which parameter of the function it is; parameters that no value depends on are none.
    """

    name: str
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The results."""
        return self.tensors[len(self.inputs) :]

    @cached_property
    def dag(self) -> ComputeDAG:
        """The computation of the tensors."""
        return ComputeDAG(self.tensors)

    @cached_property
    def workload_key(self) -> str:
        """What records of this computation are filed under."""
        return self.dag.workload_key()

    @cached_property
    def is_complex(self) -> bool:
        """Whether there is a reduction, which makes a group worth tuning."""
        return any(isinstance(op, ComputeOp) and op.reduction is not None for op in self.dag.ops)


def lower_group(function: Function, target_kind: str) -> LoweredGroup:
    """The tensor expressions of a primitive function for targets of a kind (`c` or `cuda`).

    Raises GraphError for an operator that has no tensor expression, a tensor without elements, and a constant that is
    no scalar.
    """
    name = str(function.attrs.get("name", "main"))
    try:
        return _lowered(function, name, target_kind)
    except ExprError as refused:
        raise GraphError(f"kernel {name}: {refused}") from None


def _lowered(function: Function, name: str, target_kind: str) -> LoweredGroup:
    params = [placeholder(p.shape, p.dtype, f"p{k}") for k, p in enumerate(function.params)]
    values: dict[nodes.Expr, list[Tensor]] = {p: [t] for p, t in zip(function.params, params, strict=True)}
    for node in post_order(function.body):
        if node not in values:
            values[node] = _tensors(node, values, target_kind)
    outputs = [t if isinstance(t.op, ComputeOp) else topi.identity(t) for t in values[function.body]]
    inputs = _placeholders(outputs)
    return LoweredGroup(name, (*inputs, *outputs), tuple([params.index(t) for t in inputs]))


def _tensors(node: nodes.Expr, values: dict[nodes.Expr, list[Tensor]], target_kind: str) -> list[Tensor]:
    match node:
        case Call(op=op, args=args, attrs=attrs):
            require(
                op.compute is not None, GraphError, op.name, "the operator must be folded away before it is lowered"
            )
            assert op.compute is not None
            given = [values[a] if isinstance(a.type, TupleType) else values[a][0] for a in args]
            if op.pattern == OpPattern.OUT_ELEMWISE_FUSABLE:
                given = [moved(t) if isinstance(t, Tensor) else t for t in given]
            return op.compute(given, attrs, target_kind)
        case Constant(value=value):
            require(value.ndim == 0, GraphError, "constant in a group", "it must be a scalar", shape=value.shape)
            return [compute((), lambda: const(value.item(), str(value.dtype)), name="compile_engine_const")]
        case Tuple(fields=fields):
            return [values[f][0] for f in fields]
        case TupleGetItem(tuple_value=tuple_value, index=index):
            return [values[tuple_value][index]]
        case _:
            require(False, GraphError, "group", "operators, scalars and tuples can be lowered", node=node)
            return []


def _placeholders(outputs: list[Tensor]) -> list[Tensor]:
    """The inputs that the outputs depend on, depth first, every operation's inputs in order of first use."""
    found: dict[Tensor, None] = {}
    stack = list(reversed(outputs))
    while stack:
        tensor = stack.pop()
        if tensor not in found:
            found[tensor] = None
            if isinstance(tensor.op, ComputeOp):
                stack.extend(reversed(tensor.op.input_tensors()))
    return [t for t in found if isinstance(t.op, PlaceholderOp)]


# ---------------------------------------------------------------------------------------------------------------- loops


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
