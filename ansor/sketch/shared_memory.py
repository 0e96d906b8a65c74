"""How much shared memory each kernel of a program uses.

`fetches` answers for a sketch and lengths, before any state is made, so that lengths that fit can be drawn; that
figure is exact for affine reads without padding in tiles that divide, and a lower bound otherwise, so it never
refuses what fits.
`shared_bytes` answers for a bounded state and has the last word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

from te_lite.bounds.bounds import Bounds
from te_lite.bounds.index_span import span_at_least
from te_lite.bounds.loop_scope import kernel_of, tile_count
from te_lite.bounds.reads import Form, reads_by_producer
from te_lite.expr.dtype import BYTES
from te_lite.expr.lanes import ceildiv, larger, product, smaller
from te_lite.expr.storage import storage_class, stored_elements, stored_strides
from te_lite.schedule.state import INLINED, SplitRel, Stage, State

from .predicates import NO_SPLIT, named_axes, split_steps


def element_bytes(dtype: str) -> int:
    """The size of one element in bytes."""
    return BYTES[dtype]


def shared_bytes(bounds: Bounds) -> dict[int, Any]:
    """Bytes of shared memory of each kernel, by its root stage (ints or lanes)."""
    total: dict[int, Any] = {}
    for k, stage in enumerate(bounds.state.stages):
        if bounds.storage(k) == "shared" and stage.attach is not None:
            kernel = kernel_of(bounds.state, k)
            elements = _elements([r.extent for r in bounds.regions[k][: len(stage.op.axis)]], stage)
            size = element_bytes(stage.op.dtype)
            total[kernel] = total.get(kernel, 0) + stored_elements(elements, size, tile_count(bounds.state, k)) * size
    return total


def _elements(shape: Sequence[Any], stage: Stage) -> Any:
    """The elements that a stage takes to store a region of this shape, padding included (ints or lanes)."""
    outermost = 0 if stage.storage_order is None else stage.storage_order[0]
    return stored_strides(shape, stage.storage_align, stage.storage_order)[outermost] * shape[outermost] if shape else 1


@dataclass(frozen=True, slots=True)
class Fetch:
    """One shared copy: its kernel, its shape, the index forms with which its tiled reader reads it.

    `axes` holds for each axis of the reader its extent in a tile, or its whole extent and the step position of the
    split that is to cut it.  Of a double-buffered copy, `iterations` has the reduction axes of the reader and their
    whole extents: it takes up to `tiles` tiles where one of them is cut.
    """

    kernel: int
    shape: tuple[int, ...]
    forms: tuple[tuple[Form, ...], ...]
    axes: tuple[tuple[int, int | None], ...]
    element: int
    iterations: tuple[tuple[int, int], ...] = ()
    tiles: int = 1

    def size(self, lengths: Mapping[int, Sequence[Any]]) -> Any:
        """Bytes, at least, for the given lengths by step position (ints or lanes)."""
        spans = [extent if p is None else smaller(extent, product(lengths[p])) for extent, p in self.axes]
        total: Any = 1
        for d, size in enumerate(self.shape):
            total = total * smaller(size, reduce(larger, [span_at_least(forms[d], spans) for forms in self.forms], 1))
        tiles = smaller(self.tiles, product([ceildiv(extent, spans[axis]) for axis, extent in self.iterations]))
        return stored_elements(total, self.element, tiles) * self.element


def _axis(extent: int, position: int | None, sketch: State) -> tuple[int, int | None]:
    """The extent of an axis within a tile, and the split that decides it if its lengths are undecided."""
    lengths = () if position is None else sketch.steps[position].lengths
    if position is None or None in lengths:
        return extent, position
    return min(extent, int(product(lengths))), None


def _tile_axes(sketch: State, k: int) -> tuple[tuple[int, int | None], ...]:
    """See `Fetch.axes`; of a stage in other tiles than Ansor's, axes that are not split have loops around it and count
    as 1."""
    stage = sketch.stages[k]
    extents = [v.extent if isinstance(v.extent, int) else 1 for v in (*stage.op.axis, *stage.op.reduce_axis)]
    splits, whole = sorted(split_steps(sketch, k)), named_axes(stage, NO_SPLIT)
    if storage_class(stage.op.scope) == "fragment" or len(splits) != len(extents) - len(whole):
        found = dict(
            reversed([*zip([r.parent for r in stage.relations if isinstance(r, SplitRel)], splits, strict=True)])
        )
        return tuple([_axis(e, found[n], sketch) if n in found else (1, None) for n, e in enumerate(extents)])
    ordered = iter(splits)
    return tuple([_axis(e, None if n in whole else next(ordered), sketch) for n, e in enumerate(extents)])


@lru_cache(maxsize=256)
def fetches(sketch: State) -> tuple[Fetch, ...]:
    """The shared copies of a sketch."""
    hidden = frozenset(k for k, s in enumerate(sketch.stages) if s.where == INLINED)
    reads = reads_by_producer(sketch.ops, hidden)
    out = []
    for k, stage in enumerate(sketch.stages):
        if stage.attach is None or storage_class(stage.op.scope) != "shared":
            continue
        reader = sketch.stages[stage.attach.stage]
        axes = _tile_axes(sketch, stage.attach.stage)
        forms = tuple([r.forms for r in reads[k] if r.reader == stage.attach.stage])
        first, size = len(reader.op.axis), element_bytes(stage.op.dtype)
        reduced = [(first + n, v.extent) for n, v in enumerate(reader.op.reduce_axis) if isinstance(v.extent, int)]
        iterations = tuple(reduced) if stage.double_buffer else ()
        out.append(Fetch(kernel_of(sketch, k), stage.op.shape, forms, axes, size, iterations, stage.tiles))
    return tuple(out)


def estimated_shared_bytes(sketch: State, lengths: Mapping[int, Sequence[Any]]) -> Any:
    """The largest figure of any kernel of `sketch`, in bytes, at least; lengths are ints or lanes."""
    total: dict[int, Any] = {}
    for fetch in fetches(sketch):
        total[fetch.kernel] = total.get(fetch.kernel, 0) + fetch.size(lengths)
    return reduce(larger, total.values(), 0)
