"""A limit of time: until when programs are measured, and what of it is kept for the turns of the best."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

TURNS_SHARE = 0.2
TURNS_SECONDS = 10.0
"""So much of a limit is kept for timing the best programs in turns, for one task at most so many seconds."""
RUN_SHARE, RUN_SECONDS = 0.5, 10.0
"""A program may run for so much of a limit, for so many seconds at most."""


@dataclass(frozen=True)
class TimeLimit:
    """`seconds` from `begun`, a reading of `time.monotonic`; `kept` of them are for the turns of the best programs."""

    seconds: float
    begun: float
    kept: float = 0.0

    @staticmethod
    def of(seconds: float | None, turns: float, begun: float | None = None) -> TimeLimit:
        """A limit that began at `begun`, or begins now, infinite for None.

        `turns` are the seconds that the turns may want.
        """
        limit = math.inf if seconds is None else seconds
        return TimeLimit(limit, now() if begun is None else begun, min(TURNS_SHARE * limit, turns))

    @property
    def until(self) -> float:
        """When the last program may be begun, by the monotonic clock."""
        return self.begun + self.seconds - self.kept

    @property
    def over(self) -> bool:
        """Whether no other program is to be begun."""
        return self.seconds < math.inf and time.monotonic() >= self.until

    def share(self, parts: int, after: float = -math.inf) -> float:
        """The end of the first of so many equal parts of what is left for measuring, or is left of it at `after`."""
        now = max(time.monotonic(), after)
        return self.until if self.until == math.inf else now + max(0.0, self.until - now) / max(1, parts)

    def room(self, each: float, most: int) -> int:
        """How many programs of `each` seconds, `most` at most, the turns have room for."""
        if self.seconds == math.inf:
            return most
        left = max(0.0, self.begun + self.seconds - time.monotonic())
        return min(most, int(left / max(each, 1e-9)))

    def text(self) -> str:
        """`stopped after 8.2 s by the time limit of 8 s`."""
        return f"stopped after {time.monotonic() - self.begun:.1f} s by the time limit of {self.seconds:g} s"


UNLIMITED = TimeLimit(math.inf, 0.0)


def now() -> float:
    """What the clock of all limits says."""
    return time.monotonic()


def run_seconds(limit: float | None) -> float:
    """How long a program may run where measuring may take `limit` seconds."""
    return RUN_SECONDS if limit is None else min(RUN_SECONDS, RUN_SHARE * limit)
