"""From the groups of a fused graph to loop nests: the best recorded program of each, or a default one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, count
from typing import Protocol, TypeVar

from ansor.core.target.target import Target
from ansor.core.tasks.task import SearchTask
from ansor.core.values.options import LayoutRewriteOption
from ansor.policy.default_schedule import default_states, drawn_of, draws
from ansor.policy.made_ahead import Made, MadeAhead, Remembered, Wish
from ansor.records.dispatch import DispatchContext
from te_lite.errors import TeError
from te_lite.loops.stmt import LoweredFunc
from te_lite.lowering.lower import lower
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State

from ..ir.errors import GraphError
from ..ir.nodes import Function
from ..ir.visit import function_calls
from ..op.lower_group import LoweredGroup, lower_group, whole_loop
from ..runtime.assemble import reshaped_params
from ..runtime.devices import network_backend
from ..transform.layout_rewrite import PackedLayouts, constant_weights, pack_weights, packs_weights, with_packed

Accept = Callable[[LoweredFunc], None]
REMEMBERED = Remembered()
logger = logging.getLogger("relay_lite")


@dataclass(frozen=True, eq=False)
class GroupProgram:
    """A group with the program that was chosen for it, called `name`.

    It takes those parameters packed, by position, that `layouts` names.
    """

    name: str
    function: Function
    group: LoweredGroup
    state: State
    func: LoweredFunc
    layouts: PackedLayouts

    @property
    def arguments(self) -> tuple[int, ...]:
        """For each argument of `func`: its position among the parameters and then the results of the group."""
        return arguments_of(self.function, self.group)

    @property
    def results(self) -> tuple[int, ...]:
        """For each result of the group: the position of the argument that holds it."""
        return results_of(self.function, self.group)


def arguments_of(function: Function, group: LoweredGroup) -> tuple[int, ...]:
    """For each argument of a kernel: its position among the parameters and then the results of the group."""
    count = len(function.params)
    positions = (*group.inputs, *[count + j for j in range(len(group.outputs))])
    first = {t: p for t, p in reversed(list(zip(group.tensors, positions, strict=True)))}
    return tuple([first[t] for t in dict.fromkeys(group.tensors)])


def results_of(function: Function, group: LoweredGroup) -> tuple[int, ...]:
    """For each result of a group: the position of the argument of its kernel that holds it."""
    count, outputs = len(function.params), group.outputs
    return tuple([count + outputs.index(t) for t in outputs])


@dataclass(frozen=True, eq=False)
class Wanted:
    """A group that needs a kernel; `weights` are those of its parameters that may be packed.

    `recorded` is the program that the current dispatch context has for it, if it has one.  `ahead` gives what a worker
    made of it, None where none did; `unwanted` says that nobody will ask.
    """

    function: Function
    group: LoweredGroup
    weights: tuple[int, ...]
    recorded: State | None
    ahead: Callable[[], Made | None] = lambda: None
    unwanted: Callable[[], None] = lambda: None

    @property
    def untuned(self) -> bool:
        """Whether it is worth tuning, and has no record."""
        return self.group.is_complex and self.recorded is None


Needs = Mapping[tuple[Function, tuple[int, ...]], Wanted]
"""What groups need, by the group and those of its arguments that may be packed."""


def wanted(function: Function, target: Target, weights: Sequence[int] = ()) -> Wanted:
    """What a group needs.  Raises GraphError, naming the kernel, for a record that does not fit."""
    group = lower_group(function, target.kind.name)
    try:
        return Wanted(function, group, tuple(weights), _recorded(group, target))
    except TeError as error:
        raise _unfit(group, error) from error


def _unfit(group: LoweredGroup, error: TeError) -> GraphError:
    return GraphError(f"kernel {group.name}: its recorded program cannot be used: {error}")


def choose_program(need: Wanted, target: Target, accept: Accept, taken: Container[str] = ()) -> GroupProgram:
    """The recorded program of a group, or a default one; its name is none of `taken`.

    The group takes those of its weights packed that the program reads in an order of its own.  `accept` raises a
    TeError for a loop nest that the target cannot run.  Raises GraphError for a record that does not fit, naming the
    kernel, and for a group without a record the error of the last default program when all are refused.
    """
    if need.recorded is None:
        return _default(need, target, accept, taken)
    try:
        return _lowered(need, need.recorded, accept, taken)
    except TeError as error:
        raise _unfit(need.group, error) from error


def _recorded(group: LoweredGroup, target: Target) -> State | None:
    """The program of the current dispatch context, if it has one."""
    state = DispatchContext.current.query(target, group.workload_key, group.is_complex, group.dag, group.name)
    return state if state is None or state.dag is group.dag else replay(group.dag, state.steps)


def _default(need: Wanted, target: Target, accept: Accept, taken: Container[str]) -> GroupProgram:
    """The first default program that is not refused; raises the last refusal when all are."""
    refused: TeError | None = None
    task = _task(need, target)
    for state in default_states(task, _drawn(need, task)):
        try:
            return _lowered(need, state, accept, taken)
        except TeError as error:
            refused = error
    assert refused is not None
    raise refused


def _drawn(need: Wanted, task: SearchTask) -> Iterable[State] | None:
    """The programs that are drawn for a task, None where nothing is."""
    if not draws(task):
        return None
    need.ahead()  # which are remembered
    known = REMEMBERED.programs(task)
    return _remembering(task) if known is None else (replay(task.compute_dag, steps) for steps in known)


def _remembering(task: SearchTask) -> Iterator[State]:
    """The programs that are drawn for a task, one after the other; those that were asked for are remembered.

    Behind the one that the target takes none is asked for: it takes that one whenever it is asked.
    """
    seen: list[State] = []
    for state in drawn_of(task):
        seen.append(state)
        REMEMBERED.keep(task, tuple([x.steps for x in seen]))
        yield state
    REMEMBERED.keep(task, tuple([x.steps for x in seen]))


def _task(need: Wanted, target: Target) -> SearchTask:
    """The task whose default programs a group gets."""
    stored = LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED if need.weights else LayoutRewriteOption.NO_REWRITE
    return SearchTask(compute_dag=need.group.dag, target=target, desc=need.group.name, layout_rewrite_option=stored)


def _lowered(need: Wanted, state: State, accept: Accept, taken: Container[str]) -> GroupProgram:
    packed = with_packed(need.function, need.group, state, need.weights)
    group = packed.group
    name = next(n for n in chain([group.name], map(f"{group.name}_{{}}".format, count(1))) if n not in taken)
    func = lower(packed.state, list(dict.fromkeys(group.tensors)), name)
    accept(func)
    return GroupProgram(name, packed.function, group, packed.state, func, packed.layouts)


class Chosen(Protocol):
    """What a group becomes: a kernel called `name` of a function that takes some parameters packed (`layouts`)."""

    @property
    def name(self) -> str: ...
    @property
    def function(self) -> Function: ...
    @property
    def layouts(self) -> PackedLayouts: ...


T = TypeVar("T", bound=Chosen)
Choose = Callable[[Wanted, Set[str]], T]
"""What a group becomes, with a name that is not taken."""


def choose_programs(
    fused: Function, target: Target, choose: Choose[T], needs: Needs | None = None
) -> tuple[Function, dict[Function, T]]:
    """Let `choose` choose for every different group of a fused graph that needs a kernel, in the order of their use.

    What is chosen may want constant weights in another order; the graph that comes back has the weights packed so.
    Groups that are worth tuning and have no record are named in one warning.  `needs` are those of `needs_of`, where
    they are known already.
    """
    packs, taken = packs_weights(target), set[str]()
    chosen: dict[Function, T] = {}
    untuned: dict[Function, None] = {}
    needs = needs_of(fused, target) if needs is None else needs

    @cache
    def one(function: Function, weights: tuple[int, ...]) -> T:
        need = needs.get((function, weights)) or wanted(function, target, weights)
        found = choose(need, taken)
        found = chosen.setdefault(found.function, found)
        taken.add(found.name)
        if need.untuned:
            untuned[function] = None
        return found

    def packing(function: Function, weights: tuple[int, ...]) -> tuple[Function, PackedLayouts]:
        if reshaped_params(function) is not None or whole_loop(function) is not None:
            return function, {}
        found = one(function, weights if packs else ())
        return found.function, found.layouts

    packed = pack_weights(fused, packing)
    _warn_of_defaults([str(function.attrs.get("name", "main")) for function in untuned], target)
    return packed, chosen


def needs_of(fused: Function, target: Target, ahead: MadeAhead | None = None) -> Needs:
    """What the groups of a graph need, by what of them may be packed; `ahead` makes their kernels, if it is given."""
    packs = packs_weights(target)
    calls = [c for c in dict.fromkeys(function_calls(fused.body)) if whole_loop(c.function) is None]
    groups = dict.fromkeys([(c.function, constant_weights(c) if packs else ()) for c in calls])
    needs = {key: wanted(key[0], target, key[1]) for key in groups if reshaped_params(key[0]) is None}
    if ahead is None:
        return needs
    asked = network_backend(target.kind.name).asked(str(target))
    return {key: _begun(need, _task(need, target), asked, ahead) for key, need in needs.items()}


def _begun(need: Wanted, task: SearchTask, asked: str | None, ahead: MadeAhead) -> Wanted:
    """A group whose kernel is made ahead; the programs that are drawn for it are remembered.

    What may be packed is known with its program only, so that no kernel is made of a group with weights.
    """
    recorded = None if need.recorded is None else need.recorded.steps
    wish = Wish(task, need.group.name, None if need.weights else asked, REMEMBERED.programs(task), recorded)
    ahead.add(wish)

    def made() -> Made | None:
        found = ahead.made(wish)
        if found is not None and found.drawn is not None:
            REMEMBERED.keep(task, found.drawn)
        return found

    return replace(need, ahead=made, unwanted=partial(ahead.drop, wish))


def _warn_of_defaults(names: Sequence[str], target: Target) -> None:
    if names:
        kernels = "kernel has" if len(names) == 1 else "kernels have"
        logger.warning("target %s: %d %s no record and got a default program, which may be slow: %s",
                       target, len(names), kernels, ", ".join(names))  # fmt: skip
