"""What a user asks for: target, precision, and what may be measured before a program is compiled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ansor.core.target.target import HALVES, PRECISIONS, Target
from ansor.policy.early_stopping import AUTO
from ansor.policy.effort import EFFORTS, NONE, QUICK, QUICK_SECONDS, QUICK_TRIALS
from ansor.records.store import stores
from te_lite.errors import require

from ..ir.errors import GraphError

PathLike = str | os.PathLike[str]
SUBJECT = "torch"
TRIALS_A_TASK = 64
TRIALS_A_SECOND = 16
"""What is asked for where only seconds are given: more than can be measured."""


@dataclass(frozen=True)
class Budget:
    """At most so many programs in so many seconds; `early_stopping` as `TuningOptions` take it."""

    trials: int
    seconds: float | None
    early_stopping: str | None


@dataclass(frozen=True)
class Options:
    """`trials` programs are measured, for at most `seconds`; both 0 or None: nothing is measured, unless an `effort`
    says so: "quick" gives each task about 10 s, less where nothing more is to be had, "full" 64 programs.

    Records are read from `log` if it exists, then from the store (docs/store.md); what is measured is added to both,
    where a log is named.  `target` is that of the device of
    the tensors unless it is given; `precision` is that of products.  With `keep_faster` an operator stays in PyTorch
    where a call of the whole takes less then (`faster.py`); None says so for an `effort` of quick or full.
    Without `records`, which no user says, default programs are used, whatever log and store have.
    """

    trials: int = 0
    seconds: float | None = None
    log: PathLike | None = None
    precision: str | None = None
    target: str | None = None
    effort: str = NONE
    keep_faster: bool | None = None
    records: bool = True

    def __post_init__(self) -> None:
        whole = isinstance(self.trials, int) and self.trials >= 0
        require(whole, GraphError, SUBJECT, "trials must be an integer of at least 0", trials=self.trials)
        law = f"effort is one of {', '.join(EFFORTS)}"
        require(self.effort in EFFORTS, GraphError, SUBJECT, law, effort=self.effort)
        positive = self.seconds is None or (isinstance(self.seconds, int | float) and self.seconds > 0)
        require(positive, GraphError, SUBJECT, "seconds must be a positive number", seconds=self.seconds)
        law = "what is measured needs a log to be kept in, for the store is off (ANSOR_CACHE=off)"
        kept = self.log is not None or bool(stores())
        require(not self.measures or kept, GraphError, SUBJECT, law, log=self.log)
        precisions = (*PRECISIONS, *HALVES)
        law = f"the precision is one of {', '.join(precisions)}"
        require(self.precision is None or self.precision in precisions, GraphError, SUBJECT, law, got=self.precision)
        law, known = "keep_faster must be True, False or None", (True, False, None)
        require(self.keep_faster in known, GraphError, SUBJECT, law, got=self.keep_faster)
        self.target_on("cpu")

    @property
    def measures(self) -> bool:
        """Whether anything is to be measured."""
        return self.trials > 0 or self.seconds is not None or self.effort != NONE

    @property
    def tries_others(self) -> bool:
        """Whether operators are tried in PyTorch, too."""
        return self.effort != NONE if self.keep_faster is None else self.keep_faster

    @property
    def again(self) -> Options:
        """The same for a graph that was measured: operators are tried in PyTorch as before."""
        return replace(self.unmeasured, keep_faster=self.tries_others)

    @property
    def unmeasured(self) -> Options:
        """The same, and nothing is measured."""
        return replace(self, trials=0, seconds=None, effort=NONE)

    @property
    def defaults(self) -> Options:
        """The same, and nothing is measured nor taken from records."""
        return replace(self.unmeasured, records=False)

    def budget(self, tasks: int, left: float | None) -> Budget:
        """What is spent on so many tasks where `left` of the `seconds` are left."""
        quick = self.effort == QUICK
        trials = (QUICK_TRIALS if quick else TRIALS_A_TASK) * tasks
        seconds = QUICK_SECONDS * tasks if quick and left is None else left
        if left is not None and not quick:
            trials = max(trials, int(TRIALS_A_SECOND * left))
        return Budget(self.trials or trials, seconds, AUTO if quick else None)

    @staticmethod
    def of(given: Mapping[str, Any]) -> Options:
        """The options of a mapping.  Raises GraphError for a name that is none."""
        known = [f.name for f in fields(Options) if f.name != "records"]
        unknown = sorted(set(given) - set(known))
        require(not unknown, GraphError, SUBJECT, f"options are {', '.join(known)}", unknown=unknown)
        return Options(**given)

    def target_on(self, device: str) -> Target:
        """The target for tensors on a device of torch (`cpu`, `cuda`).  Raises TaskError for one that is unknown."""
        return Target(self.target or ("cuda" if device == "cuda" else "c"))
