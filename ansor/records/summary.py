"""What a log holds, task by task: trials, failures by cause, the best and when it was found, seconds."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from te_lite.errors import TeError
from te_lite.schedule.step import Step

from ..core.tasks.catalog import CATALOG
from ..core.tasks.measure_values import Baseline, MeasureInput, MeasureResult, Spent
from ..core.tasks.task import SearchTask
from .best import best_first
from .confirmed import SettledReader, read_turns
from .files import PathLike
from .journal import scan_lines
from .lines import Record, least_of, workload_of
from .network import NetworkNote, network_after, read_network
from .noted_records import Program, baseline_among, cause, program_of, read_baseline, read_failure
from .notes import PREDICTED, RUN, read_note, read_round, read_stopped
from .validation import Believed, Judge

Steps = tuple[Step, ...]


@dataclass
class TaskSummary:
    """The records of one task, in order: of programs (`task`, `inputs`), or of the configurations of a template.

    `names` are what it may be asked for by, the shortest first; `flops` the operations of one run, if they are known.
    `curve` has the least seconds after each trial, None before the first program that worked; `seconds` is what
    building and measuring took in all.  `baselines` are the results of the programs that nobody searched for,
    `turns` all figures of the best program when the best few were last timed in turns, `turns_baseline` which of the
    baselines it is, if it is one, `turns_trial` the number, from 1, of its first trial, if it has one; `reasons` why
    the first failure of each cause was one; `stopped` why the last search that ended early of itself did.  `ranked`
    are the records of programs that worked, in the order in which the log is believed, a program perhaps again;
    `in_turns` all figures of those that were last timed in turns.  `spent` is where the seconds of its rounds went,
    None where no round says so.
    """

    title: str
    names: tuple[str, ...]
    target: str
    flops: float | None = None
    task: SearchTask | None = None
    results: list[MeasureResult] = field(default_factory=list)
    inputs: list[MeasureInput] = field(default_factory=list)
    curve: list[float | None] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    baselines: dict[Baseline, MeasureResult] = field(default_factory=dict)
    turns: tuple[float, ...] = ()
    turns_baseline: Baseline | None = None
    turns_trial: int | None = None
    reasons: dict[str, str] = field(default_factory=dict)
    stopped: str = ""
    ranked: list[Record] = field(default_factory=list)
    in_turns: dict[Steps, tuple[float, ...]] = field(default_factory=dict)
    unsearched: dict[Steps, Baseline] = field(default_factory=dict)
    spent: Spent | None = None

    @property
    def untuned(self) -> float | None:
        """The seconds of the untuned program."""
        found = self.baselines.get(Baseline.UNTUNED)
        return None if found is None else found.cost

    @property
    def untuned_settled(self) -> float | None:
        """The same as the log is believed: by its figures in turns where there are some."""
        steps = next((steps for steps, which in self.unsearched.items() if which is Baseline.UNTUNED), ())
        timed = self.in_turns.get(steps)
        seconds = float(np.median(timed)) if timed else self.seconds_of(steps)
        return self.untuned if seconds is None else seconds

    @property
    def best(self) -> float | None:
        return self.curve[-1] if self.curve else None

    @property
    def found_at(self) -> int | None:
        """The number of the trial, from 1, that brought the best."""
        return None if self.best is None else self.curve.index(self.best) + 1

    @property
    def best_result(self) -> MeasureResult | None:
        """The result that has the best, with all its figures."""
        return None if self.found_at is None else self.results[self.found_at - 1]

    @property
    def confirmed(self) -> float | None:
        """The median of the figures of the best program when the best few were last timed in turns."""
        return float(np.median(self.turns)) if self.turns else None

    @property
    def settled(self) -> float | None:
        """The seconds of the best program as the log is believed: by its figures in turns where there are some."""
        return next((res.cost for _, res in self.ranked), self.best)

    def leaders(self, most: int) -> list[Record]:
        """The best programs as the log is believed, each once."""
        found: dict[Steps, Record] = {}
        for inp, res in self.ranked:
            if len(found) == most:
                break
            found.setdefault(inp.steps, (inp, res))
        return list(found.values())

    def seconds_of(self, steps: Steps) -> float | None:
        """The seconds of a program as the log is believed; None for one that did not work, or is not there."""
        return next((res.cost for inp, res in self.ranked if inp.steps == steps), None)

    def trial_of(self, steps: Steps) -> int | None:
        """The number of the trial, from 1, that measured a program first."""
        return next((k for k, inp in enumerate(self.inputs, 1) if inp.steps == steps), None)

    def called(self, steps: Steps) -> str:
        """What a program is called: a baseline by its phrase, others by their trial."""
        which, trial = self.unsearched.get(steps, None if steps else Baseline.UNTUNED), self.trial_of(steps)
        if which is not None:
            return which.phrase
        return "of another log" if trial is None else f"trial {trial}"

    def is_of_turns(self, steps: Steps) -> bool:
        """Whether a program is known by its figures in turns."""
        figures = self.in_turns.get(steps)
        return figures is not None and self.seconds_of(steps) == float(np.median(figures))

    def after(self, trials: int) -> float | None:
        """The least seconds after so many trials."""
        return self.curve[min(trials, len(self.curve)) - 1] if self.curve and trials else None

    def add(self, res: MeasureResult, inp: MeasureInput | None = None) -> None:
        """Count a record; `inp` is its program."""
        best = self.best
        self.results.append(res)
        self.inputs += [] if inp is None else [inp]
        if res.ok:
            self.curve.append(res.cost if best is None else min(best, res.cost))
        else:
            self.curve.append(best)
            self.failures[cause(res.error_no)] += 1
        self.seconds += res.all_cost


@dataclass
class LogSummary:
    """The tasks of a log, in order of appearance, by target kind and workload key; what was skipped, in a sentence."""

    name: str
    tasks: dict[tuple[str, str], TaskSummary]
    runs: list[dict[str, Any]]
    complaint: str
    network: NetworkNote | None = None

    @property
    def trials(self) -> int:
        return sum(len(t.curve) for t in self.tasks.values())

    @property
    def seconds(self) -> float:
        return sum(t.seconds for t in self.tasks.values())


def names_of(task: SearchTask) -> tuple[str, str, str]:
    """What a task is called: the name of its function or network task, that with arguments, its key."""
    return task.name, task.title, task.workload_key


def is_one_of(name: str, names: Sequence[str]) -> bool:
    """Whether what somebody typed is one of the names of a task, spaces aside.

    The names of the catalogue, which `ansor tune` takes, stand for those of its functions: `dense` for `dense_layer`.
    """
    typed = "".join(name.split())
    called = {typed} | ({CATALOG[typed].name} if typed in CATALOG else set())
    return not called.isdisjoint(["".join(one.split()) for one in names])


def summary_of(filename: PathLike) -> LogSummary:
    """Read a log; records are not replayed.  Raises JournalError when it cannot be read."""
    logger = logging.getLogger("ansor")
    reader = SettledReader(filename)
    settled = list(reader)
    judge = Judge(workload_of, least_of, lambda inp: None)
    records = Believed(reader.measured, judge, str(filename), logger)
    tasks = _by_task(records)
    runs, network = _add_notes(Path(filename), tasks)
    for pairs in (settled, reader.outranked):
        _add_ranked(Believed(best_first(pairs), judge, str(filename), None), tasks)
    for key, last in reader.confirmations.items():
        if key in tasks:
            tasks[key].in_turns = {inp.steps: res.costs for inp, res in last.turns}
    return LogSummary(str(filename), tasks, runs, reader.complaint() or records.complaint(), network)


def _by_task(records: Iterable[Record]) -> dict[tuple[str, str], TaskSummary]:
    tasks: dict[tuple[str, str], TaskSummary] = {}
    for inp, res in records:
        key = workload_of(inp)
        if key not in tasks:
            tasks[key] = _of_task(inp.task)
        tasks[key].add(res, inp)
    return tasks


def _add_ranked(records: Iterable[Record], tasks: Mapping[tuple[str, str], TaskSummary]) -> None:
    """Let tasks have their programs that worked, which come best first, after those that they have."""
    for inp, res in records:
        if res.ok and (task := tasks.get(workload_of(inp))):
            task.ranked.append((inp, res))


def _of_task(task: SearchTask) -> TaskSummary:
    """Nothing measured of a task yet; its operations are unknown where its computation is."""
    try:
        flops = task.compute_dag.flop_ct
    except TeError:
        flops = None
    return TaskSummary(task.title, names_of(task), str(task.target), flops, task)


def _add_notes(
    log: Path, tasks: Mapping[tuple[str, str], TaskSummary]
) -> tuple[list[dict[str, Any]], NetworkNote | None]:  # fmt: skip
    """Let tasks have what the comment lines of a log say of them; gives the runs that wrote it, and the network."""
    runs, known, network = [], dict[Program, Baseline](), None
    for line in [line for _, line in scan_lines(log) if line is not None and line[:1] == b"#"]:
        if line.startswith(PREDICTED.encode()):
            continue
        network = network_after(network, read_network(line))
        if (ended := read_round(line)) and (task := tasks.get(ended[0])):
            task.spent = task.spent or Spent()
            task.spent.add(ended[1])
        note, baseline, turns, failure = read_note(line), read_baseline(line), read_turns(line), read_failure(line)
        if note is not None and note[0] == RUN:
            runs.append(note[1])
        if baseline is not None:
            which, (inp, res) = baseline
            known[program_of(inp)] = which
            if res.ok and (task := tasks.get(workload_of(inp))):
                task.baselines[which] = res
                task.unsearched[inp.steps] = which
        if turns and (task := tasks.get(workload_of(turns[0][0]))):
            task.turns, task.turns_baseline = turns[0][1].costs, baseline_among(known, turns[0][0])
            task.turns_trial = task.trial_of(turns[0][0].steps)
        if failure is not None and (task := tasks.get(workload_of(failure[0][0]))):
            task.reasons.setdefault(cause(failure[0][1].error_no), failure[1])
        if (stop := read_stopped(line)) and (task := tasks.get(stop[0])):
            task.stopped = stop[1]
    return runs, network
