"""Calls carry TVM's names, defaults and patterns; Python's signs stand for operators; graphs print readably."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relay_lite as relay
import tests.relay_lite.op_case as op_case
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Constant, as_expr, const
from relay_lite.ir.op_registry import OPS, Op, OpPattern
from tests.nonempty import nonempty
from tests.relay_lite.sound_calls import SOUND, f, sound

PATTERNS = {
    OpPattern.ELEMWISE: "nn.relu nn.leaky_relu clip exp log sqrt rsqrt tanh sigmoid erf negative abs floor ceil round "
                        "trunc sign cast copy zeros ones full zeros_like ones_like full_like",
    OpPattern.BROADCAST: "add subtract multiply divide floor_divide mod power maximum minimum equal less logical_and "
                         "nn.bias_add nn.prelu where expand_dims broadcast_to repeat tile",
    OpPattern.INJECTIVE: "reshape nn.batch_flatten transpose concatenate stack split strided_slice take gather "
                         "gather_nd squeeze reverse nn.pad layout_transform nn.upsampling image.resize2d "
                         "nn.depth_to_space nn.space_to_depth",
    OpPattern.COMM_REDUCE: "sum mean variance max min prod all any argmax argmin",
    OpPattern.OUT_ELEMWISE_FUSABLE: "nn.conv1d nn.conv2d nn.conv3d nn.conv2d_transpose nn.dense nn.matmul "
                                    "nn.batch_matmul nn.max_pool2d nn.avg_pool2d nn.global_avg_pool2d "
                                    "nn.adaptive_avg_pool2d nn.softmax nn.log_softmax nn.batch_norm one_hot "
                                    "nn.contrib_conv2d_winograd_without_weight_transform",
    OpPattern.OPAQUE: "nn.dropout nn.lrn arange shape_of",
}  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_patterns(pattern: OpPattern) -> None:
    for name in nonempty(PATTERNS[pattern].split()):
        assert OPS[name].pattern == pattern, name


def test_defaults_are_those_of_tvm() -> None:
    conv = relay.nn.conv2d(f(1, 3, 8, 8), f(4, 3, 3, 3))
    assert dict(conv.attrs) == {
        "strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1, "channels": None,
        "kernel_size": None, "data_layout": "NCHW", "kernel_layout": "OIHW", "out_layout": "", "out_dtype": "",
    }  # fmt: skip
    assert relay.nn.avg_pool2d(f(1, 3, 8, 8)).attrs["count_include_pad"] is False
    assert relay.nn.max_pool2d(f(1, 3, 8, 8), (3, 3), (2, 2), padding=(1, 2)).attrs["padding"] == (1, 2, 1, 2)
    assert relay.nn.batch_matmul(f(1, 2, 3), f(1, 4, 3)).attrs["transpose_b"] is True
    assert relay.nn.softmax(f(1, 2)).attrs["axis"] == -1
    norm = relay.nn.batch_norm(f(1, 3, 2, 2), f(3), f(3), f(3), f(3))
    assert (norm.attrs["axis"], norm.attrs["epsilon"]) == (1, 1e-5)


@pytest.mark.parametrize("name", sorted(SOUND))
def test_calls_keep_all_attributes_as_values_that_compare(name: str) -> None:
    made = sound(name)
    assert set(made.attrs) == set(made.op.defaults)
    assert {k: v for k, v in made.attrs.items() if isinstance(v, list | np.ndarray)} == {}
    assert hash(tuple(made.attrs.values())) == hash(tuple(sound(name).attrs.values()))


def test_fields_of_tuples() -> None:
    out, mean, var = relay.nn.batch_norm(f(1, 3, 2, 2), f(3), f(3), f(3), f(3))
    assert (out.shape, mean.shape, var.shape) == ((1, 3, 2, 2), (3,), (3,))
    assert relay.split(f(4, 2), 2)[1].shape == (2, 2)
    assert relay.Tuple([f(2), f(3)])[0].shape == (2,)
    with pytest.raises(relay.GraphError, match="only a tuple can be taken apart"):
        list(f(2))


def test_constants() -> None:
    assert (const(1.5).dtype, const(2).dtype, const(True).dtype, const([1, 2]).dtype) == (
        "float32", "int32", "bool", "int32"
    )  # fmt: skip
    assert const(np.float64(2)).dtype == "float64" and const(np.arange(3)).dtype == "int64"
    assert const([1, 2], "float16").dtype == "float16"
    assert as_expr(1, f(2)).dtype == "float32"
    array = np.ones(3, "float32")
    kept = const(array)
    array[:] = 2
    np.testing.assert_array_equal(kept.value, np.ones(3))
    with pytest.raises(ValueError):
        kept.value[0] = 5


def test_numbers_keep_their_value() -> None:
    """A number beside a tensor of integers does not become another number."""
    assert const(2**40, "int64").value == 2**40
    with pytest.raises(relay.GraphError, match="an integer that is no int32 needs a dtype, got 1099511627776"):
        const(2**40)
    whole, small = relay.var("x", (3,), "int32"), relay.var("y", (3,), "uint8")
    assert (whole * 2.0).args[1].value == 2 and (small + 255).args[1].value == 255
    for wrong in (lambda: whole * 0.5, lambda: small + 300, lambda: small - -1, lambda: relay.maximum(whole, 2**31)):
        with pytest.raises(relay.GraphError, match=r"a number of dtype u?int[0-9]+ is needed"):
            wrong()


# --------------------------------------------------------------------------------------------- printing


def test_text_of_a_graph() -> None:
    x, w = relay.var("x", (1, 3, 8, 8)), relay.var("w", (4, 3, 3, 3))
    y = relay.nn.relu(relay.nn.conv2d(x, w, padding=1)) + 1.0
    half, _ = relay.split(y, 2, axis=1)
    out = relay.Function([x, w], relay.Tuple((half, relay.const(np.zeros(2, "float32")))))
    assert relay.as_text(out).splitlines() == [
        "fn (%x: Tensor[(1, 3, 8, 8), float32], %w: Tensor[(4, 3, 3, 3), float32]) {",
        "  %0 = nn.conv2d(%x, %w, padding=(1, 1, 1, 1))   // Tensor[(1, 4, 8, 8), float32]",
        "  %1 = nn.relu(%0)   // Tensor[(1, 4, 8, 8), float32]",
        "  %2 = add(%1, 1.0f)   // Tensor[(1, 4, 8, 8), float32]",
        "  %3 = split(%2, indices_or_sections=2, axis=1)   "
        "// (Tensor[(1, 2, 8, 8), float32], Tensor[(1, 2, 8, 8), float32])",
        "  (%3.0, const(Tensor[(2,), float32]))",
        "}",
    ]
    assert relay.as_text(y) in relay.as_text(relay.IRModule.from_expr(y)).replace("def @main", "fn ")


def test_text_of_fused_functions() -> None:
    a = relay.var("p0", (2,))
    inner = relay.Function([a], relay.exp(a), {"primitive": True, "name": "fused_exp"})
    x = relay.var("x", (2,))
    first = relay.FunctionCall(inner, (x,))
    text = relay.as_text(relay.Function([x], relay.FunctionCall(inner, (first,))))
    assert text.count("def @fused_exp(") == 1 and text.count("= @fused_exp(") == 2


# ------------------------------------------------------------------------------------- the check itself


def broken(name: str, **parts: Any) -> relay.Call:
    """The sound call of an operator one of whose parts is wrong."""
    op = OPS[name]
    wrong = Op(op.name, op.pattern, op.infer, op.numpy, op.compute, op.defaults)
    for part, value in parts.items():
        object.__setattr__(wrong, part, value)
    args, attrs = SOUND[name]
    return relay.Call(wrong, args, attrs)


def test_the_check_of_operators_bites() -> None:
    add = OPS["add"]
    assert add.compute is not None
    op_case.check(broken("add"))
    with pytest.raises(AssertionError):
        op_case.check(broken("add", infer=lambda types, attrs: relay.TensorType((2, 4))))
    with pytest.raises(AssertionError):
        op_case.check(broken("add", numpy=lambda args, attrs: args[0] + args[1] * args[0].dtype.type(1.0001)))
    with pytest.raises(AssertionError):
        op_case.check(broken("add", numpy=lambda args, attrs: (args[0] + args[1]).astype("float64")))
    with pytest.raises(AssertionError):
        op_case.check(broken("add", compute=OPS["subtract"].compute))
    assert call("add", f(2), f(2)).op is add


@pytest.mark.parametrize("shape", [(6,), (2, 3), ()])
def test_a_constant_copies_what_somebody_may_write(shape: tuple[int, ...]) -> None:
    """An array that nobody can write is used as it is; a read-only view of another is not that."""
    given = np.arange(6.0)[: max(1, 6 * len(shape))].copy()
    view = given[:6].reshape(shape) if shape else given[:1].reshape(())
    view.setflags(write=False)
    copied = Constant(view)
    given[:] = 7
    assert not np.shares_memory(copied.value, given) and (copied.value != 7).all()
    given.setflags(write=False)
    assert Constant(given).value is given and Constant(view).value is view
    assert Constant(np.asfortranarray(np.ones((2, 3)))).value.flags.c_contiguous
