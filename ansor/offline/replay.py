"""A runner that answers from a log: a search runs whole without a device, and with the same results every time."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from typing import Literal

from te_lite.errors import TeError, require
from te_lite.schedule.step import Step, to_json

from ..core.errors import MeasureError, TaskError
from ..core.tasks.measure_values import BuildResult, MeasureErrorNo, MeasureInput, MeasureResult, failed
from ..core.tasks.workloads import key_text
from ..records.files import pairs_of
from ..records.lines import Record, recorded_key, validated_records
from ..space.duplicates import program_text
from .common import NoBuilder, ProgramKey, failed_build, program_key

Missing = Literal["raise", "fail"]
MOST_TEXT = 200


class ReplayRunner:
    """Gives every program the result that a log has of it; `ReplayRunner.builder()` goes with it.

    `log` is a file or the records themselves.  A program is known by its workload key, the kind of its target and its
    steps without the extents in them, or else by its loops, since programs that differ by loops of extent 1 only are
    one; of several records of one program the last one counts.  A program that the log lacks raises MeasureError, or,
    with `missing="fail"`, ends as a failed candidate.
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
        pairs = pairs_of(log, validated_records)
        self._known = {program_key(inp): res for inp, res in pairs if recorded_key(inp.task)}
        self._by_loops: dict[tuple[str, str], dict[str | None, MeasureResult]] = {}

    def __len__(self) -> int:
        """The number of programs it knows."""
        return len(self._known)

    def __contains__(self, inp: MeasureInput) -> bool:
        return self._record(inp) is not None

    def run(self, inp: MeasureInput, built: BuildResult) -> MeasureResult:
        """The recorded result, as it was recorded; a failed build gives its error.

        Raises MeasureError for a program that the log lacks.
        """
        if built.error_no:
            return failed_build(built)
        found = self._record(inp)
        if found is not None:
            return found
        key = program_key(inp)
        program = f"program {short_name(key)} of {inp.task.workload_key} on {key[1]}"
        message = f"{self.name} has no record of {program}: {self._why(key)}"
        if self.missing == "raise":
            raise MeasureError(f"ReplayRunner: {message}")
        return failed(MeasureErrorNo.UNKNOWN_ERROR, message, 0.0, timestamp=0)

    def _record(self, inp: MeasureInput) -> MeasureResult | None:
        """What the log has of a program."""
        key = program_key(inp)
        return self._known[key] if key in self._known else self._with_loops_of(inp, key[:2])

    def _with_loops_of(self, inp: MeasureInput, of: tuple[str, str]) -> MeasureResult | None:
        """The result of a program with the loops of `inp`; those of the whole log are made when it is first asked."""
        if of not in self._by_loops:
            known = [(steps, res) for (workload, kind, steps), res in self._known.items() if (workload, kind) == of]
            self._by_loops[of] = {_loops(MeasureInput(inp.task, steps=steps)): res for steps, res in known}
        loops = _loops(inp)
        return None if loops is None else self._by_loops[of].get(loops)

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


def _loops(inp: MeasureInput) -> str | None:
    """The loops of a program; None where its steps do not fit its task."""
    try:
        return program_text(inp.state)
    except TeError:
        return None


def _shared(a: tuple[Step, ...], b: tuple[Step, ...]) -> int:
    """How many first steps two programs share."""
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def short_name(key: ProgramKey) -> str:
    """Ten hexadecimal digits that stand for a program; the same in every process."""
    return hashlib.sha256(repr(key).encode()).hexdigest()[:10]
