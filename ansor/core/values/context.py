"""Contexts that `with` enters: each thread has a stack of its own, around it one context that all threads share.

class Answers(Context): ...                  # a kind of contexts, with a stack of its own
Answers.outermost = Default()                # a kind of `Answers`

with Known() as mine:
    assert Answers.current is mine
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ClassVar, TypeVar

C = TypeVar("C", bound="Context")
A = TypeVar("A")


class _Kind(type):
    """Gives a kind of contexts its `current`."""

    @property
    def current(cls: type[C]) -> C:  # type: ignore[misc]  # mypy takes `self` of a metaclass for an instance of it
        """The innermost context that this thread has entered, or the outermost one, which all threads share."""
        return cls._stack()[-1]


class Context(metaclass=_Kind):
    """`with` makes it the current one of its kind in this thread; it may be entered again."""

    outermost: ClassVar[Any]
    _entered: ClassVar[ContextVar[tuple[Any, ...]]]

    def __init_subclass__(cls) -> None:
        if Context in cls.__bases__:
            cls._entered = ContextVar(f"contexts of {cls.__module__}", default=())

    @classmethod
    def _stack(cls: type[C]) -> tuple[C, ...]:
        return (cls.outermost, *cls._entered.get())

    def _outwards(self: C) -> tuple[C, ...]:
        """This context and those around it, the innermost first; it alone when this thread has not entered it."""
        stack = self._stack()
        places = [k for k, context in enumerate(stack) if context is self]
        return stack[: places[-1] + 1][::-1] if places else (self,)

    def _first(self: C, ask: Callable[[C], A | None]) -> A | None:
        """The first answer on the way outwards."""
        answers = (ask(context) for context in self._outwards())
        return next((answer for answer in answers if answer is not None), None)

    def __enter__(self) -> Any:
        self._entered.set((*self._entered.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.set(self._entered.get()[:-1])
