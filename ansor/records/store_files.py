"""The files of the stores, all together: what they hold, one log made of them, and what no reader would miss."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from te_lite.errors import TeError

from ..core.tasks.measure_values import MeasureInput
from ..core.tasks.task import SearchTask
from ..core.tasks.workloads import key_text
from ..core.values.in_networks import cold_in_networks, layout_in_networks
from ..core.values.layout_option import LayoutRewriteOption
from .best import best_few, best_first, ranked_records
from .files import LineReader, PathLike
from .journal import rewrite_lines, scan_lines
from .lines import Record, believed, dump_record_to_string, load_record_from_string, logger, recorded_key, workload_of
from .notes import WORKLOAD, learn_workload, read_note
from .store import SUFFIX, best_stored, keep, latest, own_names, place_of, stores

KEPT = 5
"""Programs of a file that are left when it is pruned."""


@dataclass(frozen=True)
class Held:
    """A file with a record at least: `records` are best first, `told` is its line on the computation.

    `device`, `target` and `made_by` are the names of folders and file (`store.py`).
    """

    path: Path
    device: str
    target: str
    made_by: str
    told: str
    records: tuple[Record, ...]

    @property
    def title(self) -> str:
        """The computation for people."""
        note = read_note(self.told.encode())
        return key_text(self.records[0][0].task.workload_key, "" if note is None else str(note[1].get("name", "")))


def held() -> Iterator[Held]:
    """The files of all stores that hold records, by device, target and computation.

    Raises JournalError for one that cannot be read.
    """
    for store in stores():
        for path in sorted(store.glob(f"*/*/*/*{SUFFIX}")):
            records = _best_first(path)
            device, target = path.relative_to(store).parts[:2]
            if records:
                yield Held(path, device, target, path.stem, told(path), tuple(records))


def _best_first(path: Path) -> list[Record]:
    """The records of a file that are believed (`belief.py`), best first."""
    learn_workload(told(path).encode())
    return list(believed(best_first(latest(path)), str(path)))


def told(path: Path) -> str:
    notes = [line for _, line in scan_lines(path) if line is not None and line.startswith(WORKLOAD.encode())]
    return notes[0].decode() if notes else ""


def exported(device: str) -> list[str]:
    """The lines of a log: of every computation on a device the best program, after a line on the computation."""
    best: dict[tuple[str, str], Held] = {}
    for one in held():
        key = (one.target, one.path.parent.name)
        if one.device == device and (key not in best or one.records[0][1].cost < best[key].records[0][1].cost):
            best[key] = one
    return [line for one in best.values() for line in (one.told, dump_record_to_string(*one.records[0])) if line]


def take_in(log: PathLike, new_only: bool = False) -> Counter[Path]:
    """Put the best few programs of each workload of a log into the user's store, and count them by file.

    They count as measured on the first device of their target here, by this version and compiler.  `new_only` passes
    over the workloads of which the stores know a program: what was timed in turns is not mixed with single figures.
    Raises JournalError for a log that cannot be read, the backend's error where the device or its compiler is not
    there, TaskError for a workload that is not known.
    """
    ranked = ranked_records(log)
    tasks = {workload_of(inp): inp.task for inp, res in ranked if res.ok}
    counts: Counter[Path] = Counter()
    for task in tasks.values():
        if new_only and best_stored(task.compute_dag, task.target, *_measured(task)) is not None:
            continue
        found = best_few([pair for pair in ranked if recorded_key(pair[0].task) == task.target.key], task, KEPT)
        if found:
            counts[_kept(task, found)] += len(found)
    return counts


def _kept(task: SearchTask, found: list[Record]) -> Path:
    return keep(task.compute_dag, task.name, place_of(task.compute_dag, task.target, *_measured(task)), found)


def _measured(task: SearchTask) -> tuple[LayoutRewriteOption, bool]:
    """How the weights of a recorded task were stored, and whether caches were emptied: of a network's, as there."""
    kind, layout = task.target.kind.name, task.layout_rewrite_option
    return layout, cold_in_networks(kind) and layout == layout_in_networks(kind)


def prune() -> tuple[int, int]:
    """Leave the best few programs of each file of the user's store; gives how many records and files went.

    A file of another version or compiler goes where this one has a file of its own whose best is as good: who changes
    the version once more loses nothing.
    Raises JournalError for a file that cannot be read or written.
    """
    before = _own_files()
    for path in before:
        if _is_read(path):
            rewrite_lines(path, partial(_lines_left, path))
    after = _own_files()
    return sum(before.values()) - sum(after.values()), len(before) - len(after)


def _is_read(path: Path) -> bool:
    """Whether this version reads every record of a file: those of a later one are not for it to remove."""
    reader = LineReader[MeasureInput](path, load_record_from_string, logger)
    return sum(1 for _ in reader) > 0 and not reader.num_bad


def _own_files() -> dict[Path, int]:
    """The files of the user's store, and how many records each has."""
    found = sorted(stores()[0].glob(f"*/*/*/*{SUFFIX}"))
    return {path: sum(line is not None and line[:1] == b"{" for _, line in scan_lines(path)) for path in found}


def _lines_left(path: Path) -> list[str]:
    """The line on the computation, and those of the best few programs, best first; none of a file that is to go."""
    best = [] if _outdone(path) else _best_first(path)[:KEPT]
    return [*filter(None, [told(path)]), *[dump_record_to_string(*pair) for pair in best]] if best else []


def _outdone(path: Path) -> bool:
    """Whether this version and compiler have a file beside one that is not theirs, and nothing worse in it."""
    try:
        own = own_names(path.parent.parent.name.partition("_")[0])
    except TeError:
        return False  # no compiler of that kind here: nothing is known of its own files
    beside = [path.with_name(name) for name in own if path.name not in own and path.with_name(name).exists()]
    least = min([_least(other) for other in beside], default=math.inf)
    return bool(beside) and least <= _least(path)


def _least(path: Path) -> float:
    """The seconds of the best program of a file, infinite where it has none."""
    return next((res.cost for _, res in _best_first(path)), math.inf)
