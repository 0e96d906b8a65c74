"""The axes of threads and blocks that loops of a schedule can be bound to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import ScheduleError, require

MAX_FACTOR = 2**31 - 1
THREAD_TAGS = tuple(f"{kind}.{d}" for kind in ("blockIdx", "threadIdx") for d in "xyz") + ("vthread",)


@dataclass(frozen=True)
class ThreadAxis:
    """A thread axis to bind loops to: `blockIdx.x`, `threadIdx.x`, `vthread`, ..."""

    tag: str
    extent: int | None = None


def thread_axis(dom: Any = None, tag: str = "", name: str = "") -> ThreadAxis:
    """A thread axis by its tag; called as `thread_axis("threadIdx.x")` or `thread_axis((0, 64), "threadIdx.x")`.

    An axis with a domain is bound only to loops of that extent.  `cthread` is another word for `vthread`.
    """
    if isinstance(dom, str):
        dom, tag = None, dom
    tag = "vthread" if tag == "cthread" else tag
    law = f"the tag must be one of {', '.join(THREAD_TAGS)}"
    require(tag in THREAD_TAGS, ScheduleError, "thread_axis", law, tag=tag)
    ok = dom is None or (isinstance(dom, tuple | list) and len(dom) == 2 and dom[0] == 0 and is_positive(dom[1]))
    require(ok, ScheduleError, "thread_axis", "a domain is (0, extent)", domain=dom)
    return ThreadAxis(tag, None if dom is None else dom[1])


def is_positive(x: Any) -> bool:
    """Whether it is an extent or a factor: an integer from 1 on that fits 32 bits."""
    return isinstance(x, int) and not isinstance(x, bool) and 0 < x <= MAX_FACTOR
