"""A graph that torch traced as plain values: the one file that knows how torch's objects look.

Nodes, tensors and dtypes are those of the object that it is handed; torch is imported for one table alone.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np

from te_lite.errors import require
from te_lite.expr.dtype import STORED
from te_lite.expr.expr import SizeVar

from ...ir.errors import GraphError
from ...ir.nodes import Array
from .program import SUBJECT, WRITES_NOTHING, AtenGraph, AtenNode, Ref, TensorInfo
from .sizes import extent_of, sizes_of

SKIPPED = ("device", "layout", "memory_format")
"""Types of arguments that say where a tensor lies and in which order: not what it is."""

WHOLE = ("scaled_dot_product_attention", "lstm", "gru", "rnn_tanh", "rnn_relu", "linspace.default")
"""Operators of ATen, or overloads, that are not taken apart."""


def read_program(program: Any) -> AtenGraph:
    """The program of a `torch.export.ExportedProgram`, which is decomposed to core ATen first, all but `WHOLE`.

    Raises GraphError for programs that write to their inputs or buffers, and for inputs that are no tensors.
    """
    program = decomposed(program)
    signature = program.graph_signature
    written = sorted({spec.kind.name for spec in signature.output_specs} - {"USER_OUTPUT"})
    require(not written, GraphError, SUBJECT, WRITES_NOTHING, outputs=written)
    inputs, weights = [], {}
    for spec in signature.input_specs:
        if spec.kind.name == "USER_INPUT":
            inputs.append(spec.arg.name)
        else:
            stored = program.state_dict if spec.target in program.state_dict else program.constants
            weights[spec.arg.name] = array_of(stored[spec.target])
    ends = {str(v): (_number(r.lower), _number(r.upper)) for v, r in program.range_constraints.items()}
    return read_graph(program.graph.nodes, inputs, weights, sizes_of(ends))


def _number(end: Any) -> int | None:
    """The end of a range; None where there is none."""
    return int(end) if str(end).lstrip("-").isdigit() else None


def decomposed(program: Any) -> Any:
    """A `torch.export.ExportedProgram` in core ATen; attention and recurrent layers stay operators with converters.

    Decomposed, attention would scale both operands, and look for rows that are masked where there is no mask, a
    recurrent layer would be as many copies of a step as there are, and integers of linspace would be cut floats.
    What happens beside the results, such as the checks of torch.linalg, is in the order of the nodes, without tokens.
    """
    table = import_module("torch.export").default_decompositions()
    whole = [op for op in table if {str(op).split(".")[1], str(op).partition(".")[2]} & {*WHOLE}]
    for op in whole:
        del table[op]
    without_tokens = import_module("torch.export._remove_effect_tokens_pass")._remove_effect_tokens
    return without_tokens(program.run_decompositions(table))


def read_graph(
    nodes: Iterable[Any], inputs: Sequence[str], weights: Mapping[str, Array],
    sizes: Mapping[str, SizeVar] = MappingProxyType({}),
) -> AtenGraph:  # fmt: skip
    """The nodes of a graph of torch.fx; `weights` are the values of its other placeholders and attributes, by name.

    `sizes` are the symbols that extents may have.
    """
    reader = _Reader(sizes)
    outputs: tuple[str, ...] = ()
    for node in nodes:
        if node.op == "output":
            outputs = tuple(reader.outputs(node))
        else:
            reader.read(node)
    return AtenGraph(tuple(inputs), weights, tuple(reader.nodes), outputs, reader.tensors)


class _Reader:
    """The nodes and tensors read so far; `names` are the tensors that a node of torch.fx stands for.

    `extents` has the sizes that nodes give, as text: those that no argument names need not be ours.
    """

    def __init__(self, sizes: Mapping[str, SizeVar]) -> None:
        self.sizes = sizes
        self.extents: dict[str, str] = {}
        self.nodes: list[AtenNode] = []
        self.tensors: dict[str, TensorInfo] = {}
        self.names: dict[str, tuple[str | None, ...]] = {}

    def read(self, node: Any) -> None:
        if node.target is operator.getitem and node.args[0].name in self.names:
            self.names[node.name] = (self.names[node.args[0].name][node.args[1]],)
            return
        value = node.meta.get("val")
        if _is_size(value):
            self.extents[node.name] = str(value)
        single = not isinstance(value, list | tuple)
        parts = [value] if single else list(value)
        kept = [self.define(node.name if single else f"{node.name}.{k}", part) for k, part in enumerate(parts)]
        self.names[node.name] = tuple(kept)
        if node.op == "call_function":
            self.nodes.append(AtenNode(str(node.target), node.name, self.arguments(node), tuple(kept)))

    def define(self, name: str, value: Any) -> str | None:
        """Enter a tensor; None for what is none."""
        if not hasattr(value, "stride"):
            return None
        shape, strides = [[self.extent(d, name) for d in found] for found in (value.shape, value.stride())]
        self.tensors[name] = TensorInfo(tuple(shape), _name(value.dtype), tuple(strides))
        return name

    def extent(self, d: Any, name: str) -> Any:
        """An extent of a tensor: an integer, or what a symbolic one is of the sizes."""
        return d if type(d) is int else extent_of(str(d), self.sizes, f"tensor {name}")

    def arguments(self, node: Any) -> dict[str, Any]:
        """The arguments by the names of the operator's schema; of what has none (no operator of ATen), by number."""
        schema = getattr(node.target, "_schema", None)
        names = [str(k) for k in range(len(node.args))] if schema is None else [a.name for a in schema.arguments]
        given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
        return {name: self.plain(value) for name, value in given.items()}

    def plain(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return tuple([self.plain(v) for v in value])
        if value is None or isinstance(value, bool | int | float | str):
            return value
        kind = type(value).__name__
        if kind == "Node" and value.name in self.extents:
            return extent_of(self.extents[value.name], self.sizes, f"size {value.name}")
        if kind == "Node":
            name = self.names[value.name][0]
            return None if name is None else Ref(name)
        return None if kind in SKIPPED else _name(value)

    def outputs(self, node: Any) -> Iterable[str]:
        for value in self.plain(node.args[0]) if isinstance(node.args[0], list | tuple) else ():
            require(isinstance(value, Ref), GraphError, SUBJECT, "its outputs must be tensors", got=value)
            yield value.name


def _is_size(value: Any) -> bool:
    return type(value).__name__ == "SymInt"


def _name(value: Any) -> str:
    """`float32` for torch.float32."""
    return str(value).removeprefix("torch.")


def array_of(tensor: Any) -> Array:
    """The values of a tensor on the host; those of small floats go by float32, which has all of them."""
    dtype, host = _name(tensor.dtype), tensor.detach().cpu().resolve_conj().resolve_neg()
    return np.asarray(host.float().numpy()).astype(dtype) if dtype in STORED else np.asarray(host.numpy())
