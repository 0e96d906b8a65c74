"""The argument `WORKLOAD` of commands: a name of the catalogue with a shape, or a function of one's own."""

from __future__ import annotations

import argparse
from typing import Any

from te_lite.errors import require
from te_lite.expr.spelling import did_you_mean

from ..core.errors import TaskError
from ..core.tasks.catalog import CATALOG
from . import user_code

CHOSEN = 'only the workload of this name, like matmul or "matmul(64,64,64)", or of this workload key'

CATALOGUE = "\n".join(["workloads and their usual shapes:", *[f"  {n:<17} {e.text}" for n, e in CATALOG.items()]])
SHAPE = "all numbers in order, or some by name (N=1,H=7), the others as usual; without it, the usual shape (below)"
NAMED = f"{', '.join(CATALOG)}; or FILE.py:FUNCTION or MODULE:FUNCTION, a function that gives tensors"


def add_workload(parser: Any, also: str = "") -> None:
    """Give a command its workload, which may be something else `also`."""
    parser.add_argument("workload", metavar="WORKLOAD", help=f"{NAMED}{also}")
    parser.add_argument("--shape", help=SHAPE)
    text = "the arguments of a FUNCTION of your own, as Python writes them: 1,(2,2) or n=1,m=2"
    parser.add_argument("--args", metavar="ARGS", help=text)


def add_chosen(parser: Any) -> None:
    """Give a command that reads a log the option `--workload`."""
    parser.add_argument("--workload", help=CHOSEN)


def workload_key(args: argparse.Namespace) -> str:
    """The key of the workload that the arguments name.  Raises TaskError for what is none."""
    if args.workload.endswith(".py"):
        user_code.function_of(f"{args.workload}:")
    if ":" in args.workload:
        require(args.shape is None, TaskError, "--shape", "a function of your own takes --args", workload=args.workload)
        return user_code.workload_key(args.workload, args.args)
    hint = did_you_mean(args.workload, CATALOG)
    law = f"is no workload; {hint}they are {', '.join(CATALOG)}, and FILE.py:FUNCTION for one of your own"
    require(args.workload in CATALOG, TaskError, repr(args.workload), law)
    require(args.args is None, TaskError, "--args", "a workload of the catalogue takes --shape", workload=args.workload)
    entry = CATALOG[args.workload]
    return entry.key(entry.numbers(args.shape) if args.shape else entry.default)
