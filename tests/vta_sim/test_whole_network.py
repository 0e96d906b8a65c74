"""Networks on integers from the first layer to the last: what is packed gives the same bits, by whomever it is run."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relay_lite as relay
import te_lite as te
from benchmarks.vta_processor import ARM, processor_ms
from relay_lite import reference
from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Call, Expr, Function
from relay_lite.ir.visit import free_vars, is_op, post_order
from relay_lite.quantize import fixed_point
from te_lite.errors import TeError
from vta_sim.core.kinds import AluOp
from vta_sim.graph.additions import with_addition
from vta_sim.graph.alu_operations import AluOperation
from vta_sim.graph.machine_kernel import MachineKernel
from vta_sim.graph.pack_whole import pack_whole
from vta_sim.graph.packed_layout import Blocks
from vta_sim.graph.split import CpuStep, VtaStep, split
from vta_sim.graph.tensors import kernel_tensors
from vta_sim.graph.whole_blocks import whole_blocks
from vta_sim.network.executor import VtaModule
from vta_sim.network.library import build, load_library
from vta_sim.network.vta_network import VtaNetwork, reference_cpu
from vta_sim.sketch.draft import Drafts

SIZE = 13
IMAGE = np.random.default_rng(7).standard_normal((1, 3, SIZE, SIZE)).astype("float32")


def small_network() -> Function:
    """A first layer of three colours, a pool, a residual unit, a depthwise layer, a mean and a dense layer."""
    rng = np.random.default_rng(5)

    def conv(x: Expr, out: int, kernel: int, stride: int = 1, groups: int = 1) -> Expr:
        shape = (out, x.shape[1] // groups, kernel, kernel)
        scales = np.exp(rng.normal(-1.0, 0.8, (out, 1, 1, 1)))
        weight = rng.normal(0, np.sqrt(2 / np.prod(shape[1:])), shape) * scales
        made = relay.nn.conv2d(x, relay.const(weight.astype("float32")), (stride, stride), kernel // 2, groups=groups)
        return relay.add(made, relay.const(rng.normal(0, 0.1, (out, 1, 1)).astype("float32")))

    data = relay.var("data", IMAGE.shape)
    x = relay.nn.max_pool2d(relay.nn.relu(conv(data, 16, 5, 2)), (3, 3), (2, 2), padding=(1, 1))
    x = relay.nn.relu(relay.add(x, conv(relay.nn.relu(conv(x, 16, 3)), 16, 3)))
    x = relay.nn.relu(conv(relay.nn.relu(conv(x, 16, 3, groups=16)), 32, 1))
    x = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(x))
    dense = relay.nn.dense(x, relay.const(rng.normal(0, 0.3, (10, 32)).astype("float32")))
    return Function((data,), relay.add(dense, relay.const(rng.normal(0, 0.1, (10,)).astype("float32"))))


@lru_cache
def quantized(per_channel: bool) -> Function:
    with relay.quantize.qconfig(8.0, None, skip_dense_layer=False, per_channel=per_channel):
        return relay.quantize.quantize(small_network())


@pytest.mark.parametrize("per_channel", [False, True])
def test_quantised_from_first_to_last_layer(per_channel: bool) -> None:
    """Near the network in floats, nearer with a scale for each channel; int8 weights, and floats at the ends alone."""
    want = reference.run(small_network(), [IMAGE])
    errors = {each: np.abs(reference.run(quantized(each), [IMAGE]) - want).max() for each in (False, True)}
    assert errors[per_channel] < 0.15 * np.abs(want).max() and errors[True] < errors[False]
    calls = [n for n in post_order(quantized(per_channel).body) if isinstance(n, Call)]
    products = [c for c in calls if c.op.name in ("nn.conv2d", "nn.dense")]
    assert len(products) == 6 and all((c.args[0].dtype, c.dtype) == ("int8", "int32") for c in products)
    assert [c.op.name for c in calls if c.dtype == "float32"] == ["multiply", "round", "clip", "cast", "multiply"]


def test_channels_keep_units_that_one_sum_can_hold() -> None:
    values = np.array([[100.0], [1.0], [1e-9], [0.0]])
    whole, exponents = fixed_point.weight_by_channel(values)
    assert exponents.tolist() == [0, -6, -6, -6] and whole.tolist() == [[100], [64], [0], [0]]


def test_a_mean_is_near_and_fits() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(-127, 128, (1, 4, 7, 7)).astype("int8")
    made = fixed_point.to_int8(
        fixed_point.mean(fixed_point.Fixed(relay.var("x", x.shape, "int8"), -4, 127), (2, 3)), -4
    )
    got = reference.run(Function(tuple(free_vars(made.expr)), made.expr), [x])
    assert np.abs(got - x.mean((2, 3), keepdims=True)).max() < 0.6
    wide = fixed_point.Fixed(relay.var("x", (1, 1, 300, 300), "int8"), -4, 127)
    assert fixed_point.mean(wide, (2, 3)).bound == 127 * 300 * 300 * round(2**15 / 90_000)


@pytest.mark.parametrize("per_channel", [False, True])
def test_packed_wherever_the_machine_can(per_channel: bool) -> None:
    """Bit for bit; products, the addition, the pool and the mean leave the processor."""
    network = VtaNetwork(pack_whole(quantized(per_channel), Blocks(1, 16)))
    want = reference.run(quantized(per_channel), [IMAGE])
    np.testing.assert_array_equal(network.run({"data": IMAGE}), want)
    kernels = list(network.plan.kernels)
    assert [k.grouped for k in kernels].index(True) == 4 and [k.windows for k in kernels] == [
        k in (1, 6) for k in range(8)
    ]
    adds = [k for k in kernels if k.extras[-1:] == (k.output,)]
    assert len(adds) == 1 and AluOperation(AluOp.MAX, -127) not in adds[0].operations
    assert [type(s) for s in network.plan.steps] == [CpuStep, *[VtaStep] * 8, CpuStep]


@pytest.mark.parametrize(("kernel", "stride", "pad", "size"), [(7, 2, 3, 14), (3, 2, 1, 9), (4, 2, 0, 7), (3, 1, 1, 6)])
def test_blocks_are_filled(kernel: int, stride: int, pad: int, size: int) -> None:
    """The same numbers; at stride 2 four pixels become channels and there are fewer taps."""
    rng = np.random.default_rng(kernel)
    x = relay.var("x", (1, 3, size, size), "int8")
    weight = rng.integers(-127, 128, (16, 3, kernel, kernel)).astype("int8")
    conv = relay.nn.conv2d(x, relay.const(weight), (stride, stride), pad, out_dtype="int32")
    made = whole_blocks(Function((x,), conv), 16)
    data = rng.integers(-128, 128, x.shape).astype("int8")
    np.testing.assert_array_equal(reference.run(made, [data]), reference.run(Function((x,), conv), [data]))
    body = made.body
    assert isinstance(body, Call) and body.args[0].shape[1] == 16
    assert body.args[1].shape[2] == (-(-kernel // 2) if stride == 2 else kernel)


def test_only_what_stays_the_same_is_done_with_a_convolution() -> None:
    unit = residual_unit()
    kernels = list(split(Function(unit.params, unit.body, {"device_annot": True})).kernels)
    conv, then = kernels[1:]
    assert isinstance(with_addition(conv, then, (-127, 127)), MachineKernel)
    assert with_addition(conv, then, (-127, 128)) is None and with_addition(conv, then, None) is None
    assert with_addition(then, then, (-127, 127)) is None and with_addition(conv, conv, (-127, 127)) is None


def residual_unit() -> Function:
    """Two convolutions and an addition of what is between them, packed."""
    rng = np.random.default_rng(3)
    x = relay.var("x", (1, 16, 4, 4), "int8")

    def int8(e: Expr, low: float) -> Expr:
        e = call("cast", call("clip", e, a_min=low, a_max=127.0), dtype="int8")
        return call("annotation.stop_fusion", e)

    def conv(e: Expr) -> Expr:
        weight = relay.const(rng.integers(-9, 9, (16, 16, 3, 3)).astype("int8"))
        return relay.right_shift(relay.nn.conv2d(e, weight, padding=1, out_dtype="int32"), 4)

    first = int8(conv(x), 0.0)
    both = relay.add(call("cast", first, dtype="int32"), call("cast", int8(conv(first), -127.0), dtype="int32"))
    body = call("cast", int8(relay.nn.relu(both), -127.0), dtype="float32")
    return pack_whole(Function((x,), body), Blocks(1, 16))


def test_kernels_that_follow_each_other_are_one_program() -> None:
    """Without a race, the same bits, and a launch less for each kernel but the first."""
    graph, x = residual_unit(), np.random.default_rng(4).integers(-128, 128, (1, 16, 4, 4)).astype("int8")
    module = VtaModule(graph, chained=True)
    module.network.cpu = reference_cpu
    module.kernels.device.finds_races = True
    module.run(x=x)
    got, together = module.get_output().numpy(), module.vta_seconds()
    np.testing.assert_array_equal(got, VtaNetwork(graph).run({"x": x}))
    assert len(module.chains.launches) == 1 and len(module.network.plan.kernels) == 2
    module.network.run_steps = None
    module.run(x=x)
    np.testing.assert_array_equal(module.get_output().numpy(), got)
    assert 0.9e-4 < module.vta_seconds() - together < 1.1e-4


def test_programs_of_sketches_are_exported(tmp_path: Path) -> None:
    """A library keeps the steps of every kernel, and that there is one launch."""
    unit, file = residual_unit(), tmp_path / "unit.tar"
    x = np.random.default_rng(4).integers(-128, 128, (1, 16, 4, 4)).astype("int8")
    with Drafts():
        built = build(unit, chained=True)
    assert len(built.programs) == 2 and build(unit).programs == {}
    built.export_library(file)
    again = load_library(file)
    assert (again.programs, again.chained) == (built.programs, True)
    module = again.on()
    module.network.cpu = reference_cpu
    module.run(x=x)
    np.testing.assert_array_equal(module.get_output().numpy(), VtaNetwork(unit).run({"x": x}))
    (chain,), kernel = module.chains.launches, next(iter(module.network.plan.kernels))
    key = te.ComputeDAG(kernel_tensors(kernel)).workload_key()
    other = replace(built, programs={key: built.programs[key][:-1]})
    with pytest.raises(TeError):
        other.on()
    assert chain.timing().cycles < 20_000
    file.write_bytes(file.read_bytes().replace(b'"chained": true', b'"left": [0]    '))
    with pytest.raises(GraphError, match=r"no longer left to the processor, build it again, got \[0\]"):
        load_library(file)


def test_cycles_of_the_processor() -> None:
    """Two operations a product, one a number; bytes of what comes in and goes out of a group."""
    x = relay.var("x", (1, 8, 6, 6), "float32")
    weight = relay.const(np.zeros((4, 8, 3, 3), "float32"))
    conv = relay.nn.relu(relay.nn.conv2d(x, weight, padding=1))
    outputs, numbers = 4 * 36, 8 * 36 + 4 * 8 * 9 + 4 * 36
    assert ARM.function_cycles(Function((x,), conv)) == 2 * outputs * 72 + outputs + 2 * 4 * numbers
    assert 0 < processor_ms(split(pack_whole(quantized(True), Blocks(1, 16)))) < 0.1


@pytest.mark.parametrize("kind", ["max", "sum"])
def test_windows_in_three_forms(kind: str) -> None:
    """The packed operator, its tensors and its kernel are what plain numbers say."""
    rng = np.random.default_rng(8)
    data = rng.integers(-128, 40, (2, 3, 7, 6, 1, 4)).astype("int8")
    attrs: dict[str, Any] = {"kind": kind, "size": (3, 2), "strides": (2, 1), "padding": (1, 0)}
    padded = np.pad(data.astype("int64"), ((0, 0), (0, 0), (1, 1), (0, 0), (0, 0), (0, 0)))
    want = np.zeros((2, 3, 4, 5, 1, 4), "int64")
    for i, j in np.ndindex(4, 5):
        pixels = padded[:, :, 2 * i : 2 * i + 3, j : j + 2]
        want[:, :, i, j] = pixels.sum((2, 3)) if kind == "sum" else pixels.max((2, 3))
    x = relay.var("x", data.shape, "int8")
    op = call("nn.window_packed", x, **attrs)
    np.testing.assert_array_equal(reference.run(Function((x,), op), [data]), want)
    source = te.placeholder(data.shape, "int8", "x")
    assert op.op.compute is not None
    (tensor,) = op.op.compute([source], op.attrs, "c")
    np.testing.assert_array_equal(te.meaning.reference.evaluate([source, tensor], {source: data})[tensor], want)


def test_a_pool_of_negative_numbers_stays() -> None:
    """Zeros around an image are its padding only where no number is below them."""
    x = relay.var("x", (1, 16, 6, 6), "int8")
    weight = relay.const(np.ones((16, 16, 1, 1), "int8"))
    for packs in (True, False):
        conv = relay.nn.conv2d(x, weight, out_dtype="int32")
        conv = relay.nn.relu(conv) if packs else conv
        body = call("cast", call("clip", relay.right_shift(conv, 4), a_min=-127.0, a_max=127.0), dtype="int8")
        pool = relay.nn.max_pool2d(call("annotation.stop_fusion", body), (3, 3), (2, 2), padding=(1, 1))
        function = Function((x,), call("cast", call("annotation.stop_fusion", pool), dtype="float32"))
        packed = pack_whole(function, Blocks(1, 16))
        data = np.random.default_rng(1).integers(-128, 128, x.shape).astype("int8")
        np.testing.assert_array_equal(reference.run(packed, [data]), reference.run(function, [data]))
        assert any(is_op(n, "nn.window_packed") for n in post_order(packed.body)) == packs


def test_what_has_no_packed_form_is_refused() -> None:
    x = relay.var("x", (1, 32, 4, 4), "int8")
    weight = relay.const(np.ones((32, 2, 1, 1), "int8"))
    for groups, dilation in ((16, 1), (1, 2)):
        shape = weight if groups > 1 else relay.const(np.ones((32, 32, 2, 2), "int8"))
        conv = relay.nn.conv2d(x, shape, dilation=(dilation,) * 2, groups=groups, out_dtype="int32")
        with pytest.raises(GraphError, match="no packed form"):
            pack_whole(Function((x,), conv), Blocks(1, 16))
