"""From a network to groups of operators: the passes in their order, and the groups that are worth tuning."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import ELEMENTS, Target
from ansor.core.tasks.task import SearchTask
from ansor.core.values.options import layout_in_networks
from ansor.records.journal import replace_file

from ..ir.module import IRModule, bind_params, main_function
from ..ir.nodes import Function
from ..ir.visit import function_calls, sizes_in
from ..op.lower_group import LoweredGroup, lower_group, recurrence_of, whole_loop
from ..runtime.devices import network_backend, passes_over
from ..transform import (
    AlterOpLayout,
    AutoSchedulerLayoutRewrite,
    CanonicalizeCast,
    CanonicalizeOps,
    EliminateCommonSubexpr,
    FastMath,
    FlattenPointwise,
    FoldConstant,
    FoldScaleAxis,
    FuseOps,
    Legalize,
    Pass,
    PassContext,
    RealizeQuantized,
    RowShapes,
    ScoresInBatches,
    Sequential,
    SimplifyExpr,
    SimplifyExprPostAlterOp,
    SimplifyInference,
    TurnProducts,
)
from ..transform.batch_slices import BatchSlices
from ..transform.byte_products import ByteProducts
from ..transform.causal_masks import CausalMasks
from ..transform.fuse_attention import DTYPES
from ..transform.loop import PlaceLoopResults, WholeLoops, has_control, share_groups, with_constants_inside
from ..transform.moments import Moments
from ..transform.select_branches import SelectBranches
from ..transform.sequential import where_needed


def optimize(
    graph: IRModule | Function, params: Mapping[str, Any] | None, target: Target | str, *, for_build: bool = False
) -> Function:
    """The network as calls of fused groups; `params` (names to arrays) become constants, and what they allow is folded.

    The current PassContext decides which passes run; the usual level is 3.  `for_build` also stores constant weights
    in the order in which the recorded programs of the current dispatch context read them, on targets of kind `c`.
    Raises GraphError for parameters that do not fit.
    """
    target = Target.of(target)
    function = bind_params(main_function(graph), {} if params is None else params)
    if has_control(function):
        select = SelectBranches(everywhere=not passes_over(target.kind.name))
        function = select(with_constants_inside(FoldConstant()(function)))
    is_open = bool(sizes_in(function))
    fused = (open_pipeline() if is_open else pipeline(target))(function)
    fused = share_groups(fused) if has_control(fused) else fused
    stored = for_build and not is_open  # records are of tasks of numbers
    return Sequential([AutoSchedulerLayoutRewrite(target)])(fused) if stored else fused


def pipeline(target: Target) -> Pass:
    """All passes to a graph of groups as one."""
    rows, moves = target.kind.name in ("c", "cuda"), target.kind.name == "cuda"
    multiplied = (*DTYPES, "float32") if target.precision in ELEMENTS else DTYPES
    passes = [
        where_needed(RealizeQuantized),
        where_needed(Legalize),
        where_needed(SimplifyInference, rows),
        EliminateCommonSubexpr(),
        FoldConstant(),
        *([where_needed(ByteProducts)] if target.kind.name == "c" else []),
        where_needed(FoldScaleAxis),
        SimplifyExpr(),
        where_needed(CanonicalizeCast),
        where_needed(CanonicalizeOps),
        where_needed(AlterOpLayout, target.kind.name, target.precision),
        where_needed(FlattenPointwise, target.kind.name, target.precision),
        SimplifyExprPostAlterOp(),
        where_needed(FastMath),
        *([where_needed(RowShapes)] if rows else []),
        FoldConstant(),
        *([ScoresInBatches(whole=False), TurnProducts()] if moves else []),
        *([BatchSlices(dtypes=multiplied), Moments()] if moves else []),  # a GPU's memory is what is short
        *([where_needed(CausalMasks)] if moves else []),
        WholeLoops(lambda function: _runs(function, target)),
        PlaceLoopResults(),
        FuseOps(rows=rows, moves=moves, dtypes=multiplied),
    ]
    return Sequential(passes, name="optimize")


def open_pipeline() -> Pass:
    """The passes to a graph of groups whose decisions hold for all sizes."""
    passes = [
        where_needed(SimplifyInference, True),
        EliminateCommonSubexpr(),
        FoldConstant(),
        where_needed(FoldScaleAxis),
        SimplifyExpr(),
        where_needed(CanonicalizeOps),
        where_needed(FastMath),
        FoldConstant(),
        FuseOps(rows=True),
    ]
    return Sequential(passes, name="optimize")


def _runs(function: Function, target: Target) -> bool:
    """Whether one kernel of the target runs a whole loop."""
    found = recurrence_of(function)
    return found is not None and network_backend(target.kind.name).recurrence(found, str(target)) is not None


# ---------------------------------------------------------------------------------------------------------------- tasks


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
