"""Attention as one group, where tensor cores multiply its elements, and where it is not."""

from __future__ import annotations

import numpy as np
import pytest

from ansor.core.target.target import Target
from relay_lite.compiler.optimize import group_uses, pipeline
from relay_lite.ir.make import call, var
from relay_lite.ir.nodes import Call, Constant, Expr, Function, Tuple
from relay_lite.ir.reference import run
from relay_lite.ir.visit import free_vars, post_order
from relay_lite.transform import FuseOps, ScoresInBatches
from tests.nonempty import nonempty
from tests.relay_lite.test_fuse_meaning import check_group

HEADS, TOKENS, SIZE = 4, 18, 16


def attention(
    dtype: str = "float16", axis: int = -1, mask: bool = False, shown: bool = False, queries: int = TOKENS
) -> Function:
    """Attention of inputs in batches; `shown`: the shares are a result, too."""
    q, k, v = [var(name, (HEADS, n, SIZE), dtype) for name, n in (("q", queries), ("k", TOKENS), ("v", TOKENS))]
    scores = call("multiply", call("nn.batch_matmul", q, k, out_dtype="float32"), call("cast", one(), dtype="float32"))
    if mask:
        scores = call("add", scores, var("mask", (1, queries, TOKENS)))
    shares = call("cast", call("nn.softmax", scores, axis=axis), dtype=dtype)
    body: Expr = call("nn.batch_matmul", shares, v, out_dtype="float32", transpose_b=False)
    if shown:
        body = call("concatenate", Tuple((body, call("cast", shares, dtype="float32"))), axis=-1)
    return Function(tuple(free_vars(body)), body)


def one() -> Expr:
    return var("scale", (1, 1, 1))


def kernels(function: Function) -> list[str]:
    return [str(f.attrs["name"]) for f in group_uses(function)]


@pytest.mark.parametrize("queries", [TOKENS, 1, 3])
@pytest.mark.parametrize("mask", [False, True])
def test_attention_is_one_kernel(mask: bool, queries: int) -> None:
    function = attention(mask=mask, queries=queries)
    fused = FuseOps(rows=True, moves=True)(function)
    assert len([name for name in kernels(fused) if "softmax" in name and name.count("batch_matmul") == 2]) == 1
    rng = np.random.default_rng(2)
    feed = {v.name: rng.standard_normal(v.shape).astype(v.dtype) for v in function.params}
    np.testing.assert_array_equal(run(fused, feed), run(function, feed))
    for group in group_uses(fused):
        check_group(group, "cuda", rng)


@pytest.mark.parametrize("precision, products", [("strict", 1), ("tf32", 2), ("fp32x3", 2)])
def test_attention_of_floats_is_one_kernel_where_tensor_cores_multiply_them(precision: str, products: int) -> None:
    function = pipeline(Target(f"cuda -precision={precision}"))(attention("float32", mask=True))
    assert max(name.count("batch_matmul") for name in kernels(function)) == products


def chained() -> Function:
    """Attention whose result is the scores of another one."""
    q, k, v, w = [var(name, (2, 16, 16), "float16") for name in "qkvw"]
    body: Expr = call("nn.batch_matmul", q, k, out_dtype="float32")
    for values in (v, w):
        shares = call("cast", call("nn.softmax", body, axis=-1), dtype="float16")
        body = call("nn.batch_matmul", shares, values, out_dtype="float32", transpose_b=False)
    return Function(tuple(free_vars(body)), body)


def test_a_product_is_of_one_attention() -> None:
    function = chained()
    fused = FuseOps(rows=True, moves=True)(function)
    assert sum(name.count("batch_matmul") for name in kernels(fused)) == 3
    rng = np.random.default_rng(5)
    feed = {v.name: rng.standard_normal(v.shape).astype(v.dtype) for v in function.params}
    np.testing.assert_array_equal(run(fused, feed), run(function, feed))


@pytest.mark.parametrize("other", [attention("float32"), attention(axis=1), attention(shown=True)])
def test_what_else_looks_like_it_is_several(other: Function) -> None:
    assert all(name.count("batch_matmul") < 2 for name in nonempty(kernels(FuseOps(rows=True, moves=True)(other))))


