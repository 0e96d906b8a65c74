"""A traced graph with as much of it as can be compiled by us; the rest runs in PyTorch, operator by operator.

What is not imported (an operator that we do not know, an argument that it refuses) is named once in a log message.
Outputs that are views of what the graph is given stay views, so they are PyTorch's, too.
"""

from __future__ import annotations

import copy
import logging
import math
import operator
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner

from te_lite import environment
from te_lite.errors import TeError

from ..frontend.torch.importer import import_graph, refused_nodes
from ..frontend.torch.program import AtenGraph
from ..frontend.torch.traced import array_of, read_graph
from ..ir.nodes import Array
from ..runtime.library import NetworkLibrary
from ..transform import PassContext
from ..transform.batch_slices import HELD
from .eager_bytes import eager_bytes
from .faster import Run, Tried, fastest, like, table
from .in_turn import draw_in_turn
from .memory_order import as_they_lie, is_dense, order_of
from .network import unsaid
from .options import Options
from .program import TorchProgram, Weight
from .variants import Made, NotCompiled, program_of
from .verdict import Built, against_defaults, last_of, sentence

logger = logging.getLogger("ansor.torch")
ASSERTED = "aten._assert_tensor_metadata.default"
"""Says what is known when all shapes are."""
_told: set[str] = set()
TRIED_SHARE = 0.3
"""Of the seconds of a budget, what is kept for trying operators in PyTorch."""
COMPARED_SHARE = 0.1
"""What is kept where none is tried: programs are compiled, and those found are compared with default ones."""
_one_at_a_time = threading.RLock()
"""Held while a graph is compiled, which sets what belongs to the process."""


@dataclass(frozen=True)
class Kept:
    """What runs a graph; `records` says whether it may be made with records again, or default programs won."""

    run: Run
    records: bool


def compile_graph(
    module: Any, weights: Mapping[str, Any], options: Options, device: Any, spent: float = 0.0
) -> Kept:  # fmt: skip
    """What runs a graph of torch.fx in core ATen with static shapes.

    `weights` are the values of placeholders that stay; the result takes the other placeholders in order and gives
    the outputs of the graph.  `device` is the one that programs run on; None, where the tensors have several: all of it
    runs in PyTorch.  `spent` are the seconds of a budget that are gone.
    """
    for node in list(module.graph.nodes):
        if str(node.target) == ASSERTED:
            module.graph.erase_node(node)
    draw_in_turn(module.graph)
    weights = {**weights, **_constants(module)}
    known = {name: Weight(weight, _frozen(array_of(weight))) for name, weight in weights.items()}
    drawing = torch.random.fork_rng([device] if device is not None and device.type == "cuda" else [])
    with _one_at_a_time, environment.ANSOR_TENSOR_BYTES.unless_set(str(_largest(module.graph))), drawing:
        return _runs(module, weights, known, options, device, spent)


