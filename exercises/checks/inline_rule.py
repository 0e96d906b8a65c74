"""A sketch rule that inlines: asked about every stage of several computations, then searched with."""

from types import ModuleType
from typing import Any

import numpy as np

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.sketch.generate import generate_sketches
from ansor.sketch.rule import Condition, SketchContext
from te_lite.schedule.state import INLINED

from ..core.schedules import needs_right, product
from ..core.verdict import function, need

HINT = """Three conditions: no input, no reduction, somebody reads it. APPLY_AND_SKIP_REST keeps the other rules from
making sketches in which the stage is not inlined. `ComputeInline(k)` is the step."""

KEEP = {"C": "it has a reduction, which would be computed anew for every use", "E": "nobody reads it: it is the output"}


def chain() -> list[Any]:
    """A scaled input, a product of it, a bias, a relu: D0 and D1 are to be inlined, C and E are not."""
    a, b, c = product(12, 8, 20)
    scaled = te.compute((12, 8), lambda i, j: a[i, j] * 2.0, name="D0")
    k = te.reduce_axis((0, 8), name="k")
    c = te.compute((12, 20), lambda i, j: te.sum(scaled[i, k] * b[k, j], axis=k), name="C")
    biased = te.compute((12, 20), lambda i, j: c[i, j] + 1.0, name="D1")
    return [a, b, te.compute((12, 20), lambda i, j: te.maximum(biased[i, j], 0.0), name="E")]


def check(answer: ModuleType) -> None:
    """The condition stage by stage, then what applying does, then whole sketches."""
    rule = function(answer, "InlineRule")()
    tensors = chain()
    dag, target = te.ComputeDAG(tensors), Target("c")
    hardware = HardwareParams(num_cores=4, target=target)
    ctx, state = SketchContext(dag, target, hardware), dag.init_state
    for k, stage in enumerate(state.stages):
        name, got = stage.op.name, rule.condition(ctx, state, k)
        if name in ("D0", "D1"):
            need(got != Condition.SKIP, f"stage {name} is element by element and read by another; it should be inlined")
            need(
                got != Condition.APPLY, f"stage {name}: APPLY lets other rules make sketches that do not inline it, too"
            )
        elif name in KEEP:
            need(got == Condition.SKIP, f"stage {name} must stay: {KEEP[name]}")
        else:
            need(got == Condition.SKIP, f"stage {name} is an input and has nothing to inline")
    k = next(k for k, stage in enumerate(state.stages) if stage.op.name == "D1")
    (after, following), *_ = rule.apply(ctx, state, k)
    need(len(after.steps) > len(state.steps), "`apply` gives the state back as it was: add the step")
    need(after.stages[k].where == INLINED, "the step that `apply` adds does not inline stage k")
    need(following == k - 1, f"after stage {k} the walk goes on with {k - 1}, yours with {following}")
    for sketch in generate_sketches(dag, target, hardware, custom_rules=[rule]):
        inlined = {s.op.name for s in sketch.stages if s.where == INLINED}
        need({"D0", "D1"} <= inlined, f"a sketch inlines {sorted(inlined)} only")
    needs_right(after, tensors, np.random.default_rng(13))
