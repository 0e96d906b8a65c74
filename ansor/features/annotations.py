"""Columns of the loops that are vectorized, unrolled or parallel, and of what the unroll pragma does.

A mark is True or False by the loop's annotation, or bool lanes where programs differ in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from te_lite.bounds.nest import Loop, Nest

from ..space.programs import Programs
from ..space.trace import recorded
from .lanes import Lanes, Value
from .schema import POSITIONS
from .shape import Level, Matrix, Shape, at

Mark = Any
"""bool, or bool [lanes]."""

TAGS = {"vec": "vectorize", "unroll": "unroll", "parallel": "parallel"}


def loop_marks(name: str, nest: Nest, programs: Programs, lanes: Lanes) -> list[Mark]:
    """Whether each loop of a nest carries the annotation of `name` (a key of `TAGS`)."""
    counts = {"vec": programs.vectorize, "parallel": programs.parallel}.get(name, {})
    return [_mark(loop, TAGS[name], counts, lanes) for loop in nest.loops]


def _mark(loop: Loop, tag: str, counts: Any, lanes: Lanes) -> Mark:
    if loop.stage not in counts:
        return loop.tag == tag
    number = lanes.value(counts[loop.stage])
    if tag == "parallel":
        return number > loop.place
    return number >= loop.count - loop.place


def mark_columns(name: str, marks: list[Mark], shape: Shape) -> dict[str, Value]:
    """The columns `<name>_num`, `_prod`, `_len` and `_at_*` of a row."""
    out: dict[str, Value] = {f"{name}_at_{position}": 0.0 for position in POSITIONS}
    if not any([mark is not False for mark in marks]):
        return {**out, f"{name}_num": 0.0, f"{name}_prod": 0.0, f"{name}_len": 0.0, f"{name}_at_none": 1.0}
    reduce = tuple([loop.reduce for loop in shape.nest.loops])
    found = _marked_columns(shape.n, shape.lengths, shape.places, shape.last, shape.first, reduce, *marks)
    keys = [f"{name}_{key}" for key in _MARKED]
    return {**out, **{key: found[i] for i, key in enumerate(keys)}}


_MARKED = (*[f"at_{position}" for position in POSITIONS], "num", "prod", "len")


@recorded
def _marked_columns(
    n: int, lengths: Matrix, places: Any, last: Level, first: Level, is_reduce: tuple[bool, ...], *marks: Mark
) -> list[Value]:
    """The columns `_MARKED` of a row with marks."""
    marked = np.zeros((len(marks) + 1, n), bool)
    for j, mark in enumerate(marks):
        marked[j] = mark
    inner, outer = at(marked, last), at(marked, first)
    marked[:-1] &= places > 0
    number = marked.sum(axis=0)
    innermost = (marked[:-1] * places).max(axis=0, initial=0).astype(np.intp) - 1
    spatial = marked[[j for j, reduce in enumerate(is_reduce) if not reduce]].any(axis=0)
    reduce = marked[[j for j, reduce in enumerate(is_reduce) if reduce]].any(axis=0)
    out = [~(spatial | reduce)]
    for only in (spatial & ~reduce, reduce & ~spatial):
        out += [only & inner, only & ~outer & ~inner, only & outer & ~inner]
    product = np.where(marked, lengths, 1.0).prod(axis=0) * np.minimum(number, 1)
    return [*out, spatial & reduce, number, product, at(lengths, innermost)]


def auto_unroll(k: int, programs: Programs, lanes: Lanes) -> Value:
    """auto_unroll_max_step of stage k, or of the nearest stage around it that has one."""
    stage = programs.bounds.state.stages[k]
    own = lanes.value(programs.unroll.get(k, stage.auto_unroll_max_step))
    if stage.attach is None:
        return own
    return np.where(np.equal(own, 0), auto_unroll(stage.attach.stage, programs, lanes), own)


def pragma_unrolled(limit: Value, parallel: list[Mark], vectors: list[Mark], shape: Shape) -> Value:
    """The copies of the statement that unrolling makes: the inner serial loops whose product stays within `limit`."""
    copies: Value = 1.0
    grows: Mark = True
    for j in reversed(range(shape.nest.around, len(shape.nest.loops))):
        if shape.nest.loops[j].tag not in ("none", "unroll", "vectorize"):
            break
        more = copies * np.where(vectors[j], 1.0, shape.extents[j])
        grows = grows & (more <= limit) & np.logical_not(parallel[j])
        copies = np.where(grows, more, copies)
    return copies
