"""Arithmetic, comparisons, logic and casts; the program says the dtype of every result, so operands are cast to it."""

from __future__ import annotations

import numpy as np

from te_lite.expr.dtype import promote
from te_lite.expr.expr import FLOATS

from ...ir.nodes import Expr
from ..onnx.elementwise import clip_to, converted
from ..onnx.emit import add, binary, call, const, div, maximum, minimum, mul, sub
from .node import Aten, Converter, Converters, number_as


def unary(name: str) -> Converter:
    """An operator of one tensor that the graph knows by `name`; integers become floats where the result is one."""
    return lambda node: call(name, node.operand("self", node.wide))


def two(name: str) -> Converter:
    """A broadcasting operator of two operands that the graph knows by `name`."""
    return lambda node: binary(name, node.operand("self", node.wide), node.operand("other", node.wide))


def scaled(name: str, reversed_operands: bool = False) -> Converter:
    """self + alpha other, or the same with another sign."""

    def convert(node: Aten) -> Expr:
        x, other = node.operand("self", node.wide), node.operand("other", node.wide)
        alpha, (x, other) = node.number("alpha", 1), (other, x) if reversed_operands else (x, other)
        return binary(name, x, other if alpha == 1 else mul(other, number_as(alpha, node.wide)))

    return convert


def factors(node: Aten) -> tuple[Expr, Expr]:
    """The operands of a product or quotient: beside small floats a number is one of float32."""
    given = [node.argument(k) for k in ("self", "other")]
    number = any(not isinstance(e, Expr) or not e.shape for e in given)
    dtype = "float32" if number and node.dtype == "float16" else node.wide
    return node.factor("self", dtype), node.factor("other", dtype)


def divide(node: Aten) -> Expr:
    """div: true division, or rounded towards zero or downwards."""
    a, b = factors(node)
    mode = node.argument("rounding_mode")
    node.require(mode in (None, "trunc", "floor"), "rounding_mode must be trunc or floor", rounding_mode=mode)
    if mode is None:
        return div(a, b) if node.dtype == node.wide == a.dtype else binary("divide", a, b)
    if node.wide not in FLOATS:
        return binary("divide" if mode == "trunc" else "floor_divide", a, b)
    return binary("floor_divide", a, b) if mode == "floor" else call("trunc", binary("divide", a, b))


def remainder(node: Aten) -> Expr:
    """remainder: what is left of a division that rounds downwards, so it has the sign of the divisor."""
    a, b = node.operand("self", node.wide), node.operand("other", node.wide)
    if node.wide not in FLOATS:
        return binary("floor_mod", a, b)
    left = binary("mod", a, b)
    zero = const(0, node.wide)
    other_sign = call("not_equal", binary("less", left, zero), binary("less", b, zero))
    moves = call("logical_and", other_sign, binary("not_equal", left, zero))
    return call("where", moves, add(left, b), left)


def power(node: Aten) -> Expr:
    """pow: roots and small powers of constants become products; 0.5 and -0.5 are roots also of -inf and -0."""
    x, exponent = node.operand("self", node.wide), node.operand("exponent", node.wide)
    known = node.argument("exponent")
    if known in (0.5, -0.5) and node.wide in FLOATS:
        return call("sqrt" if known > 0 else "rsqrt", x)
    if known == -1 and node.wide in FLOATS:
        return div(1.0, x)
    return node.onnx("Pow", x, exponent)[0]


def compared(name: str) -> Converter:
    """A comparison, in the dtype that has the values of both operands; a number takes that of the tensor."""

    def convert(node: Aten) -> Expr:
        common = _common(node.argument("self"), node.argument("other"))
        return binary(name, node.operand("self", common), node.operand("other", common))

    return convert


def _common(a: object, b: object) -> str:
    """What two operands are compared in: one without axes counts only by its kind."""
    tensors = [e for e in (a, b) if isinstance(e, Expr)]
    strong = [e.dtype for e in tensors if e.shape] or [e.dtype for e in tensors]
    common = strong[0] if len(strong) == 1 else "int16" if set(strong) == {"int8", "uint8"} else promote(*strong)
    weak = [e.dtype for e in tensors if not e.shape] + [
        {bool: "bool", int: "int64", float: "float32"}[type(v)] for v in (a, b) if not isinstance(v, Expr)
    ]
    ranks = [_rank(d) for d in weak]
    return max(weak, key=_rank) if max(ranks, default=0) > _rank(common) else common


def _rank(dtype: str) -> int:
    return 2 if dtype in FLOATS else 0 if dtype == "bool" else 1


def bits(name: str) -> Converter:
    """A bitwise operator; on bools it is one of logic."""

    def convert(node: Aten) -> Expr:
        found = f"logical_{name}" if node.dtype == "bool" else f"bitwise_{name}"
        return binary(found, node.operand("self", node.dtype), node.operand("other", node.dtype))

    return convert


def logic(name: str) -> Converter:
    """An operator of logic; numbers hold unless they are 0."""
    return lambda node: call(f"logical_{name}", truth(node.tensor("self")), truth(node.tensor("other")))


def truth(x: Expr) -> Expr:
    """Whether numbers are not 0."""
    return converted(x, "bool", saturate=False)


def bitwise_not(node: Aten) -> Expr:
    """bitwise_not: of integers -1 - x."""
    x = node.tensor("self")
    return call("logical_not", x) if x.dtype == "bool" else sub(number_as(-1, x.dtype), x)


