"""Which records of a log are believed: everything that reads a log for its costs or its programs goes through here.

A log may come from anywhere.  A record is believed when its target is known, its cost is one that a machine can reach,
and its program can be had: of a workload that is known here, each record that is better than those before it must
replay and lower (a template's configuration must be one of its space).  What is not believed is skipped, counted, and
told in one sentence.  A cost that is wrong and plausible is not found out before it is measured again.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np

from te_lite.computation.computation import Computation
from te_lite.errors import TeError
from te_lite.lowering.lower import loop_nest, lower
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from te_lite.schedule.step import Step

from ..core.target.target import Target
from ..core.tasks.measure_values import MeasureResult

Input = TypeVar("Input")
Pair = tuple[Input, MeasureResult]

LEAST_SECONDS = 1e-9
"""No program takes less: a call and a return are some nanoseconds."""
MOST_BYTES = 2e14
"""Bytes per second that no machine writes; 256 cores that store 128 bytes at 5 GHz write 1.6e14."""
MOST_OPERATIONS = {"c": 4e14, "cuda": 2e16}
"""Operations per second that no machine does.

c: 256 cores with two vector units of 64 int8 multiply-adds at 5 GHz do 3.3e14.  cuda: the fastest chip of 2025 does
1e16 in 8 bits on tensor cores; an H200 6.7e13 in float32 (`ansor.analytical.machine`).
"""

REMEMBERED = 256
"""Programs of which it is known whether they are: a log is read several times in a search."""

UNKNOWN, TOO_FAST, UNFIT = "unknown target", "faster than any machine", "no valid program"
_WORDS = {
    UNKNOWN: (
        "is for an unknown target (--import runs what registers it)",
        "are for unknown targets (--import runs what registers one)",
    ),
    TOO_FAST: ("is faster than the machine can be", "are faster than the machine can be"),
    UNFIT: ("does not replay", "do not replay"),
}


def least_seconds(target: Target, operations: float = 0.0, written: float = 0.0) -> float:
    """The time below which a cost is not believed, for so many operations and bytes that must be written."""
    rate = MOST_OPERATIONS.get(target.family, max(MOST_OPERATIONS.values()))
    return max(LEAST_SECONDS, operations / rate, written / MOST_BYTES)


@lru_cache(maxsize=REMEMBERED)
def least_of_computation(target: Target, dag: Computation) -> float:
    """`least_seconds` of a computation, whose operations are counted as its text says."""
    written = sum(math.prod(t.shape) * np.dtype(t.dtype).itemsize for t in dag.outputs)
    return least_seconds(target, max(0.0, dag.flop_ct), written)


@lru_cache(maxsize=REMEMBERED)
def is_program(dag: Computation, steps: tuple[Step, ...]) -> bool:
    """Whether the steps replay on the computation, leave no length open, and lower.

    Of an accelerator, whose compiler begins with the loop nest, the nest must be there.
    """
    try:
        state = replay(dag, steps)
        if state.concrete:
            (loop_nest if _of_accelerator(state) else lower)(state, dag.tensors)
        return state.concrete
    except (TeError, RecursionError):
        return False


def _of_accelerator(state: State) -> bool:
    """Whether stages are kept in memories that only an accelerator has (`local.<name>`)."""
    return any(stage.op.scope.startswith("local.") for stage in state.stages)


@dataclass(frozen=True)
class Judge(Generic[Input]):
    """How records of one kind are judged.

    `key` tells workloads apart; `least` is the time that no machine beats, or raises TeError for an unknown target;
    `fits` says whether a record has a program, None where that cannot be told because the workload is not known here.
    """

    key: Callable[[Input], Hashable]
    least: Callable[[Input], float]
    fits: Callable[[Input], bool | None]


@dataclass
class Believed(Generic[Input]):
    """Those of `pairs` that are believed, in order; `name` is where they come from, for the sentence to `logger`.

    Without a logger nothing is said.

    Records of failures have no cost and no claim: only their target must be known.
    """

    pairs: Iterable[Pair[Input]]
    judge: Judge[Input]
    name: str
    logger: logging.Logger | None
    total: int = 0
    skipped: Counter[str] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[Pair[Input]]:
        self.total, self.skipped = 0, Counter()
        best: dict[Hashable, float] = {}
        for inp, res in self.pairs:
            self.total += 1
            reason = self._objection(inp, res, best)
            if reason:
                self.skipped[reason] += 1
            else:
                yield inp, res
        if self.skipped and self.logger is not None:
            self.logger.warning("%s", self.complaint())

    def _objection(self, inp: Input, res: MeasureResult, best: dict[Hashable, float]) -> str:
        try:
            least = self.judge.least(inp)
        except TeError:
            return UNKNOWN
        if not res.ok:
            return ""
        if min(res.costs) < least:
            return TOO_FAST
        key = self.judge.key(inp)
        if res.cost < best.get(key, math.inf):
            match self.judge.fits(inp):
                case False:
                    return UNFIT
                case True:
                    best[key] = res.cost
        return ""

    def complaint(self) -> str:
        """One sentence on what was skipped; empty when nothing was."""
        if not self.skipped:
            return ""
        n = sum(self.skipped.values())
        parts = [f"{count} {_WORDS[why][count > 1]}" for why, count in self.skipped.most_common()]
        verb = "is" if n == 1 else "are"
        return f"{n} of {self.total} records of {self.name} {verb} skipped: {', '.join(parts)}"
