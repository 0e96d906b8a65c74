"""How long a command tunes: `--trials`, `--more`, `--time-limit`, `--effort`, which mean the same for all of them."""

from __future__ import annotations

import argparse
from typing import Any

from te_lite.errors import require

from ..core.errors import TaskError
from ..core.values.checks import counted
from ..policy.early_stopping import AUTO
from ..policy.effort import EFFORTS, FULL, NONE, QUICK, QUICK_SECONDS, QUICK_TRIALS

LIMIT = "stop tuning after so many seconds"


def add_budget(parser: Any, trials: int, what: str) -> None:
    """Give a command the options; `what` is measured, `trials` of it by default."""
    text = f"how many {what} to measure in all; those in the log count (default: {trials}); 0: measure none"
    parser.add_argument("--trials", type=int, help=text)
    text = f"measure N {what} beside those in the log, whatever --trials says"
    parser.add_argument("--more", type=int, metavar="N", help=text)
    parser.add_argument("--seconds", "--time-limit", dest="time_limit", type=float, metavar="S", help=LIMIT)
    parser.set_defaults(usual_trials=trials, effort=FULL)


def add_effort(parser: Any) -> None:
    """Give a command that tunes tasks the option `--effort`."""
    text = (
        "none: measure nothing; quick: about 10 s a task, and less where nothing more is to be had; full (default): "
        "all --trials"
    )
    parser.add_argument("--effort", choices=EFFORTS, default=FULL, help=text)


def check_budget(args: argparse.Namespace) -> None:
    """Raise TaskError for numbers that make no sense; with no effort, nothing is measured."""
    require(
        args.trials is None or args.trials >= 0,
        TaskError,
        "--trials",
        "a number of at least 0 is needed",
        got=args.trials,
    )
    require(args.more is None or args.more >= 1, TaskError, "--more", "a number of at least 1 is needed", got=args.more)
    ok = args.time_limit is None or args.time_limit > 0
    law = "time_limit must be a positive number of seconds"
    require(ok, TaskError, "--time-limit", law, got=args.time_limit)
    if args.effort == NONE:
        free = not args.trials and args.more is None and args.time_limit is None
        law = "measures nothing, so it goes with no --trials, --more or --time-limit"
        require(free, TaskError, "--effort none", law)
        args.trials = 0


def measures_nothing(args: argparse.Namespace) -> bool:
    """Whether a command is to measure nothing."""
    return args.trials == 0 and args.more is None


def settle(args: argparse.Namespace, tasks: int, done: int) -> None:
    """Fill in what the options leave open, for so many tasks of which `done` records are there."""
    quick = args.effort == QUICK
    if args.trials is None:
        args.trials = done + QUICK_TRIALS * tasks if quick else args.usual_trials
    if quick and args.time_limit is None and not measures_nothing(args):
        args.time_limit = QUICK_SECONDS * tasks


def early_stopping(args: argparse.Namespace) -> str | None:
    """What ends the search of a task before its budget is spent."""
    return AUTO if args.effort == QUICK else None


def total_trials(args: argparse.Namespace, done: int) -> int:
    """How many records there should be in the end, by the options and those that are there."""
    return int(args.trials) if args.more is None else done + int(args.more)


def new_trials(args: argparse.Namespace, done: int, log: str) -> int:
    """How many to measure of one task; said when there is nothing to do."""
    settle(args, 1, done)
    left = max(0, total_trials(args, done) - done)
    if left == 0:
        print(all_done(done, log))
    return left


def all_done(done: int, log: str) -> str:
    """The sentence of a log that holds all that was asked for."""
    return f"{log} holds {counted(done, 'trial')} already, all that --trials asks for; --more N measures N more"
