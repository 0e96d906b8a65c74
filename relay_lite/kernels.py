"""From the groups of a fused graph to loop nests: the best recorded program of each, or a default one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count

from ansor.dispatch import ApplyHistoryBest, DispatchContext
from ansor.target import Target
from ansor.task import SearchTask
from te_lite.errors import TeError
from te_lite.lower import lower
from te_lite.replay import replay
from te_lite.state import State
from te_lite.stmt import LoweredFunc

from .default_schedule import default_program
from .errors import GraphError
from .ir import Function, FunctionCall, post_order
from .lower_group import LoweredGroup, lower_group
from .runtime.assemble import reshaped_params
from .transform import AutoSchedulerLayoutRewrite, Sequential

logger = logging.getLogger("relay_lite")


@dataclass(frozen=True, eq=False)
class GroupProgram:
    """A group with the program that was chosen for it, called `name`; `recorded` says that it came from a record."""

    name: str
    function: Function
    group: LoweredGroup
    state: State
    func: LoweredFunc
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
    function: Function, target: Target, accept: Callable[[LoweredFunc], None], taken: Container[str] = ()
) -> GroupProgram:
    """The program of the current dispatch context for a group, or a default one; its name is none of `taken`.

    `accept` raises a TeError for a loop nest that the target cannot run.  Raises GraphError for a record that does
    not fit, naming the kernel.
    """
    group = lower_group(function, target.kind.name)
    name = next(n for n in chain([group.name], map(f"{group.name}_{{}}".format, count(1))) if n not in taken)
    args = list(dict.fromkeys(group.tensors))
    try:
        state = DispatchContext.current.query(target, group.workload_key, group.is_complex, group.dag, group.name)
        if state is not None:
            state = state if state.dag is group.dag else replay(group.dag, state.steps)
            func = lower(state, args, name)
            accept(func)
            return GroupProgram(name, function, group, state, func, True)
    except TeError as error:
        raise GraphError(f"kernel {group.name}: its recorded program cannot be used: {error}") from error
    task = SearchTask(compute_dag=group.dag, target=target, desc=group.name)
    state, func = default_program(task, args, name, accept)
    return GroupProgram(name, function, group, state, func, False)


def choose_programs(
    fused: Function, target: Target, accept: Callable[[LoweredFunc], None]
) -> tuple[Function, dict[Function, GroupProgram]]:
    """Programs for all groups of a fused graph that need a kernel.

    Default programs may want their constant weights in another order, as recorded ones do; the graph that comes back
    has the weights packed so.  Groups that are worth tuning and have no record are named in one warning.
    """
    programs = _choose(groups_of(fused), {}, target, accept)
    _warn_of_defaults(list(programs.values()), target)
    with ApplyHistoryBest(None) as chosen:
        for program in programs.values():
            if not program.recorded:
                chosen.update(target, program.group.workload_key, program.state)
        packed = Sequential([AutoSchedulerLayoutRewrite(target)])(fused)
        return packed, _choose(groups_of(packed), programs, target, accept)


def _choose(
    functions: Sequence[Function], known: Mapping[Function, GroupProgram], target: Target,
    accept: Callable[[LoweredFunc], None],
) -> dict[Function, GroupProgram]:  # fmt: skip
    """The programs of the functions, each under a name of its own; those that are known are kept."""
    out = {f: known[f] for f in functions if f in known}
    for f in functions:
        if f not in out:
            out[f] = choose_program(f, target, accept, {p.name for p in out.values()})
    return out


def groups_of(fused: Function) -> list[Function]:
    """The different groups that need a kernel, in order of first use."""
    calls = [node.function for node in post_order(fused.body) if isinstance(node, FunctionCall)]
    return [f for f in dict.fromkeys(calls) if reshaped_params(f) is None]


def _warn_of_defaults(programs: Sequence[GroupProgram], target: Target) -> None:
    names = [p.name for p in programs if p.group.is_complex and not p.recorded]
    if names:
        kernels = "kernel has" if len(names) == 1 else "kernels have"
        logger.warning("target %s: %d %s no record and got a default program, which may be slow: %s",
                       target, len(names), kernels, ", ".join(names))  # fmt: skip
