"""A clock that stands still until it is told to go on, in place of the module `time`; and a worker that uses it up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansor.measure.workers import Reply, Workshop

EPOCH = 1_700_000_000.25
"""The time of day at the start: seconds since 1970, not a whole number."""


class FakeClock:
    """What the code under test asks the module `time` for."""

    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        return 5000.0 + self.passed

    perf_counter = monotonic

    def time(self) -> float:
        return EPOCH + self.passed

    def sleep(self, seconds: float) -> None:
        self.passed += seconds

    @property
    def day_time(self) -> int:
        """What a record must say now."""
        return int(self.time())


class FakeWorker:
    """Takes so many seconds of the clock for a job of each kind, and gives runs `answer`; kinds in `lost` die once."""

    def __init__(
        self, clock: FakeClock, seconds: Mapping[str, float], answer: Mapping[str, Any], lost: set[str]
    ) -> None:
        self.clock, self.seconds, self.answer, self.lost = clock, seconds, answer, lost
        self.started, self.pid = 1, None

    def __call__(self, workshop: Workshop) -> FakeWorker:
        """Stands for the class, too."""
        return self

    def ensure_started(self) -> None: ...

    def call(self, job: Mapping[str, Any], timeout: float) -> Reply:
        self.clock.passed += self.seconds[job["op"]]
        if job["op"] in self.lost:
            self.lost.discard(job["op"])
            return Reply(self.seconds[job["op"]], failure="died", message="planted")
        answer = self.answer if job["op"] == "run" else {"held": [job["task"]]}
        return Reply(self.seconds[job["op"]], {"error_no": 0, **answer})

    def kill(self) -> None: ...

    def interrupt(self) -> None: ...