def test_only_where_moves_are_fused() -> None:
    assert all(name.count("batch_matmul") < 2 for name in nonempty(kernels(FuseOps(rows=True)(attention()))))


def in_heads(mask_shape: tuple[int, ...], batch: int = 1) -> Function:
    """As frontends write it: scores in heads, where the mask is added, and back."""
    q, k, v = [var(name, (batch * HEADS, TOKENS, SIZE)) for name in "qkv"]
    scores = call("reshape", call("nn.batch_matmul", q, k), newshape=(batch, HEADS, TOKENS, TOKENS))
    shares = call("nn.softmax", call("add", scores, var("mask", mask_shape)), axis=3)
    body = call("nn.batch_matmul", call("reshape", shares, newshape=(batch * HEADS, TOKENS, TOKENS)), v,
                transpose_b=False)  # fmt: skip
    return Function(tuple(free_vars(body)), body)


@pytest.mark.parametrize(
    ("mask_shape", "batch", "left"),
    [
        ((TOKENS,), 1, 0),
        ((1, 1, 1, TOKENS), 1, 0),
        ((1, HEADS, TOKENS, TOKENS), 1, 0),
        ((1, 1, TOKENS, TOKENS), 2, 0),
        ((2, 1, 1, TOKENS), 2, 2),
    ],
)
def test_scores_stay_in_batches(mask_shape: tuple[int, ...], batch: int, left: int) -> None:
    """`left`: reshapes of scores, where the mask of each item of a batch has no shape with one axis of batches."""
    function = in_heads(mask_shape, batch)
    changed = ScoresInBatches()(function)
    calls = [node for node in post_order(changed.body) if isinstance(node, Call)]
    moved = [x for x in calls if x.op.name == "reshape" and isinstance(x.args[0], Call)]
    assert len(moved) == left
    rng = np.random.default_rng(3)
    feed = {v.name: rng.standard_normal(v.shape).astype("float32") for v in function.params}
    np.testing.assert_array_equal(run(changed, feed), run(function, feed))


def test_masks_of_float32_are_applied_in_the_kernel_of_the_scores() -> None:
    """A choice of a mask stands behind the reshape to heads, and would be a kernel that reads and writes all scores."""
    q, k, v = [var(name, (2 * HEADS, TOKENS, SIZE)) for name in "qkv"]
    hidden = var("hidden", (1, 1, TOKENS, TOKENS), "bool")
    scores = call("reshape", call("nn.batch_matmul", q, k), newshape=(2, HEADS, TOKENS, TOKENS))
    chosen = call("where", hidden, Constant(np.float32(-np.inf)), scores)
    shares = call("reshape", call("nn.softmax", chosen, axis=-1), newshape=(2 * HEADS, TOKENS, TOKENS))
    body = call("nn.batch_matmul", shares, v, transpose_b=False)
    function = Function((q, k, v, hidden), body)
    made = pipeline(Target("cuda -arch=sm_90"))(function)
    assert [name for name in kernels(made) if "where" in name] == ["fused_nn_batch_matmul_where"]
    rng = np.random.default_rng(4)
    feed = {x.name: rng.standard_normal(x.shape).astype("float32") for x in (q, k, v)}
    feed["hidden"] = np.triu(np.ones((1, 1, TOKENS, TOKENS), bool), 1)
    np.testing.assert_allclose(run(made, feed), run(function, feed), rtol=1e-6)


@pytest.mark.parametrize(("mask_shape", "left"), [((1, HEADS, TOKENS, TOKENS), 2), ((1, 1, TOKENS, TOKENS), 0)])
def test_operands_as_large_as_scores_keep_their_shape_unless_asked(mask_shape: tuple[int, ...], left: int) -> None:
    changed = ScoresInBatches(whole=False)(in_heads(mask_shape))
    calls = [node for node in post_order(changed.body) if isinstance(node, Call)]
    assert sum(x.op.name == "reshape" and isinstance(x.args[0], Call) for x in calls) == left
