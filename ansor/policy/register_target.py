"""A new kind of targets in one call: what runs its programs, and what its search is made of."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence

from te_lite.errors import require

from ..analytical.machine import CPU, GPU, Machine
from ..core.errors import PartError, TaskError
from ..core.target.hardware import HardwareParams
from ..core.target.registry import Entry, check_kind, enter
from ..core.tasks.protocols import Builder, Runner
from ..sketch.rule import SketchRule, checked_rules

MACHINES: dict[str, type] = {"c": CPU, "cuda": GPU}


def register_target(
    kind: str,
    backend: str,
    like: str = "c",
    rules: Sequence[SketchRule] | None = None,
    hardware: HardwareParams | None = None,
    builder: Callable[[], Builder] | None = None,
    runner: Callable[[], Runner] | None = None,
    machine: Machine | None = None,
) -> None:
    """Make `Target(kind)` a target; the same kind may be registered again, which replaces it.

    `backend` is the name of a module with an object `BACKEND`, an `ansor.core.device.backend.Backend`; worker processes
    import it by this name.  Programs are searched as `like` says: "c", loops of a processor, or "cuda", blocks of
    threads.  That kind also gives what is not said here:

    `rules`      the sketch rules, in order; the extra rules are then searched only on request
    `hardware`   the defaults of hardware parameters
    `builder`, `runner`  functions without arguments that make what measures programs where `TuningOptions` name none
    `machine`    figures for the analytical model (`CPU` or `GPU` of `ansor.analytical.machine`), which scores programs
                 while a learning model knows nothing

    Raises BackendError for a kind that is not one word or belongs to the package and for an unknown `like`, PartError
    or TaskError for another part that is not what it must be.
    """
    check_kind("register_target", kind, like)
    subject = f"register_target {kind!r}"
    require(isinstance(backend, str) and backend, TaskError, subject, "backend is the name of a module", got=backend)
    law = "backend is the name of a module, and no module of this name can be imported"
    require(_is_module(backend), TaskError, subject, law, got=backend)
    ok = hardware is None or isinstance(hardware, HardwareParams)
    require(ok, TaskError, subject, "hardware must be ansor.HardwareParams", got=hardware)
    ok = machine is None or isinstance(machine, MACHINES[like])
    law = f"for a target like {like!r} the machine must be a {MACHINES[like].__name__} of ansor.analytical.machine"
    require(ok, TaskError, subject, law, got=machine)
    for name, part in (("builder", builder), ("runner", runner)):
        law = f"{name} must be a function that makes one, such as its class"
        require(part is None or callable(part), PartError, subject, law, got=part)
    own = None if rules is None else checked_rules(rules, f"{subject}: rules")
    require(own is None or own, TaskError, subject, "rules must name at least one rule", got=rules)
    enter(kind, Entry(backend, like, own, hardware, machine, builder, runner))


def _is_module(name: str) -> bool:
    """Whether there is a module to import, or one that was; packages above it are imported."""
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
