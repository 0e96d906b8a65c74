"""`ansor log`: what a log holds, and how the searches of two logs stand beside each other."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from te_lite.errors import require

from ..autotvm.log_summary import believed_text, log_summary
from ..core.errors import NoRecordError, TaskError
from ..core.tasks.measure_values import Baseline
from ..core.tasks.task import SearchTask
from ..core.values.checks import counted
from ..measure.progress import cost_text, figures_text, rate_text, reach_text, seconds_text, spread_text
from ..records.summary import LogSummary, TaskSummary, is_one_of, names_of
from .user_code import add_import
from .workload import add_chosen

BAR = 40
NAMED = 3
"""Tasks that are named where two logs share none."""
TURNS = "timed again, in turns"


def add_parser(commands: Any) -> None:
    """Add the command to the subcommands of a parser."""
    parser = commands.add_parser("log", help="what a log holds: tasks, trials, failures, the best over the trials")
    parser.add_argument("logs", nargs="+", metavar="LOG")
    parser.add_argument("--compare", action="store_true", help="put the tasks of two logs beside each other")
    add_chosen(parser)
    add_import(parser)
    parser.set_defaults(run=log)


def log(args: argparse.Namespace) -> int:
    """Print what the logs hold.  Raises NoRecordError for a log without records, TaskError for bad arguments."""
    law = "two logs are needed, as in ansor log --compare A.json B.json"
    require(not args.compare or len(args.logs) == 2, TaskError, "--compare", law, got=args.logs)
    found = [chosen(log_summary(name), args.workload) for name in args.logs]
    lines = compared(*found) if args.compare else [line for one in found for line in listed(one)]
    print("\n".join(lines))
    return 0


def is_called(task: SearchTask, name: str) -> bool:
    """Whether a task has a name: that of its function or network task, with or without arguments, or its key."""
    return is_one_of(name, names_of(task))


def chosen(summary: LogSummary, workload: str | None) -> LogSummary:
    """The tasks of a workload, or all.  Raises NoRecordError when there is none."""
    require(summary.tasks, NoRecordError, summary.name, "holds no record")
    tasks = {k: t for k, t in summary.tasks.items() if workload is None or is_one_of(workload, t.names)}
    names = ", ".join(dict.fromkeys([t.names[0] for t in summary.tasks.values()]))
    require(tasks, NoRecordError, summary.name, f"has no workload {workload!r}; its workloads are {names}")
    return LogSummary(summary.name, tasks, summary.runs, summary.complaint)


def listed(summary: LogSummary) -> Iterator[str]:
    """A log in lines."""
    held = f"{counted(summary.trials, 'trial')} of {counted(len(summary.tasks), 'task')}"
    yield f"{summary.name}: {held}, {summary.seconds:.1f} s of building and measuring"
    for run in summary.runs:
        yield f"  written by: {run.get('command')} (seed {run.get('seed')})"
    for one in summary.tasks.values():
        yield from task_lines(one)


def task_lines(one: TaskSummary) -> Iterator[str]:
    """A task in lines: what was measured, what failed and why, and the best over the trials."""
    failed = ", ".join(f"{count} {name}" for name, count in one.failures.most_common())
    best = "no valid program" if one.best is None else f"best {best_text(one)} at trial {one.found_at}"
    yield f"{one.title} for {one.target}"
    yield f"  {counted(len(one.curve), 'trial')} in {one.seconds:.1f} s, {best}; failed: {failed or 'none'}"
    for name, reason in one.reasons.items():
        if name in one.failures:
            yield f"  {name}, the first: {reason}"
    if one.stopped:
        yield f"  a search of it stopped early: {one.stopped}"
    if one.turns:
        trial = "" if one.turns_trial is None else f", trial {one.turns_trial}"
        which = trial if one.turns_baseline is None else f", {one.turns_baseline.phrase}"
        yield f"  the best few timed again, in turns: {spread_text(one.turns)}{which}"
    if one.ranked and (one.turns or one.settled != one.best):
        yield f"  best, export and apply_best take: {believed_text(one, one.ranked[0])}"
    for baseline in Baseline:
        if baseline in one.baselines:
            yield f"  {baseline.value}: {cost_text(one.baselines[baseline])}"
    for trials in checkpoints(len(one.curve)):
        cost = one.after(trials)
        if cost is not None and one.best is not None:
            bar = "#" * max(1, round(BAR * one.best / cost))
            yield f"  {trials:>7} trials {seconds_text(cost):>10}  {bar}"


def best_text(one: TaskSummary) -> str:
    """The least time, the rate where the computation is known, and how far the figures reach if they are several."""
    assert one.best_result is not None
    costs = one.best_result.costs
    rate = "" if one.flops is None else rate_text(one.flops, one.best_result.cost)
    told = "; ".join([text for text in (rate, figures_text(costs) if len(costs) > 1 else "") if text])
    return f"{seconds_text(one.best_result.cost)} ({told})" if told else seconds_text(one.best_result.cost)


def checkpoints(trials: int) -> list[int]:
    """1, 2, 4, ... and the last one."""
    return sorted({2**k for k in range(trials.bit_length()) if 2**k <= trials} | {trials})


def compared(a: LogSummary, b: LogSummary) -> Iterator[str]:
    """Two logs in lines: of each task of both the best, in all and after as many trials as both have.

    Raises NoRecordError when they share no task.
    """
    both = [key for key in a.tasks if key in b.tasks]
    law = f"have no task in common, A has {_tasks_text(a)}, B {_tasks_text(b)}"
    require(both, NoRecordError, f"{a.name} and {b.name}", law)
    yield f"A: {a.name}, {counted(a.trials, 'trial')}, {a.seconds:.1f} s"
    yield f"B: {b.name}, {counted(b.trials, 'trial')}, {b.seconds:.1f} s"
    for key in both:
        yield from _beside(a.tasks[key], b.tasks[key])
    for name, own, other in (("A", a, b), ("B", b, a)):
        left = [t.title for key, t in own.tasks.items() if key not in other.tasks]
        if left:
            yield f"only in {name}: {', '.join(left)}"


def _tasks_text(log: LogSummary) -> str:
    """The first tasks of a log, with their targets."""
    tasks = [f"{t.title} for {t.target}" for t in log.tasks.values()]
    more = [] if len(tasks) <= NAMED else [f"{len(tasks) - NAMED} more"]
    return ", ".join([*tasks[:NAMED], *more])


def _beside(a: TaskSummary, b: TaskSummary) -> Iterator[str]:
    yield f"{a.title} for {a.target}"
    same = min(len(a.curve), len(b.curve))
    rows = [
        (f"after {counted(same, 'trial')}", a.after(same), b.after(same)),
        (f"in all ({len(a.curve)} and {len(b.curve)})", a.best, b.best),
    ]
    if a.turns or b.turns:
        rows.append((TURNS, a.confirmed, b.confirmed))
    for text, x, y in rows:
        ratio = f"B takes {y / x:.2f} of A's time" if x is not None and y is not None else ""
        yield f"  {text:<28} A {_time(x):>10}   B {_time(y):>10}   {ratio}".rstrip()
        if text.startswith(TURNS):
            yield f"  {'':<28} A {_reach(a.turns):>10}   B {_reach(b.turns):>10}"
    failures = [sum(t.failures.values()) for t in (a, b)]
    yield f"  {'failed':<28} A {failures[0]:>10}   B {failures[1]:>10}"


def _reach(figures: Sequence[float]) -> str:
    return reach_text(figures) if figures else "none"


def _time(seconds: float | None) -> str:
    return "none" if seconds is None else seconds_text(seconds)
