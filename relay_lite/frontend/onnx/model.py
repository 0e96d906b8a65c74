"""An ONNX model as plain Python values: this file and `body` are the only ones that touch the package `onnx`.

Tensors become arrays, attributes become numbers, text, tuples, arrays and graphs; everything after this file is free of
protocol buffers.  An attribute of a kind that no operator here takes becomes None, and the operator says what it needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ansor.core.host.hints import install
from ansor.core.values.checks import require_tensor
from te_lite.errors import require
from te_lite.expr.expr import DTYPES

from ...ir.errors import GraphError
from ...ir.nodes import Array

SUBJECT = "ONNX model"
NO_TEXT = "only numbers are computed, so encode texts before the model, and ask for outputs of numbers by `outputs`"
_NAMES = {
    "float": "float32", "double": "float64", "float4e2m1": "float4_e2m1fn", "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz", "float8e5m2": "float8_e5m2", "float8e5m2fnuz": "float8_e5m2fnuz",
}  # fmt: skip
"""Dtypes that ONNX calls otherwise."""


@dataclass(frozen=True, eq=False)
class OnnxInput:
    """A graph input as declared; an extent that the model leaves open is its symbol, or None; so is an open shape.

    Of a `sequence` they are those of each of its tensors; an `optional` input may be nothing.
    """

    name: str
    dtype: str | None
    shape: tuple[int | str | None, ...] | None
    sequence: bool = False
    optional: bool = False


@dataclass(frozen=True, eq=False)
class OnnxNode:
    """One operator with the names it reads (`""` is absent) and writes, and its attributes by name.

    `proto` is the node as the package `onnx` has it.
    """

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]
    proto: Any

    def __str__(self) -> str:
        return f"{self.op} {self.name!r}"


@dataclass(frozen=True, eq=False)
class OnnxGraph:
    """Inputs (without those that are initializers), initializers, nodes in order, names of the outputs.

    `texts` are the names of initializers that hold strings.
    """

    inputs: tuple[OnnxInput, ...]
    initializers: Mapping[str, Array]
    nodes: tuple[OnnxNode, ...]
    outputs: tuple[str, ...]
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """A graph, and the version of each operator domain; the default domain is `""`."""

    graph: OnnxGraph
    opsets: Mapping[str, int]


def read_model(model: Any) -> OnnxModel:
    """The model of a path, of its bytes, or of an `onnx.ModelProto`.

    A path finds weights that are stored beside the model.  Raises GraphError when the package `onnx` is missing or when
    the model cannot be read.
    """
    onnx = package()
    proto = _parse(onnx, model)
    if len(proto.functions) > 0:
        proto = _inlined(proto)
    opsets = {_domain(o.domain): int(o.version) for o in proto.opset_import}
    require(len(proto.graph.output) > 0, GraphError, SUBJECT, "a model needs a graph with at least one output")
    return OnnxModel(_graph(onnx, proto.graph), opsets)


def package() -> Any:
    """The package `onnx`.  Raises GraphError where it is missing."""
    try:
        onnx = import_module("onnx")
        import_module("onnx.numpy_helper")
        import_module("onnx.external_data_helper")
    except ImportError as error:
        law = f"reading one needs the package onnx, install it with: {install('onnx')}"
        raise GraphError(f"{SUBJECT}: {law}, got {error}") from error
    return onnx


def _parse(onnx: Any, model: Any) -> Any:
    if isinstance(model, onnx.ModelProto):
        return model
    law = "a path, bytes or an onnx.ModelProto is needed"
    require(isinstance(model, str | Path | bytes | bytearray), GraphError, SUBJECT, law, type=type(model).__name__)
    try:
        if isinstance(model, bytes | bytearray):
            return onnx.load_model_from_string(bytes(model))
        return onnx.load(str(model))
    except Exception as error:  # the parser of protocol buffers has exceptions of its own, and they vary by version
        where = f"{len(model)} bytes" if isinstance(model, bytes | bytearray) else str(model)
        reason = " ".join(str(error).split())
        raise GraphError(f"{SUBJECT}: {where} must be readable, got {type(error).__name__}: {reason}") from error


def _inlined(proto: Any) -> Any:
    """The model with its own functions written out where they are called."""
    try:
        return import_module("onnx.inliner").inline_local_functions(_with_defaults(proto))
    except Exception as error:  # the inliner is native code and raises what it likes
        reason = " ".join(str(error).split())
        raise GraphError(f"{SUBJECT}: its local functions must be well formed, got {reason}") from error


def _with_defaults(proto: Any) -> Any:
    """The model in which calls of its functions have all attributes with defaults, which the inliner would forget."""
    defaults = {(_domain(f.domain), f.name): f.attribute_proto for f in proto.functions if f.attribute_proto}
    if not defaults:
        return proto
    filled = type(proto)()
    filled.CopyFrom(proto)

    def fill(nodes: Any) -> None:
        for node in nodes:
            given = [a.name for a in node.attribute]
            lacking = [a for a in defaults.get((_domain(node.domain), node.op_type), ()) if a.name not in given]
            node.attribute.extend(lacking)
            for attribute in node.attribute:
                for graph in (attribute.g, *attribute.graphs):
                    fill(graph.node)

    for part in (filled.graph, *filled.functions):
        fill(part.node)
    return filled


def _graph(onnx: Any, graph: Any) -> OnnxGraph:
    sparse = len(graph.sparse_initializer)
    require(sparse == 0, GraphError, SUBJECT, "sparse initializers are not supported", count=sparse)
    _require_once("initializer", [_text(t.name) for t in graph.initializer])
    text, numbers = onnx.TensorProto.STRING, [t for t in graph.initializer if t.data_type != onnx.TensorProto.STRING]
    texts = tuple(_text(t.name) for t in graph.initializer if t.data_type == text)
    initializers = {_text(t.name): _array(onnx, t, f"initializer {t.name!r}") for t in numbers}
    inputs = tuple(_input(onnx, v) for v in graph.input if _text(v.name) not in (*initializers, *texts))
    nodes = tuple(node_of(onnx, node) for node in graph.node)
    return OnnxGraph(inputs, initializers, nodes, tuple(_text(o.name) for o in graph.output), texts)


def _require_once(what: str, names: Sequence[str], subject: str = SUBJECT) -> None:
    again = [name for name, count in Counter(names).items() if count > 1]
    require(not again, GraphError, subject, f"every {what} must be there once", again=again)


def _text(value: str | bytes) -> str:
    """Protocol buffers give bytes where text is not UTF-8."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _domain(value: str | bytes) -> str:
    return "" if _text(value) == "ai.onnx" else _text(value)


