"""`BatchSlices`: values stay, what is held besides results gets small, and small graphs stay as they are."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import numpy as np
import pytest

import relay_lite as relay
from ansor.core.device.network_plan import ExecutionPlan
from codegen_cuda.driver.compile import available_compilers
from relay_lite import reference
from relay_lite.compiler.optimize import optimize
from relay_lite.ir.control import Loop
from relay_lite.ir.make import call, var
from relay_lite.ir.module import IRModule
from relay_lite.ir.nodes import Expr, Function, TupleGetItem, const
from relay_lite.ir.visit import free_vars, is_op, post_order
from relay_lite.op.winograd import CONV as WINOGRAD
from relay_lite.runtime.assemble import GroupKernel, make_plan
from relay_lite.transform import AlterOpLayout, FoldConstant, PassContext, Sequential
from relay_lite.transform.batch_regions import scratch_of
from relay_lite.transform.batch_slices import HELD, BatchSlices, Limits
from relay_lite.tuning.network import in_layout
from tests.relay_lite.test_build_cuda import TARGET, emulate

SMALL = Limits(work=1, results=1)


def weight(*shape: int) -> Expr:
    return const(np.random.default_rng(len(shape)).uniform(-1, 1, shape).astype("float32"))


def conv(x: Expr, filters: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> Expr:
    w, p = weight(filters, x.shape[1] // groups, kernel, kernel), kernel // 2
    return call("nn.conv2d", x, w, strides=(stride, stride), padding=(p, p, p, p), groups=groups, channels=filters,
                kernel_size=(kernel, kernel))  # fmt: skip


def chain(x: Expr, filters: int, **attrs: int) -> Expr:
    """A convolution, a bias, relu, and a pool."""
    made = call("add", conv(x, filters, **attrs), weight(filters, 1, 1))
    return call("nn.max_pool2d", call("nn.relu", made), pool_size=(2, 2), strides=(2, 2))


def transposed(x: Expr, filters: int, kernel: int = 4) -> Expr:
    made = call("nn.conv2d_transpose", x, weight(x.shape[1], filters, kernel, kernel), strides=(2, 2),
                padding=(1, 1, 1, 1), channels=filters, kernel_size=(kernel, kernel))  # fmt: skip
    return call("nn.relu", call("add", made, weight(filters, 1, 1)))


def spread(x: Expr, filters: int) -> Expr:
    """As a transposed convolution whose stride and dilation are 2: zeros between the results of a plain one."""
    made = conv(x, filters)
    zeros = call("nn.pad", call("reshape", made, newshape=(*made.shape, 1)), pad_width=(*[(0, 0)] * 4, (0, 1)))
    whole = call("reshape", zeros, newshape=(*made.shape[:3], 2 * made.shape[3]))
    return call("strided_slice", whole, begin=(0,), end=(2 * made.shape[3] - 1,), axes=(3,))


def attention(batch: int, rows: int, keys: int, size: int, dtype: str = "float32") -> Expr:
    q, k, v = (var(n, (batch, m, size), dtype) for n, m in (("q", rows), ("k", keys), ("v", keys)))
    scores = call("multiply", call("nn.batch_matmul", q, k), const(np.array(size**-0.5), dtype))
    return call("nn.batch_matmul", call("nn.softmax", scores), v, transpose_b=False)


def function(body: Expr, layout: str = "NCHW") -> Function:
    """As it comes to the pass: convolutions in a layout, by Winograd's method where the channels are last."""
    made = in_layout(IRModule({"main": Function(free_vars(body), body)}), layout)["main"]
    with PassContext(opt_level=3):
        return Sequential([FoldConstant(), AlterOpLayout("cuda"), FoldConstant()])(made)


def loops(made: Function) -> list[Loop]:
    return [node for node in post_order(made.body) if isinstance(node, Loop)]


def image(*shape: int) -> Expr:
    return var("x", shape)


