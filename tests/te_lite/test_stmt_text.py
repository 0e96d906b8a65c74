"""Printed programs: exact text of a small one, and brackets that keep the structure of every expression."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from te_lite.expr import reduction as red
from te_lite.expr.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Logical,
    Not,
    Var,
    call,
    cast,
    const,
    if_then_else,
    logical_and,
    maximum,
    select,
)
from te_lite.loops.stmt import Alloc, Barrier, Buffer, For, ForKind, If, LoweredFunc, Store, ThreadReduce, seq
from te_lite.loops.stmt_text import pretty

A = Buffer("A", "float32", (2, 30))
X, Y, Z, P = Var("x"), Var("y"), Var("z"), Var("p", "bool")


@pytest.mark.parametrize(("e", "text"), [
    (X * 98 + Y % 49 // 7, "x*98 + y%49//7"),
    ((X + Y) * 2 - (Z - 1), "(x + y)*2 - (z - 1)"),
    (X - Y - Z, "x - y - z"),
    (X - (Y - Z), "x - (y - z)"),
    (X // (Y * Z), "x//(y*z)"),
    (X * Y // Z, "x*y//z"),
    (X + (Y + Z), "x + (y + z)"),
    (X + -8, "x - 8"),
    (X - -8, "x + 8"),
    (-X * -2, "x*-1*-2"),
    (logical_and(X < 8, Y >= 1), "x < 8 && y >= 1"),
    (Logical("&&", Logical("||", P, X < 1), P), "(p || x < 1) && p"),
    (Logical("||", Logical("&&", P, X < 1), P), "p && x < 1 || p"),
    (Not(Logical("&&", P, P)), "!(p && p)"),
    (Not(Not(P)), "!!p"),
    (Compare("==", X < 1, P), "(x < 1) == p"),
    (maximum(X, Y + 1) * 2, "max(x, y + 1)*2"),
    (A[X * 3] * 0.5 + 1.0, "A[x*3]*0.5f + 1.0f"),
    (if_then_else(X < 1, A[X], 0.0), "if_then_else(x < 1, A[x], 0.0f)"),
    (select(P, X, 1), "select(p, x, 1)"),
    (cast("float64", X) + 1e-5, "float64(x) + 1e-05"),
    (call("exp", A[0]), "exp(A[0])"),
    (const(True), "true"),
    (const(3, "int8"), "int8(3)"),
    (const(0.25, "float16"), "0.25h"),
])  # fmt: skip
def test_expression_text(e: Expr, text: str) -> None:
    assert pretty(e) == text


OPS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
       ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}  # fmt: skip


def skeleton(e: Expr) -> object:
    match e:
        case Binary(op="+" | "-" as op, a=a, b=Const(value=value)) if value < 0:
            return ({"+": "-", "-": "+"}[op], skeleton(a), -value)
        case Binary(op=op, a=a, b=b) | Compare(op=op, a=a, b=b) | Logical(op=op, a=a, b=b):
            return (op, skeleton(a), skeleton(b))
        case Not(a=a):
            return ("!", skeleton(a))
        case Const(value=value):
            return value
    assert isinstance(e, Var)
    return e.name


def parsed(node: ast.expr) -> object:
    """The skeleton of Python text; chains of `and` and `or` lean to the left."""
    match node:
        case ast.BinOp(left=a, op=op, right=b):
            return (OPS[type(op)], parsed(a), parsed(b))
        case ast.Compare(left=a, ops=[op], comparators=[b]):
            return (OPS[type(op)], parsed(a), parsed(b))
        case ast.BoolOp(op=op, values=values):
            name = "&&" if isinstance(op, ast.And) else "||"
            out = parsed(values[0])
            for v in values[1:]:
                out = (name, out, parsed(v))
            return out
        case ast.UnaryOp(op=ast.Not(), operand=a):
            return ("!", parsed(a))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
            return -value
        case ast.Constant(value=value):
            return value
    assert isinstance(node, ast.Name)
    return node.id


def random_number(rng: np.random.Generator, depth: int) -> Expr:
    if depth == 0 or rng.random() < 0.2:
        return [X, Y, Z, Const(int(rng.integers(-9, 10)))][int(rng.integers(4))]
    op = str(rng.choice(["+", "-", "*", "/", "//", "%"]))
    return Binary(op, random_number(rng, depth - 1), random_number(rng, depth - 1))


def random_condition(rng: np.random.Generator, depth: int) -> Expr:
    if depth == 0 or rng.random() < 0.3:
        op = str(rng.choice(["<", "<=", ">", ">=", "==", "!="]))
        return Compare(op, random_number(rng, depth), random_number(rng, depth))
    if rng.random() < 0.2:
        return Not(random_condition(rng, depth - 1))
    return Logical(str(rng.choice(["&&", "||"])), random_condition(rng, depth - 1), random_condition(rng, depth - 1))


def brackets_removed(text: str) -> list[str]:
    """`text` without one pair of brackets, for every pair."""
    out, stack = [], []
    for k, c in enumerate(text):
        if c == "(":
            stack.append(k)
        elif c == ")":
            j = stack.pop()
            out.append(text[:j] + " " + text[j + 1 : k] + " " + text[k + 1 :])
    return out


def read(text: str) -> object:
    """Python's reading of the text (its `not` binds like C's `!` when it is put in brackets)."""
    words = text.replace("!=", "≠").replace("!(", "~(").replace("!", "~").replace("≠", "!=")
    tree = ast.parse(words.replace("&&", " and ").replace("||", " or ").strip(), mode="eval").body
    for node in ast.walk(tree):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            node.op = ast.Not()
    return parsed(tree)


@pytest.mark.parametrize("seed", range(200))
def test_text_keeps_the_structure_and_has_no_redundant_brackets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    e = random_condition(rng, 3) if seed % 2 else random_number(rng, 4)
    text, want = pretty(e), skeleton(e)
    assert read(text) == want
    for shorter in brackets_removed(text):
        try:
            same = read(shorter) == want
        except (SyntaxError, ValueError, AssertionError):
            same = False
        assert not same, (text, shorter)


def test_program_text() -> None:
    b, t, rc, u, v = Var("bx"), Var("threadIdx.x"), Var("rc.0"), Var("u"), Var("u")
    out = Buffer("out", "float32", (6,))
    acc, total = Buffer("acc", "float32", (2,), "local"), Buffer("acc", "float32", (1,), "local")
    stage = Buffer("A.shared", "float32", (2, 15), "shared", (16, 1))
    combiner = red.sum(const(0.0), red.reduce_axis((0, 2))).combiner
    body = seq(
        For(u, 2, ForKind.VECTORIZED, Store(acc, u, const(0.0))),
        For(rc, 2, ForKind.SERIAL, seq(
            Barrier(),
            If(t < 15, Store(stage, t, A[b * 30 + rc * 15 + t])),
            For(v, 2, ForKind.UNROLLED, Store(acc, v, acc[v] + stage[v * 16])),
        )),
        ThreadReduce(combiner, (total,), (acc[0] + acc[1],), t, 16),
        If(t.equal(0), Store(out, b, total[0])),
    )  # fmt: skip
    kernel = For(b, 2, ForKind.BLOCK, Alloc(stage, For(t, 16, ForKind.THREAD, Alloc(acc, Alloc(total, body)),
                                                       "threadIdx.x")), "blockIdx.x")  # fmt: skip
    tail = For(Var("i"), 2, ForKind.PARALLEL, For(Var("i"), 2, ForKind.VTHREAD, Store(out, const(5), const(-1.5))))
    assert (
        str(LoweredFunc("main", (A, out), seq(kernel, tail)))
        == """\
func main(A: float32[2, 30], out: float32[6]):
    blockIdx.x = bx in 0..2:
        alloc A.shared: float32[2, 15] strides [16, 1] (shared)
        threadIdx.x in 0..16:
            alloc acc: float32[2] (local)
            alloc acc_1: float32[1] (local)
            vectorized u in 0..2:
                acc[u] = 0.0f
            for rc.0 in 0..2:
                barrier()
                if threadIdx.x < 15:
                    A.shared[threadIdx.x] = A[bx*30 + rc.0*15 + threadIdx.x]
                unrolled u_1 in 0..2:
                    acc[u_1] = acc[u_1] + A.shared[u_1*16]
            acc_1[0] = thread_sum(acc[0] + acc[1]; threadIdx.x in 0..16)
            if threadIdx.x == 0:
                out[bx] = acc_1[0]
    parallel i in 0..2:
        vthread i_1 in 0..2:
            out[5] = -1.5f
"""
    )
