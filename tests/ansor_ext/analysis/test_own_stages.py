"""Derivations of extra rules: what ordinary rules say of a state is asked once, and the sketches are the same."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.sketch.derivation_rules import MultiLevelTiling
from ansor.sketch.generate import CPU_RULES, generate_sketches
from ansor.sketch.rule import Condition, Outcome, SketchContext
from ansor_ext.analysis.own_stages import derive
from te_lite import topi
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.state import State


class Never:
    """A rule of an extension that applies to nothing."""

    paper, departs = "", ""

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        return Condition.SKIP

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        raise AssertionError


def context() -> SketchContext:
    x, w, b = (te.placeholder(shape, name=name) for shape, name in (((8, 16), "x"), ((16, 32), "w"), ((32,), "b")))
    out = topi.nn.relu(topi.add(topi.nn.matmul(x, w), b))
    target = Target.of("c")
    return SketchContext(ComputeDAG([x, w, b, out]), target, HardwareParams(target=target).completed(target))


def test_ordinary_rules_are_asked_once_of_each_state() -> None:
    ctx, asked = context(), Counter[tuple[int, int]]()
    plain, states = MultiLevelTiling.condition, []

    def counting(self: MultiLevelTiling, ctx: SketchContext, state: State, k: int) -> Condition:
        states.append(state)
        asked[id(state), k] += type(self) is MultiLevelTiling
        return plain(self, ctx, state, k)

    with patch.object(MultiLevelTiling, "condition", counting):
        first, second = [derive(ctx, (Never(), *CPU_RULES), ctx.dag.init_state, len(ctx.dag.ops) - 1) for _ in range(2)]
    assert max(asked.values()) == 1
    assert [s.steps for s in first] == [s.steps for s in second]
    assert {s.steps for s in first} == {s.steps for s in generate_sketches(ctx.dag, ctx.target, ctx.hardware)}
