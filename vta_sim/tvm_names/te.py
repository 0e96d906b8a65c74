"""`tvm.te`: tensor expressions, with the tag of a scope on the stages that are made in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import te_lite
from te_lite import Schedule, Tensor, create_schedule, placeholder, reduce_axis, thread_axis
from te_lite import maximum as max
from te_lite import minimum as min

_tag: ContextVar[str] = ContextVar("tag of new stages", default="")


@contextmanager
def tag_scope(tag: str) -> Iterator[None]:
    """Stages that are made inside get this tag; serves as a decorator, too."""
    token = _tag.set(tag)
    try:
        yield
    finally:
        _tag.reset(token)


def compute(shape: Sequence[Any], fcompute: Callable[..., Any], name: str = "compute", tag: str = "") -> Tensor:
    """`te_lite.compute` with the tag of the scope where none is given."""
    made: Tensor = te_lite.compute(shape, fcompute, name=name, tag=tag or _tag.get())
    return made


__all__ = ["Schedule", "compute", "create_schedule", "max", "min", "placeholder", "reduce_axis", "tag_scope",
           "thread_axis"]  # fmt: skip
