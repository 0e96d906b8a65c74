"""`ansor distill`: the best record of each workload of a log, in a file of their own."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from te_lite.errors import require

from ..autotvm.log_summary import holds_configurations
from ..autotvm.record import decode, pick_best, target_key
from ..core.errors import NoRecordError, TaskError
from ..records.best import distill_record_file
from ..records.files import LineReader
from ..records.journal import scan_lines
from ..records.lines import RecordReader, workload_of
from ..records.notes import WORKLOAD
from .written import require_folder

NAME = "distill"


def add_parser(commands: Any) -> Any:
    """Add the command to the subcommands of a parser, and give its parser."""
    parser = commands.add_parser(NAME, help="keep only the best record of each workload")
    parser.add_argument("log")
    text = "the file to write, or a distilled file to add to (default: LOG.best.json)"
    parser.add_argument("-o", "--output", help=text)
    return parser


def distill(args: argparse.Namespace) -> int:
    """Write the best records, of programs or of configurations of templates, to a file of their own.

    Raises TaskError for an output that holds what would be lost, JournalError for one whose folder is not there,
    NoRecordError for a log without a valid record.
    """
    output = args.output or f"{args.log}.best.json"
    require_folder(Path(output))
    templates = holds_configurations(args.log)
    _require_nothing_lost(args.log, Path(output), templates)
    count = pick_best(args.log, output) if templates else distill_record_file(args.log, output)
    require(count, NoRecordError, args.log, "holds no valid record, so nothing was written")
    print(f"{output}: {count} {'record' if count == 1 else 'records'}")
    return 0


def _require_nothing_lost(log: str, output: Path, templates: bool) -> None:
    """Raise TaskError unless a file is new, or holds what this command writes: a record of each workload."""
    if not output.exists():
        return
    same = Path(log).exists() and os.path.samefile(log, output)
    require(not same, TaskError, "--output", "the log itself would lose its other records, name another file", got=log)
    bad, workloads = _configurations(output) if templates else _programs(output)
    comments = [line for _, line in scan_lines(output) if line is not None and line[:1] == b"#"]
    ok = not bad and all(line.startswith(WORKLOAD.encode()) for line in comments)
    law = "it is there, and holds more than the best record of each workload, which would be lost; name another file"
    require(ok and len(set(workloads)) == len(workloads), TaskError, "--output", law, got=str(output))


def _programs(file: Path) -> tuple[int, list[Hashable]]:
    """How many lines of a file are no records of programs, and the workloads of the others."""
    reader = RecordReader(file)
    workloads: list[Hashable] = [workload_of(inp) for inp, _ in reader]
    return reader.num_bad, workloads


def _configurations(file: Path) -> tuple[int, list[Hashable]]:
    """How many lines of a file are no records of templates, and the workloads of the others."""
    reader = LineReader(file, decode, logging.getLogger("autotvm"))
    workloads: list[Hashable] = [(target_key(inp.target), inp.workload) for inp, _ in reader]
    return reader.num_bad, workloads
