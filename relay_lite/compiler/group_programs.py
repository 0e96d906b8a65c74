"""From the groups of a fused graph to loop nests: the best recorded program of each, or a default one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, count

from ansor.core.target import Target
from ansor.core.task import SearchTask
from ansor.records.dispatch import DispatchContext
from te_lite.errors import TeError
from te_lite.lower import lower
from te_lite.replay import replay
from te_lite.state import State
from te_lite.stmt import LoweredFunc

from ..ir.errors import GraphError
from ..ir.nodes import Function
from ..op.lower_group import LoweredGroup, lower_group
from ..runtime.assemble import reshaped_params
from ..transform.layout_rewrite import Packed, PackedLayouts, pack_weights, packs_weights, with_packed
from .default_schedule import default_states

Accept = Callable[[LoweredFunc], None]
logger = logging.getLogger("relay_lite")


@dataclass(frozen=True, eq=False)
class GroupProgram:
    """A group with the program that was chosen for it, called `name`; `recorded` says that it came from a record.

    It takes those parameters packed, by position, that `layouts` names.
    """

    name: str
    function: Function
    group: LoweredGroup
    state: State
    func: LoweredFunc
    layouts: PackedLayouts
    recorded: bool

    @property
    def arguments(self) -> tuple[int, ...]:
        """For each argument of `func`: its position among the parameters and then the results of the group."""
        count = len(self.function.params)
        positions = (*self.group.inputs, *[count + j for j in range(len(self.group.outputs))])
        first = {t: p for t, p in reversed(list(zip(self.group.tensors, positions, strict=True)))}
        return tuple([first[t] for t in dict.fromkeys(self.group.tensors)])

    @property
    def results(self) -> tuple[int, ...]:
        """For each result of the group: the position of the argument that holds it."""
        count, outputs = len(self.function.params), self.group.outputs
        return tuple([count + outputs.index(t) for t in outputs])


def choose_program(
    function: Function, target: Target, accept: Accept, taken: Container[str] = (), weights: Sequence[int] = ()
) -> GroupProgram:
    """The program of the current dispatch context for a group, or a default one; its name is none of `taken`.

    The group takes those of its parameters `weights` packed that the program reads in an order of its own.  `accept`
    raises a TeError for a loop nest that the target cannot run.  Raises GraphError for a record that does not fit,
    naming the kernel, and for a group without a record the error of the last default program when all are refused.
    """
    group = lower_group(function, target.kind.name)
    try:
        state = _recorded(group, target)
        if state is not None:
            return _lowered(with_packed(function, group, state, weights), accept, taken, True)
    except TeError as error:
        raise GraphError(f"kernel {group.name}: its recorded program cannot be used: {error}") from error
    return _default(function, group, target, accept, taken, weights)


def _recorded(group: LoweredGroup, target: Target) -> State | None:
    """The program of the current dispatch context, if it has one."""
    state = DispatchContext.current.query(target, group.workload_key, group.is_complex, group.dag, group.name)
    return state if state is None or state.dag is group.dag else replay(group.dag, state.steps)


def _default(
    function: Function, group: LoweredGroup, target: Target, accept: Accept, taken: Container[str],
    weights: Sequence[int],
) -> GroupProgram:  # fmt: skip
    """The first default program that is not refused; raises the last refusal when all are."""
    refused: TeError | None = None
    for state in default_states(SearchTask(compute_dag=group.dag, target=target, desc=group.name)):
        try:
            return _lowered(with_packed(function, group, state, weights), accept, taken, False)
        except TeError as error:
            refused = error
    assert refused is not None
    raise refused


def _lowered(packed: Packed, accept: Accept, taken: Container[str], recorded: bool) -> GroupProgram:
    group = packed.group
    name = next(n for n in chain([group.name], map(f"{group.name}_{{}}".format, count(1))) if n not in taken)
    func = lower(packed.state, list(dict.fromkeys(group.tensors)), name)
    accept(func)
    return GroupProgram(name, packed.function, group, packed.state, func, packed.layouts, recorded)


def choose_programs(fused: Function, target: Target, accept: Accept) -> tuple[Function, dict[Function, GroupProgram]]:
    """Programs for all groups of a fused graph that need a kernel.

    Default programs may want their constant weights in another order, as recorded ones do; the graph that comes back
    has the weights packed so.  Groups that are worth tuning and have no record are named in one warning.
    """
    packs, taken = packs_weights(target), set[str]()
    programs: dict[Function, GroupProgram] = {}
    untuned: dict[Function, None] = {}

    @cache
    def program(function: Function, weights: tuple[int, ...]) -> GroupProgram:
        found = choose_program(function, target, accept, taken, weights)
        found = programs.setdefault(found.function, found)
        taken.add(found.name)
        if found.group.is_complex and not found.recorded:
            untuned[function] = None
        return found

    def choose(function: Function, weights: tuple[int, ...]) -> tuple[Function, PackedLayouts]:
        if reshaped_params(function) is not None:
            return function, {}
        found = program(function, weights if packs else ())
        return found.function, found.layouts

    packed = pack_weights(fused, choose)
    _warn_of_defaults([str(function.attrs.get("name", "main")) for function in untuned], target)
    return packed, programs


def _warn_of_defaults(names: Sequence[str], target: Target) -> None:
    if names:
        kernels = "kernel has" if len(names) == 1 else "kernels have"
        logger.warning("target %s: %d %s no record and got a default program, which may be slow: %s",
                       target, len(names), kernels, ", ".join(names))  # fmt: skip
