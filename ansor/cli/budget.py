"""How long a command tunes: `--trials`, `--more` and `--time-limit`, which mean the same for all of them."""

from __future__ import annotations

import argparse
from typing import Any

from te_lite.errors import require

from ..core.errors import TaskError
from ..core.wording import counted

LIMIT = "stop tuning after so many seconds"


def add_budget(parser: Any, trials: int, what: str) -> None:
    """Give a command the options; `what` is measured, `trials` of it by default."""
    text = f"how many {what} to measure in all; those in the log count (default: {trials}); 0: measure none"
    parser.add_argument("--trials", type=int, default=trials, help=text)
    text = f"measure N {what} beside those in the log, whatever --trials says"
    parser.add_argument("--more", type=int, metavar="N", help=text)
    parser.add_argument("--time-limit", type=float, metavar="S", help=LIMIT)


def check_budget(args: argparse.Namespace) -> None:
    """Raise TaskError for numbers that make no sense."""
    require(args.trials >= 0, TaskError, "--trials", "a number of at least 0 is needed", got=args.trials)
    require(args.more is None or args.more >= 1, TaskError, "--more", "a number of at least 1 is needed", got=args.more)
    ok = args.time_limit is None or args.time_limit > 0
    law = "time_limit must be a positive number of seconds"
    require(ok, TaskError, "--time-limit", law, got=args.time_limit)


def total_trials(args: argparse.Namespace, done: int) -> int:
    """How many records there should be in the end, by the options and those that are there."""
    return int(args.trials) if args.more is None else done + int(args.more)


def new_trials(args: argparse.Namespace, done: int, log: str) -> int:
    """How many to measure; said when there is nothing to do."""
    left = max(0, total_trials(args, done) - done)
    if left == 0:
        print(all_done(done, log))
    return left


def all_done(done: int, log: str) -> str:
    """The sentence of a log that holds all that was asked for."""
    return f"{log} holds {counted(done, 'trial')} already, all that --trials asks for; --more N measures N more"
