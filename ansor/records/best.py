"""The best records of a log: single ones, and those of each workload.

What a log says of programs that were timed in turns goes before their single figures (`confirmed.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from te_lite.schedule.step import Step

from ..core.target.target import Target
from ..core.tasks.measure_values import MeasureInput, MeasureResult
from ..core.tasks.task import SearchTask
from ..core.tasks.workloads import calc_workload_dis_factor, decode_workload_key
from .confirmed import SettledReader
from .files import PathLike, best_of, distill
from .lines import JUDGE, Record, believed, dump_record_to_string, logger, recorded_key, workload_of
from .notes import workload_line
from .of_task import is_for, is_of, other_targets
from .validation import Believed, is_program


def settled_records(filename: PathLike) -> Believed[MeasureInput]:
    """The records of a log that are believed, as its confirmations leave them.

    Reading raises JournalError when the file cannot be read.
    """
    return believed(SettledReader(filename), str(filename))


def load_best_record(
    filename: PathLike,
    workload_key: str | None = None,
    target: Target | str | None = None,
    include_compatible: bool = False,
    fits: Callable[[MeasureInput], bool] | None = None,
) -> tuple[MeasureInput | None, MeasureResult | None]:
    """The error-free record of the least mean cost that is believed, and that `fits` where this is given.

    `(None, None)` when there is none.  With a `target` only records count that were measured for it (`of_task.py`); a
    warning tells of others.  With `include_compatible` records of smaller, dividing shapes count too, their cost
    multiplied by the ratio of the sizes.
    """
    wanted = None if target is None else Target.of(target)
    found = list(believed(best_first(SettledReader(filename)), str(filename)))
    keys = [recorded_key(inp.task) for inp, _ in found if workload_key in (None, inp.task.workload_key)]
    if wanted is not None and (text := other_targets(str(filename), keys, wanted)):
        logger.warning("%s", text)
    best: tuple[float, Record] | None = None
    for inp, res in found:
        if not res.ok or (wanted is not None and not is_for(inp, wanted)):
            continue
        factor = 1.0 if workload_key is None else _distance(workload_key, inp.task.workload_key)
        if factor != 1.0 and not (include_compatible and math.isfinite(factor)):
            continue
        if (best is None or res.cost * factor < best[0]) and (fits is None or fits(inp)):
            best = (res.cost * factor, (inp, res))
    return (None, None) if best is None else best[1]


def _distance(query: str, key: str) -> float:
    if query == key:
        return 1.0
    (name, args), (other, other_args) = decode_workload_key(query), decode_workload_key(key)
    if args is None or other_args is None:
        return math.inf
    return calc_workload_dis_factor((args, name), (other_args, other))


def best_first(pairs: Iterable[Record]) -> list[Record]:
    """The records by their cost, failures last: so that of each workload only the best is asked whether it replays."""
    return sorted(pairs, key=lambda pair: pair[1].cost if pair[1].ok else math.inf)


def ranked_records(filename: PathLike) -> list[Record]:
    """All records of a log that are believed, best first; what it confirmed, and later ones, go before all others.

    Raises JournalError when the log cannot be read.
    """
    reader = SettledReader(filename)
    return [*believed(best_first(reader), str(filename)), *believed(best_first(reader.outranked), str(filename))]


def best_few(ranked: Iterable[Record], task: SearchTask, most: int) -> list[Record]:
    """The first of `ranked` that are programs of a task, up to `most` different ones, as programs of this very task."""
    found: dict[tuple[Step, ...], Record] = {}
    for inp, res in ranked:
        own = res.ok and is_of(inp, task)
        if len(found) < most and own and inp.steps not in found and is_program(task.compute_dag, inp.steps):
            found[inp.steps] = MeasureInput(task, steps=inp.steps), res
    return list(found.values())


def best_records(pairs: Iterable[Record]) -> dict[tuple[str, str], Record]:
    """The best error-free record of each (key of the target, workload key), in order of appearance.

    `pairs` are taken as they are: give it those that are believed.
    """
    return best_of((workload_of(inp), (inp, res)) for inp, res in pairs)


def history(filename: PathLike) -> tuple[list[Record], dict[tuple[str, str], float]]:
    """The records of a log that are believed, in order, and what the log settled: the least seconds of each workload.

    Workloads are (key of the target, workload key); baselines and confirmations are considered in the seconds.
    Raises JournalError when the log cannot be read.
    """
    reader = SettledReader(filename)
    best = best_records(Believed(best_first(reader), JUDGE, str(filename), None))
    costs = {key: res.cost for key, (_, res) in best.items()}
    return list(believed(reader.measured, str(filename))), costs


def distill_record_file(in_file: PathLike, out_file: PathLike) -> int:
    """Write the best record of each (target, workload) of `in_file`, and of `out_file` if it exists, to `out_file`.

    Only records that are believed are written.  Gives the number of records written; without any, no file is.
    Raises JournalError when a file cannot be read or written.
    """
    return distill(in_file, out_file, settled_records, lambda pairs: best_records(pairs).values(), _described)


def _described(inp: MeasureInput, res: MeasureResult) -> str:
    """The line of a record, after the one on its workload."""
    note = workload_line(inp.task)
    return dump_record_to_string(inp, res) if note is None else f"{note}\n{dump_record_to_string(inp, res)}"
