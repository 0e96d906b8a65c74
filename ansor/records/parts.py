"""The line of a record in parts, as text: what many lines of a log share, tasks and steps, need be read only once.

    {"i": [TASK, [[], STEPS]], "r": REST

is how records are written here and by TVM.  Where TASK and STEPS are JSON values and `{"r": REST` is a JSON object, the
line is the object that has both, so a line may be cut before anybody knows that it is JSON.
"""

from __future__ import annotations

from typing import NamedTuple

_BEGIN, _STEPS, _REST = '{"i": [', ", [[], [[", ']]]], "r": '


class Parts(NamedTuple):
    """TASK and STEPS, and what stands from `{"r": ` on, which is an object with the other keys of the record."""

    task: str
    steps: str
    rest: str


def parts_of(line: str) -> Parts | None:
    """The parts of a line; None for one that is written in another way, or has no steps."""
    before, steps_begin, after = line.partition(_STEPS)
    steps, rest_begins, rest = after.partition(_REST)
    if not (before.startswith(_BEGIN) and steps_begin and rest_begins):
        return None
    return Parts(before[len(_BEGIN) :], f"[[{steps}]]", f'{{"r": {rest}')
