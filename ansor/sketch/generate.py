"""The walk that turns a computation into sketches (section 4.1 of the Ansor paper).

Stages are visited from the last to the first; every rule that applies forks the state.  States are taken breadth
first, so those that needed fewer visits come out first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.state import State

from ..core.errors import TaskError
from ..core.target.hardware import HardwareParams
from ..core.target.registry import entry_of, search_parts
from ..core.target.target import Target
from ..core.values.options import SketchOptions
from .cache_rules import AddCacheRead, AddCacheWrite
from .custom import checked_rules, require_end
from .inline_rules import AlwaysInline, SimplifyComputeWithConstTensor, SkipStage, SpecialComputeLocationGPU
from .reduction_rules import AddRfactor, CrossThreadReduction, open_rfactor_splits
from .rule import Condition, Outcome, SketchContext, SketchRule
from .tiling_rules import MultiLevelTiling, MultiLevelTilingWithFusion

CPU_RULES: tuple[SketchRule, ...] = (
    AlwaysInline(),
    SimplifyComputeWithConstTensor(),
    AddRfactor(),
    AddCacheWrite(),
    MultiLevelTilingWithFusion(),
    MultiLevelTiling(),
    SkipStage(),
)

GPU_RULES: tuple[SketchRule, ...] = (
    AddCacheRead(),
    SpecialComputeLocationGPU(),
    AlwaysInline(),
    SimplifyComputeWithConstTensor(),
    CrossThreadReduction(),
    AddCacheWrite(),
    MultiLevelTilingWithFusion(),
    MultiLevelTiling(),
    SkipStage(),
)

RULES: dict[str, tuple[SketchRule, ...]] = {"c": CPU_RULES, "cuda": GPU_RULES}


def default_rules(target: Target) -> tuple[SketchRule, ...]:
    """The rules of a target, in order.  Raises TaskError when it has none."""
    entry = entry_of(target.kind.name)
    if entry.rules is not None:
        return entry.rules
    parts = search_parts(target.kind.name)
    if parts is not None:
        return parts.rules
    if entry.family not in RULES:
        raise TaskError(f"target {target.text!r}: has no sketch rules, targets with rules are {', '.join(RULES)}")
    return RULES[entry.family]


def has_own_rules(target: Target) -> bool:
    """Whether a target kind brought rules of its own, beside which nobody asks the extra ones."""
    return entry_of(target.kind.name).rules is not None or search_parts(target.kind.name) is not None


def generate_sketches(
    dag: ComputeDAG,
    target: Target | str,
    hardware_params: HardwareParams | None = None,
    custom_rules: Sequence[SketchRule] = (),
    policy_context: Any = None,
    options: SketchOptions | None = None,
) -> list[State]:
    """All sketches of `dag`: states whose split lengths are partly undecided.

    `custom_rules` are asked first; `policy_context` is handed to them (the `SketchContext` when it is None).
    Raises TaskError for a target without rules, PartError for a custom rule that is none or does not end.
    """
    target = Target.of(target)
    rules = (*checked_rules(custom_rules), *default_rules(target))
    hardware = (hardware_params or HardwareParams(target=target)).completed(target)
    ctx = SketchContext(dag, target, hardware, options or SketchOptions(), policy_context)
    if policy_context is None:
        ctx = SketchContext(dag, target, hardware, ctx.options, ctx)
    front: list[Outcome] = [(dag.init_state, len(dag.ops) - 1)]
    sketches = []
    while front:
        following: list[Outcome] = []
        for state, k in front:
            if k < 0:
                sketches.append(open_rfactor_splits(state))
            else:
                following.extend(_visit(ctx, rules, state, k))
        require_end(rules, len(following))
        front = following
    return sketches


def ordinary_sketches(ctx: SketchContext) -> tuple[State, ...]:
    """The sketches by the rules of the target, which many extra rules begin with: made once for the same context."""
    return _ordinary(ctx, default_rules(ctx.target))


@lru_cache(maxsize=4)
def _ordinary(ctx: SketchContext, _: tuple[SketchRule, ...]) -> tuple[State, ...]:
    return tuple(generate_sketches(ctx.dag, ctx.target, ctx.hardware, options=ctx.options))


def _visit(ctx: SketchContext, rules: Sequence[SketchRule], state: State, k: int) -> list[Outcome]:
    """The states that follow from one stage."""
    out: list[Outcome] = []
    for rule in rules:
        condition = rule.condition(ctx, state, k)
        if condition != Condition.SKIP:
            out.extend(rule.apply(ctx, state, k))
        if condition == Condition.APPLY_AND_SKIP_REST:
            break
    return out