def _runs(
    module: Any, weights: Mapping[str, Any], known: Mapping[str, Weight], options: Options, device: Any, spent: float
) -> Kept:
    """What runs a graph; all that is said of its weights is `known`."""
    arrays = {name: weight.array for name, weight in known.items()}
    refused = _elsewhere(module.graph, device) | _refused(module.graph, arrays)
    for node in _calls(module.graph):
        if node.name in refused:
            _tell(str(node.target), "runs in PyTorch: %s", refused[node.name])
    outside = {*refused, *[node.name for node in _views(module.graph)]}

    end = math.inf if options.seconds is None else time.monotonic() + options.seconds - spent
    share = TRIED_SHARE if options.tries_others else COMPARED_SHARE
    until = end - share * (options.seconds or 0)

    def made(graph: Any, elsewhere: set[str], options: Options) -> Built:
        one, searched, seconds = _compiled(graph, elsewhere, known, options, device, until)
        return Built(_bound(one, weights), searched, seconds)

    def other(elsewhere: set[str], options: Options) -> Run:
        with unsaid():
            return made(copy.deepcopy(module), elsewhere, options).run

    if device is None or not (options.measures or options.tries_others):
        return Kept(made(module, outside, options).run, options.records)
    inputs = [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder" and n.name not in weights]
    calls = [node for node in _calls(module.graph) if node.name not in outside]
    first = made(copy.deepcopy(module), outside, options)
    return _judged(first, calls, lambda names, o: other(outside | names, o), inputs, options, device, end)


def _judged(
    first: Built, calls: Sequence[Any], make: Callable[[set[str], Options], Run], values: Sequence[Any],
    options: Options, device: Any, end: float,
) -> Kept:  # fmt: skip
    """What is kept of a module, which is said; `make` gives it with some nodes, by name, in PyTorch."""

    def inputs() -> list[Any]:
        return [like(v, device) for v in values]

    run, compared, tried = first.run, None, list[Tried]()
    last = last_of(end, options.seconds)
    if first.searched:
        run, compared = against_defaults(first, lambda: make(set(), options.defaults), inputs, device, last)
    records = options.records and (compared is None or not compared.defaults_kept)
    if options.tries_others:
        rest = options.unmeasured if records else options.defaults
        run, tried = fastest(calls, run, lambda names: make(names, rest), inputs(), device, last, first.seconds)
    if compared is not None or tried:
        logger.warning("%s", sentence(compared, tried))
    if tried:
        logger.info("what a call takes with an operator in PyTorch:\n%s", table(tried))
    return Kept(run, records)


def _frozen(array: Array) -> Array:
    """The values of a weight, which nobody writes to: the graph takes them as they are."""
    values = array if array.base is None else array.copy()
    values.setflags(write=False)
    return values


def _largest(graph: Any) -> int:
    """The most bytes that one tensor of a graph may have: its own are there, or will be, and are no surprise."""
    values = [node.meta.get("val") for node in graph.nodes]
    tensors = [t for v in values for t in (v if isinstance(v, list | tuple) else [v]) if isinstance(t, torch.Tensor)]
    least = int(environment.ANSOR_TENSOR_BYTES.default)
    sizes: list[int] = [2 * t.numel() * t.element_size() for t in tensors]
    return max([least, *sizes])


def _compiled(
    module: Any, outside: set[str], weights: Mapping[str, Weight], options: Options, device: Any, end: float
) -> tuple[Any, bool, float]:
    """The module with programs in place of its parts that are not `outside`, which is changed; whether any of them has
    records of a search right before, and the seconds that compiling took.

    Parts share the time until `end`: each has its share of what is left.
    """
    parts, made = _partitioned(module, outside), list[Made | None]()
    for k, node in enumerate(parts):
        now = time.monotonic()
        made.append(_replace(module, node, weights, options, device, now + (end - now) / (len(parts) - k)))
    module.graph.eliminate_dead_code()
    module.recompile()
    done = [one for one in made if one is not None]
    return module, any(one.searched for one in done), sum(one.seconds for one in done)


def _constants(module: Any) -> dict[str, Any]:
    """The tensors that a graph holds as attributes."""
    found = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            value = operator.attrgetter(node.target)(module)
            if isinstance(value, torch.Tensor):
                found[node.name] = node.meta["val"] = value
    return found


def _calls(graph: Any) -> list[Any]:
    return [node for node in graph.nodes if node.op == "call_function"]


def _tell(about: str, text: str, what: str) -> None:
    """A log message, once for whatever it is about."""
    if about not in _told:
        _told.add(about)
        logger.warning(text, what)


def _read(graph: Any, weights: Mapping[str, Array]) -> AtenGraph:
    names = [node.name for node in graph.nodes if node.op in ("placeholder", "get_attr")]
    return read_graph(graph.nodes, [name for name in names if name not in weights], weights)


def _refused(graph: Any, weights: Mapping[str, Array]) -> dict[str, str]:
    try:
        return refused_nodes(_read(graph, weights))
    except TeError as error:
        return {node.name: str(error) for node in _calls(graph)}


def _elsewhere(graph: Any, device: Any) -> dict[str, str]:
    """The nodes that give tensors on other devices than the one of the programs."""
    found = {}
    for node in _calls(graph):
        value = node.meta.get("val")
        tensors = [v for v in (value if isinstance(value, list | tuple) else [value]) if isinstance(v, torch.Tensor)]
        if any(t.device != device for t in tensors):
            found[node.name] = f"{node.target} {node.name!r}: programs run on {device or 'one device'}"
    return found


def _views(graph: Any) -> list[Any]:
    """The nodes that only look at what the graph is given, and whose view is an output."""
    found = []
    (output,) = [node for node in graph.nodes if node.op == "output"]
    for node in output.all_input_nodes:
        chain = []
        while node.op == "call_function" and getattr(node.target, "is_view", False):
            chain.append(node)
            node = node.args[0]
        found += chain if node.op == "placeholder" else []
    return found


class _Support:
    """Which nodes may be in a part of ours (the interface of the partitioner)."""

    def __init__(self, outside: set[str]) -> None:
        self.outside = outside

    def is_node_supported(self, submodules: Mapping[str, Any], node: Any) -> bool:
        if node.op != "call_function":
            return False
        of_tuple = node.target is operator.getitem
        return (node.args[0].name if of_tuple else node.name) not in self.outside


def _partitioned(module: Any, outside: set[str]) -> list[Any]:
    """The calls of the parts that are compiled, each of them a module now; the graph is changed."""
    support: Any = _Support(outside)
    partitioner = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True)
    partitioner.fuse_partitions(partitioner.propose_partitions(), prefix="ansor_")
    return [node for node in module.graph.nodes if node.op == "call_module" and node.name.startswith("ansor_")]


