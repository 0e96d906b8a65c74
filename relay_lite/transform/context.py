"""Which passes run: the optimisation level, passes asked for or forbidden by name, and options.

    with relay.transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}):
        ...

A context is a value; entering one makes it the current one of this thread (or task) until it is left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from te_lite.errors import require

from ..ir.errors import GraphError

CONFIG_KEYS: dict[str, type] = {"relay.backend.use_auto_scheduler": bool, "relay.FuseOps.max_depth": int}


def register_config(key: str, kind: type) -> None:
    """Make a key of `PassContext.config` known, with the type of its value.  Raises GraphError when it is taken."""
    require(CONFIG_KEYS.get(key, kind) is kind, GraphError, "pass option", "the key has another type", key=key)
    CONFIG_KEYS[key] = kind


@dataclass(frozen=True)
class PassContext:
    """Settings of passes.  `config` is checked: GraphError for an unknown key or a value of another type.

    A pass is enabled when `opt_level` reaches its own or `required_pass` names it, and `disabled_pass` does not.
    """

    opt_level: int = 2
    config: Mapping[str, Any] | None = field(default=None, hash=False)
    required_pass: Collection[str] = ()
    disabled_pass: Collection[str] = ()

    def __post_init__(self) -> None:
        level = isinstance(self.opt_level, int)
        require(level, GraphError, "pass context", "opt_level is a whole number, usually 3", got=self.opt_level)
        options = dict(self.config or {})
        for key, value in options.items():
            require(key in CONFIG_KEYS, GraphError, "pass option", f"keys are {', '.join(CONFIG_KEYS)}", key=key)
            kind = CONFIG_KEYS[key]
            right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
            require(right, GraphError, f"pass option {key}", f"a value of type {kind.__name__} is needed", got=value)
        for names in (self.required_pass, self.disabled_pass):
            require(not isinstance(names, str), GraphError, "pass context", "a list of names is needed", got=names)
        object.__setattr__(self, "config", options)
        object.__setattr__(self, "required_pass", frozenset(self.required_pass or ()))
        object.__setattr__(self, "disabled_pass", frozenset(self.disabled_pass or ()))

    @staticmethod
    def current() -> PassContext:
        """The innermost context that is entered, or the default one."""
        entered = _ENTERED.get()
        return entered[-1] if entered else DEFAULT

    def enabled(self, name: str, opt_level: int) -> bool:
        """Whether the pass `name` of level `opt_level` runs."""
        return name not in self.disabled_pass and (name in self.required_pass or self.opt_level >= opt_level)

    def option(self, key: str, default: Any) -> Any:
        """The value of an option, or `default` when it is not set.  Raises GraphError for an unknown key."""
        require(key in CONFIG_KEYS, GraphError, "pass option", f"keys are {', '.join(CONFIG_KEYS)}", key=key)
        return (self.config or {}).get(key, default)

    def __enter__(self) -> PassContext:
        _ENTERED.set((*_ENTERED.get(), self))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _ENTERED.set(_ENTERED.get()[:-1])


DEFAULT = PassContext()
_ENTERED: ContextVar[tuple[PassContext, ...]] = ContextVar("entered pass contexts", default=())
