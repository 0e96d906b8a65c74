"""Sketches by the rules of extensions (`te_lite/extensions.py`), beside the ordinary ones, which they leave alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from te_lite.errors import require
from te_lite.expr.spelling import did_you_mean
from te_lite.extensions import ALL, EXTENSIONS, Taken, offers
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.state import State

from ..core.errors import TaskError
from ..core.target.hardware import HardwareParams
from ..core.target.target import Target
from ..core.values.options import SketchOptions
from .rule import SketchContext

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
