"""Weights of tuned kernels are stored in the order in which the kernels read them (spec autoscheduler 10, 12.6).

After fusion every group is a kernel to be.  Where the current dispatch context has a program for it, and the operator
of the group reads a constant weight, the constant is packed now and the group takes the packed one.  Inside the group
the operator `packed_weight` says what it stands for; in tensor expressions it costs nothing, since reads of the weight
become reads of the packed weight.  The program is told to the dispatch context under the key of the new computation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansor.dispatch import DispatchContext
from ansor.packing import PackedLayout, PackedView
from ansor.reading_order import packed_layouts
from ansor.target import Target
from te_lite import Tensor
from te_lite.errors import TeError, require
from te_lite.replay import replay
from te_lite.state import State

from ..errors import GraphError
from ..ir import Array, Call, Constant, Expr, Function, FunctionCall, Var, post_order, substitute
from ..lower_group import LoweredGroup, lower_group
from ..op.registry import Attrs, Op, OpPattern, register
from ..types import TensorType, Type
from ..visit import call, rewrite
from .sequential import Pass

WEIGHTED = (
    "nn.conv2d", "nn.conv3d", "nn.contrib_conv2d_winograd_without_weight_transform", "nn.matmul", "nn.dense",
    "nn.batch_matmul",
)  # fmt: skip
"""The operators whose argument 1 may be packed."""

Layouts = Mapping[int, PackedLayout]


def AutoSchedulerLayoutRewrite(target: Target | str = "c") -> Pass:  # a class in TVM, and written like one
    """The pass, for graphs that are fused; level 3.  Targets other than `c` keep their weights as they are."""
    kind = Target.of(target)

    def run(function: Function) -> Function:
        return _Packer(kind).run(function) if kind.kind.name == "c" else function

    return Pass("AutoSchedulerLayoutRewrite", 3, (), run)


class _Packer:
    """What one run of the pass has found out: layouts by group, packed groups, packed constants."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.layouts: dict[Function, Layouts] = {}
        self.states: dict[Function, State] = {}
        self.groups: dict[tuple[Function, tuple[int, ...]], Function] = {}
        self.constants: dict[tuple[Expr, PackedLayout], Constant] = {}

    def run(self, function: Function) -> Function:
        return rewrite(function, self._pack)

    def _pack(self, node: Expr) -> Expr:
        if not isinstance(node, FunctionCall):
            return node
        group = node.function
        if group not in self.layouts:
            self.layouts[group] = self._layouts(group)
        layouts = {k: layout for k, layout in self.layouts[group].items() if isinstance(node.args[k], Constant)}
        if not layouts:
            return node
        args = [self._packed(a, layouts[k]) if k in layouts else a for k, a in enumerate(node.args)]
        return FunctionCall(self._packed_group(group, layouts), tuple(args))

    def _packed(self, weight: Expr, layout: PackedLayout) -> Constant:
        assert isinstance(weight, Constant)
        key = (weight, layout)
        if key not in self.constants:
            self.constants[key] = Constant(layout.pack(weight.value))
        return self.constants[key]

    def _layouts(self, function: Function) -> Layouts:
        """In which order the program of a group reads those parameters that may be packed."""
        params = {p: k for k, p in enumerate(function.params)}
        weights = [
            node.args[1] for node in post_order(function.body) if isinstance(node, Call) and node.op.name in WEIGHTED
        ]
        free = {params[w] for w in weights if isinstance(w, Var)}
        if not free:
            return {}
        group = lower_group(function, self.target.kind.name)
        try:
            state = self._program(group)
            found = packed_layouts(state) if state is not None else {}
        except TeError as error:
            raise GraphError(f"kernel {group.name}: its recorded program cannot be used: {error}") from error
        if state is None:
            return {}
        self.states[function] = state
        layouts = {group.inputs[group.tensors.index(t)]: layout for t, layout in found.items()}
        return {k: layout for k, layout in layouts.items() if k in free}

    def _program(self, group: LoweredGroup) -> State | None:
        context = DispatchContext.current
        return context.query(self.target, group.workload_key, group.is_complex, group.dag, group.name)

    def _packed_group(self, function: Function, layouts: Layouts) -> Function:
        """The group that takes some parameters packed, whose program the dispatch context knows from now on."""
        key = (function, tuple(layouts))
        if key not in self.groups:
            made = self.groups[key] = take_packed(function, layouts)
            group = lower_group(made, self.target.kind.name)
            state = replay(group.dag, self.states[function].steps)
            DispatchContext.current.update(self.target, group.workload_key, state)
        return self.groups[key]


def take_packed(function: Function, layouts: Layouts) -> Function:
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
