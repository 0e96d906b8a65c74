"""A group of operators as one computation: the tensor expressions of its operators put together.

The placeholders are called p0, p1, ... like the parameters of the group, so that groups of the same structure have
the same text and therefore the same workload key.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from te_lite import ComputeDAG, ComputeOp, PlaceholderOp, Tensor, compute, const, placeholder, topi
from te_lite.errors import ExprError, require

from ..ir.errors import GraphError
from ..ir.nodes import Call, Constant, Expr, Function, Tuple, TupleGetItem
from ..ir.op_registry import OpPattern
from ..ir.types import TupleType
from ..ir.visit import post_order
from .moved import moved


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
    values: dict[Expr, list[Tensor]] = {p: [t] for p, t in zip(function.params, params, strict=True)}
    for node in post_order(function.body):
        if node not in values:
            values[node] = _tensors(node, values, target_kind)
    outputs = [t if isinstance(t.op, ComputeOp) else topi.identity(t) for t in values[function.body]]
    inputs = _placeholders(outputs)
    return LoweredGroup(name, (*inputs, *outputs), tuple([params.index(t) for t in inputs]))


def _tensors(node: Expr, values: dict[Expr, list[Tensor]], target_kind: str) -> list[Tensor]:
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
