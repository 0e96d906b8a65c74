"""The backend `ansor` of `torch.compile`, found by the entry point group `torch_dynamo_backends`."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext
from torch.fx.experimental.proxy_tensor import make_fx

from te_lite.errors import require

from ..ir.errors import GraphError
from .options import SUBJECT, Options
from .partition import Kept, compile_graph
from .program import ALIGNMENTS
from .programs import Made, Programs
from .recurrent import keep_whole
from .written import taken_out, with_writes


def ansor(module: Any, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """Compile a graph of TorchDynamo for inference; called by `torch.compile(model, backend="ansor", options={...})`.

    `options` are those of `relay_lite.pytorch.optimize`: trials, seconds, log, precision, target.  Weights become part
    of the programs.  What cannot be compiled runs in PyTorch.  Raises GraphError where gradients are asked for, and
    for options that make no sense.
    """
    checked = Options.of(options or {})
    refuse_training(inputs)
    keep_whole(module)

    def compiler(graph: Any, fake: Sequence[Any]) -> Callable[..., Any]:
        names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
        boxed: Callable[..., Any] = make_boxed_func(_Graph(graph, _static(fake, inputs), names, checked))
        return boxed

    backend = aot_autograd(
        fw_compiler=compiler, inference_compiler=compiler, decompositions=_decompositions(),
        keep_inference_input_mutations=True,
    )  # fmt: skip
    made: Callable[..., Any] = backend(module, inputs)
    return made


def _decompositions() -> dict[Any, Any]:
    """Those into core ATen, but for what would lose by it: `linspace` of integers is computed in float32 there."""
    return {op: how for op, how in core_aten_decompositions().items() if op is not torch.ops.aten.linspace.default}


def refuse_training(tensors: Sequence[Any]) -> None:
    """Raise GraphError where gradients would be asked of what is compiled."""
    asked = torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in tensors)
    law = "programs are for inference and have no gradients; call them under torch.no_grad() or torch.inference_mode()"
    require(not asked, GraphError, SUBJECT, law)


def device_of(tensors: Sequence[Any]) -> Any:
    """The one device of all tensors that programs run on, the processor where there are none; None for another one."""
    devices = {t.device for t in tensors if isinstance(t, torch.Tensor)} or {torch.device("cpu")}
    device = next(iter(devices))
    return device if len(devices) == 1 and device.type in ALIGNMENTS else None


def _static(fake: Sequence[Any], inputs: Sequence[Any]) -> list[int]:
    """Which inputs of a graph are weights: those that TorchDynamo says stay, if the graph takes its inputs in order.

    What the graph writes to, as batch norms do in training, is none.
    """
    context = TracingContext.try_get()
    if context is None or context.fw_metadata is None or len(fake) != len(inputs):
        return []
    found, written = context.fw_metadata, {k for k, i in enumerate(context.fw_metadata.input_info) if i.mutates_data}
    return [k for k in found.static_input_indices if isinstance(inputs[k], torch.Tensor) and k not in written]


class _Graph:
    """A graph in core ATen, called with all of its inputs; shapes may be open."""

    def __init__(self, graph: Any, static: Sequence[int], names: Sequence[str], options: Options) -> None:
        self.graph, self.static, self.names = graph, static, names
        self.weights_of = _picker(static)
        self.inputs_of = _picker([k for k in range(len(names)) if k not in set(static)])
        values = [node.meta.get("val") for node in graph.graph.nodes if node.op == "placeholder"]
        self.open = any(_is_open(v) for v in values)
        self.programs = Programs(options)

    def __call__(self, *given: Any) -> Any:
        weights, inputs = self.weights_of(given), self.inputs_of(given)
        shapes: tuple[Any, ...] = ()
        if self.open:
            shapes = tuple([x.shape if isinstance(x, torch.Tensor) else x for x in inputs])
            inputs = tuple([x for x in inputs if isinstance(x, torch.Tensor)])
        run = self.programs.get(
            shapes, tuple(map(id, weights)), lambda options: self.made(given, weights, options), lambda: weights
        )
        return run(*inputs)

    def made(self, given: Sequence[Any], weights: Sequence[Any], options: Options) -> Made:
        """What runs the graph for these shapes, made of these weights."""
        kept = self.compiled(given, options)
        return Made(kept.run, weights, kept.records)

    def compiled(self, given: Sequence[Any], options: Options) -> Kept:
        """What runs the graph for these shapes and weights."""
        begun = time.monotonic()
        graph, names = self.graph, self.names
        if self.open:
            with torch.no_grad():
                graph = make_fx(graph, tracing_mode="fake")(*given)
            taken = [node for node in graph.graph.nodes if node.op == "placeholder"]
            names = [node.name for node in taken]
            for node, value in zip(taken, given, strict=True):
                if not isinstance(value, torch.Tensor):
                    graph.graph.erase_node(node)  # an extent, which is a number now
        else:
            graph = copy.deepcopy(graph)  # it is rewritten
        weights = {names[k]: given[k] for k in self.static}
        written = taken_out(graph.graph)
        free = [n.name for n in graph.graph.nodes if n.op == "placeholder" and n.name not in weights]
        kept = compile_graph(graph, weights, options, device_of(given), time.monotonic() - begun)
        return replace(kept, run=with_writes(kept.run, written, free))


def _picker(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that gives the elements at some places of a sequence."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda given: tuple([given[k] for k in places])


def _is_open(value: Any) -> bool:
    if isinstance(value, torch.SymInt):
        return True
    return isinstance(value, torch.Tensor) and any(isinstance(d, torch.SymInt) for d in value.shape)
