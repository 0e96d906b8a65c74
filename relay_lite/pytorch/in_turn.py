"""Operators that draw random numbers keep their order, so that the same seed gives the same numbers as in PyTorch.

What lies between them is put together into programs, and the rest is sorted anew by what reads what.  So each of them
reads the one before.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

DROPOUTS = ("dropout_p", "dropout")
"""Arguments of operators that draw nothing where they are 0."""


class InTurn:
    """An operator that is called after another one, whose result it is handed first and does not use."""

    def __init__(self, operator: Any) -> None:
        self.operator = operator
        self.__name__ = operator.__name__

    def __call__(self, before: Any, *args: Any, **kwargs: Any) -> Any:
        return self.operator(*args, **kwargs)

    def __str__(self) -> str:
        return str(self.operator)


def draw_in_turn(graph: Any) -> None:
    """Let every operator of a graph of torch.fx that draws random numbers read the one before; the graph is changed."""
    drawing = [node for node in graph.nodes if node.op == "call_function" and _draws(node)]
    for before, node in pairwise(drawing):
        node.target, node.args = InTurn(node.target), (before, *node.args)


def _draws(node: Any) -> bool:
    """Whether an operator draws; attention and recurrent layers do where they drop something."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    arguments = node.target._schema.arguments
    given = {**dict(zip([a.name for a in arguments], node.args, strict=False)), **node.kwargs}
    dropped = all(given.get(a.name, a.default_value) != 0 for a in arguments if a.name in DROPOUTS)
    return dropped and given.get("train") is not False and given.get("num_layers") != 1
