"""What a graph writes to tensors that it is given, such as running averages: all at once, when it has run.

A network in training mode writes to a hundred small tensors; one copy each would take longer than many of its kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Run = Callable[..., Any]
COPY = torch.ops.aten.copy_.default


@dataclass(frozen=True)
class Writes:
    """Placeholders that are written to, by name, where among the outputs their values are, and how many are outputs."""

    names: tuple[str, ...]
    at: tuple[int, ...]
    outputs: int


def taken_out(graph: Any) -> Writes:
    """What a graph of torch.fx writes at its end, which it gives as outputs instead, behind those that it has.

    Where the tensor that is written to is an output itself, its value takes the place of that.
    """
    (output,) = [node for node in graph.nodes if node.op == "output"]
    copies = [n for n in graph.nodes if n.target is COPY and n.args[0].op == "placeholder" and {*n.users} <= {output}]
    outputs = list(output.args[0])
    names, at, count = [node.args[0].name for node in copies], list[int](), len(outputs)
    for node in copies:
        at.append(outputs.index(node) if node in outputs else len(outputs))
        outputs[at[-1] : at[-1] + 1] = [node.args[1]]
    output.args = (tuple(outputs),)
    for node in copies:
        graph.erase_node(node)
    return Writes(tuple(names), tuple(at), count)


def with_writes(run: Run, writes: Writes, inputs: Sequence[str]) -> Run:
    """What runs a graph with these inputs, by name, and writes what it should."""
    if not writes.names:
        return run
    places = [inputs.index(name) for name in writes.names]

    def writing(*tensors: Any) -> Any:
        made, written = list(run(*tensors)), [tensors[k] for k in places]
        write(written, [made[k] for k in writes.at])
        for k, tensor in zip(writes.at, written, strict=True):
            made[k] = tensor
        return made[: writes.outputs]

    return writing


def write(places: Sequence[Any], values: Sequence[Any]) -> None:
    """Copy values to tensors of their shapes; those of a dtype and a device by one call."""
    kinds: dict[Any, tuple[list[Any], list[Any]]] = {}
    for place, value in zip(places, values, strict=True):
        into, what = kinds.setdefault((place.dtype, place.device, value.dtype, value.device), ([], []))
        into.append(place)
        what.append(value)
    for into, what in kinds.values():
        torch._foreach_copy_(into, what)
