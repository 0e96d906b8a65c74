"""The default schedule of a task, drawn up once a process for all tests that compare programs with it."""

from __future__ import annotations

from functools import lru_cache

import ansor
from ansor.policy.default_schedule import default_state
from te_lite.schedule.state import State


@lru_cache(maxsize=64)
def default_of(task: ansor.SearchTask) -> State:
    """The default schedule of this very task, which has one."""
    state = default_state(task)
    assert state is not None
    return state