def where(node: Aten) -> Expr:
    """where: `self` where the condition holds, else `other`."""
    condition = truth(node.tensor("condition"))
    return call("where", condition, node.operand("self", node.wide), node.operand("other", node.wide))


def clamp(node: Aten) -> Expr:
    """clamp: into bounds that are numbers or tensors, of which either may be absent."""
    x, low, high = node.operand("self", node.wide), node.argument("min"), node.argument("max")
    if not isinstance(low, Expr) and not isinstance(high, Expr):
        return clip_to(x, low, high)
    x = x if low is None else maximum(x, node.operand("min", node.wide))
    return x if high is None else minimum(x, node.operand("max", node.wide))


def is_nan(node: Aten) -> Expr:
    """isnan: never of integers."""
    x = node.tensor("self")
    return call("isnan", x) if x.dtype in FLOATS else const(np.zeros(x.shape), "bool")


def sign(node: Aten) -> Expr:
    """sign: of NaN it is 0."""
    x = node.operand("self", node.wide)
    found = call("sign", x)
    return call("where", call("isnan", x), const(0, x.dtype), found) if x.dtype in FLOATS else found


def is_infinite(node: Aten) -> Expr:
    """isinf: never of integers."""
    x = node.tensor("self")
    return binary("equal", call("abs", x), np.inf) if x.dtype in FLOATS else const(np.zeros(x.shape), "bool")


def log1p(node: Aten) -> Expr:
    """log1p: log(u) x / (u - 1) of u = 1 + x, in which the rounding of u cancels (Kahan)."""
    x = node.operand("self", node.wide)
    u = add(x, 1)
    less = sub(u, 1)
    inside = call("logical_and", binary("not_equal", less, 0), binary("less", call("abs", x), 1))
    ratio = binary("divide", x, call("where", inside, less, const(1, node.wide)))
    small = call("where", binary("equal", less, 0), x, call("log", u))
    return call("where", inside, mul(call("log", u), ratio), small)


def expm1(node: Aten) -> Expr:
    """expm1: (u - 1) x / log(u) of u = exp(x) near 0, in which the rounding of u cancels (Kahan)."""
    x = node.operand("self", node.wide)
    u = call("exp", x)
    less = sub(u, 1)
    near = call("logical_and", binary("less", call("abs", x), 0.5), binary("not_equal", less, 0))
    ratio = binary("divide", x, call("log", call("where", near, u, const(2, node.wide))))
    far = call("where", binary("equal", less, 0), x, less)
    return call("where", near, mul(less, ratio), far)


def to_dtype(argument: str) -> Converter:
    """The dtype of the result: integers are rounded towards zero, bools are whether a number is not 0."""

    def convert(node: Aten) -> Expr:
        node.argument("dtype")
        return converted(node.tensor(argument), node.dtype, saturate=False)

    return convert


def copy(node: Aten) -> Expr:
    """copy: the values of `src` in the shape and dtype of `self`."""
    node.tensor("self")
    x = converted(node.tensor("src"), node.dtype, saturate=False)
    return x if x.shape == node.shape else call("broadcast_to", x, shape=node.shape)


UNARY = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "floor", "log",
    "log10", "log2", "round", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
COMPARED = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}

CONVERTERS: Converters = {
    **{f"aten.{name}": unary(name) for name in UNARY},
    "aten.neg": unary("negative"),
    "aten.reciprocal": lambda node: div(1.0, node.operand("self", node.wide)),
    "aten.square": lambda node: mul(*(2 * [node.operand("self", node.wide)])),
    **{f"aten.add.{o}": scaled("add") for o in ("Tensor", "Scalar")},
    **{f"aten.sub.{o}": scaled("subtract") for o in ("Tensor", "Scalar")},
    **{f"aten.rsub.{o}": scaled("subtract", reversed_operands=True) for o in ("Tensor", "Scalar")},
    **{f"aten.mul.{o}": lambda node: binary("multiply", *factors(node)) for o in ("Tensor", "Scalar")},
    **{f"aten.div.{o}": divide for o in ("Tensor", "Scalar", "Tensor_mode", "Scalar_mode")},
    **{f"aten.remainder.{o}": remainder for o in ("Tensor", "Scalar")},
    **{f"aten.fmod.{o}": two("mod") for o in ("Tensor", "Scalar")},
    **{f"aten.pow.{o}": power for o in ("Tensor_Tensor", "Tensor_Scalar", "Scalar")},
    "aten.maximum": two("maximum"),
    "aten.minimum": two("minimum"),
    **{f"aten.{op}.{o}": compared(name) for op, name in COMPARED.items() for o in ("Tensor", "Scalar")},
    **{f"aten.bitwise_{name}.{o}": bits(name) for name in ("and", "or", "xor") for o in ("Tensor", "Scalar")},
    **{f"aten.logical_{name}": logic(name) for name in ("and", "or", "xor")},
    "aten.logical_not": lambda node: call("logical_not", truth(node.tensor("self"))),
    "aten.bitwise_not": bitwise_not,
    "aten.where.self": where,
    "aten.clamp": clamp,
    "aten.clamp.Tensor": clamp,
    "aten.sign": sign,
    "aten.isnan": is_nan,
    "aten.isinf": is_infinite,
    "aten.log1p": log1p,
    "aten.expm1": expm1,
    "aten._to_copy": to_dtype("self"),
    "prims.convert_element_type": to_dtype("a"),
    "aten.copy": copy,
    **{f"aten.{name}": lambda node: node.tensor("self") for name in ("clone", "alias", "detach", "lift_fresh_copy")},
}
