"""From an ONNX model to a graph: one walk over the nodes, each replaced by what its converter makes of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from te_lite.errors import ExprError, TeError, require
from te_lite.expr.expr import FLOATS, SizeVar
from te_lite.expr.expr import Expr as Open
from te_lite.expr.sizes import size_var

from ...ir.errors import GraphError
from ...ir.module import IRModule
from ...ir.nodes import Array, Constant, Expr, Function, Tuple, Var
from ...ir.types import TensorType, open_shapes
from ...ir.visit import post_order
from .body import EXPANDED, body_of
from .control import CONTROL, Scope
from .domains import adopted, instead_of, newest_of
from .emit import cast, known_if_empty
from .fixed import fixed_input
from .imported import ComputedConstants
from .model import NO_TEXT, SUBJECT, OnnxGraph, OnnxInput, OnnxNode, definition, is_default, read_model
from .node import Node
from .sizes import are_numbers
from .stored import converted_wide
from .table import IGNORED, find
from .versions import NEWEST, OLDEST_FORMS, OPSETS

Shapes = Mapping[str, Sequence[Any] | None]


def from_onnx(
    model: Any,
    shape: Shapes | None = None,
    dtype: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    freeze_params: bool = True,
    fixed: Mapping[str, Any] | None = None,
    outputs: Sequence[str] | None = None,
    open: Mapping[str, tuple[int, int]] | None = None,
) -> tuple[IRModule, dict[str, Array]]:
    """The graph of an ONNX model, and the values of its parameters by name.

    `model`: a path, bytes, or an `onnx.ModelProto`.  `shape`: extents of inputs by name, needed where the model leaves
    them open; where it states them, others may be given, if its nodes hold for them.  `dtype`: that of inputs for which
    the model states none, or dtypes of inputs by name.  `opset`: read the default domain as this version.  With
    `freeze_params` the weights are constants of the graph and the dictionary is empty; otherwise weights of floats are
    parameters.  The parameters of `main` are the inputs in the model's order, then the weights; its result is a tensor,
    or a tuple when the model has several outputs.  A sequence of tensors has a list of shapes in `shape`, and is a
    parameter `NAME[K]` for each; in a result its tensors follow one another.
    An optional input is taken to be there unless `shape` says None.  `fixed` are values of inputs by name, which are
    constants then and no inputs any more.  `outputs`: names of values that are asked for, of any node, in place of the
    model's outputs; what they do not depend on is not read.
    `open`: the least and the greatest value of extents that stay open, by the names that the model gives them, or that
    `shape` has in place of numbers: `open={"batch": (1, 64)}`.  The network is compiled once for all sizes within.

    Raises GraphError for a model that cannot be read, a version outside 1 to 25, inputs that are not static,
    values that an input cannot have, operators that are not supported (all are named), and nodes that are not well
    formed.
    """
    read = read_model(model)
    opsets = {**read.opsets, "": read.opsets.get("", 1) if opset is None else opset}
    law = f"opsets {OPSETS.start} to {OPSETS.stop - 1} are supported"
    require(opsets[""] in OPSETS, GraphError, SUBJECT, law, opset=opsets[""])
    graph = read.graph if outputs is None else _with_outputs(read.graph, outputs)
    nodes = _needed(graph)
    _refuse_unsupported(nodes, opsets)
    _check_names(graph.inputs, {**(shape or {}), **(fixed or {})}, dtype)
    shape = _with_sizes(graph.inputs, shape or {}, open or {})
    given = [_input(value, shape, dtype, fixed or {}) for value in graph.inputs]
    weights = sum(array.nbytes for array in graph.initializers.values())
    walk = _Walk(opsets, {} if freeze_params else _parameters(graph), weights)
    walk.define(((v.name, e) for v, (_, e) in zip(graph.inputs, given, strict=True)), "input")
    walk.define(walk.weights(graph), "initializer")
    other = [v.name for v in graph.inputs if not v.sequence and not _agree(v.shape, shape.get(v.name))]
    try:
        for node in nodes:
            walk.convert(node)
    except GraphError as error:
        if not other:
            raise
        declared = "; ".join([f"{v.name}: {v.shape}" for v in graph.inputs if v.name in other])
        raise GraphError(f"{error}; the model declares other shapes, {declared}") from error
    return _main(walk, graph, [v for variables, _ in given for v in variables])


def _with_outputs(graph: OnnxGraph, outputs: Sequence[str]) -> OnnxGraph:
    """The graph with other outputs, each of which a node of it gives."""
    law = "`outputs` are names of what nodes give, such as the model's own"
    listed = not isinstance(outputs, str) and len(outputs) > 0
    require(listed, GraphError, SUBJECT, f"{law}, {graph.outputs}", outputs=outputs)
    unknown = [name for name in outputs if not any(name in node.outputs for node in graph.nodes)]
    require(not unknown, GraphError, SUBJECT, f"{law}, {graph.outputs}", unknown=unknown)
    return replace(graph, outputs=tuple(outputs))


def _main(walk: _Walk, graph: OnnxGraph, inputs: Sequence[Var]) -> tuple[IRModule, dict[str, Array]]:
    """The module of what was converted, and the values of the weights that it reads."""
    read = [walk.read(name, "output of the graph") for name in graph.outputs]
    known = [name for name, e in zip(graph.outputs, read, strict=True) if are_numbers([e])]
    law = "a shape with open extents is no output of a network"
    require(not known, GraphError, SUBJECT, law, outputs=known)
    outputs = [e for value in read for e in (value.fields if isinstance(value, Tuple) else (value,))]
    require(outputs, GraphError, SUBJECT, "the outputs must hold a tensor", outputs=graph.outputs)
    body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
    used = {id(e) for e in post_order(body)}
    weights = [v for v in walk.parameters.values() if id(v) in used]
    values = {v.name: walk.values[id(v)] for v in weights}
    return IRModule({"main": Function((*inputs, *weights), body)}), values


def _needed(graph: OnnxGraph) -> list[OnnxNode]:
    """The nodes that an output depends on, in the order of the model."""
    wanted = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if wanted.intersection(node.outputs):
            kept.append(node)
            wanted.update(_read_by(node))
    return kept[::-1]


def _read_by(node: OnnxNode) -> set[str]:
    """The names that a node reads, also inside of its branches."""
    names = set(node.inputs)
    for graph in node.attrs.values():
        if isinstance(graph, OnnxGraph):
            names.update(graph.outputs, *(_read_by(inner) for inner in graph.nodes))
    return names


def _refuse_unsupported(nodes: Iterable[OnnxNode], opsets: Mapping[str, int]) -> None:
    """Raise GraphError that names every operator without a converter, with its nodes."""
    missing: dict[str, list[str]] = {}
    for node in nodes:
        if not (is_read(node.op, opsets) or is_read(adopted(node.op), opsets)):
            missing.setdefault(node.op, []).append(repr(node.name))
    found = ", ".join(f"{op} ({_some(names)})" for op, names in sorted(missing.items()))
    found += "".join([f"; {op}: {instead}" for op in sorted(missing) if (instead := instead_of(op))])
    require(not missing, GraphError, SUBJECT, f"these operators of opset {opsets['']} are not supported: {found}")


def is_read(op: str, opsets: Mapping[str, int]) -> bool:
    """Whether there is a converter that was written for the definition of `op` at these opsets.

    Below opset 7 only definitions that hold there too are read: others have attributes that mean other things.
    """
    if op not in CONTROL and op not in EXPANDED and find(op, opsets) is None:
        return False
    domain, _, name = op.rpartition("::")
    if domain:
        return (definition(name, opsets.get(domain, 1), domain) or 0) <= newest_of(domain)
    holds, opset = definition(op, opsets[""]) or 0, opsets[""]
    return holds in range(1, NEWEST[op] + 1) and (opset >= OLDEST_FORMS or definition(op, OLDEST_FORMS) == holds)


def _some(names: Sequence[str], shown: int = 4) -> str:
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {rest} more" if rest > 0 else "")


def _check_names(inputs: Sequence[OnnxInput], shape: Shapes, dtype: str | Mapping[str, str]) -> None:
    names = [v.name for v in inputs]
    given = [*shape, *(() if isinstance(dtype, str) else dtype)]
    unknown = [name for name in given if name not in names]
    require(not unknown, GraphError, SUBJECT, f"inputs are {', '.join(map(repr, names))}", unknown=unknown)


def _with_sizes(inputs: Sequence[OnnxInput], shape: Shapes, named: Mapping[str, tuple[int, int]]) -> Shapes:
    """`shape`, with a size for each extent that has a name in `named`, also for inputs that it does not have."""
    sizes = {name: _size(name, bounds) for name, bounds in named.items()}
    out, used = dict(shape), set[str]()
    for value in inputs:
        extents = shape.get(value.name, value.shape)
        names = [] if extents is None else [d for d in extents if isinstance(d, str) and d in sizes]
        if names:
            used.update(names)
            out[value.name] = [sizes.get(d, d) if isinstance(d, str) else d for d in extents or ()]
    known = sorted({d for value in inputs for d in value.shape or () if isinstance(d, str)})
    law = f"`open` names extents of inputs; those of the model are {', '.join(map(repr, known)) or 'numbers'}"
    unknown = [name for name in sizes if name not in used]
    require(not unknown, GraphError, SUBJECT, law, unknown=unknown)
    return out


def _size(name: str, bounds: Any) -> SizeVar:
    pair = isinstance(bounds, tuple | list) and len(bounds) == 2
    law = "an open extent has its least and its greatest value, as open={'batch': (1, 64)}"
    require(pair, GraphError, f"ONNX extent {name!r}", law, got=bounds)
    try:
        return size_var(re.sub(r"\W", "_", name), *bounds)
    except ExprError as refused:
        raise GraphError(f"ONNX extent {name!r}: {refused}") from None


def _input_var(value: OnnxInput, shape: Shapes, dtype: str | Mapping[str, str]) -> Var:
    """The variable of an input; `shape` gives as many extents as the model states, which may be others.

    Whether the graph holds for them is found when its nodes are typed.
    """
    what = f"ONNX input {value.name!r}"
    declared = value.shape
    given = shape.get(value.name)
    extents = declared if given is None else tuple([d if isinstance(d, str | Open) else int(d) for d in given])
    static = extents is not None and all(isinstance(d, int | Open) for d in extents)
    law = f"a static shape is needed, give shape={{{value.name!r}: (...)}}, or open={{NAME: (least, most)}}"
    require(static, GraphError, what, law, declared=declared)
    assert extents is not None
    agrees = declared is None or len(declared) == len(extents)
    law = "the shape must have as many extents as the model's"
    require(agrees, GraphError, what, law, given=extents, declared=declared)
    kind = _dtype(value, dtype)
    known: list[Any] = [d for d in extents if d is not None and not isinstance(d, str)]
    return Var(value.name, TensorType(tuple(known), kind))


def _dtype(value: OnnxInput, dtype: str | Mapping[str, str]) -> str:
    named = dtype.get(value.name) if isinstance(dtype, Mapping) else None
    return named or value.dtype or (dtype if isinstance(dtype, str) else "float32")


def _agree(declared: Sequence[int | str | None] | None, extents: Sequence[Any] | None) -> bool:
    """Whether extents, where some are given, are those that the model states."""
    if declared is None or extents is None:
        return True
    return all(not isinstance(d, int) or d == e for d, e in zip(declared, extents, strict=True))


def _input(
    value: OnnxInput, shape: Shapes, dtype: str | Mapping[str, str], fixed: Mapping[str, Any]
) -> tuple[list[Var], Expr | None]:
    """The variables of an input, one a tensor, and its value in the dtype that the model computes with."""
    if value.name in fixed:
        known = fixed_input(fixed[value.name], value, shape.get(value.name), value.dtype or _dtype(value, dtype))
        return [], known_if_empty(known)
    if value.optional and value.name in shape and shape[value.name] is None:
        return [], None
    if not value.sequence:
        variable = _input_var(value, shape, dtype)
        return [variable], _as_declared(value, variable)
    shapes = shape.get(value.name)
    law = f"a sequence needs the shapes of its tensors, give shape={{{value.name!r}: [(...), ...]}}"
    listed = shapes is not None and all(isinstance(s, Sequence) for s in shapes)
    require(listed, GraphError, f"ONNX input {value.name!r}", law, shape=shapes)
    parts = [replace(value, name=f"{value.name}[{k}]", sequence=False) for k in range(len(shapes or ()))]
    kinds = dtype if isinstance(dtype, str) else {part.name: dtype[value.name] for part in parts if value.name in dtype}
    variables = [_input_var(p, {p.name: s}, kinds) for p, s in zip(parts, shapes or (), strict=True)]
    return variables, Tuple(tuple(_as_declared(value, v) for v in variables))


def _as_declared(value: OnnxInput, variable: Var) -> Expr:
    """An input in the dtype that the model computes with."""
    return known_if_empty(variable if value.dtype is None else cast(variable, value.dtype))


def _refusal(node: OnnxNode, asked: Node, error: TeError) -> GraphError:
    """The error of a node, which names it and its inputs."""
    what, message = f"ONNX {node}", str(error)
    shapes = open_shapes([e.type for e in asked.inputs if e is not None])
    if shapes and isinstance(error, ExprError):
        message = f"along open extents it must be the same for all sizes, got shapes={shapes}"
    inputs = ", ".join(repr(name) for name in node.inputs)
    return GraphError(message if message.startswith(what) else f"{what}: {message}; its inputs are {inputs}")


def _parameters(graph: OnnxGraph) -> dict[str, Var]:
    """Weights that become parameters: floats; integers are shapes and indices, and stay constants."""
    kept = {n: a for n, a in graph.initializers.items() if str(a.dtype) in FLOATS and a.ndim > 0}
    return {name: Var(name, TensorType(array.shape, str(array.dtype))) for name, array in kept.items()}


class _Walk:
    """The expressions of the names defined so far; `weights` are the bytes of the initializers."""

    def __init__(self, opsets: Mapping[str, int], parameters: Mapping[str, Var], weights: int) -> None:
        self.opsets = opsets
        self.parameters = parameters
        self.values: dict[int, Array] = {}
        self.scope: dict[str, Expr | None] = {"": None}
        self.dropped: dict[str, str] = {}
        self.constants = ComputedConstants(weights)
        self.taken: Expr | None = None
        self.endless: dict[int, OnnxGraph] = {}

    def define(self, pairs: Iterable[tuple[str, Expr | None]], what: str) -> None:
        """Enter names; each may be defined only once."""
        for name, e in pairs:
            fresh = name not in self.scope and name not in self.dropped
            law = f"every name must be defined once, this {what} is not the first"
            require(fresh, GraphError, SUBJECT, law, name=name)
            self.scope[name] = e

    def weights(self, graph: OnnxGraph) -> Iterable[tuple[str, Expr]]:
        """Initializers as constants or parameters; those of strings are only refused where they are read."""
        self.dropped.update({name: f"which holds strings: {NO_TEXT}" for name in graph.texts})
        for name, array in graph.initializers.items():
            variable = self.parameters.get(name)
            if variable is None:
                yield name, Constant(array)
            else:
                self.values[id(variable)] = array
                yield name, variable

    def read(self, name: str, reader: str) -> Expr:
        """The expression of a name, which must be defined."""
        if name in self.dropped:
            raise GraphError(f"{reader}: it reads {name!r}, {self.dropped[name]}")
        found = self.scope.get(name)
        if found is None:
            raise GraphError(f"{reader}: inputs must be defined by an earlier node, got {name!r}")
        return found

    def is_nothing(self, name: str) -> bool:
        """Whether there is no value: of the empty name, and of an optional input that is not given."""
        return name in self.scope and self.scope[name] is None

    def convert(self, node: OnnxNode) -> None:
        """Enter the outputs of a node."""
        outputs = node.outputs
        while outputs and not outputs[-1]:
            outputs = outputs[:-1]
        inputs = tuple(None if self.is_nothing(name) else self.read(name, f"ONNX {node}") for name in node.inputs)
        asked = Node(node.op, node.name, self.opsets[""], inputs, outputs, node.attrs, self.values)
        made = self.converted(node, asked)
        self.constants.count(made, inputs, f"ONNX {node}")
        lacking = {k: f"output {k} of {node} is not supported" for k in range(len(made), len(outputs))} | asked.lacking
        given = [(name, e) for k, (name, e) in enumerate(zip(outputs, made, strict=False)) if name and k not in lacking]
        self.define(given, f"output of {node}")
        self.dropped.update({outputs[k]: f"but {why}" for k, why in lacking.items() if k < len(outputs)})

    def converted(self, node: OnnxNode, asked: Node) -> list[Expr]:
        """What the converter of a node makes of it; an error names the node."""
        try:
            found = self.expression(node, asked)
            asked.refuse_unread(lambda name: name in IGNORED.get(node.op, ()) or is_default(node, name, self.opsets))
        except TeError as error:
            raise _refusal(node, asked, error) from error
        except MemoryError as error:
            raise GraphError(f"ONNX {node}: this machine has too little memory for it") from error
        return [found] if isinstance(found, Expr) else list(found)

    def expression(self, node: OnnxNode, asked: Node) -> Expr | Sequence[Expr]:
        """The outputs of a node."""
        if node.op in CONTROL:
            scope = Scope(lambda *inside: self.inline(asked, *inside), self.nodes, self.taken, self.endless)
            return CONTROL[node.op](asked, scope)
        if node.op in EXPANDED:
            return converted_wide(lambda wide: self.expanded(node, wide), asked)
        converter = find(node.op if is_read(node.op, self.opsets) else adopted(node.op), self.opsets)
        assert converter is not None
        return converted_wide(converter, asked)

    def inline(self, node: Node, graph: OnnxGraph, values: Sequence[Expr], taken: Expr | None) -> list[Expr]:
        """The outputs of a graph inside of a node, `values` being those of its inputs; its names end with it.

        A bool says when its results are `taken`, None if always.
        """
        nodes = _needed(graph)
        _refuse_unsupported(nodes, self.opsets)
        node.require(len(values) == len(graph.inputs), "the body needs one value an input", inputs=len(graph.inputs))
        outside, dropped, before = dict(self.scope), dict(self.dropped), self.taken
        self.taken = taken
        try:
            self.define(((v.name, e) for v, e in zip(graph.inputs, values, strict=True)), "input")
            self.define(self.weights(graph), "initializer")
            for inner in nodes:
                self.convert(inner)
            return [self.read(name, str(node)) for name in graph.outputs]
        finally:
            self.scope, self.dropped, self.taken = outside, dropped, before

    def nodes(self) -> set[Expr]:
        """All nodes of the graph so far."""
        found: set[Expr] = set()
        for e in (*self.scope.values(), self.taken):
            if e is not None:
                found.update(post_order(e, found.__contains__))
        return found

    def expanded(self, node: OnnxNode, asked: Node) -> list[Expr]:
        """The outputs of an operator that ONNX defines by a body, whose names are its own."""
        body = body_of(node, self.opsets[""], asked.inputs)
        asked.asked.update(range(len(asked.inputs)), asked.attrs)
        inside = _Walk(body.opsets, {}, 0)
        inside.values, inside.constants, inside.taken = self.values, self.constants, self.taken
        inside.endless = self.endless
        given = (*asked.inputs, *(None for _ in body.graph.inputs[len(asked.inputs) :]))
        inside.define(((v.name, e) for v, e in zip(body.graph.inputs, given, strict=True)), "input")
        for inner in _needed(body.graph):
            inside.convert(inner)
        return [inside.read(name, str(asked)) for name in body.graph.outputs]
