"""`ansor dataset`: the programs of a log as arrays, for models and searchers."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

import numpy as np

from te_lite.errors import require

from ..core.errors import TaskError
from ..core.host.hints import install
from ..offline.matrix import Matrix, matrices_of
from .user_code import add_import
from .written import require_folder

ENDINGS = (".npz", ".parquet")


def add_parser(commands: Any) -> None:
    """Add the command to the subcommands of a parser."""
    parser = commands.add_parser("dataset", help="write the features, decisions and times of a log as arrays")
    parser.add_argument("log")
    text = "the file to write, .npz or, with pyarrow, .parquet (default: LOG with .npz); of several tasks FILE.K.npz"
    parser.add_argument("-o", "--output", metavar="FILE", help=text)
    add_import(parser)
    parser.set_defaults(run=dataset)


def dataset(args: argparse.Namespace) -> int:
    """Write a file for each task of a log.  Raises NoRecordError for a log without usable records, TaskError for an
    output of another kind, and where pyarrow is needed and not installed."""
    log = Path(args.log)
    plain = log.with_suffix("") if log.suffix == ".gz" else log
    output = Path(args.output) if args.output else plain.with_suffix(".npz")
    law = f"must end in {' or '.join(ENDINGS)}"
    require(output.suffix in ENDINGS, TaskError, "--output", law, got=str(output))
    require_folder(output)
    write = save_parquet if output.suffix == ".parquet" else Matrix.save
    if write is save_parquet:
        _pyarrow("pyarrow")
    found = matrices_of(log)
    for k, matrix in enumerate(found):
        file = output if len(found) == 1 else output.with_suffix(f".{k}{output.suffix}")
        write(matrix, file)
        shape = f"{matrix.features.shape[1]} features, {len(matrix.names)} decisions"
        print(f"{file}: {len(matrix)} programs of {matrix.task} for {matrix.target}, {shape}")
    return 0


def save_parquet(matrix: Matrix, file: Path) -> None:
    """A table: a column for each feature and decision, `seconds`, `error`; units and versions are metadata."""
    arrow, parquet = _pyarrow("pyarrow"), _pyarrow("pyarrow.parquet")
    columns = {str(name): matrix.features[:, k] for k, name in enumerate(matrix.columns)}
    columns |= {f"decision {name}": matrix.decisions[:, k] for k, name in enumerate(matrix.names)}
    columns |= {"seconds": matrix.seconds, "error": matrix.errors}
    units = {str(name): str(unit) for name, unit in zip(matrix.columns, matrix.units, strict=True)}
    facts = {"version": matrix.version, "workload": matrix.workload, "target": matrix.target, "log": matrix.log}
    fields = [
        arrow.field(name, arrow.from_numpy_dtype(np.asarray(column).dtype), metadata={"unit": units.get(name, "")})
        for name, column in columns.items()
    ]
    table = arrow.table(list(columns.values()), schema=arrow.schema(fields, metadata=facts))
    parquet.write_table(table, file)


def _pyarrow(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        law = f"the package pyarrow is not installed; write a .npz file, or `{install('data')}`"
        raise TaskError(f"parquet: {law}") from error
