"""Misuse of schedules: each is refused in one sentence that names the stage, the law and the value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

import te_lite as te
from te_lite import Tensor


@dataclass
class Program:
    """`relu(a x b)` and its schedule."""

    s: te.Schedule
    a: Tensor
    b: Tensor
    c: Tensor
    d: Tensor
    k: te.IterVar

    @property
    def i(self) -> te.IterVar:
        return self.c.op.axis[0]

    @property
    def j(self) -> te.IterVar:
        return self.c.op.axis[1]

    def lower(self, *args: Tensor) -> te.LoweredFunc:
        return te.lower(self.s, list(args) or [self.a, self.b, self.d])


@pytest.fixture
def p() -> Program:
    a, b = te.placeholder((8, 8), name="A"), te.placeholder((8, 8), name="B")
    k = te.reduce_axis((0, 8), "k")
    c = te.compute((8, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((8, 8), lambda i, j: te.maximum(c[i, j], 0.0), name="D")
    return Program(te.create_schedule(d.op), a, b, c, d, k)


Misuse = Callable[[Program], object]


def in_order(*calls: Callable[[], object]) -> None:
    for call in calls:
        call()


def attach(p: Program) -> None:
    p.s[p.c].compute_at(p.s[p.d], p.d.op.axis[0])


def inline_copy(p: Program) -> Tensor:
    cache: Tensor = p.s.cache_write(p.c, "local")
    p.s[p.c].compute_inline()
    return cache


MISUSES: dict[str, tuple[str, Misuse]] = {
    "unknown axis": ("C: has no axis 'z'", lambda p: p.s[p.c].split(te.reduce_axis((0, 4), "z"), factor=2)),
    "axis of another stage": (
        "C: has no axis 'i', which is an axis of D; its loops are i, j, k",
        lambda p: p.s[p.c].split(p.d.op.axis[0], factor=2),
    ),
    "a name for a loop": (
        "D: a loop is needed, an axis of it or what split or fuse gave, got 'i'; its loops are i, j",
        lambda p: p.s[p.d].parallel("i"),  # type: ignore[arg-type]
    ),
    "loop of another stage": (
        "C: the loop belongs to another stage, got loop='i.0'",
        lambda p: p.s[p.c].unroll(p.s[p.d].split(p.d.op.axis[0], factor=2)[0]),
    ),
    "split twice": ("C: i is split or fused already", lambda p: in_order(*2 * [lambda: p.s[p.c].split(p.i, factor=2)])),
    "no factor": ("split C.i: a positive integer is needed, got factor=0", lambda p: p.s[p.c].split(p.i, factor=0)),
    "no parts": ("split C.i: a positive integer is needed, got nparts=0", lambda p: p.s[p.c].split(p.i, nparts=0)),
    "negative factor": ("got factor=-3", lambda p: p.s[p.c].split(p.i, factor=-3)),
    "broken factor": ("got factor=1.5", lambda p: p.s[p.c].split(p.i, factor=1.5)),  # type: ignore[arg-type]
    "factor of truth": ("got factor=True", lambda p: p.s[p.c].split(p.i, factor=True)),
    "factor beyond int32": ("positive integer", lambda p: p.s[p.c].split(p.i, nparts=2**40)),
    "factor and nparts": ("either factor or nparts", lambda p: p.s[p.c].split(p.i, factor=2, nparts=4)),
    "fuse strangers": ("fuse C: the loops must be neighbours in order", lambda p: p.s[p.c].fuse(p.i, p.k)),
    "fuse backwards": (
        "fuse C: the loops must be neighbours in order, as in i, j, k, got loops=['j', 'i']",
        lambda p: p.s[p.c].fuse(p.j, p.i),
    ),
    "split of an annotated loop": (
        "split C.i: the loop is annotated, got annotation='unroll'",
        lambda p: in_order(lambda: p.s[p.c].unroll(p.i), lambda: p.s[p.c].split(p.i, factor=2)),
    ),
    "fuse around an attached stage": (
        "fuse D: only the last loop may have stages attached to it, got loop='i'",
        lambda p: in_order(lambda: attach(p), lambda: p.s[p.d].fuse(*p.d.op.axis)),
    ),
    "reorder with one loop twice": ("reorder C: a loop is named twice", lambda p: p.s[p.c].reorder(p.i, p.i)),
    "compute at an earlier stage": (
        "compute_at D: the target must come later, got target='C'", lambda p: p.s[p.d].compute_at(p.s[p.c], p.i),
    ),
    "compute at itself": ("the target must come later", lambda p: p.s[p.c].compute_at(p.s[p.c], p.i)),
    "compute at a loop of another stage": ("D: has no axis", lambda p: p.s[p.c].compute_at(p.s[p.d], p.i)),
    "compute at a tensor": (
        "compute_at C: the target must be a stage, s[...]",
        lambda p: p.s[p.c].compute_at(p.d, p.d.op.axis[0]),  # type: ignore[arg-type]
    ),
    "compute at an inlined stage": (
        "compute_at C.local: the target is inlined, got target='C'",
        lambda p: p.s[inline_copy(p)].compute_at(p.s[p.c], p.i),
    ),
    "inline an input": ("compute_inline A: an input is not computed", lambda p: p.s[p.a].compute_inline()),
    "inline a reduction": ("compute_inline C: a reduction cannot be", lambda p: p.s[p.c].compute_inline()),
    "inline an output": ("compute_inline D: an output cannot be inlined", lambda p: p.s[p.d].compute_inline()),
    "parallel reduction": (
        "parallel C.k: the turns of a reduction loop depend on each other", lambda p: p.s[p.c].parallel(p.k),
    ),
    "vectorized reduction": ("vectorize C.k: the turns of a reduction", lambda p: p.s[p.c].vectorize(p.k)),
    "reduction over blocks": ("blockIdx.x C.k: the turns of a", lambda p: p.s[p.c].bind(p.k, "blockIdx.x")),
    "reduction over virtual threads": ("vthread C.k: the turns of a", lambda p: p.s[p.c].bind(p.k, "vthread")),
    "part of a reduction": (
        "parallel C.k.1: the turns of a", lambda p: p.s[p.c].parallel(p.s[p.c].split(p.k, factor=2)[1]),
    ),
    "bind twice": ("annotated already", lambda p: in_order(*2 * [lambda: p.s[p.d].bind(p.d.op.axis[0],
    "threadIdx.x")])), "bind to nonsense": ("thread_axis: the tag must be one of", lambda p: p.s[p.d].bind(p.i,
    "threadIdx.q")), "bind to fewer threads": (
        "bind D.i to threadIdx.x: the axis has 4 threads, got extent=8",
        lambda p: p.s[p.d].bind(p.d.op.axis[0], te.thread_axis((0, 4), "threadIdx.x")),
    ),
    "an axis that begins at 1": ("a domain is", lambda p: te.thread_axis((1, 4), "threadIdx.x")),
    "cache read by nobody": ("cache_read D: at least one reader", lambda p: p.s.cache_read(p.d, "shared", [])),
    "cache read by a stranger": (
        "cache_read A: each reader must read it, got reader='D'", lambda p: p.s.cache_read(p.a, "shared", [p.d]),
    ),
    "cache read twice by one": (
        "cache_read A: a reader is named twice", lambda p: p.s.cache_read(p.a, "shared", [p.c, p.c]),
    ),
    "unknown scope": (
        "cache_read A: the scope must be one of global, shared, local, got scope='sharde'",
        lambda p: p.s.cache_read(p.a, "sharde", [p.c]),
    ),
    "cache write to an unknown scope": ("got scope='warp'", lambda p: p.s.cache_write(p.c, "warp")),
    "cache write of an input": ("cache_write A: an input", lambda p: p.s.cache_write(p.a, "local")),
    "cache write of two operations": (
        "cache_write: needs tensors of one operation", lambda p: p.s.cache_write([p.c, p.d], "local"),
    ),
    "cache write that would lose a split": (
        "cache_write C: it must come before other steps",
        lambda p: in_order(lambda: p.s[p.c].split(p.i, factor=2), lambda: p.s.cache_write(p.c, "local")),
    ),
    "cache write of a moved stage": (
        "cache before moving the stage",
        lambda p: in_order(lambda: attach(p), lambda: p.s.cache_write(p.c, "local")),
    ),
    "rfactor of a spatial loop": ("a reduction loop; they are k, got loop='i'", lambda p: p.s.rfactor(p.c, p.i)),
    "rfactor of no reduction": ("rfactor D: is for reductions", lambda p: p.s.rfactor(p.d, p.d.op.axis[0])),
    "rfactor to nowhere": ("the position must be 0 to 2", lambda p: p.s.rfactor(p.c, p.k, 7)),
    "rfactor that would lose a split": (
        "rfactor C: it must come before other steps",
        lambda p: in_order(lambda: p.s[p.c].split(p.j, factor=2), lambda: p.s.rfactor(p.c, p.k)),
    ),
    "align a reduction axis": ("storage_align C: needs an unsplit", lambda p: p.s[p.c].storage_align(p.k, 8, 1)),
    "align by nothing": ("storage_align C: needs a positive factor", lambda p: p.s[p.c].storage_align(p.i, 0, 1)),
    "align by a fraction": ("got factor=8.5", lambda p: p.s[p.c].storage_align(p.i, 8.5, 1)),  # type: ignore[arg-type]
    "unroll by words": (
        "pragma C: known is auto_unroll_max_step", lambda p: p.s[p.c].pragma(p.i, "auto_unroll_max_step", "x"),
    ),
    "a tensor from elsewhere": ("is not part of this schedule", lambda p: p.s[te.placeholder((3,), name="q")]),
    "no tensor": ("3: is not part of this schedule", lambda p: p.s[3]),  # type: ignore[index]
    "schedule of a number": (
        "create_schedule: operations or tensors are needed", lambda p: te.create_schedule(3),  # type: ignore[arg-type]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(MISUSES))
def test_misuse_is_refused_in_one_sentence(p: Program, name: str) -> None:
    law, misuse = MISUSES[name]
    with pytest.raises(te.ScheduleError) as caught:
        misuse(p)
    assert law in str(caught.value) and "\n" not in str(caught.value)


def attach_to_stranger(p: Program) -> None:
    cache = p.s.cache_write(p.c, "local")
    p.s[cache].compute_at(p.s[p.d], p.d.op.axis[0])


def two_loops_on_one_axis(p: Program) -> None:
    for axis in p.d.op.axis:
        p.s[p.d].bind(axis, "threadIdx.x")


NO_NEST: dict[str, tuple[str, Misuse]] = {
    "consumer outside": ("C.local: every consumer must be inside the loop it is computed at", attach_to_stranger),
    "spatial and reduction loop as one": (
        "C: spatial and reduction loops are fused, got loop='j@k@'", lambda p: p.s[p.c].fuse(p.j, p.k),
    ),
    "two loops on one thread axis": ("D: a thread axis is bound twice", two_loops_on_one_axis),
    "shared storage outside a kernel": (
        "A.shared: shared storage must be computed inside a kernel", lambda p: p.s.cache_read(p.a, "shared", [p.c]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(NO_NEST))
def test_schedules_without_a_loop_nest(p: Program, name: str) -> None:
    law, misuse = NO_NEST[name]
    misuse(p)
    with pytest.raises(te.LowerError) as caught:
        p.lower()
    assert law in str(caught.value) and "\n" not in str(caught.value)


def test_arguments(p: Program) -> None:
    for args, law in (
        ((p.a, p.d), "B: every input must be among the arguments"),
        ((p.a, p.b), "D: every output must be among the arguments"),
        ((p.a, p.a, p.b, p.d), r"an argument is listed twice, got arguments=\['A', 'A'\]"),
    ):
        with pytest.raises(te.LowerError, match=law):
            p.lower(*args)
    assert [b.name for b in p.lower(p.a, p.b, p.c, p.d).args] == ["A", "B", "C", "D"]


def test_an_output_is_computed_at_root() -> None:
    x = te.placeholder((6,), name="x")
    first = te.compute((6,), lambda i: x[i] + 1.0, name="first")
    second = te.compute((6,), lambda i: x[i] * 2.0, name="second")
    s = te.create_schedule([first.op, second.op])
    early, late = sorted((first, second), key=s.stage_id)
    with pytest.raises(te.ScheduleError, match=f"compute_at {early.name}: an output is computed at root"):
        s[early].compute_at(s[late], late.op.axis[0])


def test_handles_outlive_stages_that_are_put_in(p: Program) -> None:
    loop = p.s[p.c].leaf_iter_vars[0]
    cache = p.s.cache_write(p.c, "local")
    outer, _ = p.s[p.c].split(loop, factor=4)
    p.s[cache].compute_at(p.s[p.c], outer)
    p.s.cache_read(p.a, "local", [cache])
    names = [stage.op.name for stage in p.s.stages]
    assert names == ["A", "A.local", "B", "C.local", "C", "D"] and p.s[p.c].id == 4
    assert p.lower() is not None
