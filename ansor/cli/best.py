"""`ansor best`: the best program of each workload in a log."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from te_lite.errors import TeError, require

from ..autotvm.log_summary import best_lines, holds_configurations, log_summary
from ..core.errors import NoRecordError, TaskError
from ..core.tasks.measure_values import Baseline, MeasureInput, MeasureResult
from ..measure.progress import cost_text, rate_text
from ..records.best import best_first, best_records
from ..records.confirmed import SettledReader
from ..records.lines import believed
from ..records.noted_records import Program, baseline_among, known_baselines
from .log import chosen, is_called
from .user_code import add_import
from .workload import add_chosen

Best = Mapping[tuple[str, str], tuple[MeasureInput, MeasureResult]]
"""The best record by target kind, with a precision, and workload key."""


def add_parser(commands: Any) -> None:
    """Add the command to the subcommands of a parser."""
    parser = commands.add_parser("best", help="show the best program of each workload in a log")
    parser.add_argument("log")
    add_chosen(parser)
    text = "also print the program: schedule, or the target's kind (c, cuda, ...) for its source"
    parser.add_argument("--print", dest="mode", metavar="WHAT", help=text)
    add_import(parser)
    parser.set_defaults(run=best)


def best(args: argparse.Namespace) -> int:
    """Print the best record of each target and workload; of a log of templates the best configurations."""
    if holds_configurations(args.log):
        lines = best_lines(chosen(log_summary(args.log), args.workload).name, args.workload)
        require(args.mode is None, TaskError, "--print", "a configuration of a template has no program to print")
        require(lines, NoRecordError, args.log, "holds no valid record")
        print("\n".join(lines))
        return 0
    known = known_baselines(args.log)
    for inp, res in best_of(args.log, args.workload).values():
        kind = inp.task.target.kind.name
        print(summary_text(inp, res, known))
        if args.mode == "schedule":
            print(inp.task.compute_dag.print_python_code_from_state(inp.state))
        elif args.mode is not None:
            if args.mode != kind:
                law = f"of a record for target {kind!r}, schedule or {kind} is printed"
                raise TaskError(f"--print: {law}, got {args.mode!r}")
            print(inp.task.source(inp.state))
    return 0


def best_of(log: str, workload: str | None) -> Best:
    """The best records of a log, or of one workload in it.  Raises NoRecordError when there are none."""
    found = best_records(believed(best_first(SettledReader(log)), log))
    require(found, NoRecordError, log, "holds no valid record")
    if workload is not None:
        names = ", ".join(dict.fromkeys([inp.task.name for inp, _ in found.values()]))
        found = {key: pair for key, pair in found.items() if is_called(pair[0].task, workload)}
        require(found, NoRecordError, log, f"has no workload {workload!r}; its workloads are {names}")
    return found


def summary_text(inp: MeasureInput, res: MeasureResult, known: Mapping[Program, Baseline]) -> str:
    """A record in one line: its workload, target, time, rate where the computation is known; which baseline it is."""
    text = f"{inp.task.title} for {inp.task.target}: {cost_text(res)}"
    try:
        rate = rate_text(inp.task.compute_dag.flop_ct, res.cost)
    except TeError:
        rate = ""
    which = baseline_among(known, inp)
    return f"{text}  {rate}".rstrip() + ("" if which is None else f"  ({which.value})")
