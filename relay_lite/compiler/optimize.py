"""From a network to groups of operators: the passes in their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansor.core.target.target import ELEMENTS, Target

from ..ir.module import IRModule, bind_params, main_function
from ..ir.nodes import Function
from ..op.lower_loop import recurrence_of
from ..runtime.devices import network_backend
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
from ..transform.fuse_attention import DTYPES
from ..transform.loop import PlaceLoopResults, has_loops, share_groups, with_constants_inside
from ..transform.moments import Moments
from ..transform.sequential import where_needed
from ..transform.whole_loops import WholeLoops


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
    loops = has_loops(function)
    fused = pipeline(target)(with_constants_inside(FoldConstant()(function)) if loops else function)
    fused = share_groups(fused) if has_loops(fused) else fused
    return Sequential([AutoSchedulerLayoutRewrite(target)])(fused) if for_build else fused


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
        WholeLoops(lambda function: _runs(function, target)),
        PlaceLoopResults(),
        FuseOps(rows=rows, moves=moves, dtypes=multiplied),
    ]
    return Sequential(passes, name="optimize")


def _runs(function: Function, target: Target) -> bool:
    """Whether one kernel of the target runs a whole loop."""
    found = recurrence_of(function)
    return found is not None and network_backend(target.kind.name).recurrence(found, str(target)) is not None
