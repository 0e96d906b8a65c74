"""From a network to something that runs: passes, programs, machine code, memory plan.

    with ansor.ApplyHistoryBest(log):
        lib = relay_lite.build(mod, target="cuda", params=params)
    module = graph_executor.GraphModule(lib["default"](ansor.device("cuda")))

Each different group of operators becomes one kernel.  Its program is that of the current dispatch context, else a
default one.  Kernels are compiled side by side, while the next ones are chosen; those that a build before has made come
from the store of the backend.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ansor.core.target.target import Target
from ansor.policy.made_ahead import MadeAhead
from te_lite.errors import TeError, require

from ..ir.errors import GraphError
from ..ir.module import IRModule, host_array
from ..ir.nodes import Function
from ..ir.visit import sizes_in
from ..runtime.assemble import make_plan
from ..runtime.devices import network_backend
from ..runtime.library import NetworkLibrary
from ..transform.sequential import DEFAULT, PassContext
from .group_programs import choose_programs, needs_of
from .kernels import Maker
from .open_build import build_open
from .optimize import optimize, whole_loops

OPT_LEVEL = 3
LONG_STEPS = 4
"""Beside a kernel that is a whole loop so many times as many steps of the plan can run."""
STAGES = 3
"""Those of `_stages`."""
STAND_BACK = 10
"""The niceness of compilers where one thread finds them work, from which they would keep it."""
Params = Mapping[str, Any]


@dataclass(frozen=True)
class Fused:
    """A graph whose operators are all in groups, the result of `optimize`, and its target."""

    function: Function
    target: Target


def build(
    mod: IRModule | Function,
    *given: Params | Target | str | None,
    target: Target | str | None = None,
    params: Params | None = None,
) -> NetworkLibrary:
    """Compile a network.

    Called as `build(mod, params, target)` or, as in TVM, `build(mod, target, params=params)` or with keywords only:
    of the arguments after `mod`, a text or `Target` is the target (default `c`), a mapping from names to arrays the
    parameters.  Those become part of the compiled network; variables that they do not name stay inputs.  The passes
    run as the current `PassContext` says, and at level 3 outside any.  Kernels that are worth tuning and have no
    record in the current dispatch context are named in one warning.

    Raises GraphError for a graph that cannot be compiled or a record that does not fit its kernel, TaskError for an
    unknown target, and the error of the backend when its compiler refuses a kernel.
    """
    target, params = _arguments(given, target, params)
    with _passes():
        fused = _fused(mod, target, params).function
        if sizes_in(fused):
            with closing(MadeAhead()) as ahead, _threads(ahead) as pool:
                return build_open(fused, target, pool)
        return compile_fused(fused, target)


def build_each(graphs: Sequence[tuple[IRModule, Target, PassContext]]) -> list[NetworkLibrary | TeError]:
    """Compile several networks, each with passes of its own, side by side; their parameters are in their graphs.

    A network that cannot be compiled gives its error, one of those that `build` raises.
    """
    made: list[NetworkLibrary | TeError | Fused] = []
    for graph, target, context in graphs:
        try:
            with context, _passes():
                made.append(_fused(graph, target, None))
        except TeError as error:
            made.append(error)
    compiled = iter(compile_each([one for one in made if isinstance(one, Fused)]))
    return [next(compiled) if isinstance(one, Fused) else one for one in made]


def _passes() -> PassContext:
    """Those of the current context, all of them outside any."""
    entered = PassContext.current()
    return replace(entered, opt_level=OPT_LEVEL) if entered is DEFAULT else entered


def _fused(mod: IRModule | Function, target: Target, params: Params | None) -> Fused:
    arrays = {name: host_array(value) for name, value in ({} if params is None else params).items()}
    return Fused(optimize(mod, arrays, target, for_build=True), target)


def _arguments(
    given: tuple[Any, ...], target: Target | str | None, params: Params | None
) -> tuple[Target, Params | None]:
    for value in given:
        if isinstance(value, Target | str):
            require(target is None, GraphError, "build", "the target is given twice", target=str(value))
            target = value
        elif value is not None:
            ok = isinstance(value, Mapping)
            law = "arguments are a target and a mapping of parameters"
            require(ok, GraphError, "build", law, got=type(value).__name__)
            require(params is None, GraphError, "build", "the parameters are given twice")
            params = value
    law = "a mapping from names to arrays is needed"
    ok = params is None or isinstance(params, Mapping)
    require(ok, GraphError, "parameters", law, got=type(params).__name__)
    return Target.of("c" if target is None else target), params


def compile_fused(fused: Function, target: Target) -> NetworkLibrary:
    """Compile a graph whose operators are all in groups, the result of `optimize`.  Raises as `build` does."""
    (made,) = compile_each([Fused(fused, target)])
    if isinstance(made, TeError):
        raise made
    return made


def compile_each(graphs: Sequence[Fused]) -> list[NetworkLibrary | TeError]:
    """Compile several graphs as `compile_fused` does, side by side; one that cannot be compiled gives its error."""
    with closing(MadeAhead()) as ahead, _threads(ahead) as pool:
        running = [_stages(graph.function, graph.target, pool, ahead) for graph in graphs]
        made: list[NetworkLibrary | TeError | None] = [None] * len(graphs)
        for _ in range(STAGES):
            made = [_next(one, before) for one, before in zip(running, made, strict=True)]
    return [found for found in made if found is not None]


def _stages(
    fused: Function, target: Target, pool: ThreadPoolExecutor, ahead: MadeAhead
) -> Iterator[NetworkLibrary | None]:
    """The compilation of a graph, which ends with the network: workers and compilers are begun before others are waited
    for.
    """
    backend = network_backend(target.kind.name)
    needs = needs_of(fused, target, ahead)
    yield None
    maker = Maker(backend, target, pool)
    fused, kernels = choose_programs(fused, target, maker, needs)
    wholes = whole_loops(fused)
    kernels |= {function: maker.whole(function) for function in wholes}
    yield None
    slack = backend.slack * (LONG_STEPS if wholes else 1)
    plan, values = make_plan(fused, lambda function: kernels[function].call, backend.alignment, slack)
    compiled = {kernel.name: kernel.machine_code() for kernel in kernels.values()}
    codes = {kernel.name: kernel.code for kernel in kernels.values()}
    sources, binaries = backend.link(plan, compiled)
    machine = backend.machine(str(target))
    yield NetworkLibrary(str(target), target.kind.name, plan, values, codes, sources, binaries, machine, fused)


def _next(
    running: Iterator[NetworkLibrary | None], before: NetworkLibrary | TeError | None
) -> NetworkLibrary | TeError | None:
    """What the next stage gives, or the error of it or of one before."""
    try:
        return before if isinstance(before, TeError) else next(running)
    except TeError as error:
        return error


@contextmanager
def _threads(ahead: MadeAhead) -> Iterator[ThreadPoolExecutor]:
    """As many threads as there are processors; what they have not begun is dropped when a kernel fails.

    Where no workers find them work they and the compilers they start stand back: the thread that does wants a
    processor.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    pool = ThreadPoolExecutor(count, initializer=partial(_stand_back, ahead))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _stand_back(ahead: MadeAhead) -> None:
    if sys.platform == "linux" and not ahead.works:  # elsewhere this is the priority of the whole process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), STAND_BACK)
