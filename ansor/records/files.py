"""Files of records of any kind: read past their bad lines, and keep the best record of each workload.

A record is what was measured and its result.  How a line is read and written, and what tells workloads apart, is the
business of the kind: `ansor.records.lines` (programs) and `ansor.autotvm.record` (configurations of templates).
"""

from __future__ import annotations

import logging
import os
from bisect import insort
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from te_lite.errors import RecordError, require

from ..core.errors import JournalError
from ..core.files.file_names import path_of
from ..core.tasks.measure_values import MeasureResult
from .journal import replace_file, scan_lines

PathLike = str | os.PathLike[str]
Input = TypeVar("Input")
Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")
Pair = tuple[Input, MeasureResult]
RECORDS = "the name of a log, several of them, or pairs of a MeasureInput and a MeasureResult are needed"


class LineReader(Generic[Input]):
    """The records of a file; bad lines are skipped, counted in `num_bad` and the first of them kept in `bad`.

    `decode` reads one line and raises RecordError for whatever is no record; `logger` gets one warning a reading.
    """

    KEPT = 20

    def __init__(self, filename: PathLike, decode: Callable[[bytes], Pair[Input]], logger: logging.Logger) -> None:
        self.filename = path_of(filename, JournalError)
        self.num_bad = 0
        self.bad: list[tuple[int, str]] = []
        self._decode, self._logger = decode, logger

    def __iter__(self) -> Iterator[Pair[Input]]:
        """All records.  Raises JournalError when the file cannot be read."""
        self.num_bad, self.bad = 0, []
        for number, line in scan_lines(self.filename):
            if line is not None and (line[:1] in (b"#", b" ") or not line):
                self.comment(line)
                continue
            try:
                require(line is not None, RecordError, "record", "the line is too long")
                record = self._decode(line or b"")
            except RecordError as error:
                self.num_bad += 1
                self.bad = (self.bad + [(number, str(error))])[: self.KEPT]
                continue
            if self.belongs(record[0]):
                yield record
        if complaint := self.complaint():
            self._logger.warning("%s", complaint)

    def comment(self, line: bytes) -> None:
        """Called for every line that is no record and not bad; nothing here."""

    def belongs(self, inp: Input) -> bool:
        """Whether a record is one for here; every one is."""
        return True

    def complaint(self) -> str:
        """One sentence on the bad lines; empty when there are none."""
        if not self.num_bad:
            return ""
        lines = "1 unreadable line was" if self.num_bad == 1 else f"{self.num_bad} unreadable lines were"
        return f"{self.filename}: {lines} skipped; line {self.bad[0][0]}: {self.bad[0][1]}"

    def read_lines(self, max_lines: int | None = None, skip_lines: int = 0) -> tuple[list[Input], list[MeasureResult]]:
        """`(inputs, results)` of at most `max_lines` records after the first `skip_lines`."""
        stop = None if max_lines is None else skip_lines + max_lines
        pairs = list(islice(self, skip_lines, stop))
        return [inp for inp, _ in pairs], [res for _, res in pairs]


def pairs_of(records: Any, load: Callable[[PathLike], Iterable[Pair[Input]]]) -> Iterable[Pair[Input]]:
    """The records of a file, of several files, or as they are given, one after the other; `load` reads a file.

    Raises RecordError for what is none of these.
    """
    if isinstance(records, str | os.PathLike):
        return load(records)
    ok = isinstance(records, Iterable) and not isinstance(records, bytes)
    require(ok, RecordError, "records", RECORDS, got=records)
    return chain.from_iterable(load(item) if isinstance(item, str | os.PathLike) else [_pair(item)] for item in records)


def _pair(item: Any) -> Any:
    ok = isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[1], MeasureResult)
    require(ok, RecordError, "records", RECORDS, entry=item)
    return item


def best_of(keyed: Iterable[tuple[Key, Pair[Input]]]) -> dict[Key, Pair[Input]]:
    """The error-free record of the least mean cost of each key, in order of appearance; the earlier one of equals."""
    best: dict[Key, Pair[Input]] = {}
    for key, (inp, res) in keyed:
        if res.ok and (key not in best or res.cost < best[key][1].cost):
            best[key] = (inp, res)
    return best


class History(Generic[Key, Input, Answer]):
    """What a dispatch context knows of each key: the best records, and what it was told, which goes before.

    The `KEPT` best ones are there, best first: a workload may become known only when its program is asked for, and then
    the best record may turn out to have none.
    """

    KEPT = 64

    def __init__(self) -> None:
        self.best: dict[Key, list[Pair[Input]]] = {}
        self.told: dict[Key, Answer] = {}

    def load(self, keyed: Iterable[tuple[Key, Pair[Input]]]) -> None:
        """Add records, each under a key of its own; those of failures are left out."""
        for key, pair in keyed:
            if pair[1].ok:
                found = self.best.setdefault(key, [])
                insort(found, pair, key=lambda known: known[1].cost)
                del found[self.KEPT :]

    def tell(self, key: Key, answer: Answer) -> None:
        """Let `answer` be what is known of a key."""
        self.told[key] = answer


def distill(
    in_file: PathLike,
    out_file: PathLike,
    load: Callable[[PathLike], Iterable[Pair[Input]]],
    best: Callable[[Iterable[Pair[Input]]], Iterable[Pair[Input]]],
    encode: Callable[[Input, MeasureResult], str],
) -> int:
    """Write what `best` leaves of the records of `in_file`, and of `out_file` if it exists, to `out_file`.

    Gives the number of records written; without any, no file is.  Raises JournalError when a file cannot be read or
    written.
    """
    pairs = list(load(in_file))
    if Path(out_file).exists() and not (Path(in_file).exists() and os.path.samefile(in_file, out_file)):
        pairs += load(out_file)
    lines = [encode(inp, res) for inp, res in best(pairs)]
    if lines:
        replace_file(out_file, lines)
    return len(lines)
