"""Recurrent layers as operators of their own, which tracing leaves whole.

TorchDynamo takes `torch.nn.LSTM`, `GRU` and `RNN` into its graphs where `torch._dynamo.config.allow_rnn` is set, and
AOTAutograd would take them apart, a copy of the step for each one; `torch.export` finds their shapes a step after the
other.  In their place stand operators of the same arguments that compute the same: those left run in PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_ARGUMENTS = (
    "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first"
)
HAS_BIASES = 3
"""The place of an argument that is a flag; of a layer over a packed sequence another one is there."""
_HIDDEN = {"gru": "Tensor hx", "lstm": "Tensor[] hx", "rnn_relu": "Tensor hx", "rnn_tanh": "Tensor hx"}
_torch_library: Any = torch.library  # whose functions have no types
_library = _torch_library.Library("ansor", "FRAGMENT")


def _define(name: str, hidden: str) -> None:
    states = 2 if hidden.startswith("Tensor[]") else 1
    results = ", ".join(["Tensor"] * (1 + states))
    tags = (torch.Tag.nondeterministic_seeded,)
    _library.define(f"{name}(Tensor input, {hidden}, {_ARGUMENTS}) -> ({results})", tags=tags)
    whole = getattr(torch, name)

    def run(x: Any, hx: Any, *rest: Any) -> Any:
        return tuple([value.contiguous() for value in whole(x, hx, *rest)])  # as `shapes` says they lie

    def shapes(x: Any, hx: Any, params: Any, biases: bool, layers: int, dropout: float, train: bool, both: bool,
               first: bool) -> Any:  # fmt: skip
        given = hx if states > 1 else [hx]
        last = [x.new_empty(state.shape) for state in given]
        return x.new_empty(*x.shape[:2], given[0].shape[2] * (2 if both else 1)), *last

    _library.impl(name, run, "CompositeExplicitAutograd")
    _torch_library.register_fake(f"ansor::{name}", shapes, lib=_library)


for _name, _hidden in _HIDDEN.items():
    _define(_name, _hidden)
_WHOLE = {getattr(torch, name): getattr(torch.ops.ansor, name).default for name in _HIDDEN}


def keep_whole(module: Any) -> None:
    """Put our operators in the place of the recurrent layers of a graph of TorchDynamo, which is changed."""
    changed = False
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target in _WHOLE and _is_plain(node):
            node.target, changed = _WHOLE[node.target], True
    if changed:
        module.recompile()


class KeptWhole(TorchFunctionMode):
    """While it is entered, recurrent layers that are called, or traced, are our operators, but not under autocast."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _WHOLE and _over_tensor(args) and not torch.is_autocast_enabled(args[0].device.type):
            return _WHOLE[func](*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _over_tensor(args: Sequence[Any]) -> bool:
    """Whether the arguments of a layer are those for a tensor, and not for a packed sequence."""
    return len(args) > HAS_BIASES and isinstance(args[HAS_BIASES], bool)


def _is_plain(node: Any) -> bool:
    """Whether a layer runs over a tensor, and gives the dtype that it takes (no autocast)."""
    if not _over_tensor(node.args):
        return False
    given, made = (value.meta.get("example_value") for value in (node.args[0], node))
    return made is not None and all(value.dtype == given.dtype for value in made)
