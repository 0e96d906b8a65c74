"""Perfect nests are taken apart and put together."""

from __future__ import annotations

from te_lite.expr.expr import Var, as_expr, const
from te_lite.loops.perfect_nest import SEQUENTIAL, nested, perfect_nest
from te_lite.loops.stmt import Alloc, Buffer, For, ForKind, Store

OUT = Buffer("out", "float32", (6,))
STORE = Store(OUT, as_expr(0), const(1.0))


def loop(extent: int, kind: ForKind, body: For | Store | Alloc) -> For:
    return For(Var(f"x{extent}"), extent, kind, body)


def test_a_nest_ends_where_something_else_stands_or_a_loop_does_not_belong() -> None:
    inner = loop(2, ForKind.VECTORIZED, STORE)
    outer = loop(3, ForKind.SERIAL, loop(4, ForKind.UNROLLED, inner))
    assert [x.extent for x in perfect_nest(outer)[0]] == [3, 4, 2]
    assert perfect_nest(outer)[1] is STORE
    loops, body = perfect_nest(outer, lambda x: x.kind in SEQUENTIAL)
    assert ([x.extent for x in loops], body) == ([3, 4], inner)
    alloc = Alloc(OUT, inner)
    assert perfect_nest(alloc) == ((), alloc)
    assert perfect_nest(loop(5, ForKind.SERIAL, alloc))[1] is alloc


def test_loops_go_around_a_statement_in_their_order_and_may_change_their_kind() -> None:
    loops, _ = perfect_nest(loop(3, ForKind.SERIAL, loop(2, ForKind.VECTORIZED, STORE)))
    for kind, kinds in ((None, [ForKind.SERIAL, ForKind.VECTORIZED]), (ForKind.UNROLLED, [ForKind.UNROLLED] * 2)):
        again, body = perfect_nest(nested(loops, STORE, kind))
        assert body is STORE
        assert [x.var for x in again] == [x.var for x in loops]
        assert [(x.extent, x.kind) for x in again] == list(zip([3, 2], kinds, strict=True))
    assert nested([], STORE) is STORE
