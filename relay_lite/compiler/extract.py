"""What of a network is worth tuning: one search task for each different group of operators that holds a reduction."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.core.tasks.task import SearchTask
from ansor.core.values.in_networks import layout_in_networks
from ansor.records.journal import replace_file

from ..ir.module import IRModule
from ..ir.nodes import Function
from ..ir.visit import function_calls
from ..op.lower_group import LoweredGroup, lower_group
from ..op.lower_loop import whole_loop
from ..transform import PassContext
from .optimize import optimize


def extract_tasks(
    graph: IRModule | Function,
    params: Mapping[str, Any] | None,
    target: Target | str,
    hardware_params: HardwareParams | None = None,
    include_simple_tasks: bool = False,
    dump_workload_to_dag_log: str | os.PathLike[str] | None = None,
    opt_level: int = 3,
) -> tuple[list[SearchTask], list[int]]:
    """The search tasks of a network in the order of their first use, and how often the network runs each.

    `params` maps names of weights to arrays; without them nothing that depends on a weight is folded.  Only groups
    with a reduction are tasks, unless `include_simple_tasks`.  `dump_workload_to_dag_log` names a file for a JSON
    object from workload keys to printed computations.  On target `c` programs are measured with packed weights, as
    `relay_lite.build` will store them.  The passes run at `opt_level`, otherwise as the current
    PassContext says.  Raises GraphError for a graph that cannot be rewritten or an operator that cannot be lowered,
    TaskError for an unknown target.
    """
    target = Target.of(target)
    with replace(PassContext.current(), opt_level=opt_level):
        fused = optimize(graph, params, target)
    groups, weights = _workloads(fused, target.kind.name, include_simple_tasks)
    layout_option = layout_in_networks(target.kind.name)
    tasks = [
        SearchTask(
            compute_dag=same[0].dag, workload_key=key, target=target, hardware_params=hardware_params,
            desc=",".join([g.name for g in same]), layout_rewrite_option=layout_option,
        )
        for key, same in groups.items()
    ]  # fmt: skip
    if dump_workload_to_dag_log is not None:
        texts = {task.workload_key: str(task.compute_dag) for task in tasks}
        replace_file(dump_workload_to_dag_log, [json.dumps(texts)])
    return tasks, [weights[task.workload_key] for task in tasks]


def _workloads(
    fused: Function, target_kind: str, include_simple: bool
) -> tuple[dict[str, list[LoweredGroup]], Counter[str]]:
    """The groups that are tasks by workload key, and how often the network runs each workload."""
    groups: dict[str, list[LoweredGroup]] = {}
    weights: Counter[str] = Counter()
    for function, uses in group_uses(fused).items():
        group = lower_group(function, target_kind)
        if group.is_complex or include_simple:
            groups.setdefault(group.workload_key, []).append(group)
            weights[group.workload_key] += uses
    return groups, weights


def group_uses(fused: Function) -> dict[Function, int]:
    """The different groups of a fused graph in execution order, and how often each is called; no whole loops."""
    return dict(Counter([n.function for n in function_calls(fused.body) if whole_loop(n.function) is None]))


def whole_loops(fused: Function) -> list[Function]:
    """The different functions of a fused graph that are whole loops, in execution order."""
    called = dict.fromkeys([node.function for node in function_calls(fused.body)])
    return [function for function in called if whole_loop(function) is not None]
