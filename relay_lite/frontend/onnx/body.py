"""Bodies of operators: what ONNX defines by other operators is read as those, as the package `onnx` writes it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from te_lite.errors import require

from ...ir.errors import GraphError
from ...ir.nodes import Expr, Tuple
from .model import OnnxGraph, OnnxInput, OnnxModel, OnnxNode, dtype_code, node_of, package

EXPANDED = (
    "AffineGrid", "CastLike", "CenterCropPad", "Mish", "NegativeLogLikelihoodLoss", "RotaryEmbedding", "SequenceMap",
    "Shrink", "SoftmaxCrossEntropyLoss", "Softsign", "Swish", "ThresholdedRelu",
)  # fmt: skip
"""Operators whose bodies are as exact and as fast as anything written for them here."""


def body_of(node: OnnxNode, opset: int, inputs: Sequence[Expr | None]) -> OnnxModel:
    """The body of an operator as a graph, for the types of its inputs; attributes have their values.

    Raises GraphError for attributes and inputs that the operator does not have.
    """
    onnx = package()
    schema, proto = onnx.defs.get_schema(node.op, opset), node.proto
    what = f"ONNX {node}"
    kinds = {name: a.type.value for name, a in schema.attributes.items()}
    unknown = [a.name for a in proto.attribute if kinds.get(a.name) != a.type]
    require(not unknown, GraphError, what, "these attributes are not supported", attributes=unknown)
    try:
        body = onnx.FunctionProto.FromString(_text(onnx, schema, proto, inputs))
    except Exception as error:  # native code raises what it likes
        reason = " ".join(str(error).split())
        raise GraphError(f"{what}: ONNX must have a body for its inputs and attributes, got {reason}") from error
    law = "ONNX has no body for these inputs"
    require(body.node, GraphError, what, law, types=[None if e is None else str(e.type) for e in inputs])
    require(len(inputs) <= len(body.input), GraphError, what, f"{len(body.input)} inputs are read", got=len(inputs))
    given = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.name}
    _fill_in(body.node, given | {a.name: a for a in proto.attribute})
    opsets = {"": next(o.version for o in body.opset_import if o.domain in ("", "ai.onnx"))}
    read = tuple(OnnxInput(name, None, None) for name in body.input)
    nodes = tuple(node_of(onnx, inner) for inner in body.node)
    return OnnxModel(OnnxGraph(read, {}, nodes, tuple(body.output)[: len(node.outputs)]), opsets)


def _text(onnx: Any, schema: Any, proto: Any, inputs: Sequence[Expr | None]) -> bytes:
    """The body as bytes: one for all, or the one for the types of the inputs."""
    if schema.has_function:
        return bytes(schema.get_function_with_opset_version(max(schema.function_opset_versions)))
    types = [(onnx.TypeProto() if e is None else _type(onnx, e)).SerializeToString() for e in inputs]
    version = max(schema.context_dependent_function_opset_versions)
    found = schema.get_context_dependent_function_with_opset_version(version, proto.SerializeToString(), types)
    return bytes(found)


def _type(onnx: Any, e: Expr) -> Any:
    """The type of a tensor, or of a sequence of tensors of one dtype."""
    if isinstance(e, Tuple):
        return onnx.helper.make_sequence_type_proto(_type(onnx, e.fields[0]) if e.fields else onnx.TypeProto())
    return onnx.helper.make_tensor_type_proto(dtype_code(e.dtype), e.shape)


def _fill_in(nodes: Any, given: Mapping[str, Any]) -> None:
    """Put the values of attributes where nodes, and those of graphs inside of them, refer to them by name."""
    for node in nodes:
        attributes = list(node.attribute)
        del node.attribute[:]
        for attribute in attributes:
            name = attribute.name
            if attribute.ref_attr_name:
                if attribute.ref_attr_name not in given:
                    continue
                attribute = given[attribute.ref_attr_name]
            node.attribute.add().CopyFrom(attribute)
            node.attribute[-1].name = name
            _fill_in(node.attribute[-1].g.node, given)
