"""From logs to a page: one HTML file that needs no network, made of what the records and the notes of the logs say."""

from __future__ import annotations

import datetime
import importlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from te_lite.errors import TeError, require

from ..autotvm.log_summary import believed_text, log_summary
from ..core.errors import NoRecordError, TaskError
from ..core.host.hints import install
from ..core.host.process import collector_paused
from ..core.tasks.measure_values import Baseline, MeasureInput, Spent
from ..measure.progress import cost_text, spread_text
from ..records.files import PathLike
from ..records.journal import replace_file
from ..records.summary import LogSummary, TaskSummary, is_one_of
from ..space.step_decisions import decisions
from .curves import active_seconds
from .overview import Own, overview
from .pictures import (
    FEW_LINES,
    LINES,
    accuracy_by_round,
    best_so_far,
    curve_points,
    decision_lines,
    expected_and_measured,
    spent_texts,
    where_time_went,
)  # fmt: skip
from .predictions import rounds_of

SHOWN = 2
"""Structures whose decisions are drawn for a task."""
SOURCES = 3
"""Tasks whose two best programs are shown as source, those that take most: lowering a program may take a second."""
TEMPLATE = "report.html"


@dataclass(frozen=True)
class ProgramText:
    """A program of a task as text; `source` is empty where it is not shown."""

    heading: str
    nest: str
    schedule: str
    source: str


def write_report(logs: Sequence[PathLike], output: PathLike, workload: str | None = None, refresh: int = 0) -> int:
    """Write the page on some logs, tasks of the same workload beside each other; gives the number of tasks.

    `workload` is the name or key of the only one that is wanted; a browser loads the page again every `refresh`
    seconds.  Raises NoRecordError for logs without records or without the workload, JournalError when a file cannot be
    read or written, TaskError where jinja2 is not installed.
    """
    with collector_paused():
        facts = _facts(logs, workload, refresh)
    replace_file(output, _render(facts).splitlines())
    return len(facts["tasks"])


def _facts(logs: Sequence[PathLike], workload: str | None, refresh: int) -> dict[str, Any]:
    """What the template is filled with."""
    summaries = [log_summary(log) for log in logs]
    tasks = _tasks(summaries, workload)
    table = overview(tasks, next((one.network for one in summaries if one.network is not None), None))
    largest = sorted(range(len(tasks)), key=lambda k: table["rows"][k]["share"], reverse=True)[:SOURCES]
    lines = LINES if len(tasks) <= SOURCES else FEW_LINES
    facts = [_task_facts(k, list(own.items()), k in largest, lines) for k, own in enumerate(tasks.values())]
    return {
        "logs": [_log_facts(summary) for summary in summaries],
        "tasks": facts,
        "predicted": any(one["accuracy"] for one in facts),
        "overview": table,
        "spent": where_time_went({Path(one.name).name: found for one in summaries if (found := _spent(one))}),
        "written": datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        "refresh": refresh,
    }


def _render(facts: Mapping[str, Any]) -> str:
    """The template with the facts, all of which are escaped but for the pictures, whose texts are."""
    try:
        jinja2 = importlib.import_module("jinja2")
    except ImportError as error:
        raise TaskError(f"report: the package jinja2 is not installed; {install('report')}") from error
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    text = (files(__package__) / "templates" / TEMPLATE).read_text("utf-8")
    return str(environment.from_string(text).render(**facts))


def _spent(summary: LogSummary) -> Spent | None:
    """Where the seconds of a log went; None where no round of it says so."""
    found = [one.spent for one in summary.tasks.values() if one.spent is not None]
    total = Spent()
    for spent in found:
        total.add(spent)
    return total if found else None


def _tasks(summaries: Sequence[LogSummary], workload: str | None) -> dict[tuple[str, str], Own]:
    found: dict[tuple[str, str], dict[str, TaskSummary]] = {}
    for summary in summaries:
        require(summary.tasks, NoRecordError, summary.name, "holds no record")
        for key, task in summary.tasks.items():
            if workload is None or is_one_of(workload, task.names):
                found.setdefault(key, {})[summary.name] = task
    names = ", ".join(dict.fromkeys([t.names[0] for s in summaries for t in s.tasks.values()]))
    require(found, NoRecordError, f"workload {workload!r}", f"is in none of the logs; their workloads are {names}")
    return {key: own for key, own in found.items()}


