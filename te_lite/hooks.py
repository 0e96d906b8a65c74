"""Hooks: how a value has methods whose work is done in modules above its own.

`str(state)` prints, but printers are written over states, and a module imports only what is below it.  So the module
of a value declares a hook, and its method calls it; `methods.py`, which is above all of them, fills the hooks when
`te_lite` is imported, whichever of its modules was asked for.  What few need fills its own hook when it is imported,
which the first call sees to: Python code of schedules, operators of tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

from .errors import TeError
from .later import loaded

P = ParamSpec("P")
R = TypeVar("R")


class Hook(Generic[P, R]):
    """A function with a signature but no body, until `module`, which is above, is imported and provides it."""

    def __init__(self, purpose: str, module: str = "te_lite") -> None:
        self.purpose = purpose
        self.module = module
        self._function: Callable[P, R] | None = None

    def provide(self, function: Callable[P, R]) -> None:
        """Let the hook be `function` from now on."""
        self._function = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._function is None:
            loaded(self.module)
        if self._function is None:
            raise TeError(f"hook: {self.purpose} is not there before {self.module} is imported")
        return self._function(*args, **kwargs)
