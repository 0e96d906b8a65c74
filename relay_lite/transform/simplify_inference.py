"""Layers that only training needs become arithmetic: batch normalisation is a multiply and an add at inference.

    batch_norm(x, gamma, beta, mean, var)[0]  ->  x * expand(scale) + expand(shift)
    scale = 1 / sqrt(var + epsilon) * gamma,  shift = -mean * scale + beta

The vectors are computed first and expanded last, so that constant folding leaves one constant each.  The other
normalisations become their definition, and dropout its input.

A target that computes whole rows in one kernel (ansor_ext/README.md, rule `rows`) keeps those that normalise over
the last dimensions: spelled out, a layer norm is six kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir.make import call
from ..ir.nodes import Call, Expr, Function, TupleGetItem, const
from ..ir.visit import expand_to, is_op, rewrite
from .sequential import Pass, acts_on


@acts_on("nn.batch_norm", "nn.dropout", "nn.layer_norm", "nn.instance_norm", "nn.group_norm", "nn.l2_normalize")
def SimplifyInference(keep_rows: bool = False) -> Pass:
    """Rewrite batch_norm (its result 0), dropout, layer_norm, instance_norm, group_norm and l2_normalize.

    With `keep_rows` layer_norm, instance_norm and l2_normalize stay where they normalise over the last dimensions.
    """
    return Pass("SimplifyInference", 0, (), lambda function: _run(function, keep_rows))


def _run(function: Function, keep_rows: bool) -> Function:
    normalised: dict[Expr, Expr] = {}
    """What each batch norm became: two items 0 of the same one share it."""

    def change(node: Expr) -> Expr:
        if isinstance(node, TupleGetItem) and node.index == 0:
            layer = node.tuple_value
            if is_op(layer, "nn.dropout"):
                return layer.args[0]
            if is_op(layer, "nn.batch_norm"):
                if layer not in normalised:
                    normalised[layer] = _batch_norm(layer)
                return normalised[layer]
        if isinstance(node, Call) and node.op.name in _DEFINITIONS and not (keep_rows and _is_of_rows(node)):
            return _DEFINITIONS[node.op.name](node)
        return node

    return rewrite(function, change)


def _is_of_rows(node: Call) -> bool:
    """Whether a normalisation is over the last dimensions."""
    rank, axis = len(node.args[0].shape), node.attrs["axis"]
    match node.op.name:
        case "nn.layer_norm":
            return bool(axis % rank == rank - 1)
        case "nn.instance_norm":
            return bool(axis % rank == 1) and rank > 2
        case "nn.l2_normalize":
            axes = list(range(rank)) if axis is None else sorted([a % rank for a in axis])
            return axes == list(range(rank - len(axes), rank))
    return False


def _batch_norm(node: Call) -> Expr:
    data, gamma, beta, mean, var = node.args
    rank, axis = len(data.shape), node.attrs["axis"]
    root = call("sqrt", call("add", var, const(node.attrs["epsilon"], var.dtype)))
    scale: Expr = call("divide", const(1.0, var.dtype), root)
    if node.attrs["scale"]:
        scale = call("multiply", scale, gamma)
    shift: Expr = call("multiply", call("negative", mean), scale)
    if node.attrs["center"]:
        shift = call("add", shift, beta)
    return call("add", call("multiply", data, expand_to(scale, rank, axis)), expand_to(shift, rank, axis))


def _normalise(node: Call, data: Expr, axes: Sequence[int]) -> Expr:
    """(data - mean) / sqrt(variance + epsilon), both over `axes`.

    The mean is taken out twice: the first one is rounded to the size of the data, whose offset may be far larger than
    their spread.
    """
    centred = data
    for _ in range(2):
        centred = call("subtract", centred, call("mean", centred, axis=tuple(axes), keepdims=True))
    variance = call("mean", call("multiply", centred, centred), axis=tuple(axes), keepdims=True)
    root = call("sqrt", call("add", variance, const(node.attrs["epsilon"], data.dtype)))
    return call("divide", centred, root)


def _scale_and_shift(node: Call, value: Expr, axis: int) -> Expr:
    gamma, beta = [expand_to(v, len(value.shape), axis) for v in node.args[1:]]
    return _affine(node, value, gamma, beta)


def _affine(node: Call, value: Expr, gamma: Expr, beta: Expr) -> Expr:
    """`value` times gamma plus beta, where they are wanted."""
    value = call("multiply", value, gamma) if node.attrs["scale"] else value
    return call("add", value, beta) if node.attrs["center"] else value


def _layer_norm(node: Call) -> Expr:
    axis = node.attrs["axis"] % len(node.shape)
    return _scale_and_shift(node, _normalise(node, node.args[0], (axis,)), axis)


def _instance_norm(node: Call) -> Expr:
    axis = node.attrs["axis"] % len(node.shape)
    axes = [k for k in range(1, len(node.shape)) if k != axis]
    return _scale_and_shift(node, _normalise(node, node.args[0], axes), axis)


def _group_norm(node: Call) -> Expr:
    """All of it in the shape of the groups, so that nothing but reshapes, which move no data, stands between."""
    shape, axis, groups = node.shape, node.attrs["axis"] % len(node.shape), node.attrs["num_groups"]
    split = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    axes = [k for k in range(1, len(split)) if k != axis]
    value = _normalise(node, call("reshape", node.args[0], newshape=split), axes)
    along = (*split[axis : axis + 2], *[1] * len(shape[axis + 1 :]))
    gamma, beta = [call("reshape", v, newshape=along) for v in node.args[1:]]
    return call("reshape", _affine(node, value, gamma, beta), newshape=shape)


def _l2_normalize(node: Call) -> Expr:
    (data,) = node.args
    total = call("sum", call("multiply", data, data), axis=node.attrs["axis"], keepdims=True)
    return call("divide", data, call("sqrt", call("maximum", total, const(node.attrs["eps"], data.dtype))))


_DEFINITIONS: dict[str, Callable[[Call], Expr]] = {
    "nn.layer_norm": _layer_norm,
    "nn.instance_norm": _instance_norm,
    "nn.group_norm": _group_norm,
    "nn.l2_normalize": _l2_normalize,
}
