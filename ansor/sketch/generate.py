"""The walk that turns a computation into sketches (section 4.1 of the Ansor paper), by rules of extensions, too.

Stages are visited from the last to the first; every rule that applies forks the state.  States are taken breadth
first, so those that needed fewer visits come out first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from te_lite.errors import require
from te_lite.expr.spelling import did_you_mean
from te_lite.extensions import ALL, EXTENSIONS, Taken, offers
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.state import State

from ..core.errors import TaskError
from ..core.target.hardware import HardwareParams
from ..core.target.registry import entry_of, search_parts
from ..core.target.target import Target
from ..core.values.options import SketchOptions
from .derivation_rules import (
    AddCacheRead,
    AddCacheWrite,
    AlwaysInline,
    MultiLevelTiling,
    MultiLevelTilingWithFusion,
    SimplifyComputeWithConstTensor,
    SkipStage,
    SpecialComputeLocationGPU,
)
from .reduction_rules import AddRfactor, CrossThreadReduction, open_rfactor_splits
from .rule import Condition, Outcome, SketchContext, SketchRule, checked_rules, require_end

OWNERS = {rule.name: extension.name for extension in EXTENSIONS for rule in extension.sketches}
"""The extension of each rule."""


def rules_in_use() -> Mapping[str, Taken]:
    """The rules of the extensions that are used, in order."""
    return offers("sketches")


def extra_rules(asked: str) -> tuple[str, ...]:
    """The rules that a parameter names, with commas; `all` is all of the extensions that are used.

    Raises TaskError for one that is unknown, or whose extension is not used.
    """
    used = rules_in_use()
    names = tuple(used if asked == ALL else [name.strip() for name in asked.split(",") if name.strip()])
    for name in names:
        _rule(name, used)
    return names


def _rule(name: str, used: Mapping[str, Taken]) -> Taken:
    if name not in OWNERS:
        law = f"the rule is unknown, {did_you_mean(name, OWNERS)}known are {', '.join(OWNERS)}"
        raise TaskError(f"extra_sketch_rules: {law}, got {name!r}")
    law = f"the rule needs the extension {OWNERS[name]!r}, which is not installed or not chosen"
    require(name in used, TaskError, "extra_sketch_rules", law, got=name)
    return used[name]


def extra_sketches(
    dag: ComputeDAG,
    target: Target | str,
    hardware: HardwareParams | None = None,
    options: SketchOptions | None = None,
    rules: Sequence[str] | None = None,
    stored_as_read: bool = False,
) -> list[State]:
    """The sketches that the named rules of extensions give for `dag`, in their order; none when none applies.

    `rules`: all of the extensions that are used, if None; `stored_as_read`: see `SketchContext`.
    They are completed like ordinary sketches, and their programs are recorded with the same kinds of steps.
    Raises TaskError for a rule that is unknown or whose extension is not used, and a target without sketch rules.
    """
    target = Target.of(target)
    hardware = (hardware or HardwareParams(target=target)).completed(target)
    ctx = SketchContext(dag, target, hardware, options or SketchOptions(), stored_as_read=stored_as_read)
    used = rules_in_use()
    taken = [_rule(name, used) for name in (used if rules is None else rules)]
    return [sketch for rule in taken if rule.offer.applies(dag, target.is_gpu) for sketch in rule(ctx)]


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


def _visit(ctx: SketchContext, rules: Sequence[SketchRule], state: State, k: int) -> list[Outcome]:
    """The states that follow from one stage; a scan stays as it is."""
    if state.stages[k].op.scans:
        return [(state, k - 1)]
    out: list[Outcome] = []
    for rule in rules:
        condition = rule.condition(ctx, state, k)
        if condition != Condition.SKIP:
            out.extend(rule.apply(ctx, state, k))
        if condition == Condition.APPLY_AND_SKIP_REST:
            break
    return out
