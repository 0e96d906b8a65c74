"""All kinds of decisions, in the order of their columns and of their mutations."""

from __future__ import annotations

from typing import Any

from ...core.target.registry import search_parts
from ...core.target.target import Target
from .cooperative_fetch import Fetch
from .decision import Decision
from .lengths import Lengths
from .parallel import Parallel
from .threads import Threads
from .unroll import Unroll
from .vectorize import Vectorize

Decisions = tuple[Decision[Any], ...]

DECISIONS: Decisions = (
    Lengths(),
    Unroll(),
    Fetch(),
    Threads(),
    Parallel(),
    Vectorize(),
)


def decisions_of(target: Target) -> Decisions:
    """The kinds of a target, in that order: those of its own, or all."""
    parts = search_parts(target.kind.name)
    return DECISIONS if parts is None else parts.decisions
