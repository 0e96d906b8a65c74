"""The one place where the search reaches upward, by module name: backends by target kind, and the graph front end.

A backend module has a `BACKEND` object that follows `ansor.core.protocols.Backend`.
"""

from __future__ import annotations

import importlib
from typing import Any

from .errors import BackendError

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


def load_backend(module: str, kind: str) -> Any:
    """Import a backend module and give its `BACKEND`.  Raises BackendError when the module is missing."""
    try:
        return importlib.import_module(module).BACKEND
    except ModuleNotFoundError as error:
        needs = _NEEDS.get(module, f"the module {module}")
        missing = "" if module.startswith(str(error.name)) else f" (the module {error.name} is missing)"
        hint = "" if kind == "c" else "; use target 'c'"
        raise BackendError(f"target {kind!r} needs {needs}, which this installation lacks{missing}{hint}") from error


def front_end(module: str, user: str) -> Any:
    """Import a module above the search for `user`.  Raises BackendError, in one sentence, when it is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.split(".")[0]
        missing = "" if str(error.name).startswith(package) else f" (the module {error.name} is missing)"
        raise BackendError(f"{user} needs the package {package}, which this installation lacks{missing}") from error
