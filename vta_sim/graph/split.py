"""A packed network in parts: kernels for the machine, and functions for the processor.

Values have numbers.  A step reads some and makes others; the steps are in an order in which they can run.  Parts of
the processor are as large as they can be: all it can do before it has to wait for the machine is one function.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeGuard

import numpy as np

from relay_lite.ir.errors import GraphError
from relay_lite.ir.nodes import Array, Constant, Expr, Function, FunctionCall, Tuple, Var, children, tensor_type
from relay_lite.ir.visit import is_op, post_order, rewrite, substitute
from relay_lite.transform import DefuseOps, FuseOps
from te_lite.errors import require

from .additions import with_addition
from .alu_operations import HIGH, LOW, Interval, merge_bias, reach, simplify
from .machine_kernel import MachineKernel, kernel_of
from .pack import DEVICE_ANNOT, FUSED_ADDITIONS
from .packed_operators import CONV, GROUPED


@dataclass(frozen=True, eq=False)
class CpuStep:
    """`function` applied to the values `inputs`; its results, one or a tuple, are the values `outputs`."""

    function: Function
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class VtaStep:
    """A kernel applied to the values `inputs`; `name` is that of its group."""

    name: str
    kernel: MachineKernel
    inputs: tuple[int, ...]
    output: int


Step: TypeAlias = CpuStep | VtaStep


@dataclass(frozen=True, eq=False)
class NetworkPlan:
    """A network as steps: `inputs` are its parameters and their values, `constants` the values that are known."""

    inputs: tuple[tuple[Var, int], ...]
    constants: Mapping[int, Array]
    steps: tuple[Step, ...]
    result: int

    @property
    def kernels(self) -> dict[MachineKernel, int]:
        """The different kernels in order of first use, and how often each runs."""
        found: dict[MachineKernel, int] = {}
        for step in self.steps:
            if isinstance(step, VtaStep):
                found[step.kernel] = found.get(step.kernel, 0) + 1
        return found


def split(function: Function) -> NetworkPlan:
    """Divide a packed network between machine and processor.

    Every packed convolution, with what follows it up to int8, is a kernel.  Groups of element-wise operators are
    kernels too when `graph_pack` was told so (`device_annot`); with `fused_additions` those that add to the result of
    a convolution which nobody else reads are done with it.
    Raises GraphError for a packed convolution that the machine cannot finish.
    """
    fused = FuseOps(1)(function)
    return _Splitter(rewrite(fused, lambda node: node.args[0] if _is_mark(node) else node)).plan()


def _is_mark(node: Expr) -> TypeGuard[FunctionCall]:
    """Whether a group is nothing but `stop_fusion`: the value itself."""
    return isinstance(node, FunctionCall) and is_op(node.function.body, "annotation.stop_fusion")


class _Splitter:
    """Even levels are parts of the processor, odd ones of the machine; a level needs only those before it."""

    def __init__(self, fused: Function) -> None:
        self.function = fused
        self.with_alu = bool(fused.attrs.get(DEVICE_ANNOT))
        self.with_additions = bool(fused.attrs.get(FUSED_ADDITIONS))
        self.readers = Counter(c for n in post_order(fused.body) for c in children(n))
        self.kernels: dict[Expr, tuple[MachineKernel, tuple[Expr, ...]]] = {}
        self.level: dict[Expr, int] = {}
        self.number: dict[Expr, int] = {}
        self.constants: dict[int, Array] = {}

    def plan(self) -> NetworkPlan:
        for node in post_order(self.function.body):
            if not isinstance(node, Var | Constant):
                self._look_at(node)
        inputs = tuple([(v, self._number(v)) for v in self.function.params])
        steps: list[Step] = []
        for level in range(max(self.level.values(), default=0) + 1):
            nodes = [n for n, its in self.level.items() if its == level]
            if level % 2:
                steps += [self._vta_step(n) for n in nodes]
            elif nodes:
                steps.append(self._cpu_step(nodes))
        return NetworkPlan(inputs, self.constants, tuple(steps), self._number(self.function.body))

    def _look_at(self, node: Expr) -> None:
        """Decide who computes a node, and when."""
        found = self._kernel(node) if isinstance(node, FunctionCall) else None
        if found is not None and self.with_additions:
            found = self._with_addition(*found)
        if found is not None:
            self.kernels[node] = found
        self._place(node)

    def _place(self, node: Expr) -> None:
        own = 1 if node in self.kernels else 0
        # the next level of its own kind that is not before what it reads
        before = [self.level[c] for c in self._reads(node) if c in self.level]
        self.level[node] = max([own, *[k if k % 2 == own else k + 1 for k in before]])

    def _reads(self, node: Expr) -> tuple[Expr, ...]:
        return self.kernels[node][1] if node in self.kernels else children(node)

    def _kernel(self, node: FunctionCall) -> tuple[MachineKernel, tuple[Expr, ...]] | None:
        has_conv = any(is_op(n, CONV, GROUPED) for n in post_order(node.function.body))
        found = kernel_of(node.function) if has_conv or self.with_alu else None
        if found is not None:
            kernel, args = _simplified(found[0], [node.args[k] for k in found[1]])
            if all(o.encodable for o in kernel.operations):
                return kernel, args
        name = node.function.attrs.get("name")
        law = "what follows the convolution up to int8 is no chain of operations of the machine"
        require(not has_conv, GraphError, f"kernel {name}", law)
        return None

    def _with_addition(self, kernel: MachineKernel, args: tuple[Expr, ...]) -> tuple[MachineKernel, tuple[Expr, ...]]:
        """An addition to the result of a convolution as part of the convolution, which is no kernel of its own then."""
        for arg in reversed(args):
            if arg in self.kernels and self.readers[arg] == 1:
                first, before = self.kernels[arg]
                both = with_addition(first, kernel, reach_of(first, before))
                if both is not None:
                    del self.kernels[arg], self.level[arg]
                    return _simplified(both, [*before, *[a for a in args if a is not arg]])
        return kernel, args

    def _number(self, node: Expr) -> int:
        if node not in self.number:
            self.number[node] = len(self.number)
            if isinstance(node, Constant):
                self.constants[self.number[node]] = node.value
        return self.number[node]

    def _vta_step(self, node: Expr) -> VtaStep:
        assert isinstance(node, FunctionCall)
        kernel, args = self.kernels[node]
        return VtaStep(str(node.function.attrs["name"]), kernel, tuple(map(self._number, args)), self._number(node))

    def _cpu_step(self, nodes: list[Expr]) -> CpuStep:
        inside = set(nodes)
        read = {c for n in self.level if n not in inside for c in self._reads(n)}
        outputs = [n for n in nodes if n in read or n is self.function.body]
        body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
        leaves = [n for n in post_order(body, lambda n: n not in inside and n is not body) if n not in inside]
        params = {
            n: Var(f"v{self._number(n)}", tensor_type(n))
            for n in leaves
            if n is not body and not isinstance(n, Constant)
        }
        made: dict[int, Expr] = {id(n): v for n, v in params.items()}
        function = DefuseOps()(Function(tuple(params.values()), substitute(body, made)))
        return CpuStep(function, tuple(map(self._number, params)), tuple(map(self._number, outputs)))


def reach_of(kernel: MachineKernel, args: Sequence[Expr]) -> Interval | None:
    """Where the results of a kernel can be before they are narrowed; None when they may have wrapped around."""
    return reach(kernel.operations, *_intervals(kernel, args))


def _intervals(kernel: MachineKernel, args: Sequence[Expr]) -> tuple[Interval, list[Interval]]:
    """Where the accumulators of a kernel can be before its first operation, and its extra inputs."""
    known, skip = [_value(a) for a in args], len(args) - len(kernel.extras)
    extras = [_interval(v, a) for v, a in zip(known[skip:], args[skip:], strict=True)]
    return _accumulators(kernel, known), extras


def _value(arg: Expr) -> Array | None:
    return arg.value if isinstance(arg, Constant) else None


def _simplified(kernel: MachineKernel, args: Sequence[Expr]) -> tuple[MachineKernel, tuple[Expr, ...]]:
    """A kernel with fewer operations, and its inputs, of which known biases may have changed."""
    skip = len(args) - len(kernel.extras)
    known = [_value(a) for a in args]
    operations = simplify(kernel.operations, *_intervals(kernel, args))
    merged, biases = merge_bias(operations, known[skip:])
    extras = [
        a if v is None or v is w else Constant(v) for a, v, w in zip(args[skip:], biases, known[skip:], strict=True)
    ]
    return replace(kernel, operations=merged), (*args[:skip], *extras)


def _accumulators(kernel: MachineKernel, known: list[Array | None]) -> Interval:
    """Where the accumulators can be before the first operation."""
    weight = known[1] if kernel.multiplies else None
    if kernel.workload is None:
        return -128, 127
    if kernel.windows:
        _, _, kind, size, *_ = kernel.workload
        return (-128, 127) if kind == "max" else (-128 * math.prod(size), 127 * math.prod(size))
    if weight is None:
        return LOW, HIGH
    outputs = (0, 3) if kernel.grouped else (0, 4)
    others = tuple(a for a in range(weight.ndim) if a not in outputs)
    bound = 128 * int(np.abs(weight.astype("int64")).sum(axis=others).max())
    return -bound, bound


def _interval(value: Array | None, arg: Expr) -> Interval:
    """Where an extra input can be."""
    if value is not None:
        return int(value.min()), int(value.max())
    return (-128, 127) if arg.dtype == "int8" else (LOW, HIGH)
