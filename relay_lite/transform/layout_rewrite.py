"""Weights of tuned kernels are stored in the order in which the kernels read them.

After fusion every group is a kernel to be.  Where the current dispatch context has a program for it, and the operator
of the group reads a constant weight, the constant is packed now and the group takes the packed one.  Inside the group
the operator `packed_weight` says what it stands for; in tensor expressions it costs nothing, since reads of the weight
become reads of the packed weight.  The program is told to the dispatch context under the key of the new computation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ansor.core.target.target import Target
from ansor.layout.packing import PackedLayout, PackedView, packed_layouts
from ansor.records.dispatch import DispatchContext
from te_lite import Tensor
from te_lite.errors import TeError, require
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Array, Call, Constant, Expr, Function, FunctionCall, Var
from ..ir.op_registry import Attrs, Op, OpPattern, register
from ..ir.types import TensorType, Type
from ..ir.visit import post_order, rewrite_all, substitute
from ..op.lower_group import LoweredGroup, lower_group
from .sequential import Pass, PassContext

WEIGHTED = (
    "nn.conv2d", "nn.conv3d", "nn.contrib_conv2d_winograd_without_weight_transform", "nn.matmul", "nn.dense",
    "nn.batch_matmul",
)  # fmt: skip
"""The operators whose argument 1 may be packed."""

NAME, LEVEL = "AutoSchedulerLayoutRewrite", 3

PackedLayouts = Mapping[int, PackedLayout]
Choose = Callable[[Function, tuple[int, ...]], tuple[Function, PackedLayouts]]


def AutoSchedulerLayoutRewrite(target: Target | str = "c") -> Pass:  # a class in TVM, and written like one
    """The pass, for graphs that are fused; level 3.  Targets other than `c` keep their weights as they are."""
    kind = Target.of(target)

    def run(function: Function) -> Function:
        @cache
        def choose(group: Function, weights: tuple[int, ...]) -> tuple[Function, PackedLayouts]:
            return _told(group, weights, kind) if weights else (group, {})

        return pack_weights(function, choose) if kind.kind.name == "c" else function

    return Pass(NAME, LEVEL, (), run)


def packs_weights(target: Target) -> bool:
    """Whether the pass runs in the current PassContext, and does something for the target."""
    return target.kind.name == "c" and PassContext.current().enabled(NAME, LEVEL)


def _told(function: Function, weights: tuple[int, ...], target: Target) -> tuple[Function, PackedLayouts]:
    """A group as the program of the dispatch context wants it, which knows the packed one from now on."""
    group, context = lower_group(function, target.kind.name), DispatchContext.current
    try:
        state = context.query(target, group.workload_key, group.is_complex, group.dag, group.name)
        if state is None:
            return function, {}
        packed = with_packed(function, group, state, weights)
    except TeError as error:
        raise GraphError(f"kernel {group.name}: its recorded program cannot be used: {error}") from error
    if packed.layouts:
        context.update(target, packed.group.workload_key, packed.state)
    return packed.function, packed.layouts


def pack_weights(graph: Function, choose: Choose) -> Function:
    """A fused graph with constant weights packed.

    `choose` gets a group and the positions of those arguments that are weights and constant; it gives the group to
    call instead, and the layouts in which that one takes some of them.
    """
    packed: dict[tuple[Expr, PackedLayout], Constant] = {}

    def pack(weight: Expr, layout: PackedLayout) -> Constant:
        assert isinstance(weight, Constant)
        if (weight, layout) not in packed:
            array = layout.pack(weight.value)
            array.setflags(write=False)
            packed[weight, layout] = Constant(array)
        return packed[weight, layout]

    def change(node: Expr) -> Expr:
        if not isinstance(node, FunctionCall):
            return node
        function, layouts = choose(node.function, constant_weights(node))
        args = [pack(a, layouts[k]) if k in layouts else a for k, a in enumerate(node.args)]
        return node if function is node.function else FunctionCall(function, tuple(args))

    return rewrite_all(graph, change)


def constant_weights(node: FunctionCall) -> tuple[int, ...]:
    """The arguments of a group that an operator of it reads as its weight, and that are constant."""
    inside = [x for x in post_order(node.function.body) if isinstance(x, Call) and x.op.name in WEIGHTED]
    weights = [k for k, p in enumerate(node.function.params) if any(x.args[1] is p for x in inside)]
    return tuple([k for k in weights if isinstance(node.args[k], Constant)])


@dataclass(frozen=True, eq=False)
class Packed:
    """A group that takes some parameters in another layout (by position), what it computes, and its program."""

    function: Function
    layouts: PackedLayouts
    group: LoweredGroup
    state: State


def with_packed(function: Function, group: LoweredGroup, state: State, weights: Sequence[int]) -> Packed:
    """A group that takes those of its `weights` packed that its program reads in an order of its own.

    It is the group itself when there are none.  Raises a TeError for a program that does not fit.
    """
    found = packed_layouts(state) if weights else {}
    positions = {group.inputs[group.tensors.index(t)]: layout for t, layout in found.items()}
    layouts = {k: layout for k, layout in positions.items() if k in weights}
    if not layouts:
        return Packed(function, {}, group, state)
    made = take_packed(function, layouts)
    computed = lower_group(made, "c")
    return Packed(made, layouts, computed, replay(computed.dag, state.steps))


def take_packed(function: Function, layouts: PackedLayouts) -> Function:
    """A function of the same meaning that takes some parameters, by number, packed."""
    params = list(function.params)
    values: dict[int, Expr] = {}
    for k, layout in layouts.items():
        old = function.params[k]
        params[k] = Var(old.name, TensorType(layout.packed_shape, old.dtype))
        values[id(old)] = call("packed_weight", params[k], layout=layout)
    attrs = dict(function.attrs)
    if "name" in attrs:
        attrs["name"] = f"{attrs['name']}_packed"
    return Function(tuple(params), substitute(function.body, values), attrs)


# ------------------------------------------------------------------------------------------- the operator


def _type(types: Any, attrs: Attrs) -> Type:
    (packed,) = types
    layout = attrs["layout"]
    require(isinstance(layout, PackedLayout), GraphError, "packed_weight", "a PackedLayout is needed", layout=layout)
    require(
        packed.shape == layout.packed_shape,
        GraphError,
        "packed_weight",
        f"the shape {layout.packed_shape} is needed",
        got=packed.shape,
    )
    return TensorType(layout.shape, packed.dtype)


def _numpy(args: Any, attrs: Attrs) -> Array:
    layout: PackedLayout = attrs["layout"]
    return layout.unpack(args[0])


def _compute(args: Any, attrs: Attrs, target: str) -> list[Tensor]:
    return [PackedView(args[0], attrs["layout"])]


register(Op("packed_weight", OpPattern.INJECTIVE, _type, _numpy, _compute, {"layout": None}))
