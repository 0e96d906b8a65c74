"""The one place where the search reaches upward, by module name: target kinds, the graph front end, jobs.

A backend module has an object `BACKEND`, an `ansor.core.device.backend.Backend`.  A kind that is not in the table is
looked for among the plug-ins: entry points of the group `ansor.targets`, each a function that registers the kind of its
name (`ansor.register_target`).  A plug-in is imported when its kind is first asked for.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from te_lite.errors import require

from ..errors import BackendError


@dataclass(frozen=True)
class SearchParts:
    """The module `Entry.search` of a target kind has one of these as its object `SEARCH`.

    rules       the sketch rules, in order (`ansor.sketch.rule.SketchRule`); there are no extra ones
    decisions   the kinds of decisions of its sketches (`ansor.space.decisions.decision.Decision`)
    machine     for a target the machine whose estimate stands in for a model that has learnt nothing
                (`ansor.analytical.machine.EstimatesItself`)
    features    what models are told of its programs (`ansor.cost_model.features.FeatureSource`)
    runner      makes what measures its programs where nobody names another one; it brings its builder

    Hardware parameters mean nothing to such a kind, whose target text tells the machine: they are all 0.
    """

    rules: tuple[Any, ...]
    decisions: tuple[Any, ...]
    machine: Callable[[Any], Any]
    features: Any
    runner: Callable[[], Any]


FAMILIES = ("c", "cuda")
PLUGINS = "ansor.targets"


@dataclass(frozen=True)
class Entry:
    """A target kind: the module of its backend, and the kind whose programs it searches.

    `family` is "c" for loops of a processor and "cuda" for blocks of threads; the sketch rules, the defaults of
    hardware parameters and the analytical machine follow from it where they are None.  It is empty for a
    kind whose programs are of another sort: `search` is then the module that has their parts (`SearchParts`), if
    sketches are searched and not only templates.  `builder` and `runner` make what measures its programs, the local
    ones where they are None.
    """

    module: str
    family: str
    rules: tuple[Any, ...] | None = None
    hardware: Any = None
    machine: Any = None
    builder: Callable[[], Any] | None = None
    runner: Callable[[], Any] | None = None
    search: str = ""


_TABLE = {
    "c": Entry("codegen_c.backend", "c"),
    "cuda": Entry("codegen_cuda.backend", "cuda"),
    "vta": Entry("vta_sim.backend", "", search="vta_sim.search"),
}
OWN_KINDS = tuple(_TABLE)
WORKER_JOBS = {"draw": "ansor.policy.made_ahead"}
"""What workers do beside measuring: the module by the name of the job, whose `answer` gives the answer to one."""


def worker_answer(job: dict[str, Any]) -> dict[str, Any]:
    """The answer to a job whose `op` is one of `WORKER_JOBS`."""
    made: dict[str, Any] = importlib.import_module(WORKER_JOBS[job["op"]]).answer(job)
    return made


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
    check_kind("register_backend", kind, like)
    before = _TABLE.get(kind)
    _TABLE[kind] = Entry(module, like) if before is None else replace(before, module=module)
    return None if before is None else before.module


def check_kind(subject: str, kind: Any, like: Any) -> None:
    """Raise BackendError for a kind that is not one word, and for a `like` that is no family."""
    word = isinstance(kind, str) and kind.split() == [kind] and not kind.startswith("-")
    require(word, BackendError, subject, "a target kind is one word", kind=kind)
    require(like in FAMILIES, BackendError, subject, f"like is one of {', '.join(FAMILIES)}", like=like)


def enter(kind: str, entry: Entry) -> None:
    """Put a kind into the table.  Raises BackendError for one that the package itself has."""
    law = "the kinds of the package cannot be registered anew (register_backend gives one another module)"
    require(kind not in OWN_KINDS, BackendError, "register_target", law, kind=kind)
    _TABLE[kind] = entry


def entry_of(kind: str) -> Entry:
    """The entry of a target kind; a plug-in is loaded for it.  Raises BackendError when there is none."""
    if not is_known(kind):
        raise BackendError(f"target {kind!r}: no backend is known, known ones are {', '.join(known_kinds())}")
    return _TABLE[kind]


def is_known(kind: str) -> bool:
    """Whether a target kind has a backend; a plug-in is loaded for it.  Raises BackendError for one that fails."""
    found = [] if kind in _TABLE else [p for p in _plugins() if p.name == kind]
    if found:
        subject = f"target {kind!r}: its plug-in {found[0].value}"
        require(len(found) == 1, BackendError, f"target {kind!r}", "has several plug-ins", got=[p.value for p in found])
        try:
            found[0].load()()
        except Exception as error:
            said = " ".join(str(error).split())
            raise BackendError(f"{subject} fails: {type(error).__name__}: {said}") from error
        require(kind in _TABLE, BackendError, subject, "must call ansor.register_target for this kind")
    return kind in _TABLE


def _plugins() -> list[importlib.metadata.EntryPoint]:
    return list(importlib.metadata.entry_points(group=PLUGINS))


def plugin_kinds() -> tuple[str, ...]:
    """The target kinds of plug-ins."""
    return tuple([p.name for p in _plugins()])


def has_programs(kind: str) -> bool:
    """Whether the programs of a kind can be searched."""
    return is_known(kind) and bool(_TABLE[kind].family)


def backend_module(kind: str) -> str:
    """The name of the module that serves a target kind.  Raises BackendError when there is none."""
    return entry_of(kind).module


def family_of(kind: str) -> str:
    """The kind whose programs a kind searches (`Entry`).  Raises BackendError for an unknown kind."""
    return entry_of(kind).family


def known_kinds() -> tuple[str, ...]:
    """The target kinds that have a backend, with those of plug-ins that are not loaded."""
    return tuple(dict.fromkeys([*_TABLE, *plugin_kinds()]))


def program_kinds() -> tuple[str, ...]:
    """The target kinds whose programs can be searched, without those of plug-ins that are not loaded."""
    return tuple([kind for kind, entry in _TABLE.items() if entry.family])


def load_backend(module: str, kind: str) -> Any:
    """Import a backend module and give its `BACKEND`.  Raises BackendError when the module is missing."""
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        needs = _NEEDS.get(module, f"the module {module}")
        missing = "" if module.startswith(str(error.name)) else f" (the module {error.name} is missing)"
        hint = "" if kind == "c" else "; use target 'c'"
        raise BackendError(f"target {kind!r} needs {needs}, which this installation lacks{missing}{hint}") from error
    except Exception as error:
        said = " ".join(str(error).split())
        raise BackendError(f"target {kind!r}: its module {module} fails: {type(error).__name__}: {said}") from error
    law = f"its module {module} has no object BACKEND, an ansor.core.device.backend.Backend"
    try:
        return found.BACKEND
    except AttributeError as error:
        raise BackendError(f"target {kind!r}: {law}") from error


def search_parts(kind: str) -> SearchParts | None:
    """What the search of a kind's programs is made of, None where its family says.  Raises BackendError."""
    module = entry_of(kind).search
    found: SearchParts | None = front_end(module, f"target {kind!r}").SEARCH if module else None
    return found


def front_end(module: str, user: str) -> Any:
    """Import a module above the search for `user`.  Raises BackendError, in one sentence, when it is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.split(".")[0]
        missing = "" if str(error.name).startswith(package) else f" (the module {error.name} is missing)"
        raise BackendError(f"{user} needs the package {package}, which this installation lacks{missing}") from error
