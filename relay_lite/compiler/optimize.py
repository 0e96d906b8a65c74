"""From a network to groups of operators: the passes in their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansor.core.target import ELEMENTS, Target

from ..ir.module import IRModule, bind_params, main_function
from ..ir.nodes import Function, Loop
from ..ir.visit import in_loops, post_order
from ..transform import (
    AlterOpLayout,
    AutoSchedulerLayoutRewrite,
    CanonicalizeCast,
    CanonicalizeOps,
    EliminateCommonSubexpr,
    FastMath,
    FlattenAtrousConv,
    FlattenPointwise,
    FoldConstant,
    FoldScaleAxis,
    FuseOps,
    Legalize,
    Pass,
    RealizeQuantized,
    RowShapes,
    Sequential,
    SimplifyExpr,
    SimplifyExprPostAlterOp,
    SimplifyInference,
    TurnProducts,
)
from ..transform.fuse_attention import DTYPES
from ..transform.loop import share_groups, with_aligned_slices, with_constants_inside


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
    passes = pipeline(target, for_build)
    if not any(isinstance(node, Loop) for node in post_order(function.body)):
        return passes(function)
    function = with_constants_inside(FoldConstant()(with_aligned_slices(function)))
    return share_groups(passes(in_loops(function, passes)))


def pipeline(target: Target, for_build: bool = False) -> Pass:
    """All passes for a target as one."""
    rows, moves = target.kind.name in ("c", "cuda"), target.kind.name == "cuda"
    multiplied = (*DTYPES, "float32") if target.precision in ELEMENTS else DTYPES
    passes = [
        RealizeQuantized(),
        Legalize(),
        SimplifyInference(keep_rows=rows),
        EliminateCommonSubexpr(),
        FoldConstant(),
        FoldScaleAxis(),
        SimplifyExpr(),
        CanonicalizeCast(),
        CanonicalizeOps(),
        FlattenAtrousConv(),
        AlterOpLayout(target.kind.name, target.precision),
        FlattenPointwise(target.kind.name, target.precision),
        SimplifyExprPostAlterOp(),
        FastMath(),
        *([RowShapes()] if rows else []),
        FoldConstant(),
        *([TurnProducts()] if moves else []),
        FuseOps(rows=rows, moves=moves, dtypes=multiplied),
    ]
    return Sequential([*passes, AutoSchedulerLayoutRewrite(target)] if for_build else passes, name="optimize")
