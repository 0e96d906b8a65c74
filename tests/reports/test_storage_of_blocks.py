"""A stage inside a kernel is stored once a block (or thread), so no loop of its own is shared out over blocks."""

import numpy as np
import pytest

import te_lite as te
from te_lite.errors import LowerError
from te_lite.meaning.interp import run

TAGS = ("blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z", "vthread")


def copied(scope: str, tag: str, reader: bool, dimension: int) -> tuple[te.Schedule, tuple[te.Tensor, ...]]:
    """Rows copied to `scope` in the blocks that read them, with a loop of the copy bound to `tag`, and one of the
    reader, where `reader` says so."""
    a = te.placeholder((8, 16), name="a")
    b = te.compute((8, 16), lambda i, j: a[i, j] * 2.0, "b")
    s = te.create_schedule(b.op)
    copy = s.cache_read(a, scope, [b])
    i, j = b.op.axis
    outer, _ = s[b].split(j, factor=4)
    s[b].bind(i, te.thread_axis("blockIdx.x"))
    if reader and tag != "vthread":
        s[b].bind(outer, te.thread_axis(tag))
    s[copy].compute_at(s[b], i)
    s[copy].bind(s[copy].op.axis[dimension], te.thread_axis(tag))
    return s, (a, b)


@pytest.mark.parametrize("reader", [False, True])
@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("scope", ["shared", "local"])
def test_copies_are_right_or_refused(scope: str, tag: str, reader: bool) -> None:
    s, tensors = copied(scope, tag, reader, 1)
    if tag.startswith("block"):
        with pytest.raises(LowerError, match=rf"a.{scope}: blocks share global storage only, .* got axes=\['{tag}'\]"):
            te.lower(s, tensors)
        return
    x, got = np.random.default_rng(0).random((8, 16)).astype("float32"), np.full((8, 16), np.nan, "float32")
    try:
        func = te.lower(s, tensors)
    except LowerError as refused:
        assert scope == "local" and "a thread may only read what it computed itself" in str(refused)
        return
    run(func, [x, got])
    np.testing.assert_array_equal(got, x * 2)


@pytest.mark.parametrize("tag", TAGS)
def test_a_loop_of_one_turn_may_be_bound_to_anything(tag: str) -> None:
    s, tensors = copied("shared", tag, False, 0)
    x, got = np.random.default_rng(0).random((8, 16)).astype("float32"), np.full((8, 16), np.nan, "float32")
    run(te.lower(s, tensors), [x, got])
    np.testing.assert_array_equal(got, x * 2)
