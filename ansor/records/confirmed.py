"""Programs that were timed once more, in turns: what a log says of them goes before the single figures before it.

    # confirm {"turns": [record, ...]}     the best few programs of a workload; the costs of each are all its figures

The least of many single figures is the luckiest of them, and on a busy machine no more than that.  So the last
such line decides.  Of its programs those that were timed most often count, by the median of their figures; the slower
ones left earlier.  Other programs that were measured before the line are out of the race, later ones are not.  Figures
that are far apart are those of a busy machine and do not replace earlier ones of a quiet machine.  Readers of TVM's
format skip the line.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from te_lite.errors import RecordError

from ..core.tasks.measure_values import MeasureInput, MeasureResult
from ..core.values.steady import by_turns, far_apart, greatest_factor, most_figures
from .files import PathLike
from .lines import JUDGE, Record, RecordReader, dump_record_to_string, record_from_json, workload_of
from .noted_records import read_baseline
from .notes import CONFIRM, MOST_CHARACTERS, read_kind
from .validation import Believed


@dataclass(frozen=True)
class Confirmation:
    """Programs of one workload, best first (`by_turns`); the costs of the results are their figures.

    `after` is the number of records and baselines before the line.
    """

    after: int
    turns: tuple[Record, ...]

    @property
    def busy(self) -> bool:
        """Whether the figures of one of the programs are so far apart that the machine did something else, too."""
        return far_apart(greatest_factor([res.costs for _, res in self.turns]))

    def medians(self) -> list[Record]:
        """The programs that were timed to the end, with one cost each."""
        most = most_figures(res.costs for _, res in self.turns)
        return [(inp, replace(res, costs=(median(res),))) for inp, res in self.turns if len(res.costs) == most]


def steadier(old: Confirmation | None, new: Confirmation) -> Confirmation:
    """Which of two confirmations of a workload counts: the newer one, unless the machine was busy for it alone."""
    return old if old is not None and new.busy and not old.busy else new


def median(res: MeasureResult) -> float:
    """The median of the costs, in seconds."""
    return float(np.median(res.costs))


def confirm_line(inputs: Sequence[MeasureInput], figures: Sequence[Sequence[float]]) -> str | None:
    """The line on programs of one workload that were timed in turns, those without a figure left out.

    None when there is nothing to say, or the line would be too long for a log.
    """
    now = int(time.time())
    turns = [(inp, MeasureResult(tuple(f), 0, "", 0.0, now)) for inp, f in zip(inputs, figures, strict=True) if f]
    line = CONFIRM + json.dumps({"turns": [json.loads(dump_record_to_string(*turn)) for turn in turns]})
    return line if turns and len(line) <= MOST_CHARACTERS else None


def read_turns(line: bytes) -> tuple[Record, ...]:
    """The programs of a `# confirm` line, best first; none for other lines, and for one that is not as it should be."""
    turns = read_kind(line, CONFIRM).get("turns")
    if not isinstance(turns, list):
        return ()
    try:
        found = [record_from_json(turn) for turn in turns]
    except RecordError:
        return ()
    if len({workload_of(inp) for inp, _ in found}) != 1 or not all(res.ok for _, res in found):
        return ()
    return tuple(sorted(found, key=lambda pair: by_turns(pair[1].costs)))


class SettledReader(RecordReader):
    """The records of a log and its baselines, as its confirmations leave them.

    Of a workload that was confirmed, they are those that came after its last confirmation, and the confirmed programs,
    whose one cost is the median of their figures.  `confirmations` has the last one of each workload that counts: one
    none of whose programs is believed does not, nor one of a busy machine after one of a quiet machine.  `measured` are
    the records as they were written.
    """

    def __init__(self, filename: PathLike) -> None:
        super().__init__(filename)
        self.outranked: list[Record] = []
        self.measured: list[Record] = []
        self.confirmations: dict[tuple[str, str], Confirmation] = {}
        self._records: list[Record] = []

    def comment(self, line: bytes) -> None:
        """Learn of workloads, baselines and confirmations."""
        super().comment(line)
        baseline, turns = read_baseline(line), read_turns(line)
        if baseline is not None and not self.objection(baseline[1][0]):
            self._records.append(baseline[1])
        if turns and not self.objection(turns[0][0]):
            found = Believed(turns, JUDGE, f"a confirmation of {self.filename}", logging.getLogger("ansor"))
            if kept := tuple(found):
                new = Confirmation(len(self._records), kept)
                key = workload_of(kept[0][0])
                self.confirmations[key] = steadier(self.confirmations.get(key), new)

    def __iter__(self) -> Iterator[Record]:
        """The records; `outranked` has the others then, `measured` all.  Raises JournalError if it cannot be read."""
        self._records, self.measured, self.confirmations = [], [], {}
        for record in super().__iter__():
            self._records.append(record)
            self.measured.append(record)
        settled: list[Record] = []
        self.outranked = []
        for k, record in enumerate(self._records):
            last = self.confirmations.get(workload_of(record[0]))
            (settled if last is None or k >= last.after else self.outranked).append(record)
        return iter(settled + [turn for last in self.confirmations.values() for turn in last.medians()])
