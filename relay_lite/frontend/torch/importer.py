"""From an exported program to a graph: one walk over the nodes, each replaced by what its converter makes of it.

The program states shape and dtype of every tensor, so whatever a converter gives is held to that.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from te_lite.errors import ExprError, TeError, require
from te_lite.expr.dtype import accumulated

from ...ir.errors import GraphError
from ...ir.extents import is_open
from ...ir.module import IRModule
from ...ir.nodes import Array, Constant, Expr, Function, Tuple, Var
from ...ir.types import TensorType
from ..onnx.emit import cast, known_if_empty
from ..onnx.imported import ComputedConstants
from .archive import read_archive
from .node import Aten
from .program import SUBJECT, AtenGraph, AtenNode, Ref, refs
from .table import find
from .traced import read_program


def from_exported_program(program: Any) -> tuple[IRModule, dict[str, Array]]:
    """The graph of a program of `torch.export`; its weights are constants, so the dictionary of parameters is empty.

    `program`: the path of a `.pt2` file that torch 2.8 or later wrote, read without torch and without pickle, or a
    `torch.export.ExportedProgram`, which is decomposed to core ATen first, all but attention; a file should hold one
    that was (`program.run_decompositions()` takes attention apart, too, which is right, and slower).  The parameters of
    `main` are the tensors that the program takes, in order; its result is a tensor, or a tuple when the program gives
    several.

    Extents that `torch.export.Dim(name, min=..., max=...)` bounds stay open.

    Raises GraphError for a program that cannot be read, other shapes that are open, operators that are not supported
    (all are named), and programs that write to their inputs or buffers.
    """
    if isinstance(program, str | os.PathLike):
        graph = read_archive(program)
    else:
        law = "a path or a torch.export.ExportedProgram is needed"
        require(hasattr(program, "graph_signature"), GraphError, SUBJECT, law, type=type(program).__name__)
        graph = read_program(program)
    return import_graph(graph), {}


def import_graph(graph: AtenGraph) -> IRModule:
    """The graph of a program in plain values.  Raises as `from_exported_program` does."""
    nodes = _needed(graph)
    _refuse_unsupported(nodes)
    walk = _Walk(graph)
    for node in nodes:
        walk.convert(node)
    require(graph.outputs, GraphError, SUBJECT, "it must give a tensor")
    outputs = [walk.read(name, "its output") for name in graph.outputs]
    body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
    return IRModule({"main": Function(tuple(walk.inputs), body)})


def refused_nodes(graph: AtenGraph) -> dict[str, str]:
    """The nodes that cannot be imported, by name, and why; whatever reads them is looked at as if they could."""
    walk, refused = _Walk(graph), {}
    wanted = {*graph.outputs, *[r for node in graph.nodes for value in node.args.values() for r in refs(value)]}
    for node in graph.nodes:
        try:
            require(find(node.op) is not None, GraphError, str(node), "this operator is not supported")
            walk.convert(node)
            left = [name for name in node.outputs if name in wanted and name not in walk.scope]
            require(not left, GraphError, str(node), "only its first results are supported", asked=left)
        except GraphError as error:
            refused[node.name] = str(error)
            walk.give_up(node)
    return refused


def _needed(graph: AtenGraph) -> list[AtenNode]:
    """The nodes that an output depends on, in order."""
    wanted, kept = set(graph.outputs), []
    for node in reversed(graph.nodes):
        if wanted.intersection(node.outputs):
            kept.append(node)
            wanted.update(name for value in node.args.values() for name in refs(value))
    return kept[::-1]


def _refuse_unsupported(nodes: Iterable[AtenNode]) -> None:
    missing = sorted({node.op for node in nodes if find(node.op) is None})
    law = f"these operators are not supported: {', '.join(missing)}"
    require(not missing, GraphError, SUBJECT, law)


class _Walk:
    """The expressions of the tensors defined so far."""

    def __init__(self, graph: AtenGraph) -> None:
        self.graph = graph
        self.constants = ComputedConstants(sum(array.nbytes for array in graph.weights.values()))
        self.inputs = [self.variable(name) for name in graph.inputs]
        self.scope: dict[str, Expr] = {v.name: known_if_empty(v) for v in self.inputs}
        self.scope |= {name: Constant(array) for name, array in graph.weights.items()}

    def variable(self, name: str) -> Var:
        require(name in self.graph.tensors, GraphError, SUBJECT, "its inputs must be tensors", name=name)
        info = self.graph.tensors[name]
        return Var(name, TensorType(info.shape, info.dtype))

    def read(self, name: str, reader: str) -> Expr:
        """The expression of a tensor."""
        found = self.scope.get(name)
        if found is None:
            raise GraphError(f"{reader}: it reads {name!r}, which is not given")
        return found

    def give_up(self, node: AtenNode) -> None:
        """Let the results of a node be variables."""
        for name in node.outputs:
            if name is not None and name in self.graph.tensors:
                try:
                    self.scope[name] = self.variable(name)
                except TeError:  # no tensor of ours: whatever reads it is refused, too
                    self.scope.pop(name, None)

    def convert(self, node: AtenNode) -> None:
        """Enter the results of a node; an error names it."""
        try:
            self.enter(node, self.made(node))
        except (TeError, OverflowError) as error:  # a number that its dtype cannot hold: PyTorch says what then
            what, message = str(node), str(error)
            if isinstance(error, ExprError) and (shapes := self.open_shapes(node)):
                message = f"along open extents it must be the same for all sizes, got shapes={shapes}"
            raise GraphError(message if message.startswith(what) else f"{what}: {message}") from error
        except MemoryError as error:
            raise GraphError(f"{node}: this machine has too little memory for it") from error

    def open_shapes(self, node: AtenNode) -> list[tuple[int, ...]]:
        """The shapes of arguments that have open extents."""
        names = [name for value in node.args.values() for name in refs(value)]
        return [t.shape for n in names if (t := self.graph.tensors.get(n)) is not None and is_open(*t.shape)]

    def made(self, node: AtenNode) -> Sequence[Expr | None]:
        """What the converter of a node makes of it."""
        converter = find(node.op)
        assert converter is not None
        given = {name: self.value(value, str(node)) for name, value in node.args.items()}
        tensors = self.graph.tensors
        known = {k: tensors[v.name] for k, v in node.args.items() if isinstance(v, Ref) and v.name in tensors}
        strides, dtypes = {k: t.strides for k, t in known.items()}, {k: t.dtype for k, t in known.items()}
        result = tuple([tensors.get(name) if name is not None else None for name in node.outputs])
        asked = Aten(node.op, node.name, given, result, strides, dtypes)
        found = converter(asked)
        asked.refuse_unread()
        made = [found] if isinstance(found, Expr) else list(found)
        self.constants.count([e for e in made if e is not None], [v for v in given.values() if isinstance(v, Expr)],
                             str(node))  # fmt: skip
        return made

    def value(self, value: Any, reader: str) -> Any:
        """An argument with expressions for tensors, in the dtypes that are computed with."""
        if isinstance(value, tuple):
            return tuple([self.value(v, reader) for v in value])
        if not isinstance(value, Ref):
            return value
        found = self.read(value.name, reader)
        return cast(found, accumulated(found.dtype))

    def enter(self, node: AtenNode, made: Sequence[Expr | None]) -> None:
        require(
            len(made) == len(node.outputs), GraphError, str(node), "it has another number of results", made=len(made)
        )
        for name, e in zip(node.outputs, made, strict=True):
            if name is None or e is None:
                continue
            info = self.graph.tensors[name]
            law = "its result must have the shape that the program states"
            require(e.shape == info.shape, GraphError, str(node), law, result=e.shape, stated=info.shape)
            self.scope[name] = known_if_empty(cast(e, info.dtype))
