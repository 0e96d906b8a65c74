"""How an operator is written down: checks on what it is given, and its entry in the table.

    define("nn.leaky_relu", OpPattern.ELEMWISE, infer, numpy, compute, alpha=0.01)    # keyword arguments: attributes

    @operator("nn.leaky_relu", OpPattern.ELEMWISE, infer, numpy, compute)             # the same
    def leaky_relu(data: Expr, alpha: float = 0.01) -> Call:
        return call("nn.leaky_relu", data, alpha=alpha)

A type rule says what is wrong with its arguments in one sentence.  It may lean on the checks of `te_lite.topi`: what
those refuse leaves the rule as a GraphError too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any, TypeAlias, TypeVar

import numpy as np

from te_lite import Tensor, topi
from te_lite.errors import ExprError, require
from te_lite.expr.dtype import STORED, accumulated, computed
from te_lite.expr.expr import DTYPES, FLOATS
from te_lite.topi.utils import normal_axis

from ..ir.errors import GraphError
from ..ir.op_registry import Attrs, Compute, Infer, Numpy, Op, OpPattern, register
from ..ir.types import DTYPE_LAW, TensorType, TupleType, Type, open_shapes
from .along_sizes import OPEN

HALF = "float16"
SUMS = (
    "nn.dense", "nn.matmul", "nn.batch_matmul", "nn.conv", "nn.contrib_conv", "nn.softmax", "nn.log_softmax", "nn.lrn",
    "nn.layer_norm", "nn.instance_norm", "nn.group_norm", "nn.l2_normalize", "nn.avg_pool", "nn.global_avg_pool",
    "nn.adaptive_avg_pool", "sum", "prod", "mean", "variance", "cumsum", "cumprod",
)  # fmt: skip
"""The beginnings of the names of operators that add or multiply many numbers, all of whose arguments are tensors."""
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Shape: TypeAlias = tuple[int, ...]
Function = TypeVar("Function", bound=Callable[..., Any])


def define(name: str, pattern: OpPattern, infer: Infer, numpy: Numpy, compute: Compute | None, **defaults: Any) -> Op:
    """Register an operator; raises GraphError when the name is taken.

    The default of an attribute says what it may be: a flag, a number that need not be whole, or text.
    """

    def checked(types: Sequence[Type], attrs: Attrs) -> Type:
        for key, default in defaults.items():
            _like(default, attrs[key], key, name)
        opened = open_shapes(types)
        require(not opened or name in OPEN, GraphError, name, "it takes no open extents", shapes=opened)
        try:
            return infer(types, attrs)
        except ExprError as refused:
            require(not opened, GraphError, name, "what it works along must be no open extent", shapes=opened)
            raise GraphError(str(refused)) from None

    op = Op(name, pattern, checked, numpy, compute, defaults)
    return register(_with_wide_sums(op) if name.startswith(SUMS) else op)


def _with_wide_sums(op: Op) -> Op:
    """An operator that sums up halves as floats and rounds once, where its result is of halves."""
    if op.compute is None:
        return op
    compute = op.compute

    def half(args: Sequence[Any], attrs: Attrs) -> bool:
        narrow = any(str(a.dtype) == HALF for a in args)
        return narrow and attrs.get("out_dtype") in (None, "", HALF)

    def widened(attrs: Attrs) -> Attrs:
        return {**attrs, "out_dtype": ""} if "out_dtype" in attrs else attrs

    def meaning(args: Sequence[Any], attrs: Attrs) -> Any:
        if not half(args, attrs):
            return op.numpy(args, attrs)
        wide = [np.asarray(a, accumulated(str(a.dtype))) for a in args]
        with np.errstate(over="ignore"):
            return np.asarray(op.numpy(wide, widened(attrs)), HALF)

    def te(args: Sequence[Any], attrs: Attrs, target: str) -> list[Tensor]:
        if not half(args, attrs):
            return compute(args, attrs, target)
        wide = [topi.cast(a, accumulated(a.dtype)) for a in args]
        return [topi.cast(t, HALF) for t in compute(wide, widened(attrs), target)]

    return replace(op, numpy=meaning, compute=te)


def operator(
    name: str, pattern: OpPattern, infer: Infer, numpy: Numpy, compute: Compute | None, **required: Any
) -> Callable[[Function], Function]:
    """Register the operator that the decorated function calls; its parameters that are no nodes are the attributes.

    Defaults are those of the function, or `required` ones; of both kinds the value says what an attribute may be.
    """

    def registered(function: Function) -> Function:
        parameters = signature(function).parameters.values()
        found = {p.name: p.default for p in parameters if "Expr" not in p.annotation and p.annotation != "Any"}
        define(name, pattern, infer, numpy, compute, **{**found, **required})
        return function

    return registered


def _like(default: Any, value: Any, key: str, what: str) -> None:
    """Refuse a value that is of another kind than the default."""
    match default:
        case bool():
            ok = isinstance(value, bool | int | np.bool_ | np.integer) and value in (0, 1)
            require(ok, GraphError, what, f"{key} must be True or False", got=value)
        case float():
            ok = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            require(ok, GraphError, what, f"{key} must be a number", got=value)
        case str() if key not in ("dtype", "out_dtype"):
            require(isinstance(value, str), GraphError, what, f"{key} must be text", got=value)


def tensors(types: Sequence[Type], count: int, what: str) -> list[TensorType]:
    """The arguments, which must be `count` tensors."""
    ok = len(types) == count and all(isinstance(t, TensorType) for t in types)
    law = f"{count} tensor{'s are' if count != 1 else ' is'} needed"
    require(ok, GraphError, what, law, got=[str(t) for t in types])
    return [t for t in types if isinstance(t, TensorType)]


def fields(types: Sequence[Type], what: str) -> tuple[TensorType, ...]:
    """The tensors of the one argument, a tuple, which must hold some, all of one dtype."""
    ok = len(types) == 1 and isinstance(types[0], TupleType) and len(types[0].fields) > 0
    require(ok, GraphError, what, "a tuple of tensors is needed", got=[str(t) for t in types])
    assert isinstance(types[0], TupleType)
    same_dtype(types[0].fields, what)
    return types[0].fields


def same_dtype(found: Sequence[TensorType], what: str) -> str:
    """The one dtype of all tensors."""
    names = [t.dtype for t in found]
    require(len(set(names)) == 1, GraphError, what, "all tensors must have the same dtype", dtypes=names)
    return names[0]


def floats(t: TensorType, what: str) -> str:
    """The dtype of `t`, which must be a float that is computed with."""
    require(t.dtype in FLOATS, GraphError, what, "a tensor of floats is needed", dtype=t.dtype)
    return numbers(t, what)


def numbers(t: TensorType, what: str) -> str:
    """The dtype of `t`, which must not be bool, nor one that is only stored."""
    require(t.dtype != "bool", GraphError, what, "a tensor of numbers is needed", dtype=t.dtype)
    require(t.dtype not in STORED, GraphError, what, f"{t.dtype} is only stored: cast to {computed(t.dtype)} first")
    return t.dtype


def factors(t: TensorType, total: str, what: str) -> None:
    """Refuse factors `t` of products that are summed up in `total`: bool, and what is only stored but for its sums."""
    if t.dtype in STORED:
        require(total not in STORED, GraphError, what, f"{t.dtype} is only stored: a wider out_dtype is needed")
    else:
        numbers(t, what)


def indices(t: TensorType, what: str) -> None:
    """Refuse a tensor that is not of integers."""
    ok = t.dtype not in FLOATS and t.dtype != "bool"
    require(ok, GraphError, what, "the indices must be integers", dtype=t.dtype)


def rank(t: TensorType, ndim: int, what: str) -> Shape:
    """The shape of `t`, which must have `ndim` dimensions."""
    require(len(t.shape) == ndim, GraphError, what, f"{ndim} dimensions are needed", shape=t.shape)
    return t.shape


def vector(t: TensorType, size: int, what: str, name: str) -> None:
    """Refuse a tensor that is not a vector of `size` elements."""
    require(t.shape == (size,), GraphError, what, f"{name} must have the shape ({size},)", shape=t.shape)


def dtype_of(name: Any, default: str, what: str) -> str:
    """The dtype that an attribute names; `default` when it is empty."""
    known = name is None or (isinstance(name, str) and (name == "" or name in DTYPES))
    require(known, GraphError, what, DTYPE_LAW, dtype=name)
    return str(name or default)


def integer(value: Any, what: str, name: str, least: int | None = None) -> int:
    """The attribute `name`, which must be an integer, and at least `least` if that is given."""
    ok = isinstance(value, int | np.integer) and not isinstance(value, bool)
    require(ok, GraphError, what, f"{name} must be an integer", got=value)
    require(least is None or value >= least, GraphError, what, f"{name} must be at least {least}", got=value)
    return int(value)


def integers(value: Any, what: str) -> Shape:
    """An integer or a sequence of integers, as a tuple."""
    values = value if isinstance(value, list | tuple) else (value,)
    whole = all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in values)
    require(whole, GraphError, what, "integers are needed", got=value)
    return tuple(int(v) for v in values)


def some_axes(axis: Any, ndim: int, what: str, exclude: bool = False) -> Shape:
    """Axes counted from the front, sorted: None means all; `exclude` takes those that are not named."""
    named = range(ndim) if axis is None else [normal_axis(a, ndim, what) for a in integers(axis, what)]
    require(len(set(named)) == len(named), GraphError, what, "an axis is named twice", axis=axis)
    return tuple(d for d in range(ndim) if (d in named) != (exclude and axis is not None))


def one_axis(axis: Any, ndim: int, what: str) -> int:
    """One axis, counted from the front."""
    return normal_axis(integer(axis, what, "the axis"), ndim, what)


def choice(value: Any, allowed: Sequence[str], what: str, name: str) -> str:
    """`value`, which must be one of `allowed`."""
    require(value in allowed, GraphError, what, f"{name} is one of {', '.join(map(repr, allowed))}", got=value)
    return str(value)
