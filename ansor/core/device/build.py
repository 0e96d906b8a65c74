"""From a schedule to a function: `build(sch, args, target)`, as the tutorials call it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from te_lite import Tensor
from te_lite.loops.stmt import LoweredFunc
from te_lite.lowering.lower import lower
from te_lite.schedule.state import State

from ..target.target import Target
from .backend import backend
from .loaded_module import LoadedModule

NAME = "default_function"


def build_function(program: Any, args: Sequence[Tensor], target: Target | str, name: str = NAME) -> Any:
    """Lower and compile a state or schedule; the result is called on arrays and has `source` and `time(...)`.

    Raises LowerError, BackendError, or the backend's own error when its compiler refuses.
    """
    target = Target.of(target)
    func = program if isinstance(program, LoweredFunc) else lower(program, args, name)
    chosen = backend(target.kind.name)
    return chosen.module(func, str(target)) or LoadedModule(chosen, func, str(target))


def build(
    inputs: State | LoweredFunc | Any, args: Sequence[Tensor] = (), target: Target | str = "c", name: str = NAME
) -> Any:
    """Build a schedule (with the tensors of its arguments) or a lowered program into a function of arrays."""
    return build_function(inputs, args, target, name)


__all__ = ["build", "build_function", "lower"]