def _replace(
    module: Any, node: Any, weights: Mapping[str, Weight], options: Options, device: Any, until: float
) -> Made | None:  # fmt: skip
    """Let a part run as a program of ours, measured `until` then; one that cannot be compiled stays in PyTorch."""
    part = module.get_submodule(node.target)
    if all(n.target is operator.getitem or getattr(n.target, "is_view", False) for n in _calls(part.graph)):
        return None
    names = [n.name for n in part.graph.nodes if n.op == "placeholder"]
    bound = {name: weights[a.name] for name, a in zip(names, node.args, strict=True) if a.name in weights}
    (output,) = [n for n in part.graph.nodes if n.op == "output"]
    single = not isinstance(output.args[0], list | tuple)
    if single:
        output.args = ((output.args[0],),)
    expected = [n.meta["val"] for n in output.args[0]]
    taken = [n.meta["val"] for n in part.graph.nodes if n.op == "placeholder" and n.name not in bound]
    orders = [order_of(v) for v in taken], [order_of(v) for v in expected]
    imported = import_graph(_read(part.graph, {name: weight.array for name, weight in bound.items()}))

    def make(library: NetworkLibrary) -> TorchProgram:
        return TorchProgram(library, device, *orders, list(bound.values()))

    graph = as_they_lie(imported, *orders)
    try:
        with PassContext(opt_level=3, config={HELD: eager_bytes(part.graph)}):
            made = program_of(graph, device, options, make, lambda: [like(v, device) for v in taken], until)
    except NotCompiled as error:
        _tell(str(error), "a part runs in PyTorch, for it could not be compiled: %s", str(error))
        output.args = (output.args[0][0],) if single else output.args
        return None
    module.add_submodule(node.target, Compiled(made.program, expected, single))
    node.args = tuple([a for a in node.args if a.name not in weights])
    return made


class Compiled(torch.nn.Module):
    """A program in place of a part of a graph, which gives tensors with the strides that the graph has seen."""

    def __init__(self, program: TorchProgram, expected: Sequence[Any], single: bool) -> None:
        super().__init__()
        self.program, self.single = program, single
        laid = [None if is_dense(v) else (tuple(v.shape), tuple(v.stride())) for v in expected]
        self.laid = laid if any(laid) else None

    def forward(self, *tensors: Any) -> Any:
        made = self.program(*tensors)
        if self.laid is not None:
            made = [t if at is None else _laid(t, *at) for t, at in zip(made, self.laid, strict=True)]
        return made[0] if self.single else made


def _laid(tensor: Any, shape: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    """A tensor with strides that no program writes; along steps of 0 it is expanded."""
    if 0 in stride:
        one = tuple([slice(0, 1) if step == 0 else slice(None) for step in stride])
        return tensor[one].clone().expand(shape)
    return torch.empty_strided(shape, stride, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _bound(module: Any, weights: Mapping[str, Any]) -> Run:
    """The module as a function of what is no weight; where all of it is one program, that program."""
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    free = [k for k, name in enumerate(names) if name not in weights]
    whole = _whole(module, weights)
    if whole is not None:
        return whole
    values = [weights.get(name) for name in names]

    def run(*tensors: Any) -> Any:
        given = list(values)
        for k, tensor in zip(free, tensors, strict=True):
            given[k] = tensor
        return module(*given)

    return run


def _whole(module: Any, weights: Mapping[str, Any]) -> Run | None:
    """The program that is all of a module, which gives its outputs in their order; None where there is more to do."""
    rest = [node for node in module.graph.nodes if node.op != "placeholder"]
    given = [node for node in module.graph.nodes if node.op == "placeholder" and node.name not in weights]
    if len(rest) < 2 or rest[0].op != "call_module" or list(rest[0].args) != given:
        return None
    part, *items, output = rest
    inside = module.get_submodule(part.target)
    ours = isinstance(inside, Compiled) and inside.laid is None
    if not ours or not all(n.target is operator.getitem and n.args[0] is part for n in items):
        return None
    in_order = inside.single or [n.args[1] for n in items] == list(range(len(items)))
    made = [part] if inside.single else items
    return inside.program if in_order and list(output.args[0]) == made else None
