"""The one place where the search reaches upward, by module name: backends by target kind, and the graph front end.

A backend module has an object `BACKEND`, an `ansor.core.backend.Backend`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from typing import Any

from te_lite.errors import require

from .errors import BackendError

FAMILIES = ("c", "cuda")


@dataclass(frozen=True)
class Entry:
    """A target kind: the module of its backend, and the kind whose programs it searches.

    `family` is "c" for loops of a processor and "cuda" for blocks of threads; the sketch rules, the defaults of
    hardware parameters and the analytical machine follow from it.  It is empty for a kind that has templates only.
    """

    module: str
    family: str


_TABLE = {
    "c": Entry("codegen_c.backend", "c"),
    "cuda": Entry("codegen_cuda.backend", "cuda"),
    "vta": Entry("vta_sim.backend", ""),
}
_NEEDS = {
    "codegen_c.backend": "the package codegen_c",
    "codegen_cuda.backend": "the package codegen_cuda and an NVIDIA GPU",
    "vta_sim.backend": "the package vta_sim",
}


def register_backend(kind: str, module: str, like: str = "c") -> str | None:
    """Let `module` serve the target kind; gives the name of the module that did so before.

    A kind that is new is searched as `like` is: "c", loops of a processor, or "cuda", blocks of threads.
    Raises BackendError for another `like`, and for a kind that is not one word.
    """
    word = kind.split() == [kind] and not kind.startswith("-")
    require(word, BackendError, "register_backend", "a target kind is one word", kind=kind)
    require(like in FAMILIES, BackendError, "register_backend", f"like is one of {', '.join(FAMILIES)}", like=like)
    before = _TABLE.get(kind)
    _TABLE[kind] = Entry(module, like) if before is None else replace(before, module=module)
    return None if before is None else before.module


def _entry(kind: str) -> Entry:
    if kind not in _TABLE:
        raise BackendError(f"target {kind!r}: no backend is known, known ones are {', '.join(_TABLE)}")
    return _TABLE[kind]


def backend_module(kind: str) -> str:
    """The name of the module that serves a target kind.  Raises BackendError when there is none."""
    return _entry(kind).module


def family_of(kind: str) -> str:
    """The kind whose programs a kind searches (`Entry`).  Raises BackendError for an unknown kind."""
    return _entry(kind).family


def backend_kinds() -> tuple[str, ...]:
    """The target kinds that have a backend."""
    return tuple(_TABLE)


def program_kinds() -> tuple[str, ...]:
    """The target kinds whose programs can be searched."""
    return tuple([kind for kind, entry in _TABLE.items() if entry.family])


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
