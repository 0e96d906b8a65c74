"""The program that `ansor draw` is asked for: of a workload the default schedule or a sketch, of a log the best one."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from te_lite.errors import require
from te_lite.schedule.state import State

from ..core.errors import TaskError
from ..core.tasks.task import SearchTask
from ..measure.progress import seconds_text
from ..policy.default_schedule import default_state
from ..sketch import generate_sketches
from ..sketch.plain import untuned_state
from .best import best_of
from .workload import CHOSEN, add_workload, workload_key

ALSO = "; or a LOG, for its best program"
OF_LOG = f"of a LOG, {CHOSEN}"
TARGET = "what a workload is compiled for (default: c)"
SKETCH = "of a workload, number N (from 0) of Ansor's sketches, with open lengths, and not the default schedule"


@dataclass(frozen=True)
class Drawn:
    """A program and what to call it."""

    title: str
    task: SearchTask
    state: State


def add_task(parser: Any) -> None:
    """Give a command the arguments that name a task."""
    add_workload(parser, ALSO)
    parser.add_argument("--workload", dest="named", metavar="WORKLOAD", help=OF_LOG)
    parser.add_argument("--target", help=TARGET)


def is_log(args: argparse.Namespace) -> bool:
    """Whether the arguments name a log."""
    return Path(args.workload).is_file() and not args.workload.endswith(".py")


def task_of(args: argparse.Namespace) -> SearchTask:
    """The task of a workload, or of the best record of a log.  Raises TaskError, NoRecordError."""
    if is_log(args):
        return _best(args).task
    require(args.named is None, TaskError, "--workload", "names a workload of a log", got=args.named)
    return SearchTask(workload_key=workload_key(args), target=args.target or "c")


def program_of(args: argparse.Namespace) -> Drawn:
    """The program that the arguments name; no device is asked.  Raises TaskError, NoRecordError."""
    if is_log(args):
        law = "a log has programs, a workload has sketches"
        require(args.sketch is None, TaskError, "--sketch", law, got=args.sketch)
        return _best(args)
    task = task_of(args)
    if args.sketch is None:
        state = default_state(task) or untuned_state(task)
        return Drawn(f"{task.title} for {task.target}, default schedule", task, state)
    sketches = generate_sketches(task.compute_dag, task.target, task.hardware_params)
    law = f"{task.title} for {task.target} has the sketches 0 to {len(sketches) - 1}"
    require(0 <= args.sketch < len(sketches), TaskError, "--sketch", law, got=args.sketch)
    return Drawn(f"{task.title} for {task.target}, sketch {args.sketch}", task, sketches[args.sketch])


def _best(args: argparse.Namespace) -> Drawn:
    given = [name for name in ("shape", "args", "target") if getattr(args, name) is not None]
    require(
        not given, TaskError, args.workload, "a log knows its shapes and targets; leave the options away", got=given
    )
    inp, res = next(iter(best_of(args.workload, args.named).values()))
    return Drawn(f"{inp.task.title} for {inp.task.target}, {seconds_text(res.cost)}", inp.task, inp.state)
