"""Networks in parts: operations of the ALU, kernels, the division between machine and processor, inference."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import relay_lite as relay
from relay_lite import reference
from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Expr, Function
from te_lite.meaning.reference import evaluate
from tests.amount import some
from tests.nonempty import nonempty
from vta_sim.core.errors import MachineError
from vta_sim.core.kinds import AluOp
from vta_sim.graph import MachineKernel, graph_pack
from vta_sim.graph.alu_operations import HIGH, LOW, AluOperation, apply, merge_bias, simplify
from vta_sim.graph.reference import run_kernel
from vta_sim.graph.split import CpuStep, VtaStep
from vta_sim.graph.tensors import kernel_tensors
from vta_sim.network.vta_network import CompiledCpu, VtaNetwork, reference_cpu

from .networks import PlainResnet, images, quantized, resnet

ADD, MUL, MAX, MIN, SHR = AluOp.ADD, AluOp.MUL, AluOp.MAX, AluOp.MIN, AluOp.SHR
Arrays = Sequence[np.ndarray]


def packed(device_annot: bool = True) -> Function:
    return graph_pack(quantized(), 1, 16, 8, device_annot=device_annot)


def unpacked(data: np.ndarray) -> np.ndarray:
    """NCHW1n16c as NCHW."""
    n, c, h, w, _, _ = data.shape
    return np.asarray(data.transpose(0, 1, 5, 4, 2, 3).reshape(n, c * 16, h, w))


# ---------------------------------------------------------------------------------------------- ALU operations


def random_operations(rng: np.random.Generator, extras: int) -> list[AluOperation]:
    """Among them many runs of relu, rounding and shift, limits of all kinds, and such as a later one hides."""
    out: list[AluOperation] = []
    while len(out) < 7:
        n = int(rng.integers(1, 12))
        rounding = int(rng.choice([0, 1 << n - 1, (1 << n) - 1, 1 << n]))
        relu_and_shift = [AluOperation(MAX, 0), AluOperation(ADD, rounding), AluOperation(SHR, n)]
        limits = [AluOperation(MIN, 127), AluOperation(MAX, int(rng.choice([-127, 0])))]
        low = int(rng.integers(-200, 60))
        then = low + int(rng.choice([127, -128])) + int(rng.integers(-3, 4))
        hidden = [AluOperation(MAX, low), AluOperation(ADD, extra=0), AluOperation(MAX, then)]
        single = [
            AluOperation(ADD, int(rng.integers(-99, 99))),
            AluOperation(MUL, int(rng.integers(-3, 4))),
            AluOperation(SHR, -int(rng.integers(0, 4))),
            AluOperation((ADD, MAX, MIN, MUL)[rng.integers(4)], extra=int(rng.integers(extras))),
        ]
        out += [relu_and_shift, limits, hidden, [single[int(rng.integers(4))]]][int(rng.integers(4))]
    return out


@pytest.mark.parametrize("bound", [100, 70_000, HIGH - 300, -LOW])
def test_fewer_operations_give_the_same(bound: int) -> None:
    """On accumulators up to `bound`; near the limits of int32 nothing may be assumed."""
    rng = np.random.default_rng(bound)
    dropped = 0
    ends = [-bound, 1 - bound, -1, 0, 1, bound - 1, min(bound, HIGH)]
    for _ in range(150):
        operations = random_operations(rng, 2)
        acc = np.array([*ends, -bound, -bound, *rng.integers(-bound, min(bound, HIGH), 40)], "int32")
        extras = [rng.integers(-128, 128, acc.shape).astype("int8"), rng.integers(-999, 999, acc.shape).astype("int32")]
        extras[0][len(ends) : len(ends) + 2] = -128, 127
        short = simplify(operations, (-bound, bound), [(-128, 127), (-999, 999)])
        known: list[np.ndarray | None] = [extras[0], extras[1]]
        merged, values = merge_bias(short, known)
        want = apply(operations, acc, extras)
        np.testing.assert_array_equal(apply(short, acc, extras), want)
        np.testing.assert_array_equal(apply(merged, acc, [v for v in values if v is not None]), want)
        dropped += len(operations) - len(merged)
    assert dropped > 50


def test_the_end_of_a_convolution_is_four_operations() -> None:
    relu = [
        AluOperation(ADD, extra=0),
        AluOperation(MAX, 0),
        AluOperation(ADD, 128),
        AluOperation(SHR, 8),
        AluOperation(MIN, 127),
        AluOperation(MAX, -127),
    ]
    short = simplify(relu, (-(1 << 24), 1 << 24), [(-5000, 5000)])
    merged, (bias,) = merge_bias(short, [np.arange(4, dtype="int32")])
    assert merged == (AluOperation(ADD, extra=0), AluOperation(SHR, 8), AluOperation(MAX, 0), AluOperation(MIN, 127))
    assert bias is not None and bias.tolist() == [128, 129, 130, 131]
    untouched, _ = merge_bias(short, [None])
    assert untouched == tuple(short)


def test_a_bias_that_is_used_again_or_is_no_int32_stays() -> None:
    wide, narrow = np.arange(4, dtype="int32"), np.arange(4, dtype="int8")
    twice = [AluOperation(ADD, extra=0), AluOperation(ADD, 5), AluOperation(MAX, extra=0)]
    for operations, value in ((twice, wide), (twice[:2], narrow)):
        merged, (same,) = merge_bias(operations, [value])
        assert merged == tuple(operations) and same is value
    merged, (other,) = merge_bias(twice[:2], [wide])
    assert merged == (twice[0],) and other is not None and other.tolist() == [5, 6, 7, 8] and other.dtype == "int32"


# ------------------------------------------------------------------------------------------------------ kernels


def test_kernels_of_resnet() -> None:
    plan = VtaNetwork(packed()).plan
    counts = {True: 0, False: 0}
    for kernel, count in plan.kernels.items():
        counts[kernel.workload is not None] += count
        conv = kernel.workload is not None
        assert len(kernel.operations) == (4 if conv else 3) and all(o.encodable for o in kernel.operations)
        assert [t.dtype for t in kernel.inputs] == (["int8", "int8", "int32"] if conv else ["int8", "int8"])
    assert counts == {True: 19, False: 8}
    assert [type(s) for s in plan.steps] == [CpuStep, *[VtaStep] * 27, CpuStep]


def test_without_annotation_only_convolutions_leave_the_processor() -> None:
    network = VtaNetwork(packed(device_annot=False))
    assert sum(network.plan.kernels.values()) == 19 and all(k.workload for k in network.plan.kernels)
    assert sum(isinstance(s, CpuStep) for s in network.plan.steps) == 1 + 8
    image = images(1, seed=3)[0]
    np.testing.assert_array_equal(network.run({"data": image}), reference.run(quantized(), {"data": image}))


def small_kernels() -> list[MachineKernel]:
    """The kernels of a packed graph of odd sizes."""
    rng = np.random.default_rng(9)

    def weight(*shape: int) -> Expr:
        return relay.const(rng.integers(-127, 128, shape).astype("int8"))

    x = relay.var("data", (1, 8, 5, 7))
    a = relay.nn.max_pool2d(x)
    q = call("annotation.stop_fusion", call("cast", a, dtype="int8"))
    b = relay.nn.conv2d(q, weight(6, 8, 3, 3), strides=(2, 1), padding=1, out_dtype="int32")
    b = relay.left_shift(relay.maximum(relay.minimum(b, 30000), -20000), 2)
    b = relay.right_shift(relay.add(b, relay.const(rng.integers(-9999, 9999, (6, 1, 1)).astype("int32"))), 8)
    b = call("annotation.stop_fusion", call("cast", b, dtype="int8"))
    c = call("cast", relay.nn.conv2d(b, weight(6, 6, 1, 1), out_dtype="int32"), dtype="int8")
    c = call("annotation.stop_fusion", c)
    d = relay.multiply(call("cast", b, dtype="int32"), call("cast", c, dtype="int32"))
    d = call("cast", relay.nn.relu(relay.subtract(d, 77)), dtype="int8")
    body = relay.nn.global_avg_pool2d(call("cast", call("annotation.stop_fusion", d), dtype="float32"))
    net = graph_pack(Function((x,), body), 1, 4, 8, device_annot=True)
    data = rng.integers(-127, 128, x.shape).astype("float32")
    network = VtaNetwork(net)
    np.testing.assert_array_equal(network.run({"data": data}), reference.run(Function((x,), body), [data]))
    return list(network.plan.kernels)


def test_kernels_as_tensor_expressions() -> None:
    rng = np.random.default_rng(4)
    kernels = small_kernels()
    used = {o.op for k in kernels for o in k.operations}
    assert used == set(AluOp) and [k.workload is None for k in kernels] == [False, False, True]
    for kernel in kernels:
        arrays = [
            rng.integers(-128, 128, t.shape).astype(t.dtype)
            if t.dtype == "int8"
            else rng.integers(-9999, 9999, t.shape).astype(t.dtype)
            for t in kernel.inputs
        ]
        *inputs, output = kernel_tensors(kernel)
        got = evaluate([*inputs, output], dict(zip(inputs, arrays, strict=True)))[output]
        want = run_kernel(kernel, arrays)
        assert (want.shape, str(want.dtype)) == (kernel.output.shape, "int8") and np.ptp(want.astype(int)) > 0
        np.testing.assert_array_equal(got, want)


def test_a_convolution_that_never_becomes_int8_is_refused() -> None:
    x = relay.var("data", (1, 4, 4, 4))
    q = call("cast", relay.nn.max_pool2d(x), dtype="int8")
    conv = relay.nn.conv2d(q, relay.const(np.ones((4, 4, 1, 1), "int8")), out_dtype="int32")
    for end in (lambda e: e, lambda e: relay.add(relay.nn.relu(e), 40000)):
        body = relay.nn.global_avg_pool2d(call("cast", end(conv), dtype="float32"))
        with pytest.raises(GraphError, match="no chain of operations"):
            VtaNetwork(graph_pack(Function((x,), body), 1, 4, 8))


@pytest.mark.parametrize(("number", "fits"), [(32767, True), (-32768, True), (32768, False), (-32769, False)])
def test_an_immediate_that_has_no_room_is_refused(number: int, fits: bool) -> None:
    x = relay.var("data", (1, 4, 4, 4))
    q = call("cast", relay.nn.max_pool2d(x), dtype="int8")
    conv = relay.nn.conv2d(q, relay.const(np.ones((4, 4, 1, 1), "int8")), out_dtype="int32")
    end = call("annotation.stop_fusion", call("cast", relay.add(conv, number), dtype="int8"))
    net = Function((x,), relay.nn.global_avg_pool2d(call("cast", end, dtype="float32")))
    if fits:
        (kernel,) = VtaNetwork(graph_pack(net, 1, 4, 8)).plan.kernels
        assert kernel.operations == (AluOperation(ADD, number),)
        return
    with pytest.raises(GraphError, match="no chain of operations"):
        VtaNetwork(graph_pack(net, 1, 4, 8))


# ---------------------------------------------------------------------------------------------------- inference


def test_inference_in_parts_is_the_reference() -> None:
    network = VtaNetwork(packed())
    for image in nonempty(images(some(3, 1), seed=1)):
        want = reference.run(quantized(), {"data": image})
        np.testing.assert_array_equal(network.run({"data": image}), want)


@pytest.mark.long
def test_inference_with_a_compiled_processor_part() -> None:
    """Float sums depend on their order, so a few of the first int8 numbers may differ; from there on no bit may."""
    seen: list[tuple[Function, Arrays, Arrays]] = []
    compiled = CompiledCpu("c")

    def cpu(function: Function, inputs: Arrays) -> tuple[np.ndarray, ...]:
        out = compiled(function, inputs)
        seen.append((function, inputs, out))
        return out

    network = VtaNetwork(packed(), cpu=cpu)
    plain = PlainResnet(resnet()[1])
    for image in nonempty(images(1, seed=2)):
        seen.clear()
        got = network.run({"data": image})
        (head, _, (first,)), (tail, (last,), (logits,)) = seen
        difference = np.abs(first.astype(int) - reference_cpu(head, [image])[0])
        assert difference.max() <= 1 and np.mean(difference) < 1e-3
        want = plain.run(unpacked(first))[-1]
        np.testing.assert_array_equal(unpacked(last), want)
        np.testing.assert_array_equal(got, logits)
        np.testing.assert_allclose(got, reference_cpu(tail, [last])[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(got, network.run({"data": image}))


def test_a_wrong_kernel_is_noticed() -> None:
    """The oracle of inference sees one wrong bit in one kernel."""
    image = images(1)[0]
    want = VtaNetwork(packed()).run({"data": image})
    for wrong_at in (0, 5, 26):
        count = itertools.count()

        def broken(kernel: MachineKernel, inputs: Arrays, count: Any = count, wrong_at: int = wrong_at) -> np.ndarray:
            out = run_kernel(kernel, inputs)
            if next(count) == wrong_at:
                out[np.unravel_index(np.argmax(out), out.shape)] ^= 64
            return out

        assert (VtaNetwork(packed(), broken).run({"data": image}) != want).any()


def test_wrong_arrays_are_refused() -> None:
    network = VtaNetwork(packed())
    image = images(1)[0]
    with pytest.raises(GraphError, match="the inputs are data"):
        network.run({"image": image})
    with pytest.raises(GraphError, match=r"input data: Tensor\[\(1, 3, 64, 64\), float32\] is needed"):
        network.run({"data": image.astype("float64")})
    kernel = next(iter(network.plan.kernels))
    good = [np.zeros(t.shape, t.dtype) for t in kernel.inputs]
    with pytest.raises(MachineError, match="the inputs must be"):
        run_kernel(kernel, [good[0], good[1][:1], good[2]])
    with pytest.raises(GraphError, match=r"^fused_nn_conv2d_packed.* is needed"):
        VtaNetwork(packed(), lambda kernel, inputs: np.zeros(kernel.output.shape, "int32")).run({"data": image})
