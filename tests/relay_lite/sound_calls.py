"""One sound call of every operator, to start from when something is to be made wrong."""

from __future__ import annotations

from typing import Any

import relay_lite as relay
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Call, Expr


def f(*shape: int) -> relay.Var:
    return relay.var("x", shape)


def i(*shape: int) -> relay.Var:
    return relay.var("i", shape, "int32")


def b(*shape: int) -> relay.Var:
    return relay.var("b", shape, "bool")


def u(*shape: int) -> relay.Var:
    return relay.var("u", shape, "uint32")


_UNARY = "exp log log2 log10 sqrt rsqrt erf sigmoid tanh sin cos tan sinh cosh atan floor ceil round trunc abs " \
         "asin acos asinh acosh atanh negative sign copy isnan nn.relu nn.leaky_relu zeros_like ones_like " \
         "nn.batch_flatten shape_of reverse " \
         "sum prod max min mean argmax argmin nn.softmax nn.log_softmax nn.l2_normalize nn.lrn nn.dropout " \
         "squeeze expand_dims transpose fast_tanh fast_erf"  # fmt: skip
_BINARY = "add subtract multiply divide floor_divide mod floor_mod power maximum minimum equal not_equal less " \
          "less_equal greater greater_equal"  # fmt: skip
_POOLS = ("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool")

SOUND: dict[str, tuple[tuple[Expr, ...], dict[str, Any]]] = {
    **{name: ((f(2, 3, 4),), {}) for name in _UNARY.split()},
    **{name: ((f(2, 3), f(3)), {}) for name in _BINARY.split()},
    **{name: ((i(2, 3), i(3)), {}) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    **{name: ((b(2, 3), b(3)), {}) for name in ("logical_and", "logical_or", "logical_xor")},
    **{name: ((b(2, 3),), {}) for name in ("logical_not", "all", "any")},
    **{f"nn.{p}{n}d": ((f(*(2, 3, 4, 5, 6)[: n + 2]),), {})
       for p in _POOLS for n in (1, 2, 3)},
    **{f"nn.conv{n}d": ((f(*(2, 3, 4, 5, 6)[: n + 2]), f(*(4, 3, 2, 3, 1)[: n + 2])), {}) for n in (1, 2, 3)},
    **{f"nn.conv{n}d_transpose": ((f(*(2, 3, 4, 5, 6)[: n + 2]), f(*(3, 4, 2, 3, 1)[: n + 2])), {}) for n in (1, 2, 3)},
    **{name: ((i(2, 3),), {"amount": 3}) for name in ("right_shift", "left_shift")},
    "qnn.quantize": ((f(2, 3), f(3), relay.var("z", (3,), "uint8")), {}),
    "qnn.dequantize": ((relay.var("q", (2, 3), "int8"), f(3), relay.var("z", (3,), "int8")), {}),
    "annotation.stop_fusion": ((f(2, 3),), {}),
    "nn.global_max_pool2d": ((f(2, 3, 4, 5),), {}),
    "nn.global_avg_pool2d": ((f(2, 3, 4, 5),), {}),
    "nn.contrib_conv2d_winograd_weight_transform": ((f(4, 3, 3, 3),), {}),
    "nn.contrib_conv2d_winograd_without_weight_transform": ((f(2, 5, 6, 3), f(6, 6, 4, 3)), {}),
    "nn.dense": ((f(2, 3), f(4, 3)), {}),
    "nn.matmul": ((f(2, 3), f(3, 3)), {}),
    "nn.batch_matmul": ((f(2, 3, 3), f(2, 3, 3)), {}),
    "nn.batch_norm": ((f(2, 3, 4), f(3), f(3), f(3), f(3)), {}),
    "nn.layer_norm": ((f(2, 4, 3), f(3), f(3)), {}),
    "nn.instance_norm": ((f(2, 3, 4), f(3), f(3)), {}),
    "nn.group_norm": ((f(2, 3, 4), f(3), f(3)), {"num_groups": 3}),
    "nn.bias_add": ((f(2, 3), f(3)), {}),
    "nn.prelu": ((f(2, 3), f(3)), {}),
    "nn.causal": ((f(2, 3, 4),), {"offset": 1}),
    "nn.pad": ((f(2, 3),), {"pad_width": ((1, 0), (0, 2))}),
    "nn.upsampling": ((f(1, 4, 3, 5),), {"scale_h": 2, "scale_w": 2}),
    "nn.depth_to_space": ((f(1, 4, 2, 6),), {"block_size": 2}),
    "nn.space_to_depth": ((f(1, 4, 2, 6),), {"block_size": 2}),
    "image.resize2d": ((f(1, 2, 3, 5),), {"size": (4, 7)}),
    "where": ((b(2, 3), f(3), f(2, 1)), {}),
    "clip": ((f(2, 3),), {"a_min": -0.5, "a_max": 0.5}),
    "cast": ((f(2, 3),), {"dtype": "int32"}),
    "zeros": ((), {"shape": (2, 3)}),
    "ones": ((), {"shape": (2, 3)}),
    "full": ((f(),), {"shape": (2, 3)}),
    "full_like": ((f(2, 3), f()), {}),
    "arange": ((), {"start": 1, "stop": 6, "step": 2}),
    "one_hot": ((i(2, 3), f(), f()), {"depth": 5}),
    "reshape": ((f(2, 3, 4),), {"newshape": (6, -1)}),
    "layout_transform": ((f(2, 3, 4, 5),), {"src_layout": "NCHW", "dst_layout": "NHWC"}),
    "broadcast_to": ((f(2, 1),), {"shape": (4, 2, 3)}),
    "concatenate": ((relay.Tuple((f(2, 3), f(4, 3))),), {}),
    "stack": ((relay.Tuple((f(2, 3), f(2, 3))),), {}),
    "split": ((f(4, 3),), {"indices_or_sections": (1, 3)}),
    "tile": ((f(2, 3),), {"reps": (2, 1, 2)}),
    "repeat": ((f(2, 3),), {"repeats": 2, "axis": 1}),
    "strided_slice": ((f(4, 5),), {"begin": (1, -1), "end": (4, 0), "strides": (2, -1)}),
    "take": ((f(4, 5), i(2)), {"axis": 1}),
    "gather": ((f(4, 5), i(4, 2)), {"axis": 1}),
    "gather_nd": ((f(9, 9, 2), i(2, 3)), {}),
    "variance": ((f(2, 3), f(1, 1)), {}),
    "moments": ((f(2, 3),), {"axis": (1,)}),
    "sort_with_positions": ((f(2, 3),), {"axis": 1}),
    "cumsum": ((f(2, 3),), {"axis": 1}),
    "cumprod": ((f(2, 3),), {"axis": 0}),
    "forest": ((f(3, 4), u(8), f(8), f(8, 2), b(2, 5), u(2, 5, 3)), {}),
}  # fmt: skip


def sound(name: str, **changed: Any) -> Call:
    """The sound call of an operator, with some attributes changed."""
    args, attrs = SOUND[name]
    return call(name, *args, **{**attrs, **changed})
