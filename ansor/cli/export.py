"""`ansor export`: the best program of a log as a folder that needs nothing of this package."""

from __future__ import annotations

import argparse
from typing import Any

from te_lite.errors import require

from ..core.device.export import PROGRAM, export_program
from ..core.errors import TaskError
from ..core.files.sealed_folder import require_new
from ..core.target.target import Target
from ..records.noted_records import known_baselines
from .best import Best, best_of, summary_text
from .user_code import add_import
from .workload import add_chosen


def add_parser(commands: Any) -> None:
    """Add the command to the subcommands of a parser."""
    text = "write the best program of a workload as source, machine code, C header and Python loader"
    parser = commands.add_parser("export", help=text)
    parser.add_argument("log")
    parser.add_argument("folder", metavar="DIR", help="a new or empty folder")
    add_chosen(parser)
    target = "what to compile for (default: as recorded); with -arch=sm_90 a program for GPUs is compiled without one"
    parser.add_argument("--target", help=target)
    add_import(parser)
    parser.set_defaults(run=export)


def export(args: argparse.Namespace) -> int:
    """Write one program.  Raises TaskError when the log has several, NoRecordError when it has none."""
    law = "a folder is written, and this is the name of a Python file; what to run first is given by --import"
    require(not args.folder.endswith(".py"), TaskError, f"export to {args.folder}", law)
    require_new(PROGRAM, args.folder)
    target = None if args.target is None else Target(args.target)
    inp, res = _only(args.log, best_of(args.log, args.workload), target)
    task = inp.task
    facts = {"workload": task.workload_key, "measured_seconds": res.cost}
    files = export_program(
        inp.state, task.compute_dag.tensors, target or task.target, args.folder, task.name, facts
    )  # fmt: skip
    print(f"{summary_text(inp, res, known_baselines(args.log))}\n{args.folder}: {', '.join(files)}, manifest.json")
    return 0


def _only(log: str, found: Best, target: Target | None) -> Any:
    """The record, of those for the target, else of those of its kind.  Raises TaskError unless there is one."""
    kind = {key: pair for key, pair in found.items() if target is None or pair[0].task.target.kind == target.kind}
    own = {key: pair for key, pair in kind.items() if target is not None and target.takes(pair[0].task.target)}
    fits = own or kind
    kinds = ", ".join(dict.fromkeys([kind for kind, _ in found]))
    require(fits, TaskError, "--target", f"the best records of {log} are for {kinds}", got=str(target))
    names = ", ".join([f"{pair[0].task.title} for {kind}" for (kind, _), pair in fits.items()])
    law = "one workload is exported, name it with its arguments by --workload (and its target by --target)"
    require(len(fits) == 1, TaskError, log, f"{law}; the workloads are {names}")
    return next(iter(fits.values()))
