"""The limit below which the loops of a stage are unrolled: the value of `auto_unroll_max_step`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from te_lite.schedule.loop_steps import Pragma
from te_lite.schedule.replay import apply
from te_lite.schedule.state import ROOT, SPATIAL, Stage, State
from te_lite.schedule.step import Length, Step

from ...core.target.hardware import HardwareParams
from ...core.values.schedule_primitives import annotate
from .decision import Number, Numbers, Setting
from .loops import always_unrolled, loops_of_programs

CPU_UNROLL = (0, 16, 64, 512)
GPU_UNROLL = (0, 16, 64, 512, 1024)
LIMIT = re.compile(r"auto_unroll_max_step\$([0-9]{1,9})")


class Unroll(Number):
    """Stages with a reduction have one, and kernels without any loop.

    Those on tensor cores have none, nor have reductions all of whose loops the sketch has unrolled or bound.  Loops
    that the operation asks to unroll are annotated, whatever the limit.
    """

    name = "unroll"
    cpu_weight = 0.04
    gpu_weight = 0.10
    turn = 2

    def values(self, sketch: State, setting: Setting) -> Mapping[int, tuple[int, ...]]:
        gpu, stages = setting.target.is_gpu, sketch.stages
        scalar = [k for k, s in enumerate(stages) if gpu and s.where == ROOT and not s.leaf]
        limited = [k for k in loops_of_programs(sketch) if _has_open_reduction(stages[k]) or k in scalar]
        return dict.fromkeys(limited, GPU_UNROLL if gpu else CPU_UNROLL)

    def apply(self, state: State, k: int, numbers: Numbers, hardware: HardwareParams) -> State:
        for it in always_unrolled(state.stages[k]):
            state = annotate(state, k, it.uid, "unroll")
        return apply(state, Pragma(k, 0, _text(numbers[k]))) if k in numbers else state

    def write(self, step: Step, numbers: tuple[Length, ...]) -> Step:
        assert isinstance(step, Pragma)
        return replace(step, text=_text(numbers[0]))

    def read(self, step: Step) -> tuple[Length, ...] | None:
        found = LIMIT.fullmatch(step.text) if isinstance(step, Pragma) else None
        return None if found is None else (int(found[1]),)


def _has_open_reduction(stage: Stage) -> bool:
    if any(it.annotation == "tensorize" for it in stage.iters):
        return False
    return any(it.kind != SPATIAL and it.annotation == "none" for it in stage.iters)


def _text(limit: Length) -> str:
    return f"auto_unroll_max_step${limit or 0}"
