"""`ansor remeasure`: the best programs of a log once more, checked, and timed in turns."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from te_lite.errors import require

from ..core.device.backend import backend
from ..core.errors import NoRecordError, TaskError
from ..core.tasks.measure_values import Baseline, MeasureInput
from ..core.tasks.task import SearchTask
from ..core.tasks.workloads import decode_workload_key
from ..core.values.steady import by_turns
from ..measure.finals import FINALISTS
from ..measure.local import LocalBuilder, LocalRunner
from ..measure.measurer import ProgramMeasurer
from ..measure.noise import noise, unsteady, warning
from ..measure.progress import outcome_text, seconds_text, spread_text
from ..policy.tuning_options import store_of
from ..records.best import best_few, ranked_records
from ..records.journal import append_lines
from ..records.lines import Record, RecordReader, workload_of
from ..records.noted_records import Program, known_baselines, program_of
from ..records.recorder import RecordToFile
from . import devices as cli_devices
from .log import is_called
from .user_code import add_import
from .workload import add_chosen

USUAL = FINALISTS.least
WIDTH = max(len(which.value) for which in Baseline)
DOUBTED = "so that figures of a quiet machine, where the log has any, count for more; time them again later"
ELSEWHERE = "of another log"
"""A program that a log knows only from turns with those of other logs of its run."""


def add_parser(commands: Any) -> None:
    """Add the command to the subcommands of a parser."""
    text = "time the best programs of a log again, in turns; the log believes these figures from then on"
    parser = commands.add_parser("remeasure", help=text)
    parser.add_argument("log")
    parser.add_argument("--best", type=int, default=USUAL, metavar="K", help=f"how many (default: {USUAL})")
    add_chosen(parser)
    parser.add_argument("--devices", help=cli_devices.OPTION)
    add_import(parser)
    parser.set_defaults(run=remeasure)


def remeasure(args: argparse.Namespace) -> int:
    """Time the best programs of each workload of numbers; 1 where one of them has none that runs here.

    Raises NoRecordError for a log without the workload, JournalError for one that cannot be read or added to,
    BackendError for a target that cannot be had here.
    """
    require(args.best >= 1, TaskError, "--best", "a number of at least 1 is needed", got=args.best)
    devices = cli_devices.devices_of(args.devices)
    ranked = ranked_records(args.log)
    tasks = {workload_of(inp): inp.task for inp, res in ranked if res.ok and _has_numbers(inp.task)}
    require(tasks, NoRecordError, args.log, "holds no valid record of a task whose extents are numbers")
    chosen = [task for task in tasks.values() if args.workload is None or is_called(task, args.workload)]
    names = ", ".join(dict.fromkeys([task.name for task in tasks.values()]))
    require(chosen, NoRecordError, args.log, f"has no workload {args.workload!r}; its workloads are {names}")
    for task in chosen:
        backend(task.target.kind.name).check(str(task.target))
        cli_devices.check_devices(task.target.kind.name, devices)
    append_lines(args.log, [])
    if any(backend(task.target.kind.name).shares_host for task in chosen) and (busy := warning(noise(), again=True)):
        print(busy)
    runner = LocalRunner(devices=devices)
    measurer = ProgramMeasurer(LocalBuilder(), runner, [RecordToFile(args.log), store_of(runner)], verbose=0)
    with closing(measurer):
        called = names_in(args.log)
        ran = [_remeasured(task, best_few(ranked, task, args.best), called, measurer, runner) for task in chosen]
    print(f"the figures are in {args.log}; best, apply_best and export go by the last that a quiet machine gave")
    return 0 if all(ran) else 1


def _has_numbers(task: SearchTask) -> bool:
    """Whether all extents are numbers: a program for all sizes, whose key has a table of them, is another one here."""
    return not any(isinstance(x, dict) for x in decode_workload_key(task.workload_key)[1] or ())


def names_in(log: str) -> Mapping[Program, str]:
    """What the programs of a log are called: a baseline by its name, others by the trial of their workload, from 1."""
    counts: Counter[tuple[str, str]] = Counter()
    found: dict[Program, str] = {}
    for inp, _ in RecordReader(log):
        counts[workload_of(inp)] += 1
        found.setdefault(program_of(inp), f"trial {counts[workload_of(inp)]}")
    return found | {program: which.value for program, which in known_baselines(log).items()}


def _remeasured(
    task: SearchTask, records: Sequence[Record], called: Mapping[Program, str], measurer: ProgramMeasurer,
    runner: LocalRunner,
) -> bool:  # fmt: skip
    """Print what the programs take, best first; whether one runs.  Each is checked before it is timed."""

    def name(inp: MeasureInput) -> str:
        return f"{called.get(program_of(inp), ELSEWHERE):<{WIDTH}}"

    print(f"{task.title} for {task.target}")
    built = [measurer.builder.submit(inp) for inp, _ in records]
    checked = [runner.run(inp, build.result()) for (inp, _), build in zip(records, built, strict=True)]
    for (inp, logged), result in zip(records, checked, strict=True):
        if not result.ok:
            print(f"  {name(inp)}  {outcome_text(result)}   believed so far {seconds_text(logged.cost)}")
    right = [record for record, result in zip(records, checked, strict=True) if result.ok]
    times = measurer.in_turns([inp for inp, _ in right], runner) if right else []
    timed = [(figures, *record) for figures, record in zip(times, right, strict=True) if figures]
    for figures, inp, logged in sorted(timed, key=lambda row: by_turns(row[0])):
        print(f"  {name(inp)}  {spread_text(figures)}   believed so far {seconds_text(logged.cost)}")
    if doubt := unsteady([figures for figures, _, _ in timed], DOUBTED):
        print(f"  {doubt}")
    return bool(timed)
