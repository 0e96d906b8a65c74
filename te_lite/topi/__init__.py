"""The operator library: names, arguments, stages and formulas of TVM's `topi`, which users and graphs rely on."""

from . import benchmarks, cpp, cuda, image, nn, operators, tag, testing, utils
from .broadcast import (
    add,
    broadcast_to,
    divide,
    equal,
    floor_divide,
    floor_mod,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_not,
    logical_xor,
    maximum,
    minimum,
    mod,
    multiply,
    not_equal,
    power,
    subtract,
    where,
)
from .broadcast import logical_and_ as logical_and
from .broadcast import logical_or_ as logical_or
from .elementwise import (
    abs,
    atan,
    cast,
    ceil,
    clip,
    cos,
    cosh,
    elemwise_sum,
    erf,
    exp,
    exp2,
    floor,
    full,
    full_like,
    identity,
    isnan,
    log,
    log2,
    log10,
    negative,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
)
from .reduction import all, any, argmax, argmin, max, min, prod, sum
from .transform import (
    arange,
    concatenate,
    expand_dims,
    flip,
    gather,
    one_hot,
    repeat,
    reshape,
    split,
    squeeze,
    stack,
    strided_slice,
    take,
    tile,
    transpose,
)
from .utils import get_const_int, get_const_tuple, simplify, traverse_inline

operators.install()

__all__ = [
    "abs", "add", "all", "any", "arange", "argmax", "argmin", "atan", "benchmarks", "broadcast_to", "cast", "ceil",
    "clip", "concatenate", "cos", "cosh", "cpp", "cuda", "divide", "elemwise_sum", "equal", "erf", "exp", "exp2",
    "expand_dims", "flip", "floor", "floor_divide", "floor_mod", "full", "full_like", "gather", "get_const_int",
    "get_const_tuple", "greater", "greater_equal", "identity", "image", "isnan", "less", "less_equal", "log", "log10",
    "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "max", "maximum", "min", "minimum", "mod",
    "multiply", "negative", "nn", "not_equal", "one_hot", "operators", "power", "prod", "repeat", "reshape", "round",
    "rsqrt", "sigmoid", "sign", "simplify", "sin", "sinh", "split", "sqrt", "squeeze", "stack", "strided_slice",
    "subtract", "sum", "tag", "take", "tan", "tanh", "testing", "tile", "transpose", "traverse_inline", "trunc",
    "utils", "where",
]  # fmt: skip
