"""`ansor report`: what logs say, as one HTML file."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from te_lite.errors import require

from ..core.errors import NoRecordError, TaskError
from ..report.page import write_report
from .user_code import add_import
from .workload import add_chosen
from .written import require_folder, require_like


def add_parser(commands: Any) -> None:
    """Add the command to the subcommands of a parser."""
    parser = commands.add_parser("report", help="write a page on one or several logs: curves, decisions, best programs")
    parser.add_argument("logs", nargs="+", metavar="LOG")
    parser.add_argument("-o", "--output", default="report.html", help="the file to write (default: report.html)")
    add_chosen(parser)
    text = "write it again every S seconds (default 10) until Ctrl-C; a browser that shows it loads it again"
    parser.add_argument("--follow", nargs="?", const=10, type=int, metavar="S", help=text)
    add_import(parser)
    parser.set_defaults(run=report)


def report(args: argparse.Namespace) -> int:
    """Write the page, once or again and again.  Raises as `write_report`, TaskError for bad arguments, JournalError."""
    ok = args.follow is None or args.follow >= 1
    require(ok, TaskError, "--follow", "a number of at least 1 second is needed", got=args.follow)
    same = [log for log in args.logs if Path(log).resolve() == Path(args.output).resolve()]
    require(not same, TaskError, "--output", "is one of the logs", got=args.output)
    require_folder(Path(args.output))
    require_like(Path(args.output), "<!DOCTYPE html>", "page")
    if args.follow is None:
        _say(write_report(args.logs, args.output, args.workload), args.output)
        return 0
    while True:
        try:
            _say(write_report(args.logs, args.output, args.workload, args.follow), args.output)
        except NoRecordError as error:
            print(f"{error}; waiting", flush=True)
        time.sleep(args.follow)


def _say(tasks: int, output: str) -> None:
    print(f"{output}: {tasks} task{'' if tasks == 1 else 's'}", flush=True)
