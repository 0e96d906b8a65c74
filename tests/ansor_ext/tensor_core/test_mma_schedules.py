"""Schedules that tensorize for tensor cores: what they compute, their records and texts, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import te_lite as te
from ansor_ext.tensor_core.instructions import WarpLoad, WarpMultiply
from ansor_ext.tensor_core.mma import MatrixLoad
from te_lite.bounds.loop_scope import LANES
from te_lite.errors import InterpError, LowerError, ScheduleError
from te_lite.expr.expr import BufferLoad, Expr, Var, compare
from te_lite.loops.stmt import Alloc, Buffer, For, If, LoweredFunc, Stmt, bodies, stmts_of, with_bodies
from te_lite.meaning.interp import run
from te_lite.printing.python_text import python_schedule
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.replay import replay
from te_lite.schedule.step import from_json, to_json
from te_lite.verify.verify import Refuted, verdict
from tests.ansor_ext.tensor_core.mma_schedules import PROGRAMS, Tiled
from tests.te_lite.test_python_text import assert_same_program

HALF = PROGRAMS["half"]


def lowered(program: Tiled) -> LoweredFunc:
    tensors = program.tensors()
    return te.lower(program.schedule(tensors), tensors)


def interpreted(program: Tiled, func: LoweredFunc) -> str | None:
    a, b = program.inputs(np.random.default_rng(0))
    out = np.full(program.sizes[:2], 99, program.op.sum.dtype)
    run(func, [a, b, out])
    return program.wrong(a, b, out)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.one_in(2)
def test_the_interpreter_computes_products(name: str) -> None:
    func = lowered(PROGRAMS[name])
    assert interpreted(PROGRAMS[name], func) is None
    assert sum(isinstance(s, WarpMultiply) for s in stmts_of(func.body)) == 1


@pytest.mark.parametrize("warp", [(8, 24), (8, 16), (4, 24)])
def test_a_tile_may_be_partly_empty(warp: tuple[int, int]) -> None:
    """A warp has fewer rows than the instruction, and the others are computed and thrown away."""
    program = replace(HALF, warp=warp)
    assert interpreted(program, lowered(program)) is None


def test_a_lane_keeps_its_part() -> None:
    program = PROGRAMS["half, larger warps"]
    func = lowered(program)
    (multiply,) = [s for s in stmts_of(func.body) if isinstance(s, WarpMultiply)]
    (m, n), k = program.warp, program.op.k
    assert [x.buffer.size * LANES for x in (multiply.d, multiply.a, multiply.b)] == [m * n, m * k, k * n]
    assert "mma.m16n8k16_f16_f32(C.local[i_c_0*16 + j_c_0*4], A.shared.local[i_c_0*8], B.shared.local[j_c_0*4])" in str(
        func
    )


def test_texts_and_records() -> None:
    tensors = HALF.tensors()
    state = HALF.schedule(tensors).state
    steps = [from_json(to_json(step)) for step in state.steps]
    assert replay(state.dag, steps) == state
    text = python_schedule(state)
    assert 'set_scope("fragment.m16n8k16_f16_f32.d")' in text and "tensorize(" in text
    assert_same_program(state)


# ------------------------------------------------------------------------------------------------------- refusals


def stage(s: te.Schedule, name: str) -> te.schedule.schedule.StageHandle:
    (found,) = [x for x in s.stages if x.op.name == name]
    return found


def put(s: te.Schedule, **scopes: str) -> None:
    names = {"d": "C.local", "a": "A.shared.local", "b": "B.shared.local"}
    for operand, scope in scopes.items():
        stage(s, names[operand]).set_scope(scope)


NO_LOOPS = r"the tensorized loops must be m, n and k of m16n8k16_f16_f32, of extents \[16, 8, 16\]"
REFUSED: dict[str, tuple[Tiled, str]] = {
    "two loops": (replace(HALF, tensorized="j"), NO_LOOPS),
    "loops over tiles": (replace(HALF, order="jki", tensorized="k"), NO_LOOPS),
}
F16 = "fragment.m16n8k16_f16_f32."
CHANGED: dict[str, tuple[dict[str, str], str]] = {
    "plain registers": (dict.fromkeys("dab", "local"), "C.local: no intrinsic fits here"),
    "factors in plain registers": (
        {"a": "local"}, "A.shared.local: an instruction of tensor cores works on fragments, got scope='local'"),
    "operands of two instructions": (
        {"a": "fragment.m16n8k16_f16_f16.a"}, "C.local: sums and factors must be d, a and b of one instruction"),
    "factors exchanged": ({"a": F16 + "b", "b": F16 + "a"}, "."),
    "sums of another dtype": (
        {x: f"fragment.m16n8k16_f16_f16.{x}" for x in "dab"}, "C.local: .* sums up, in float16, products of float16"),
    "factors of another dtype": (
        {x: f"fragment.m16n8k16_bf16_f32.{x}" for x in "dab"}, "C.local: .* sums up, in float32, products of bfloat16"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_instruction_is_refused(name: str) -> None:
    program, text = REFUSED[name]
    with pytest.raises(LowerError, match=text):
        lowered(program)


@pytest.mark.parametrize("name", CHANGED)
def test_operands_in_other_places_are_refused(name: str) -> None:
    scopes, text = CHANGED[name]
    program = replace(HALF, warp=(16, 16), block=(32, 16, 32))
    tensors = program.tensors()
    s = program.schedule(tensors)
    put(s, **scopes)
    with pytest.raises(LowerError, match=text):
        te.lower(s, tensors)


def test_an_operand_must_be_one_of_the_table() -> None:
    c = HALF.tensors()[2]
    s = te.create_schedule(c.op)
    with pytest.raises(ScheduleError, match="split_fragment C: an operand of an instruction is needed, got 'd'"):
        s[c].split_fragment(*c.op.axis, "d")
    with pytest.raises(ScheduleError, match="no such instruction"):
        s[c].split_fragment(*c.op.axis, "m8n8k4.d")
    for scope in ("fragment", "fragment.m16n8k16_f16_f32", "fragment.m16n8k16_f16_f32.c", "fragment.m8n8k4.a"):
        with pytest.raises(ScheduleError, match="the scope must be"):
            s.cache_write(c, "local") if scope == "fragment" else s.cache_write(c, scope)
            s[s.stages[-2].op].set_scope(scope)


OTHERS = {"a": "m16n8k32_s8_s32.a", "b": "m16n8k8_tf32_f32.b", "d": "m16n8k8_tf32_f32.a"}


@dataclass(frozen=True)
class Mistaken(Tiled):
    """One operand is split into the lanes and values of another one."""

    operand: str = ""

    def split(self, operand: str) -> str:
        return OTHERS[operand] if operand == self.operand else super().split(operand)


@pytest.mark.parametrize("operand", OTHERS)
def test_lanes_must_have_what_the_instruction_takes_from_them(operand: str) -> None:
    sizes = (32, 32, 32), (32, 32, 32), (16, 16)
    lowered(Mistaken("m16n8k16_f16_f32", *sizes))
    with pytest.raises(LowerError, match="a thread may only read what it computed itself"):
        lowered(Mistaken("m16n8k16_f16_f32", *sizes, operand=operand))


def test_a_warp_has_32_lanes() -> None:
    """Shared tiles that are fetched by 64 threads along x."""
    tensors = HALF.tensors()
    state = HALF.schedule(tensors).state
    steps = [replace(x, lengths=(64,)) if isinstance(x, Split) and x.lengths == (32,) else x for x in state.steps]
    law = r"A.shared.local: all threads .* must share it out, got axis='threadIdx.x' threads=64 needed=32"
    with pytest.raises(LowerError, match=law):
        te.lower(replay(state.dag, steps), tensors)


# ------------------------------------------------------------------------------------------------------ ldmatrix

HALVES = Tiled("m16n8k16_f16_f32", (32, 32, 32), (32, 32, 32), (16, 16), matrices="ab")
FORMS: dict[str, tuple[Tiled, set[str]]] = {
    "one tile": (HALVES, {"ldmatrix_x4", "ldmatrix_x2_trans"}),
    "two tiles": (replace(HALVES, pairs=True), {"ldmatrix_x4", "ldmatrix_x4_trans"}),
    "turned": (replace(HALVES, turned=True), {"ldmatrix_x4", "ldmatrix_x2"}),
    "tf32": (replace(HALVES, name="m16n8k8_tf32_f32", turned=True, pairs=True), {"ldmatrix_x4"}),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_form_follows_from_what_are_neighbours_in_memory(name: str) -> None:
    program, forms = FORMS[name]
    func = lowered(program)
    assert {s.form.name for s in stmts_of(func.body) if isinstance(s, WarpLoad)} == forms
    assert interpreted(program, func) is None


NO_ROWS = "16 bytes of a row of each matrix must be neighbours in shared memory, at a multiple of 16"
UNFIT: dict[str, tuple[Tiled, str]] = {
    "floats in columns": (replace(HALVES, name="m16n8k8_tf32_f32"), f"B.shared.local: {NO_ROWS}"),
    "bytes in columns": (replace(HALVES, name="m16n8k32_s8_s32"), f"B.shared.local: {NO_ROWS}"),
    "rows that begin between": (replace(HALVES, padding=6), NO_ROWS),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_ldmatrix_cannot_load_is_refused(name: str) -> None:
    program, text = UNFIT[name]
    with pytest.raises(LowerError, match=text):
        lowered(program)


def test_rows_may_be_padded() -> None:
    program = replace(HALVES, padding=8)
    assert interpreted(program, lowered(program)) is None


# ------------------------------------------------------------------------------------------- the loop language


def around(func: LoweredFunc, f: Callable[[Any], Stmt], kind: type = WarpMultiply) -> LoweredFunc:
    """The program with another statement instead of its instructions of a kind."""

    def visit(s: Stmt) -> Stmt:
        return f(s) if isinstance(s, kind) else with_bodies(s, tuple([visit(b) for b in bodies(s)]))

    return replace(func, body=visit(func.body))


def lane_of(func: LoweredFunc) -> Var:
    (lane,) = [s.var for s in stmts_of(func.body) if isinstance(s, For) and s.tag == "threadIdx.x"]
    return lane


def moved(e: BufferLoad, by: Expr | int) -> BufferLoad:
    return BufferLoad(e.buffer, e.index + by)


def faults(lane: Var) -> dict[str, tuple[Callable[[WarpMultiply], Stmt], str, str]]:
    other = Buffer("other", "float16", (64,), "local")
    return {
        "some lanes": (lambda s: If(lane < 31, s), "meetings", "only some lanes of a warp reach"),
        "lanes by a condition": (lambda s: If(compare("==", lane % 2, 0), s), "meetings", "only some lanes"),
        "behind the end": (lambda s: replace(s, b=moved(s.b, 9)), "in_bounds", "is outside of 12 elements"),
        "other elements": (lambda s: replace(s, a=moved(s.a, lane)), "meetings", "must name the same 8 elements"),
        "another dtype": (
            lambda s: replace(s, d=BufferLoad(s.a.buffer, s.d.index)),
            "dtypes",
            "local buffer of float32",
        ),
        "nothing there": (lambda s: Alloc(other, replace(s, a=other[0])), "written", "to which no statement before it"),
    }


@pytest.mark.parametrize("name", faults(Var("lane")))
def test_the_verifier_refutes(name: str) -> None:
    func = lowered(HALF)
    change, law, text = faults(lane_of(func))[name]
    found = verdict(around(func, change))
    assert isinstance(found, Refuted) and found.law == law and text in found.sentence


def load_faults(lane: Var) -> dict[str, tuple[Callable[[WarpLoad], Stmt], str, str]]:
    return {
        "some lanes": (lambda s: If(lane < 31, s), "meetings", "only some lanes of a warp reach"),
        "rows behind the end": (lambda s: replace(s, row=moved(s.row, 10**4)), "in_bounds", "is outside of"),
        "the end of a row": (lambda s: replace(s, row=moved(s.row, 1)), "in_bounds", "is outside of"),
        "more registers": (lambda s: replace(s, form=MatrixLoad(8)), "in_bounds", "is outside of"),
        "other registers": (lambda s: replace(s, to=moved(s.to, lane)), "meetings", "must name the same"),
        "from registers": (lambda s: replace(s, row=s.to), "scopes", "must read shared memory"),
    }


@pytest.mark.parametrize("name", load_faults(Var("lane")))
def test_the_verifier_refutes_loads(name: str) -> None:
    func = lowered(HALVES)
    change, law, text = load_faults(lane_of(func))[name]
    found = verdict(around(func, change, WarpLoad))
    assert isinstance(found, Refuted) and found.law == law and text in found.sentence


@pytest.mark.unverified
@pytest.mark.parametrize("name", ["some lanes", "lanes by a condition", "behind the end", "nothing there"])
def test_the_interpreter_refuses(name: str) -> None:
    func = lowered(HALF)
    change, _, _ = faults(lane_of(func))[name]
    with pytest.raises(InterpError, match=r"some lanes of a warp|out of bounds|uninitialised"):
        interpreted(HALF, around(func, change))
