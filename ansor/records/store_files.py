"""The files of the stores, all together: what they hold, and one log made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..core.tasks.task import SearchTask
from ..core.tasks.workloads import key_text
from ..core.values.options import LayoutRewriteOption, cold_in_networks, layout_in_networks
from .best import best_few, best_first, ranked_records
from .files import PathLike
from .journal import scan_lines
from .lines import Record, believed, dump_record_to_string, recorded_key, workload_of
from .notes import WORKLOAD, learn_workload, read_note
from .store import SUFFIX, best_stored, keep, latest, place_of, stores

KEPT = 5
"""Programs of a workload that are taken in."""


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
    """The records of a file that are believed (`validation.py`), best first."""
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
