"""Contests of searchers on programs that were all measured before: who finds the fast ones in how few trials.

A searcher is a class.  It is made of the candidates of a task, which it may read as it likes, and a generator; then it
is asked for the numbers of programs to try, up to a batch at a time, and told their seconds:

    class Mine:
        def __init__(self, candidates: Candidates, rng: numpy.random.Generator) -> None: ...
        def ask(self, n: int) -> Sequence[int]: ...
        def tell(self, numbers: Sequence[int], seconds: numpy.ndarray) -> None: ...

No program is tried twice.  Nothing is compiled and no clock is read, so a seed decides a run.  What is found can be no
better than the best program that was measured: the figures compare searchers, they say nothing of the whole space.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from te_lite.errors import require

from ..core.errors import PartError
from ..core.values.checks import require_part
from ..core.values.parts import asking_own
from .matrix import STRUCTURE, Matrix

Array = np.ndarray[Any, np.dtype[Any]]
APART = 4.0
"""How far programs of two structures are from each other: as four numbers that differ by a factor of 2."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """The programs of a task, by number, and what is known of them before any is tried.

    The fields are those of `Matrix`: `features` float32 [programs, columns], `decisions` int32 [programs, names].
    """

    task: str
    features: Array
    columns: Array
    decisions: Array
    names: Array

    def __len__(self) -> int:
        return len(self.features)

    @cached_property
    def places(self) -> Array:
        """Where each program lies, float32 [programs, numbers and structures]: a factor of 2 in a number is a step of
        1, another structure one of `APART`."""
        structure = self.decisions[:, list(self.names).index(STRUCTURE)]
        one_hot = (structure[:, None] == np.unique(structure)) * (APART / 2)
        numbers = self.decisions[:, [k for k, name in enumerate(self.names) if name != STRUCTURE]]
        return np.concatenate([np.log2(1.0 + np.abs(numbers)), one_hot], axis=1).astype(np.float32)

    def distances(self, place: Array) -> Array:
        """How far each program is from a place, float32 [programs]: the sum of the steps."""
        found: Array = np.abs(self.places - place).sum(axis=1)
        return found


@runtime_checkable
class Searcher(Protocol):
    """What a contest asks (see above)."""

    def ask(self, n: int) -> Sequence[int]: ...

    def tell(self, numbers: Sequence[int], seconds: Array) -> None: ...


Maker = Callable[[Candidates, np.random.Generator], Any]


@dataclass(frozen=True)
class Run:
    """The trials of one searcher on one task: seconds of each, inf after a failure, and the best of all programs."""

    seconds: Array
    best: float

    @property
    def quality(self) -> Array:
        """The speed of the best so far relative to the best of all, float64 [trials]; 0 before the first that ran."""
        found: Array = self.best / np.minimum.accumulate(self.seconds)
        return found

    def trials_to(self, share: float) -> int:
        """Trials until a program has so much of the best speed; one more than all when none has."""
        reached = np.flatnonzero(self.quality >= share)
        return int(reached[0]) + 1 if len(reached) else len(self.seconds) + 1

    @property
    def area(self) -> float:
        """The mean quality over all trials: the area under its curve, at most 1."""
        return float(self.quality.mean())


def candidates_of(matrix: Matrix) -> Candidates:
    """What a searcher may know of the programs of a matrix: all but their seconds."""
    return Candidates(matrix.task, matrix.features, matrix.columns, matrix.decisions, matrix.names)


def contest(make: Maker, matrix: Matrix, known: Candidates, seed: int, trials: int, batch: int) -> Run:
    """One run of `trials` trials, or until every program is tried.  Raises PartError for a searcher that asks for what
    it must not, or raises."""
    name = make.__name__ if isinstance(make, type) else type(make).__name__
    subject = f"searcher {name}"
    with asking_own(subject, "__init__"):
        searcher = make(known, np.random.default_rng(seed))
    require_part(searcher, Searcher, subject, "an object with the methods ask and tell")
    tried = np.zeros(len(matrix), np.bool_)
    seconds: list[float] = []
    trials = min(trials, len(matrix))
    while len(seconds) < trials:
        n = min(batch, trials - len(seconds))
        with asking_own(subject, "ask"):
            numbers = np.asarray(searcher.ask(n))
        _check(subject, numbers, n, tried)
        tried[numbers] = True
        with asking_own(subject, "tell"):
            searcher.tell(numbers, matrix.seconds[numbers].copy())
        seconds += matrix.seconds[numbers].tolist()
    return Run(np.array(seconds), float(matrix.seconds.min()))


def _check(subject: str, numbers: Array, most: int, tried: Array) -> None:
    """Raise PartError unless `numbers` are up to `most` different programs that were not tried."""
    law = f"ask({most}) must give 1 to {most} numbers of programs"
    require(numbers.ndim == 1 and 0 < len(numbers) <= most, PartError, subject, law, shape=numbers.shape)
    law = f"numbers of programs are integers from 0 to {len(tried) - 1}"
    ok = numbers.dtype.kind in "iu" and bool(((numbers >= 0) & (numbers < len(tried))).all())
    require(ok, PartError, subject, law, got=numbers.tolist())
    law = "a program must not be tried twice"
    twice = numbers[tried[numbers]].tolist() or len(np.unique(numbers)) < len(numbers)
    require(not twice, PartError, subject, law, got=numbers.tolist())
