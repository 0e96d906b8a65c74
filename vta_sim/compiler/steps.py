"""A nest with its parts turned into calls, grouped by the module that does them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from te_lite.expr.expr import Var

from ..core.config import Config
from ..core.kinds import Memory, Module
from .host_nest import HostLoop, HostNest, Part
from .kernel_calls import KernelCall, element_calls, fill_calls, fills, product_call
from .places import Places, is_elementwise
from .transfer import Transfer, is_transfer, transfer

Call = Transfer | KernelCall


@dataclass(frozen=True, eq=False)
class Step:
    """Calls that one module does without waiting for another in between; one that has none passes tokens on."""

    module: Module
    calls: tuple[Call, ...]


@dataclass(frozen=True, eq=False)
class Repeat:
    """A loop of the host around steps."""

    var: Var
    extent: int
    body: tuple[Node, ...]


Node = Step | Repeat


def steps_of(nest: HostNest, places: Places, config: Config) -> tuple[Node, ...]:
    """The calls of a nest.  Raises CompileError, with the reason, for a part that no call does."""

    def calls(part: Part, extents: dict[Var, int]) -> list[Call]:
        if is_transfer(part):
            return [transfer(part, places, config, extents)]
        if is_elementwise(part):
            return list(element_calls(part, places.chains[part], places, config))
        if fills(part):
            return list(fill_calls(part, places, config))
        return [product_call(part, places, config)]

    return _nodes(nest.body, calls, dict(nest.threads))


def _nodes(
    body: Iterable[HostLoop | Part], calls: Callable[[Part, dict[Var, int]], list[Call]], extents: dict[Var, int]
) -> tuple[Node, ...]:
    out: list[Node | tuple[Module, Call]] = []
    for node in body:
        if isinstance(node, HostLoop):
            inner = _nodes(node.body, calls, {**extents, node.var: node.extent})
            out.append(Repeat(node.var, node.extent, inner))
        else:
            out += [(module_of(call), call) for call in calls(node, extents)]
    return tuple(_grouped(out))


def _grouped(nodes: Iterable[Node | tuple[Module, Call]]) -> Iterator[Node]:
    """Neighbouring calls of one module as a step."""
    for module, group in groupby(nodes, key=lambda x: x[0] if isinstance(x, tuple) else None):
        if module is None:
            yield from [x for x in group if not isinstance(x, tuple)]
        else:
            yield Step(module, tuple([x[1] for x in group if isinstance(x, tuple)]))


def module_of(call: Call) -> Module:
    """The module that does a call."""
    if isinstance(call, KernelCall) or call.memory in (Memory.ACC, Memory.ACC_8BIT):
        return Module.COMPUTE
    return Module.STORE if call.memory is Memory.OUT else Module.LOAD
