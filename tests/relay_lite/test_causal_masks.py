"""Masks that hide later tokens: which constants are such, what becomes of them, and that results are the same."""

from __future__ import annotations

import numpy as np
import pytest

from ansor.core.target.target import Target
from relay_lite.compiler.optimize import group_uses, pipeline
from relay_lite.ir.make import call, var
from relay_lite.ir.nodes import Constant, Function
from relay_lite.ir.reference import run
from relay_lite.ir.visit import free_vars
from relay_lite.transform.causal_masks import CausalMasks, causal_offset
from relay_lite.transform.sequential import PassContext
from tests.nonempty import nonempty
from tests.relay_lite.pass_graphs import ops
from tests.relay_lite.test_fuse_meaning import check_group

HEADS, ROWS, COLUMNS = 3, 18, 20


def masked(mask: np.ndarray, turned: bool = False, axis: int = -1) -> Function:
    """Attention of halves whose scores have a mask added."""
    q, k, v = [var(name, (HEADS, n, 16), "float16") for name, n in (("q", ROWS), ("k", COLUMNS), ("v", COLUMNS))]
    scores, added = call("nn.batch_matmul", q, k, out_dtype="float32"), Constant(mask)
    shares = call("nn.softmax", call("add", *((added, scores) if turned else (scores, added))), axis=axis)
    body = call("nn.batch_matmul", call("cast", shares, dtype="float16"), v, out_dtype="float32", transpose_b=False)
    return Function(tuple(free_vars(body)), body)


def mask(offset: int, hidden: float = -np.inf) -> np.ndarray:
    columns = np.arange(COLUMNS) - np.arange(ROWS)[:, None]
    return np.where(columns <= offset, 0, hidden).astype("float32")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("offset", "hidden"), [(0, -np.inf), (2, -np.inf), (0, -3e4), (5, -65504.0)])
def test_they_become_comparisons(offset: int, hidden: float, turned: bool) -> None:
    function = masked(mask(offset, hidden)[None], turned)
    made = CausalMasks()(function)
    assert ops(made)["nn.causal"] == 1 and ops(made)["add"] == 0
    rng = np.random.default_rng(0)
    feed = {v.name: rng.standard_normal(v.shape).astype(v.dtype) for v in function.params}
    np.testing.assert_array_equal(run(made, feed), run(function, feed))


def test_a_kernel_of_attention_reads_no_mask() -> None:
    with PassContext(opt_level=3):
        fused = pipeline(Target("cuda -arch=sm_90a"))(masked(mask(0)[None]))
    (group,) = [f for f in group_uses(fused) if "causal" in str(f.attrs["name"])]
    assert str(group.attrs["name"]).count("batch_matmul") == 2 and len(group.params) == 3
    check_group(group, "cuda", np.random.default_rng(1))


def test_other_masks_stay() -> None:
    """With a hole, shown where hidden, one for each head, little but not little enough, of no row, along columns."""
    hole, shown, few = mask(0), mask(0), mask(0)
    hole[5, 3], shown[5, 6], few[4, 5:] = -np.inf, 0, -10
    others = [hole, shown, few, np.stack([mask(0)] * HEADS), mask(-1), mask(0, 0), mask(0, 0)[:, :1]]
    for other in nonempty(others):
        assert ops(CausalMasks()(masked(other)))["nn.causal"] == 0
    assert ops(CausalMasks()(masked(mask(0), axis=1)))["nn.causal"] == 0
    assert causal_offset(mask(3), (ROWS, COLUMNS)) == 3 and causal_offset(mask(0)[0], (COLUMNS,)) is None
    assert causal_offset(mask(0, 0).astype("int32"), (ROWS, COLUMNS)) is None