def _input(onnx: Any, value: Any) -> OnnxInput:
    name = _text(value.name)
    what = f"ONNX input {name!r}"
    optional = value.type.HasField("optional_type")
    kind = value.type.optional_type.elem_type if optional else value.type
    sequence = kind.HasField("sequence_type")
    kind = kind.sequence_type.elem_type if sequence else kind
    law = "only tensors, sequences of them, and such as are optional are supported"
    require(kind.WhichOneof("value") in (None, "tensor_type"), GraphError, what, law)
    tensor = kind.tensor_type
    dtype = dtype_name(tensor.elem_type, what) if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return OnnxInput(name, dtype, None, sequence, optional)
    extents = tuple(_extent(d, what) for d in tensor.shape.dim)
    return OnnxInput(name, dtype, extents, sequence, optional)


def _extent(dim: Any, what: str) -> int | str | None:
    """0 and -1 are what some exporters write for an extent that is open."""
    require(dim.dim_value >= -1, GraphError, what, "extents must not be negative", got=dim.dim_value)
    if dim.HasField("dim_value") and dim.dim_value > 0:
        return int(dim.dim_value)
    return _text(dim.dim_param) or None


def node_of(onnx: Any, node: Any) -> OnnxNode:
    """A node as plain values."""
    domain = _domain(node.domain)
    outputs = tuple(_text(o) for o in node.output)
    name = _text(node.name) or next((o for o in outputs if o), "")
    op = (f"{domain}::" if domain else "") + _text(node.op_type)
    op = op if op.isprintable() else repr(op)
    _require_once("attribute", [_text(a.name) for a in node.attribute], f"ONNX {op} {name!r}")
    attrs = {_text(a.name): _attribute(onnx, a, f"ONNX {op} {name!r}") for a in node.attribute}
    return OnnxNode(op, name, tuple(_text(i) for i in node.input), outputs, attrs, node)


