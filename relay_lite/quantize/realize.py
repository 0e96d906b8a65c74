"""The pass that turns the convolutions of a network, and what lies between them, from float32 into integers.

A walk in execution order keeps, for every node, either a float32 expression or a number of a fixed point.  Operators
that know integers pass them on; any other operator gets float32 back.  Every convolution reads int8 and gives int32;
between two of them the numbers go back to int8, and no kernel reaches across an int8 tensor (`stop_fusion`).
"""

from __future__ import annotations

import numpy as np

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Call, Constant, Expr, Function, children, rebuild
from ..ir.visit import is_op, post_order, with_body
from ..op.annotation import stop_fusion
from .config import QConfig
from .fixed_point import (
    LIMIT,
    Fixed,
    bias,
    check_range,
    from_float,
    mean,
    to_float,
    to_int8,
    to_int32,
    weight,
    weight_by_channel,
)  # fmt: skip

END = ("nn.global_avg_pool2d", "nn.dense")
"""Nothing is quantised from the first of these on, unless the settings say so."""


def realize(function: Function, config: QConfig) -> Function:
    """The function on integers.  Weights and biases must be constants.

    Raises GraphError for a weight that is none, and for scales so far apart that int32 cannot hold a sum.
    """
    return with_body(function, _Walk(config).run(function.body))


class _Walk:
    """What every node of the old graph became; both its forms are made once."""

    def __init__(self, config: QConfig) -> None:
        self.config = config
        self.exact: dict[Expr, Fixed] = {}
        self.int8: dict[Expr, Fixed] = {}
        self.float: dict[Expr, Expr] = {}
        self.convolutions = 0
        self.ended = False

    def run(self, body: Expr) -> Expr:
        for node in post_order(body):
            self.ended = self.ended or (is_op(node, *END) and self.config.skip_dense_layer)
            made = self._fixed(node) if isinstance(node, Call) and not self.ended else None
            if made is not None:
                self.exact[node] = made
                continue
            self.float[node] = rebuild(node, [self._as_float(c) for c in children(node)])
        return self._as_float(body)

    def _fixed(self, node: Call) -> Fixed | None:
        """The node on integers; None for one that stays in float32."""
        match node.op.name:
            case "nn.conv2d":
                return self._conv2d(node)
            case "add":
                return self._add(*node.args)
            case "nn.relu" if node.args[0] in self.exact:
                value = self.exact[node.args[0]]
                return Fixed(call("nn.relu", value.expr), value.exponent, value.bound)
            case "nn.max_pool2d" | "nn.batch_flatten" if node.args[0] in self.exact:
                value = self._as_int8(node.args[0])
                return Fixed(stop_fusion(Call(node.op, (value.expr,), node.attrs)), value.exponent, value.bound)
            case "nn.global_avg_pool2d" if node.args[0] in self.exact and node.attrs["layout"] == "NCHW":
                return mean(self._as_int8(node.args[0]), (2, 3))
            case "nn.dense" if node.args[0] in self.exact:
                return self._product(node, "OI")
            case _:
                return None

    def _conv2d(self, node: Call) -> Fixed | None:
        self.convolutions += 1
        if self.convolutions - 1 in self.config.skip_conv_layers or node.dtype != "float32":
            return None
        return self._product(node, node.attrs["kernel_layout"])

    def _product(self, node: Call, layout: str) -> Fixed:
        """A convolution or dense layer, int8 by int8; `layout` is that of its weight."""
        data, kernel = node.args
        left, values = self._as_int8(data), _constant(kernel).value
        if self.config.per_channel and layout[0] == "O":
            whole, exponents = weight_by_channel(values)
            constant, exponent = Constant(whole), int(exponents.min())
            factors = (1 << exponents - exponent).astype("int32")
        else:
            constant, exponent = weight(values)
            factors = np.ones(values.shape[layout.index("O")], "int32")
        others = tuple(k for k, letter in enumerate(layout) if letter != "O")
        bound = LIMIT * int((np.abs(constant.value.astype("int64")).sum(others) * factors).max())
        check_range(bound, node.op.name)
        expr: Expr = Call(node.op, (left.expr, constant), {**node.attrs, "out_dtype": "int32"})
        if (factors > 1).any():
            expr = call("multiply", expr, Constant(factors.reshape(-1, *[1] * (len(node.shape) - 2))))
        return Fixed(expr, left.exponent + exponent, bound)

    def _add(self, a: Expr, b: Expr) -> Fixed | None:
        if a not in self.exact and b not in self.exact:
            return None
        if isinstance(a, Constant) or isinstance(b, Constant):
            value, constant = (b, a) if isinstance(a, Constant) else (a, b)
            assert isinstance(constant, Constant)
            left = to_int32(self.exact[value])
            right = bias(constant.value, left.exponent)
            bound = left.bound + int(np.abs(right.value).max())
            check_range(bound, "bias")
            return Fixed(call("add", left.expr, right), left.exponent, bound)
        both = [to_int32(self._as_int8(x)) for x in (a, b)]
        return Fixed(call("add", both[0].expr, both[1].expr), both[0].exponent, both[0].bound + both[1].bound)

    def _as_int8(self, node: Expr) -> Fixed:
        if node not in self.int8:
            exponent = self.config.exponent
            exact = self.exact.get(node)
            self.int8[node] = from_float(self.float[node], exponent) if exact is None else to_int8(exact, exponent)
        return self.int8[node]

    def _as_float(self, node: Expr) -> Expr:
        if node not in self.float:
            self.float[node] = to_float(self._as_int8(node))
        return self.float[node]


def _constant(kernel: Expr) -> Constant:
    law = "the weight must be a constant; give the parameters to quantize"
    require(isinstance(kernel, Constant), GraphError, "quantize: nn.conv2d", law, weight=kernel)
    assert isinstance(kernel, Constant)
    return kernel
