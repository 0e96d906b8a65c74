"""The one place where the search reaches upward, by module name: backends by target kind, and the graph front end.

A backend module has a `BACKEND` object that follows `ansor.measure.api.Backend`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from .errors import BackendError

if TYPE_CHECKING:
    from .hardware import HardwareParams
    from .measure.api import Backend
    from .target import Target
    from .task import SearchTask

_MODULES = {"c": "codegen_c.backend", "cuda": "codegen_cuda.backend", "vta": "vta_sim.backend"}
_NEEDS = {
    "codegen_c.backend": "the package codegen_c",
    "codegen_cuda.backend": "the package codegen_cuda and an NVIDIA GPU",
    "vta_sim.backend": "the package vta_sim",
}


def register_backend(kind: str, module: str) -> str | None:
    """Let `module` serve the target kind; gives the name of the module that did so before."""
    before = _MODULES.get(kind)
    _MODULES[kind] = module
    return before


def backend_module(kind: str) -> str:
    """The name of the module that serves a target kind.  Raises BackendError when there is none."""
    if kind not in _MODULES:
        raise BackendError(f"target {kind!r}: no backend is known, known ones are {', '.join(_MODULES)}")
    return _MODULES[kind]


def backend_kinds() -> tuple[str, ...]:
    """The target kinds that have a backend."""
    return tuple(_MODULES)


def load_backend(module: str, kind: str) -> Backend:
    """Import a backend module and give its `BACKEND`.  Raises BackendError when the module is missing."""
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        needs = _NEEDS.get(module, f"the module {module}")
        missing = "" if module.startswith(str(error.name)) else f" (the module {error.name} is missing)"
        hint = "" if kind == "c" else "; use target 'c'"
        raise BackendError(f"target {kind!r} needs {needs}, which this installation lacks{missing}{hint}") from error
    return cast("Backend", loaded.BACKEND)


def backend(kind: str) -> Backend:
    """The backend of a target kind.  Raises BackendError, in one sentence, when it cannot be had."""
    return load_backend(backend_module(kind), kind)


def extract_tasks(
    graph: Any,
    params: Mapping[str, Any] | None,
    target: Target | str,
    hardware_params: HardwareParams | None = None,
    include_simple_tasks: bool = False,
    dump_workload_to_dag_log: str | os.PathLike[str] | None = None,
    opt_level: int = 3,
) -> tuple[list[SearchTask], list[int]]:
    """The search tasks of a network and how often it runs each: `relay_lite.extract.extract_tasks`, which says more.

    Raises BackendError when the package relay_lite is missing.
    """
    tasks: tuple[list[SearchTask], list[int]] = front_end("relay_lite.extract", "extract_tasks").extract_tasks(
        graph, params, target, hardware_params, include_simple_tasks, dump_workload_to_dag_log, opt_level
    )
    return tasks


def front_end(module: str, user: str) -> Any:
    """Import a module above the search for `user`.  Raises BackendError, in one sentence, when it is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.split(".")[0]
        missing = "" if str(error.name).startswith(package) else f" (the module {error.name} is missing)"
        raise BackendError(f"{user} needs the package {package}, which this installation lacks{missing}") from error
