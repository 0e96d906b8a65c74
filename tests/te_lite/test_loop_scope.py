"""Which loops run and which stand still, by the storage of a stage; memories `<class>.<name>` go by their class."""

from __future__ import annotations

import numpy as np
import pytest

import te_lite as te
from codegen_cuda import emit
from te_lite import LoweredFunc, State
from te_lite.bounds.bounds import infer_bounds
from te_lite.bounds.loop_scope import enclosing_loops, kernel_of, privacy, scope_of, standing_loops
from te_lite.expr.storage import storage_class
from te_lite.meaning.interp import run
from tests.oracle import Oracle
from tests.workloads import matmul

TAGS = ("blockIdx.x", "vthread", "threadIdx.x")


def kernel(scope: str, inner: str = "", outside: bool = False) -> tuple[State, list[te.Tensor]]:
    """A product with a copy of its first input in `scope`, inside a block, a virtual thread and a thread.

    With `inner` the copy reads through another one, in `inner`, computed at its own outer loop.  With `outside` the
    copy is made outside of the thread loop.
    """
    a, b, c = matmul(8, 12, 6)
    s = te.create_schedule(c)
    copy = s.cache_read(a, scope, [c])
    block, rest = s[c].split(c.op.axis[0], factor=4)
    vthread, thread = s[c].split(rest, factor=2)
    s[c].reorder(block, vthread, thread, c.op.axis[1])
    for loop, tag in zip((block, vthread, thread), ("blockIdx.x", "vthread", "threadIdx.x"), strict=True):
        s[c].bind(loop, te.thread_axis(tag))
    s[copy].compute_at(s[c], vthread if outside else thread)
    if scope == "shared":
        s[copy].bind(s[copy].op.axis[0], te.thread_axis("threadIdx.x"))
    if inner:
        first = s.cache_read(a, inner, [copy])
        s[first].compute_at(s[copy], s[copy].op.axis[0])
    return s.state, [a, b, c]


def tags(state: State, loops: list[tuple[int, int]]) -> list[str]:
    return [f"{state.ops[k].name} {state.stages[k].vars[uid].annotation}" for k, uid in loops]


@pytest.mark.parametrize(
    ("scope", "still"),
    [
        ("global", []),
        ("shared", ["C blockIdx.x"]),
        ("local", ["C blockIdx.x", "C vthread", "C threadIdx.x"]),
        ("local.inp", ["C blockIdx.x", "C vthread", "C threadIdx.x"]),
    ],
)
def test_loops_that_stand_still(scope: str, still: list[str]) -> None:
    state, _ = kernel(scope)
    scopes = [scope_of(state.stages, k) for k in range(len(state.stages))]
    assert scopes[1] == scope and storage_class(scope) == scope[: len(scope.split(".")[0])]
    assert tags(state, standing_loops(state.stages, scopes, 1)) == still
    assert tags(state, list(enclosing_loops(state.stages, 1))) == [f"C {tag}" for tag in TAGS]
    assert kernel_of(state, 1) == kernel_of(state, 3) == 3
    assert privacy(state.stages[3], "local") == 0


def test_threads_that_share_a_stage_share_what_is_computed_in_it() -> None:
    """The copy in the shared copy is anew in each iteration of that one's thread loop, not in each of the kernel's."""
    state, tensors = kernel("shared", "local")
    bounds = infer_bounds(state)
    loops = standing_loops(bounds.state.stages, bounds.scopes, 1)
    assert tags(bounds.state, loops) == ["A.shared threadIdx.x", "C blockIdx.x"]
    oracle = Oracle(state.dag, np.random.default_rng(1))
    assert oracle.mismatch(te.lower(state, tensors), run) is None


def joined(scope: str) -> tuple[State, list[te.Tensor]]:
    """A product whose sums are made by the threads of a block together, each in `scope`."""
    a, b, c = matmul(8, 12, 16)
    s = te.create_schedule(c)
    (sums,) = s.cache_write([c], "local")
    s[sums].set_scope(scope)
    s[c].bind(c.op.axis[0], te.thread_axis("blockIdx.x"))
    s[sums].compute_at(s[c], c.op.axis[1])
    s[sums].bind(s[sums].op.reduce_axis[0], te.thread_axis("threadIdx.x"))
    return s.state, [a, b, c]


PROGRAMS = {
    "in a thread": kernel,
    "outside of the threads": lambda name: kernel(name, outside=True),
    "in a shared copy": lambda name: kernel("shared", name),
    "a reduction across threads": joined,
}


@pytest.mark.parametrize("scope", ["local.inp", "local.wgt", "local.acc"])
@pytest.mark.parametrize("case", PROGRAMS)
def test_a_named_memory_is_lowered_as_its_class(scope: str, case: str) -> None:
    """Each thread has its own and fills it itself; the program, and its CUDA, differ in nothing but the name."""
    found: list[LoweredFunc] = []
    for name in ("local", scope):
        state, tensors = PROGRAMS[case](name)
        found.append(te.lower(state, tensors))
    plain, named = found
    assert str(named).replace(f"({scope})", "(local)") == str(plain) != str(named)
    assert emit(named).source == emit(plain).source
    assert Oracle(state.dag, np.random.default_rng(1)).mismatch(named, run) is None
