"""The store: what searches on this machine found best, used again without naming a log.

    STORE/DEVICE/TARGET/COMPUTATION/MADE_BY.json        records in the format of logs, a line each

The folders say what figures depend on: the device with the architecture that programs are compiled for, the target kind
and precision, the computation with its dtypes and whether its weights are stored packed; the file, by what programs
were made (our version, the compiler, whether caches were emptied).  Each line stands by itself: another version reads
them all, and believes what it measured itself before what others did.

The user's store is written to, by whole lines (`journal.py`); those of the system (`XDG_DATA_DIRS`) are only read.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from te_lite import environment
from te_lite.errors import TeError
from te_lite.printing.dag_json import dag_to_json
from te_lite.schedule.dag import ComputeDAG

from ..core.device.backend import backend
from ..core.errors import JournalError
from ..core.files.private_files import user_cache
from ..core.host.hints import version_of
from ..core.target.target import Target
from ..core.tasks.measure_values import MeasureInput, MeasureResult
from ..core.tasks.task import SearchTask
from ..core.values.options import FREE, LayoutRewriteOption
from ..core.values.steady import most_figures
from .confirmed import median
from .files import LineReader
from .journal import append_lines
from .lines import Record, dump_record_to_string, load_record_from_string
from .notes import line_of_computation
from .of_task import is_for
from .validation import Believed, Judge, is_program, least_of_computation

OFF = "off"
SUFFIX = ".json"
COLD = ", caches emptied"
LONGEST_NAME = 120
logger = logging.getLogger("ansor")


def stores() -> tuple[Path, ...]:
    """The folders of records: that of the user, which is written to, then those of the system; none when it is off."""
    given = environment.ANSOR_CACHE.text
    if given == OFF:
        return ()
    shared = [Path(folder) / "ansor" / "records" for folder in environment.XDG_DATA_DIRS.text.split(":") if folder]
    return (Path(given).expanduser() if given else user_cache("records"), *shared)


@dataclass(frozen=True)
class RecordPath:
    """The records of a computation on a device: `folder` below each store, and the `name` of one's own file there.

    `alike` is the file of the same version and compiler whose figures were taken in the other way: with the caches
    emptied before each, or not.
    """

    folder: Path
    name: str
    alike: str

    def files(self) -> list[list[Path]]:
        """What the stores hold of it, by how far it is believed: those of one list are believed alike."""
        found = [path for store in stores() for path in sorted((store / self.folder).glob(f"*{SUFFIX}"))]
        order = {self.name: 0, self.alike: 1}
        return [[path for path in found if order.get(path.name, 2) == rank] for rank in range(3)]


def place_of(
    dag: ComputeDAG, target: Target, layout: LayoutRewriteOption, cold: bool = False, device: int = 0
) -> RecordPath:
    """Where records of a computation on a device of this machine are.

    `layout` is how its weights are stored when it is measured; `cold` says that the caches are emptied before each
    figure.  Raises the backend's error without the device or its compiler, and ExprError for a computation that JSON
    cannot hold.
    """
    has = backend(target.kind.name)
    stored = layout if any(FREE in op.attrs for op in dag.ops) else LayoutRewriteOption.NO_REWRITE
    facts = json.dumps([dag_to_json(dag), int(stored)], sort_keys=True)
    digest = hashlib.sha256(facts.encode()).hexdigest()[:32]
    folder = Path(_name(has.described_device(str(target), device)), _name(target.results), digest)
    warm, emptied = own_names(str(target))
    return RecordPath(folder, emptied, warm) if cold else RecordPath(folder, warm, emptied)


def own_names(target: str) -> tuple[str, str]:
    """What this version and the compiler of a target call their files, of warm caches and of emptied ones.

    Raises the backend's error without the compiler.
    """
    maker = f"ansor {version_of('ansor')}, {backend(Target(target).kind.name).described_compiler(target)}"
    return _name(maker) + SUFFIX, _name(maker + COLD) + SUFFIX


def _name(text: str) -> str:
    """A text as the name of a file."""
    name = re.sub(r"[^A-Za-z0-9.+-]+", "_", text).strip("_.")
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9]}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"


# ----------------------------------------------------------------------------------------------------- reading


def stored_records(place: RecordPath, dag: ComputeDAG, target: Target) -> Iterator[Record]:
    """The programs that the stores hold of a place, best first of each file; a file that cannot be read is told."""
    judge = Judge[MeasureInput](
        lambda inp: inp.steps, lambda inp: least_of_computation(target, dag), lambda inp: is_program(dag, inp.steps)
    )
    for paths in place.files():
        own = [pair for path in paths for pair in _readable(path) if is_for(pair[0], target)]
        yield from Believed(sorted(own, key=lambda pair: pair[1].cost), judge, "the store", logger)


def _readable(path: Path) -> list[Record]:
    try:
        return latest(path)
    except JournalError as error:
        logger.warning("store of records: %s", error)
        return []


def latest(path: Path) -> list[Record]:
    """The last record of each program of a file.  Raises JournalError when it cannot be read."""
    reader = LineReader[MeasureInput](path, load_record_from_string, logger)
    timed = sorted([pair for pair in reader if pair[1].ok], key=lambda pair: pair[1].timestamp)
    return list({inp.steps: (inp, res) for inp, res in timed}.values())


def best_stored(dag: ComputeDAG, target: Target, layout: LayoutRewriteOption, cold: bool = False) -> Record | None:
    """The best program that is known of a computation for the first device of a target.

    None where the stores hold none, are off, or this machine lacks the device or its compiler.
    """
    if not stores():
        return None
    try:
        place = place_of(dag, target, layout, cold)
    except TeError:
        return None  # what is not there has no records
    return next(stored_records(place, dag, target), None)


# ----------------------------------------------------------------------------------------------------- writing


def keep(dag: ComputeDAG, name: str, place: RecordPath, records: Sequence[Record]) -> Path:
    """Add records of a computation, which is called `name`, to the user's store, and give the file.

    Raises JournalError when they cannot be stored, ExprError for a computation that JSON cannot hold.
    """
    path, key = stores()[0] / place.folder / place.name, dag.workload_key()
    told = line_of_computation(key, name, dag)
    append_lines(path, [_line(key, inp, res) for inp, res in records], [] if told is None else [told])
    return path


def _line(key: str, inp: MeasureInput, res: MeasureResult) -> str:
    task = SearchTask.from_facts(replace(inp.task.facts(), workload_key=key))
    return dump_record_to_string(MeasureInput(task, steps=inp.steps), res)


class RecordToStore:
    """A measure callback that keeps what a search confirms: the programs that were timed in turns when it ended.

    Single figures are not kept.  `device` is the number of the device that runs the programs, `cold` says that the
    caches are emptied before each figure.  What cannot be kept is told once, and the search goes on.
    """

    def __init__(self, device: int = 0, cold: bool = False) -> None:
        self.device, self.cold = device, cold
        self._told = False

    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Nothing is kept."""

    def confirmed(self, inputs: Sequence[MeasureInput], figures: Sequence[Sequence[float]]) -> None:
        """Keep programs of one task with the medians of their figures."""
        records = list(_settled(inputs, figures))
        if not records or not stores():
            return
        task = inputs[0].task
        try:
            place = place_of(task.compute_dag, task.target, task.layout_rewrite_option, self.cold, self.device)
            keep(task.compute_dag, task.name, place, records)
        except (TeError, OSError) as error:
            if not self._told:
                logger.warning("store of records: %s; nothing is kept there (ANSOR_CACHE=off: nothing is tried)", error)
            self._told = True


def _settled(inputs: Sequence[MeasureInput], figures: Sequence[Sequence[float]]) -> Iterator[Record]:
    """The programs that were timed to the end."""
    most = most_figures(figures)
    for inp, found in zip(inputs, figures, strict=True):
        if found and len(found) == most:
            result = MeasureResult(tuple(found), 0, "", 0.0, 0)
            yield inp, replace(result, costs=(median(result),), timestamp=int(time.time()))