def _log_facts(summary: LogSummary) -> dict[str, Any]:
    times = sorted(res.timestamp for task in summary.tasks.values() for res in task.results)
    wall = active_seconds(times)[-1]
    devices = sorted({res.device for task in summary.tasks.values() for res in task.results if res.device})
    runs = Counter([tuple(_run_facts(run).items()) for run in summary.runs])
    return {
        "name": Path(summary.name).name, "trials": summary.trials, "tasks": len(summary.tasks),
        "measured": f"{summary.seconds:.0f} s", "wall": f"{wall:.0f} s",
        "targets": sorted({task.target for task in summary.tasks.values()}), "devices": devices,
        "runs": [{**dict(run), "times": times} for run, times in runs.items()], "complaint": summary.complaint,
    }  # fmt: skip


def _run_facts(run: Mapping[str, Any]) -> dict[str, str]:
    """What a run says of itself: how to do it again, on what, and with what."""
    place = "; ".join([str(run[part]) for part in ("device", "compiler") if run.get(part)])
    versions = _versions(run.get("versions"))
    return {"command": str(run.get("command")), "seed": str(run.get("seed")), "place": place, "versions": versions}


def _versions(data: Any) -> str:
    return ", ".join(f"{name} {version}" for name, version in data.items()) if isinstance(data, dict) else ""


def _task_facts(k: int, own: Sequence[tuple[str, TaskSummary]], sources: bool, lines: int) -> dict[str, Any]:
    _, first = own[0]
    by_trials, by_seconds, failed = {}, {}, list[float]()
    for name, one in own:
        by_trials[Path(name).name], by_seconds[Path(name).name] = curve_points(one.curve, one.results)
        failed = failed or [float(n) for n, res in enumerate(one.results, 1) if not res.ok]
    untuned = min([one.untuned for _, one in own if one.untuned is not None], default=None)
    rounds = {Path(name).name: found for name, one in own if (found := rounds_of(one))}
    return {
        "anchor": f"task{k}", "title": first.title, "target": first.target,
        "logs": [_standing(name, one) for name, one in own],
        "by_trials": best_so_far(by_trials, "trials", failed if len(own) == 1 else (), untuned),
        "by_seconds": best_so_far(by_seconds, "seconds at work", (), untuned),
        "reasons": [(cause, why) for cause, why in first.reasons.items() if cause in first.failures],
        "stopped": [(Path(name).name, one.stopped) for name, one in own if one.stopped],
        "expected": expected_and_measured(next(iter(rounds.values()), [])), "accuracy": accuracy_by_round(rounds),
        "decisions": _decision_facts(first, lines), "programs": _programs(first, sources),
    }  # fmt: skip


def _standing(name: str, one: TaskSummary) -> dict[str, str]:
    failures = ", ".join(f"{count} {cause}" for cause, count in one.failures.most_common())
    return {
        "name": Path(name).name, "trials": str(len(one.curve)), "failed": failures or "none",
        "best": _found_text(one),
        "turns": spread_text(one.turns) if one.turns else "", "seconds": f"{one.seconds:.1f} s",
        "spent": "" if one.spent is None else "; ".join(spent_texts(one.spent)),
        "untuned": cost_text(one.baselines[Baseline.UNTUNED]) if Baseline.UNTUNED in one.baselines else "",
    }  # fmt: skip


def _found_text(one: TaskSummary) -> str:
    best = one.best_result
    return "no valid program" if best is None else f"{cost_text(best)} at trial {one.found_at}"


def _decision_facts(one: TaskSummary, lines: int) -> list[dict[str, str]]:
    if one.task is None or one.flops is None:
        return []
    tables = islice(decisions(one.task.compute_dag, [inp.steps for inp in one.inputs]), SHOWN)
    best = next((one.trial_of(inp.steps) for inp, _ in one.leaders(1)), None)
    shown = [(table, decision_lines(table, one.results, best, lines)) for table in tables]
    return [{"programs": f"{len(t.members)} of {len(one.inputs)}", "picture": svg} for t, svg in shown if svg]


def _programs(one: TaskSummary, sources: bool) -> list[ProgramText]:
    """The best program of a task and the runner-up, as the log is believed."""
    found: list[ProgramText] = []
    for record in one.leaders(2):
        name = "the best program" if not found else "the runner-up"
        try:
            found.append(_program(f"{name}: {believed_text(one, record)}", record[0], sources))
        except TeError:  # of a workload or a target that is not known here, or steps that do not replay
            continue
    return found


def _program(heading: str, inp: MeasureInput, sources: bool) -> ProgramText:
    dag, state = inp.task.compute_dag, inp.state
    nest = str(dag.infer_bound_from_state(state))
    source = inp.task.source(state) if sources else ""
    return ProgramText(heading, nest, dag.print_python_code_from_state(state), source)
