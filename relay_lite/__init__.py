"""relay_lite: whole networks, from a model to a tuned executable.

The names are those of TVM's `relay`; `target`, `device` and `nd` are there too, so that it can stand for `tvm` as well.
"""

from ansor import cpu, device, gpu
from ansor.core.device import nd
from ansor.core.target import target

from . import frontend, ir, quantize, testing, transform
from .compiler.build import build
from .compiler.optimize import optimize
from .ir import reference
from .ir.errors import GraphError
from .ir.make import var
from .ir.module import IRModule, bind_params
from .ir.nodes import Call, Constant, Expr, Function, FunctionCall, Tuple, TupleGetItem, Var, const
from .ir.param_dict import load_param_dict, save_param_dict
from .ir.text import as_text
from .ir.types import TensorType, TupleType
from .ir.visit import free_vars, post_order
from .op import image, nn
from .op.binary import (
    add,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    divide,
    equal,
    floor_divide,
    floor_mod,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_or,
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
from .op.create import arange, full, full_like, one_hot, ones, ones_like, zeros, zeros_like
from .op.elementwise import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    cast,
    ceil,
    clip,
    copy,
    cos,
    cosh,
    erf,
    exp,
    floor,
    isnan,
    log,
    log2,
    log10,
    logical_not,
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
from .op.forest import forest
from .op.join import concatenate, repeat, split, stack, tile
from .op.order import argsort, cumprod, cumsum, sort, sort_with_positions, topk
from .op.pick import gather, gather_nd, reverse, strided_slice, take
from .op.reduce import all, any, argmax, argmin, max, mean, mean_variance, min, prod, std, sum, variance
from .op.shape import broadcast_to, expand_dims, layout_transform, reshape, shape_of, squeeze, transpose
from .op.shift import left_shift, right_shift
from .runtime import graph_executor
from .runtime.library import load
from .tuning import tune_network

__all__ = [
    "Call", "Constant", "Expr", "Function", "FunctionCall", "GraphError", "IRModule", "TensorType", "Tuple",
    "TupleGetItem", "TupleType", "Var", "abs", "acos", "acosh", "add", "all", "any", "arange", "argmax", "argmin",
    "argsort", "as_text", "asin", "asinh", "atan", "atanh", "bind_params", "bitwise_and", "bitwise_or",
    "bitwise_xor", "broadcast_to", "build", "cast", "ceil", "clip", "concatenate", "const", "copy", "cos", "cosh",
    "cpu", "cumprod", "cumsum", "device", "divide", "equal", "erf", "exp", "expand_dims", "floor", "floor_divide",
    "floor_mod", "forest", "free_vars", "frontend", "full", "full_like", "gather", "gather_nd", "gpu", "graph_executor",
    "greater", "greater_equal", "image", "ir", "isnan", "layout_transform", "left_shift", "less", "less_equal",
    "load", "load_param_dict", "log", "log2", "log10", "logical_and", "logical_not", "logical_or", "logical_xor",
    "max", "maximum", "mean", "mean_variance", "min", "minimum", "mod", "multiply", "nd", "negative", "nn",
    "not_equal", "one_hot", "ones", "ones_like", "optimize", "post_order", "power", "prod", "quantize", "reference",
    "repeat", "reshape", "reverse", "right_shift", "round", "rsqrt", "save_param_dict", "shape_of", "sigmoid",
    "sign", "sin", "sinh", "sort", "sort_with_positions", "split", "sqrt", "squeeze", "stack", "std",
    "strided_slice", "subtract", "sum", "take", "tan", "tanh", "target", "testing", "tile", "topk", "transform",
    "transpose", "trunc", "tune_network", "var", "variance", "where", "zeros", "zeros_like",
]  # fmt: skip