def _attribute(onnx: Any, attr: Any, what: str) -> Any:
    kinds: dict[int, Callable[[], Any]] = {
        onnx.AttributeProto.FLOAT: lambda: float(attr.f),
        onnx.AttributeProto.INT: lambda: int(attr.i),
        onnx.AttributeProto.STRING: lambda: attr.s.decode("utf-8", "replace"),
        onnx.AttributeProto.TENSOR: lambda: _numbers(onnx, attr.t, f"{what}, attribute {attr.name!r}"),
        onnx.AttributeProto.GRAPH: lambda: _graph(onnx, attr.g),
        onnx.AttributeProto.FLOATS: lambda: tuple(float(v) for v in attr.floats),
        onnx.AttributeProto.STRINGS: lambda: tuple(v.decode("utf-8", "replace") for v in attr.strings),
        onnx.AttributeProto.INTS: lambda: tuple(int(v) for v in attr.ints),
    }
    return kinds.get(attr.type, lambda: None)()


def _numbers(onnx: Any, tensor: Any, what: str) -> Array | None:
    """The values of a tensor; None for one of strings, which only what reads it refuses."""
    return None if tensor.data_type == onnx.TensorProto.STRING else _array(onnx, tensor, what)


def _array(onnx: Any, tensor: Any, what: str) -> Array:
    """The values of a tensor; a tensor of no dimensions stays so."""
    dtype = dtype_name(tensor.data_type, what)
    if onnx.external_data_helper.uses_external_data(tensor):
        law = "its values are in another file, which is found only when the model is given as a path"
        raise GraphError(f"{what}: {law}")
    dims = tuple(tensor.dims)
    require(min(dims, default=0) >= 0, GraphError, what, "extents must not be negative", dims=dims)
    require_tensor(dims, dtype, what)
    try:
        return np.asarray(onnx.numpy_helper.to_array(tensor), dtype).reshape(dims)
    except (ValueError, TypeError) as error:
        raise GraphError(f"{what}: the data must fit the shape {dims}, got {error}") from error


def is_default(node: OnnxNode, name: str, opsets: Mapping[str, int]) -> bool:
    """Whether an attribute of a node has the value that ONNX gives it where it is absent."""
    onnx = package()
    domain, _, op = node.op.rpartition("::")
    if not onnx.defs.has(op, domain):
        return False
    attribute = onnx.defs.get_schema(op, opsets.get(domain, 1), domain).attributes.get(name)
    default = None if attribute is None else _attribute(onnx, attribute.default_value, f"ONNX {node}")
    return default is not None and bool(default == node.attrs[name])


def definition(op: str, opset: int, domain: str = "") -> int | None:
    """The version of the definition of an operator that holds at an opset; None when there is none."""
    onnx = package()
    try:
        return int(onnx.defs.get_schema(op, opset, domain).since_version)
    except onnx.defs.SchemaError:
        return None


def kinds(op: str, opset: int, domain: str = "") -> tuple[list[str], list[str]]:
    """The names of the types of the inputs and of the outputs in the definition of an operator; the last may repeat.

    Both are empty for an operator that ONNX does not define.
    """
    onnx = package()
    try:
        schema = onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return [], []
    return [p.type_str for p in schema.inputs], [p.type_str for p in schema.outputs]


def dtype_name(code: int, what: str) -> str:
    """The dtype that ONNX means by a number.  Raises GraphError for one the graph does not know (strings ...)."""
    onnx = package()
    known = code in onnx.TensorProto.DataType.values() and code != onnx.TensorProto.UNDEFINED
    require(known, GraphError, what, "an ONNX element type is needed", code=code)
    require(code != onnx.TensorProto.STRING, GraphError, what, NO_TEXT, dtype="string")
    word = str(onnx.TensorProto.DataType.Name(code)).lower()
    name = _NAMES.get(word, word)
    require(name in DTYPES, GraphError, what, f"dtypes are {', '.join(DTYPES)}", dtype=word)
    return name


def dtype_code(name: str) -> int:
    """The number that ONNX has for a dtype."""
    words = {ours: theirs for theirs, ours in _NAMES.items()}
    return int(package().TensorProto.DataType.Value(words.get(name, name).upper()))
