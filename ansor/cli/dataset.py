"""`ansor dataset`: the programs of a log as arrays, for models and searchers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from te_lite.errors import require

from ..core.errors import TaskError
from ..offline.matrix import matrices_of
from .user_code import add_import
from .written import require_folder


def add_parser(commands: Any) -> None:
    """Add the command to the subcommands of a parser."""
    parser = commands.add_parser("dataset", help="write the features, decisions and times of a log as arrays")
    parser.add_argument("log")
    text = "the file to write, .npz (default: LOG with .npz); of several tasks FILE.K.npz"
    parser.add_argument("-o", "--output", metavar="FILE", help=text)
    add_import(parser)
    parser.set_defaults(run=dataset)


def dataset(args: argparse.Namespace) -> int:
    """Write a file for each task of a log.  Raises NoRecordError for a log without usable records, TaskError for an
    output of another kind."""
    log = Path(args.log)
    plain = log.with_suffix("") if log.suffix == ".gz" else log
    output = Path(args.output) if args.output else plain.with_suffix(".npz")
    require(output.suffix == ".npz", TaskError, "--output", "must end in .npz", got=str(output))
    require_folder(output)
    found = matrices_of(log)
    for k, matrix in enumerate(found):
        file = output if len(found) == 1 else output.with_suffix(f".{k}.npz")
        matrix.save(file)
        shape = f"{matrix.features.shape[1]} features, {len(matrix.names)} decisions"
        print(f"{file}: {len(matrix)} programs of {matrix.task} for {matrix.target}, {shape}")
    return 0
