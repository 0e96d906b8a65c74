"""The texts that tell programs apart say as much as the lowered programs do."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import te_lite as te
from ansor.space.duplicates import program_text
from te_lite.schedule.state import State

LENGTHS = (1, 2, 4, 8, 16)


def fused(rows: int, columns: int, inner: int = 1) -> State:
    """A copy of [16, 16] whose tiles of `rows` x `columns`, the columns in parts of `inner`, are one loop, split."""
    a = te.placeholder((16, 16), name="A")
    b = te.compute((16, 16), lambda i, j: a[i, j] + 1.0, name="B")
    s = te.create_schedule(b.op)
    i, j = s[b].op.axis
    i_0, i_1 = s[b].split(i, rows)
    j_0, j_1 = s[b].split(j, columns)
    j_1, j_2 = s[b].split(j_1, inner)
    s[b].reorder(i_0, j_0, i_1, j_1, j_2)
    s[b].split(s[b].fuse(i_0, j_0, i_1, j_1, j_2), 32)
    return s.state


def lowered(state: State) -> str:
    return str(te.lower(state, state.dag.tensors))


def test_texts_are_equal_where_lowered_programs_are() -> None:
    """Whose printed loops are all the same: two, of 8 and 32."""
    states = [fused(*lengths) for lengths in product(LENGTHS, LENGTHS, (1, 2)) if lengths[1] >= lengths[2]]
    by_text: dict[str | None, set[str]] = defaultdict(set)
    for state in states:
        by_text[program_text(state)].add(lowered(state))
    assert all(len(programs) == 1 for programs in by_text.values())
    assert len(set().union(*by_text.values())) == len(by_text) > 10
    assert len({str(state) for state in states}) < len(by_text)


def test_digits_that_follow_each_other_are_one() -> None:
    assert program_text(fused(16, 8, 2)) == program_text(fused(16, 8, 1))
    assert program_text(fused(4, 16)) == program_text(fused(1, 16)) == program_text(fused(1, 1))
    assert program_text(fused(2, 8)) != program_text(fused(8, 2))
