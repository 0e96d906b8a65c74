"""A runner that answers from a log: a search runs whole without a device, and with the same results every time."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from typing import Literal

from te_lite.errors import require
from te_lite.step import Step, to_json

from ..core.errors import MeasureError, TaskError
from ..core.measure_values import BuildResult, MeasureErrorNo, MeasureInput, MeasureResult, failed
from ..core.workloads import key_text
from ..records.lines import Record, believed_records, target_results
from .common import NoBuilder, ProgramKey, failed_build, program_key

Missing = Literal["raise", "fail"]
MOST_TEXT = 200


class ReplayRunner:
    """Gives every program the result that a log has of it; `ReplayRunner.builder()` goes with it.

    `log` is a file or the records themselves.  A program is known by its workload key, the kind of its target and its
    steps without the extents in them; of several records of one program the last one counts.  A program that the log
    lacks raises MeasureError, or, with `missing="fail"`, ends as a failed candidate.
    Raises JournalError when the file cannot be read, TaskError for another value of `missing`.
    """

    builder = NoBuilder

    def __init__(self, log: str | os.PathLike[str] | Iterable[Record], missing: Missing = "raise") -> None:
        law = "missing must be 'raise' or 'fail'"
        require(missing in ("raise", "fail"), TaskError, "ReplayRunner", law, got=missing)
        self.missing = missing
        self.name = "the log"
        if isinstance(log, str | os.PathLike):
            self.name = os.fspath(log)
            log = believed_records(log)
        self._known = {program_key(inp): res for inp, res in log if target_results(inp.task)}

    def __len__(self) -> int:
        """The number of programs it knows."""
        return len(self._known)

    def __contains__(self, inp: MeasureInput) -> bool:
        return program_key(inp) in self._known

    def run(self, inp: MeasureInput, built: BuildResult) -> MeasureResult:
        """The recorded result, as it was recorded; a failed build gives its error.

        Raises MeasureError for a program that the log lacks.
        """
        if built.error_no:
            return failed_build(built)
        key = program_key(inp)
        if key in self._known:
            return self._known[key]
        program = f"program {short_name(key)} of {inp.task.workload_key} on {key[1]}"
        message = f"{self.name} has no record of {program}: {self._why(key)}"
        if self.missing == "raise":
            raise MeasureError(f"ReplayRunner: {message}")
        return failed(MeasureErrorNo.UNKNOWN_ERROR, message, 0.0, timestamp=0)

    def _why(self, key: ProgramKey) -> str:
        """What the log has instead."""
        workload, kind, steps = key
        kinds = sorted({k for w, k, _ in self._known if w == workload})
        if not kinds:
            others = ", ".join(dict.fromkeys([key_text(w) for w, _, _ in self._known])) or "no program at all"
            return f"its workload is not in the log, which has {others[:MOST_TEXT]}"
        if kind not in kinds:
            return f"the log has this workload for {', '.join(kinds)} only"
        known = [s for w, k, s in self._known if (w, k) == (workload, kind)]
        shared, nearest = max([(_shared(steps, s), k) for k, s in enumerate(known)])
        same = f"the nearest of its {len(known)} programs has the same first {shared} of {len(steps)} steps"
        own, other = [json.dumps(to_json(s[shared])) if shared < len(s) else "none" for s in (steps, known[nearest])]
        advice = "another search asks for other programs: give it a log of all of them, or missing='fail'"
        return f"{same}, and then {other} where this one has {own} ({advice})"

    def close(self) -> None:
        """There is nothing to stop."""


def _shared(a: tuple[Step, ...], b: tuple[Step, ...]) -> int:
    """How many first steps two programs share."""
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def short_name(key: ProgramKey) -> str:
    """Ten hexadecimal digits that stand for a program; the same in every process."""
    return hashlib.sha256(repr(key).encode()).hexdigest()[:10]
