"""The convolutions of a packed graph as tasks to tune."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansor.autotvm.task import Task, create
from ansor.core.target.target import Target
from relay_lite.ir.module import IRModule, bind_params, main_function
from relay_lite.ir.nodes import Expr, Function, children
from relay_lite.ir.op_registry import Op
from relay_lite.ir.visit import is_op

from ..top.templates import conv2d_template
from .machine_kernel import Workload, workload_of
from .packed_operators import CONV


def conv_workloads(graph: Function | IRModule) -> dict[Workload, int]:
    """The different packed convolutions, in plain values, and how often each occurs.

    The order is that of a walk from the result that meets readers before what they read, first operands first.
    """
    found: dict[Workload, int] = {}
    seen: set[Expr] = set()
    stack: list[Expr] = [main_function(graph).body]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if is_op(node, CONV):
            workload = workload_of(node)
            found[workload] = found.get(workload, 0) + 1
        stack.extend(reversed(children(node)))
    return found


def extract_from_program(
    mod: Function | IRModule,
    params: Mapping[str, Any] | None = None,
    target: Target | str = "vta",
    target_host: Target | str | None = None,
    ops: Sequence[Op] | None = None,
) -> list[Task]:
    """The tasks of a packed network in the order of `conv_workloads`; `params` become constants where the graph has
    such inputs left.

    Only packed convolutions have a template, so these are the tasks; `ops` without `nn.conv2d` gives none.  The
    template is the one that is registered as `conv2d_packed.vta` at this moment.
    """
    if ops is not None and not any(op.name in ("nn.conv2d", CONV) for op in ops):
        return []
    function = main_function(mod)
    left = {v.name for v in function.params}
    bound = bind_params(function, {name: value for name, value in (params or {}).items() if name in left})
    works = conv_workloads(bound)
    return [create(conv2d_template, work[1:], target, target_host, sizes_text(work)) for work in works]


def sizes_text(workload: Workload) -> str:
    """A packed convolution for people: rows x columns x channels, channels out, kernel, stride."""
    _, (_, (_, ci, h, w, _, block), _), (_, (co, _, kh, kw, _, _), _), strides = workload[:4]
    return f"{h}x{w}x{ci * block} -> {co * block}, {kh}x{kw}/{strides[0]}"
