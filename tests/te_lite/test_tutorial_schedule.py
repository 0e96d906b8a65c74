"""The Python schedule that the tutorial prints gives the loop structure the tutorial shows."""

from __future__ import annotations

import te_lite as te
from te_lite import LoweredFunc, Tensor
from te_lite.loops.stmt import Alloc, Barrier, For, ForKind, stmts_of
from tests.conv_layer import conv2d_layer


def tutorial_schedule() -> tuple[te.Schedule, list[Tensor]]:
    """The schedule of the page, with the two stages it calls `compute` named `conv` and `relu`."""
    tensors = conv2d_layer(1, 7, 7, 512, 512, 3, 1, 1)
    data, kernel, bias, relu = tensors
    dag = te.ComputeDAG(tensors)
    pad_temp, conv, t_add = (dag.ops[k].output() for k in (1, 3, 5))
    s = te.create_schedule(relu.op)
    s[t_add].compute_inline()
    tiles = dict(zip(conv.op.axis, [(1, 1, 1, 1), (2, 2, 2, 1), (1, 7, 1, 1), (1, 7, 1, 1)], strict=True))
    space = [split_inwards(s[conv], axis, factors) for axis, factors in tiles.items()]
    tiles = dict(zip(conv.op.reduce_axis, [(4, 32), (1, 1), (1, 1)], strict=True))
    reduce = [split_inwards(s[conv], axis, factors) for axis, factors in tiles.items()]
    s[conv].reorder(
        *[loops[level] for level in range(3) for loops in space],
        *[loops[level] for level in range(2) for loops in reduce],
        *[loops[3] for loops in space], *[loops[2] for loops in reduce], *[loops[4] for loops in space],
    )  # fmt: skip
    tiles = dict(zip(relu.op.axis, [(1, 1, 1), (2, 2, 2), (1, 7, 1), (1, 7, 1)], strict=True))
    out = [split_inwards(s[relu], axis, factors) for axis, factors in tiles.items()]
    s[relu].reorder(*[loops[level] for level in range(4) for loops in out])
    s[conv].compute_at(s[relu], out[3][2])
    kernel_shared = s.cache_read(kernel, "shared", [conv])
    s[kernel_shared].compute_at(s[conv], reduce[2][0])
    pad_temp_shared = s.cache_read(pad_temp, "shared", [conv])
    s[pad_temp_shared].compute_at(s[conv], reduce[2][0])
    s[pad_temp].compute_inline()
    for level, tag in enumerate(("blockIdx.x", "vthread", "threadIdx.x")):
        s[relu].bind(s[relu].fuse(*[loops[level] for loops in out]), te.thread_axis(tag))
    for shared in (kernel_shared, pad_temp_shared):
        outer, inner = s[shared].split(s[shared].fuse(*shared.op.axis), factor=1)
        s[shared].vectorize(inner)
        _, threads = s[shared].split(outer, factor=98)
        s[shared].bind(threads, te.thread_axis("threadIdx.x"))
    s[conv].pragma(space[0][0], "auto_unroll_max_step", 0)
    s[conv].pragma(space[0][0], "unroll_explicit", True)
    return s, [data, kernel, bias, relu]


def split_inwards(stage: te.schedule.schedule.StageHandle, axis: te.IterVar, factors: tuple[int, ...]) -> list[object]:
    """Split by each factor from the innermost out; the loops from the outermost in."""
    loops: list[object] = []
    rest: object = axis
    for factor in reversed(factors):
        rest, inner = stage.split(rest, factor=factor)  # type: ignore[arg-type]
        loops.insert(0, inner)
    return [rest, *loops]


def launch(func: LoweredFunc) -> dict[str, int]:
    return {s.tag: s.extent for s in stmts_of(func.body) if isinstance(s, For) and s.tag}


def storage(func: LoweredFunc, scope: str) -> list[int]:
    return sorted(s.buffer.size for s in stmts_of(func.body) if isinstance(s, Alloc) and s.buffer.scope == scope)


def test_structure_of_the_page() -> None:
    s, args = tutorial_schedule()
    func = te.lower(s, args)
    assert launch(func) == {"blockIdx.x": 64, "threadIdx.x": 98}
    assert storage(func, "shared") == [1024, 6272]
    assert storage(func, "local") == [4]
    assert sum(isinstance(x, Barrier) for x in stmts_of(func.body)) == 2
    assert not any(isinstance(x, For) and x.kind is ForKind.VTHREAD for x in stmts_of(func.body))


def test_printed_schedule_executes_to_the_same_program() -> None:
    s, args = tutorial_schedule()
    text = s.state.dag.print_python_code_from_state(s.state)
    again = te.Schedule(s.state.dag)
    names = dict(te.printing.python_text.python_names(s.state.dag), s=again, te=te)
    exec(compile(text, "schedule", "exec"), names)
    assert str(te.lower(again, args)) == str(te.lower(s, args))
