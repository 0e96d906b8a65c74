"""All kinds of decisions, in the order of their columns and of their mutations."""

from __future__ import annotations

from typing import Any

from .decision import Decision
from .fetch import Fetch
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
