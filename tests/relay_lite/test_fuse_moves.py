"""What only moves elements is no kernel before a product on CUDA, whatever the moves, and keeps its meaning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from relay_lite.compiler.optimize import group_uses, optimize
from relay_lite.ir.make import call, var
from relay_lite.ir.nodes import Call, Expr, Function, Tuple
from relay_lite.ir.reference import run
from relay_lite.ir.visit import free_vars, post_order
from relay_lite.op.lower_group import lower_group
from relay_lite.testing.transformer import HiddenShape, attention
from relay_lite.transform import FuseOps, PassContext, TurnProducts
from te_lite import ComputeOp
from tests.relay_lite.test_fuse_meaning import check_group

Rng = np.random.Generator


def kernels(function: Function) -> list[str]:
    """The groups in order, but those that only view."""
    return [str(f.attrs["name"]) for f in group_uses(function) if not f.attrs["reshape_only"]]


def transposed(x: Expr, *axes: int) -> Expr:
    return call("transpose", x, axes=axes)


def drawn_moves(rng: Rng, name: str, shape: Sequence[int]) -> Expr:
    """An input, moved until it has a shape; made backwards: what a move gives is what the next one takes."""
    steps: list[tuple[str, tuple[int, ...]]] = []
    here = tuple(shape)
    for _ in range(int(rng.integers(1, 5))):
        match rng.integers(3):
            case 0:
                axes = tuple(map(int, rng.permutation(len(here))))
                steps.append(("transpose", axes))
                before = [0] * len(here)
                for k, axis in enumerate(axes):
                    before[axis] = here[k]
                here = tuple(before)
            case 1:
                steps.append(("reshape", here))
                flat = int(np.prod(here))
                first = int(rng.choice([d for d in range(1, flat + 1) if flat % d == 0]))
                here = (first, flat // first)
            case _:
                axis, begin = int(rng.integers(len(here))), int(rng.integers(4))
                steps.append(("strided_slice", (axis, begin, begin + here[axis])))
                here = tuple([n + begin + 2 if k == axis else n for k, n in enumerate(here)])
    body: Expr = var(name, here)
    for kind, how in reversed(steps):
        match kind:
            case "transpose":
                body = transposed(body, *how)
            case "reshape":
                body = call("reshape", body, newshape=how)
            case _:
                axis, begin, end = how
                body = call("strided_slice", body, begin=(begin,), end=(end,), strides=(1,), axes=(axis,))
    return body


@pytest.mark.parametrize("seed", range(30))
def test_moves_join_their_product(seed: int) -> None:
    """One kernel, one stage for all moves of an operand, and the meaning of the operators."""
    rng = np.random.default_rng([5, seed])
    b, m, n, k = map(int, rng.integers(1, 7, 4))
    turned = bool(rng.integers(2)), bool(rng.integers(2))
    shapes = (b, k, m) if turned[0] else (b, m, k), (b, n, k) if turned[1] else (b, k, n)
    operands = [drawn_moves(rng, name, shape) for name, shape in zip("xy", shapes, strict=True)]
    body = call("nn.batch_matmul", *operands, transpose_a=turned[0], transpose_b=turned[1])
    function = Function(free_vars(body), call("nn.relu", body))
    fused = optimize(function, {}, "cuda")
    assert kernels(fused) == ["fused_nn_batch_matmul_nn_relu"]
    (group,) = [f for f in group_uses(fused) if not f.attrs["reshape_only"]]
    stages = [op.name for op in lower_group(group, "cuda").dag.ops if isinstance(op, ComputeOp)]
    assert len(stages) <= 4 and set(stages[:-2]) <= {"T_moved"}
    check_group(group, "cuda", rng)
    given = {v.name: rng.uniform(-1, 1, v.shape) for v in function.params}
    np.testing.assert_allclose(run(fused, given, dtype="float64"), run(function, given, dtype="float64"), rtol=1e-12)


def self_attention() -> Function:
    """Queries, keys and values are slices of one product; what comes out is multiplied once more."""
    packed = call("nn.matmul", var("x", (14, 12)), var("w", (12, 36)))
    parts = [
        call("strided_slice", packed, begin=(12 * k,), end=(12 * k + 12,), strides=(1,), axes=(1,)) for k in range(3)
    ]
    body = call("nn.matmul", attention(parts[0], parts[1], parts[2], HiddenShape(2, 7, 12, 3)), var("o", (12, 12)))
    return Function(free_vars(body), body)


def test_attention_is_products_and_a_softmax() -> None:
    function = self_attention()
    assert kernels(optimize(function, {}, "cuda")) == [
        "fused_nn_matmul", "fused_nn_batch_matmul_multiply", "fused_nn_softmax", "fused_nn_batch_matmul",
        "fused_nn_matmul_1",
    ]  # fmt: skip
    assert len(kernels(optimize(function, {}, "c"))) == 9


def test_a_matrix_is_read_along_its_rows() -> None:
    """Values by head are not transposed in memory, and no scattered column is read where a row could be."""
    products = [
        node for node in post_order(TurnProducts()(self_attention()).body)
        if isinstance(node, Call) and node.op.name == "nn.batch_matmul"
    ]  # fmt: skip
    assert [(p.attrs["transpose_a"], p.attrs["transpose_b"]) for p in products] == [(False, True), (False, False)]
    x, y = var("x", (2, 5, 3)), var("y", (2, 5, 4))
    body = call("nn.batch_matmul", transposed(x, 0, 2, 1), y, transpose_a=False, transpose_b=False)
    turned = TurnProducts()(Function([x, y], body)).body
    assert isinstance(turned, Call) and turned.attrs["transpose_a"] and turned.args[0] is x
    rows = call("nn.batch_matmul", transposed(x, 1, 0, 2), transposed(y, 1, 0, 2), transpose_a=True, transpose_b=False)
    assert TurnProducts()(Function([x, y], rows)).body is rows


def test_what_others_read_stays_a_kernel() -> None:
    x, y = var("x", (5, 4)), var("y", (5, 3))
    moved = transposed(x, 1, 0)
    shared = Tuple((call("nn.matmul", moved, y), call("nn.relu", moved)))
    assert kernels(FuseOps(moves=True)(Function([x, y], shared))) == [
        "fused_transpose", "fused_nn_matmul", "fused_nn_relu"]  # fmt: skip
    summed = call("nn.matmul", call("add", moved, moved), y)
    assert len(kernels(FuseOps(moves=True)(Function([x, y], summed)))) == 2
    plain = call("nn.matmul", call("reshape", var("z", (20,)), newshape=(4, 5)), y)
    assert len(group_uses(FuseOps(moves=True)(Function(free_vars(plain), plain)))) == 2
    assert kernels(FuseOps(moves=True)(Function([x], moved))) == ["fused_transpose"]
    alone = Function([x, y], call("nn.matmul", moved, y))
    assert len(kernels(FuseOps()(alone))) == 2
    for depth, count in ((1, 2), (2, 1)):
        with PassContext(config={"relay.FuseOps.max_depth": depth}):
            assert len(kernels(FuseOps(moves=True)(alone))) == count