CASES: dict[str, tuple[Callable[[], Expr], str, list[int]]] = {
    "winograd": (lambda: conv(image(6, 4, 10, 6), 8), "NHWC", [6]),
    "winograd of odd sizes": (lambda: conv(image(4, 4, 7, 5), 4), "NHWC", [4]),
    "winograd with a chain": (lambda: chain(image(6, 4, 8, 8), 8), "NHWC", [6]),
    "winograd of a prime batch": (lambda: conv(image(7, 4, 6, 6), 8), "NHWC", [7]),
    "sums of images": (
        lambda: call("sigmoid", call("sum", call("nn.relu", conv(image(32, 4, 8, 8), 8)), axis=(1, 2, 3))),
        "NHWC",
        [8],
    ),
    "two": (lambda: conv(chain(image(6, 4, 8, 8), 8), 8), "NHWC", [6, 6]),
    "channels last": (lambda: conv(image(6, 4, 6, 6), 8, kernel=1), "NHWC", [6]),
    "channels last with a stride": (lambda: conv(image(6, 4, 7, 7), 8, stride=2), "NHWC", [6]),
    "channels last in groups": (lambda: conv(image(6, 4, 6, 6), 8, groups=2), "NHWC", [6]),
    "transposed": (lambda: transposed(image(3, 4, 6, 5), 8), "NCHW", [6]),
    "transposed, channels last": (lambda: transposed(image(4, 4, 6, 6), 8), "NHWC", [4]),
    "transposed with an odd kernel": (lambda: transposed(image(4, 4, 6, 6), 8, kernel=3), "NCHW", [8]),
    "zeros between results": (lambda: spread(image(4, 4, 6, 8), 8), "NCHW", [16]),
    "attention": (lambda: attention(6, 8, 12, 4), "NCHW", [48]),
    "attention of one": (lambda: attention(1, 8, 16, 4), "NCHW", [8]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(4)
def test_values_stay(name: str) -> None:
    """By the reference and as compiled C, in as many steps as there are images, or parts of images."""
    body, layout, steps = CASES[name]
    plain = function(body(), layout)
    made = BatchSlices(SMALL)(plain)
    assert [node.steps for node in loops(made)] == steps
    rng = np.random.default_rng(0)
    given = {v.name: rng.uniform(-1, 1, v.var_type.shape).astype("float32") for v in plain.params}
    want = reference.run(plain, given, dtype="float64")
    near = 2e-5 * float(np.abs(want).max())
    np.testing.assert_allclose(reference.run(made, given), want, rtol=0, atol=near)
    module = relay.graph_executor.GraphModule(relay.build(made, target="c")["default"](relay.cpu()))
    module.run(**given)
    np.testing.assert_allclose(module.get_output(0).numpy(), want, rtol=0, atol=near)


@pytest.mark.long
@pytest.mark.skipif(not available_compilers() or shutil.which("g++") is None, reason="no CUDA compiler, or no g++")
@pytest.mark.parametrize("name", ["winograd with a chain", "transposed", "attention"])
def test_on_the_emulator(name: str) -> None:
    body, layout, _ = CASES[name]
    made = BatchSlices(SMALL)(function(body(), layout))
    rng = np.random.default_rng(0)
    given = {v.name: rng.uniform(-1, 1, v.var_type.shape).astype("float32") for v in made.params}
    want = reference.run(made, given)
    (got,) = emulate(relay.build(made, target=TARGET), given)
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * float(np.abs(want).max()))


# ------------------------------------------------------------------------------------------------------ memory


def plan_of(body: Expr, layout: str) -> ExecutionPlan:
    """The plan for a GPU, without kernels: those of Winograd's method need what `scratch_of` says."""
    graph = in_layout(IRModule({"main": Function(free_vars(body), body)}), layout)
    with PassContext(opt_level=3):
        fused = optimize(graph, {}, TARGET)

    def kernel(group: Function) -> GroupKernel:
        count, calls = len(group.params), [n for n in post_order(group.body) if is_op(n, WINOGRAD)]
        scratch = tuple([scratch_of(n) for n in calls])
        return GroupKernel(str(group.attrs["name"]), tuple(range(count + 1)), (count,), scratch)

    return make_plan(fused, kernel, 256, 8)[0]


def held(plan: ExecutionPlan) -> int:
    """The bytes that a call allocates."""
    return plan.arena_bytes + sum(place.nbytes for place in plan.outputs)


def size(*shape: int) -> int:
    """Bytes of float32."""
    return 4 * int(np.prod(shape))


LARGE: dict[str, tuple[Callable[[], Expr], str, int]] = {  # the layout, and the bytes of all that must be held
    "transposed": (lambda: transposed(image(16, 32, 256, 256), 64), "NCHW", size(16, 64, 512, 512)),
    "attention": (lambda: attention(1024, 512, 512, 1024), "NCHW", size(1024, 512, 1024)),
    "long attention": (lambda: attention(8, 16384, 2048, 1024), "NCHW", size(8, 16384, 1024)),
    "winograd between": (  # the first result of the convolution, and what the pool makes of it
        lambda: chain(chain(image(32, 3, 224, 224), 64), 64), "NHWC", size(32, 64, 224, 224) + size(32, 64, 112, 112)
    ),
    "many small images": (lambda: conv(image(1024, 64, 56, 56), 64), "NHWC", size(1024, 64, 56, 56)),
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_memory_of_large_graphs(name: str) -> None:
    body, layout, eager = LARGE[name]
    assert held(plan_of(body(), layout)) <= 1.05 * eager


def test_a_large_image_is_the_smallest_slice() -> None:
    """Rows of an image are no slices: what Winograd's method needs for one is held."""
    plan = plan_of(conv(image(8, 64, 512, 512), 128), "NHWC")
    one = scratch_of(call(WINOGRAD, image(1, 512, 512, 64), weight(6, 6, 128, 64), tile_size=4, padding=(1, 1, 1, 1)))
    assert plan.arena_bytes < 1.01 * (one + size(64 + 128, 512, 512))


# -------------------------------------------------------------------------------------------- what stays whole


def test_small_graphs_stay() -> None:
    for body, layout, _ in CASES.values():
        plain = function(body(), layout)
        assert BatchSlices()(plain) is plain


@pytest.mark.parametrize("body", [
    lambda: conv(image(1, 4, 8, 8), 8),  # one image
    lambda: conv(image(5, 1, 3, 3), 3),  # slices would begin where no wide access may
    lambda: call("nn.softmax", conv(image(4, 4, 4, 4), 4), axis=0),  # nothing behind it needs memory
])  # fmt: skip
def test_what_cannot_be_cut(body: Callable[[], Expr]) -> None:
    plain = function(body(), "NCHW")
    assert BatchSlices(SMALL)(plain) is plain


def test_attention_that_becomes_one_kernel_stays() -> None:
    plain = function(attention(4, 32, 32, 32, "float16"))
    assert BatchSlices(SMALL)(plain) is plain and loops(BatchSlices(SMALL, ())(plain))


def test_nothing_is_cut_where_more_may_be_held() -> None:
    plain = function(conv(image(6, 4, 8, 8), 8), "NHWC")
    assert loops(BatchSlices(SMALL)(plain))
    with PassContext(opt_level=3, config={HELD: 1 << 40}):
        assert BatchSlices(SMALL)(plain) is plain


def test_a_tuple_is_no_slice() -> None:
    """An operator with several results stays outside, and is counted among what a graph holds."""
    parts = call("split", call("nn.relu", conv(image(6, 4, 8, 8), 8)), indices_or_sections=2, axis=1)
    plain = function(call("add", TupleGetItem(parts, 0), call("tanh", TupleGetItem(parts, 1))), "NHWC")
    made = BatchSlices(SMALL)(plain)
    x = np.random.default_rng(0).uniform(-1, 1, (6, 4, 8, 8)).astype("float32")
    np.testing.assert_allclose(reference.run(made, [x]), reference.run(plain, [x]), rtol=0, atol=1e-5)
    assert [node.steps for node in loops(made)] == [6]


def test_what_is_read_elsewhere_is_a_result() -> None:
    """Up to it the operators are in the loop, what reads it is not."""
    first = call("nn.relu", conv(image(6, 4, 8, 8), 8))
    plain = function(call("add", call("nn.softmax", first, axis=0), call("nn.softmax", first, axis=1)), "NHWC")
    (found,) = loops(BatchSlices(SMALL)(plain))
    assert not any(is_op(node, "nn.softmax") for node in post_order(found.function.body))
    x = np.random.default_rng(0).uniform(-1, 1, (6, 4, 8, 8)).astype("float32")
    want = reference.run(plain, [x])
    np.testing.assert_allclose(reference.run(BatchSlices(SMALL)(plain), [x]), want, rtol=0, atol=1e-5)
