"""The storage of programs with scans: passes over the same elements take turns in the same memory."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from ..computation.tensor import Tensor
from ..expr.expr import Load
from ..expr.visit import walk
from ..loops.stmt import Buffer
from ..schedule.state import ATTACHED


def last_reads(facts: Any) -> dict[Tensor, int]:
    """The last stage that reads each tensor; all of them where stages are computed inside each other."""
    apart = all(s.where != ATTACHED for s in facts.stages)
    reads = [(k, e) for k, bodies in enumerate(facts.bodies) for body in bodies for e in walk(body)]
    return {e.tensor: k if apart else len(facts.stages) for k, e in reads if isinstance(e, Load)}


def given_up(facts: Any, k: int, wanted: Buffer) -> Buffer:
    """Storage like `wanted` that nobody reads from stage k on, or `wanted` itself."""
    users: dict[Buffer, list[Tensor]] = {}
    for (s, index), buffer in facts.buffers.items():
        users.setdefault(buffer, []).append(facts.stages[s].op.output(index))
    for buffer, tensors in users.items():
        alike = replace(buffer, name=wanted.name)
        same = all(getattr(alike, f.name) == getattr(wanted, f.name) for f in fields(Buffer))
        if same and buffer not in facts.arg_buffers.values() and all(facts.last_read.get(t, k) < k for t in tensors):
            return buffer
    return wanted
