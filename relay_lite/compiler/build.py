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
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ansor.core.target import Target
from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.host_arrays import host_array
from ..ir.module import IRModule
from ..ir.nodes import Function
from ..runtime.assemble import make_plan
from ..runtime.devices import network_backend
from ..runtime.library import NetworkLibrary
from ..transform.context import DEFAULT, PassContext
from .group_programs import choose_programs
from .kernels import Maker
from .optimize import optimize

OPT_LEVEL = 3
STAND_BACK = 10
"""The niceness of compilers: all of Python is one thread, which they would keep from finding them work."""
Params = Mapping[str, Any]


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
    entered = PassContext.current()
    with replace(entered, opt_level=OPT_LEVEL) if entered is DEFAULT else entered:
        arrays = {name: host_array(value) for name, value in ({} if params is None else params).items()}
        fused = optimize(mod, arrays, target, for_build=True)
        return compile_fused(fused, target)


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
    backend = network_backend(target.kind.name)
    with _threads() as pool:
        fused, kernels = choose_programs(fused, target, Maker(backend, target, pool))
        plan, values = make_plan(fused, lambda function: kernels[function].call, backend.alignment, backend.slack)
        compiled = {kernel.name: kernel.machine_code() for kernel in kernels.values()}
    codes = {kernel.name: kernel.code for kernel in kernels.values()}
    sources, binaries = backend.link(plan, compiled)
    machine = backend.machine(str(target))
    return NetworkLibrary(str(target), target.kind.name, plan, values, codes, sources, binaries, machine, fused)


@contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    """As many threads as there are processors; what they have not begun is dropped when a kernel fails.

    They and the compilers they start stand back where the thread that finds them work wants a processor.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    pool = ThreadPoolExecutor(count, initializer=_stand_back)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _stand_back() -> None:
    if sys.platform == "linux":  # elsewhere this is the priority of the whole process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), STAND_BACK)
