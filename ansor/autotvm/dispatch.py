"""Which configuration a template runs with: contexts that are asked by target and workload.

They are a stack of their own beside `ansor.DispatchContext`: that one answers with programs, these with configurations,
and a network may be compiled under both.  The innermost context that knows an answer gives it; the outermost one
answers with the fallback, every knob's first choice.
"""

from __future__ import annotations

import logging
from typing import Any

from ..core.target.target import Target
from ..core.values.context import Context
from .fallback import FallbackConfigEntity

logger = logging.getLogger("autotvm")


class DispatchContext(Context):
    """A source of configurations; `with` makes it this thread's current one, and it passes on what it does not know."""

    def query(self, target: Target | str | None, workload: tuple[Any, ...]) -> Any:
        """The configuration for a workload.  Without a target that of any target will do."""
        name = None if target is None else str(target)
        return self._first(lambda context: context._query_inside(name, workload))

    def update(self, target: Target | str, workload: tuple[Any, ...], config: Any) -> None:
        """Let `config` be the answer for a workload from now on."""
        raise NotImplementedError

    def _query_inside(self, target: str | None, workload: tuple[Any, ...]) -> Any:
        raise NotImplementedError


class ApplyConfig(DispatchContext):
    """The same configuration for every workload."""

    def __init__(self, config: Any) -> None:
        self._config = config

    def _query_inside(self, target: str | None, workload: tuple[Any, ...]) -> Any:
        return self._config

    def update(self, target: Target | str, workload: tuple[Any, ...], config: Any) -> None:
        self._config = config


class FallbackContext(DispatchContext):
    """The outermost context: it knows what it was told; anything else gets the fallback, with a warning each time new.

    The fallback is made anew for every query, because a template that runs with it defines its knobs in it.
    """

    def __init__(self) -> None:
        self._told: dict[tuple[str, tuple[Any, ...]], Any] = {}
        self._warned: set[tuple[Any, ...]] = set()
        self.silent = False

    def update(self, target: Target | str, workload: tuple[Any, ...], config: Any) -> None:
        self._told[str(target), workload] = config

    def _query_inside(self, target: str | None, workload: tuple[Any, ...]) -> Any:
        told = self._told.get((str(target), workload))
        if told is not None:
            return told
        if workload and workload not in self._warned and not self.silent:
            self._warned.add(workload)
            logger.warning("no record of %s, its fallback configuration is used and may be slow", workload)
        return FallbackConfigEntity()


def get_config() -> Any:
    """The configuration of the current context; a template calls it."""
    return DispatchContext.current.query(None, ())


DispatchContext.outermost = FallbackContext()
