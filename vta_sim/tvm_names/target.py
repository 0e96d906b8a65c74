"""`tvm.target`: targets, and that of the task at work."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from ansor.autotvm.task import current_target
from ansor.core.target import target as targets

from ..core.environment import get_env


class Target(targets.Target):
    """A target; `current` is that of the template that is running."""

    @staticmethod
    def current() -> targets.Target:
        """The target of the task whose template runs, or the default machine's outside any."""
        return current_target() or get_env().target


def vta() -> AbstractContextManager[targets.Target]:
    """The target of the default machine, to be entered; operators are the same for every target here."""
    return nullcontext(get_env().target)
