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
from .config import QConfig
from .fixed_point import LIMIT, Fixed, bias, check_range, from_float, to_float, to_int8, to_int32, weight

END = ("nn.global_avg_pool2d", "nn.dense")
"""Nothing is quantised from the first of these on."""


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
            made = self._fixed(node) if isinstance(node, Call) and not self.ended else None
            if made is not None:
                self.exact[node] = made
                continue
            self.float[node] = rebuild(node, [self._as_float(c) for c in children(node)])
            self.ended = self.ended or is_op(node, *END)
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
            case _:
                return None

    def _conv2d(self, node: Call) -> Fixed | None:
        self.convolutions += 1
        if self.convolutions - 1 in self.config.skip_conv_layers or node.dtype != "float32":
            return None
        data, kernel = node.args
        value, exponent = weight(_constant(kernel).value)
        left = self._as_int8(data)
        others = tuple(k for k, letter in enumerate(node.attrs["kernel_layout"]) if letter != "O")
        bound = LIMIT * int(np.abs(value.value.astype("int64")).sum(others).max())
        check_range(bound, "nn.conv2d")
        expr = Call(node.op, (left.expr, value), {**node.attrs, "out_dtype": "int32"})
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
