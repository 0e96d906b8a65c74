"""Sketches changed as a whole: what a rule makes of the sketches of another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from te_lite.schedule.state import State

Change = Callable[[State], State | None]


def changed(sketches: Iterable[State], *changes: Change) -> list[State]:
    """Sketches with all changes made, without those that one does not apply to."""
    for change in changes:
        sketches = [state for state in map(change, sketches) if state is not None]
    return list(sketches)
