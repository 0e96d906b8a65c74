"""A task for a range of sizes: fixed sizes are searched, and their best programs measured as programs for all sizes.

The programs of a computation with open extents are made of the same steps as those of the computation with numbers:
tiles of constants, whose tails are guarded.  So the search is that of tasks with numbers, at a few of the points; the
best programs that it finds there are replayed on the open computation, and each is measured at all points.  A few are
kept that serve all points well (`choice.py`), and everything is in the log: what is kept follows from it alone.

Of an `invariant` task one program is kept, compiled so that a row has the same bits in all its loops (`same_bits.py`).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from itertools import chain, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ansor.core.device.build import build_function
from ansor.core.errors import NoRecordError, TaskError
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.core.tasks.protocols import Builder, Runner
from ansor.core.tasks.task import SearchTask
from ansor.core.tasks.workloads import function_of, register_dag
from ansor.core.values.parts import said
from ansor.cost_model.prior import AnalyticalModel
from ansor.measure.local import LocalRunner
from ansor.policy.default_schedule import default_states
from ansor.policy.tuning_options import TuningOptions
from ansor.records.best import best_few, ranked_records
from ansor.records.files import PathLike
from ansor.records.journal import append_lines
from ansor.records.recorder import RecordToFile
from ansor.records.validation import is_program
from te_lite.computation.computation import require_workload
from te_lite.computation.tensor import Tensor
from te_lite.errors import require
from te_lite.lowering.lower import lower
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State

from .choice import MOST_PROGRAMS, Matrix, Scores, scores_of
from .dispatch import OpenFunction
from .measure import BUILT, Measuring, Seconds
from .measured import Steps, open_key, seconds_in
from .points import Point, points_of
from .same_bits import same_bits
from .sized import sized

MOST_SEARCHED = 3
"""Points at which fixed sizes are searched."""
OF_EACH = 32
"""Programs of each of them that may be measured for all sizes."""
ENOUGH = 12
"""Trials for each point that are enough for programs for all sizes: more of them find hardly better ones."""


class OpenTask:
    """A computation with open extents to be tuned for a range of sizes, on target `c` or `cuda`.

    The computation is a function with `args`, which may be `te.size_var`s, or a `compute_dag`; `sizes` says for each
    open extent by name which values count: a `range`, or a list of values and pairs `(value, weight)` (`points_of`).
    Of an `invariant` one the bits of a result do not depend on how many others are computed with it: it has one program
    for all sizes, in which sums have one order, and floats are rounded after each operation on target `c`.  Raises
    TaskError for a computation without open extents, another target and sizes that do not fit, and LowerError for a
    computation that has no program for all sizes.
    """

    def __init__(
        self,
        func: Callable[..., Sequence[Tensor]] | str | None = None,
        args: Sequence[Any] = (),
        compute_dag: ComputeDAG | Sequence[Tensor] | None = None,
        target: Target | str | None = None,
        sizes: Mapping[str, Any] | None = None,
        hardware_params: HardwareParams | None = None,
        desc: str = "",
        invariant: bool = False,
        **others: Any,
    ) -> None:
        law = "it must be True or False"
        require(isinstance(invariant, bool), TaskError, "OpenTask: invariant", law, got=invariant)
        self.invariant, self.most = invariant, 1 if invariant else MOST_PROGRAMS
        _require_known(compute_dag, target, others)
        self.target = Target.of(target)  # type: ignore[arg-type]
        law = f"programs for a range of sizes are searched for targets {' and '.join(BUILT)}"
        require(self.target.kind.name in BUILT, TaskError, "OpenTask", law, target=str(target))
        self.compute_dag = dag = _computation(func, args, compute_dag)
        law = "an extent is open, as te.size_var('n', 1, 4096) is; SearchTask takes computations of numbers"
        require(dag.sizes, TaskError, "OpenTask", law, sizes=dag.sizes)
        names = [v.name for v in dag.sizes]
        require(len({*names}) == len(names), TaskError, "OpenTask", "open extents have names of their own", sizes=names)
        lower(dag.init_state)
        self.points = points_of(dag.sizes, sizes)
        self.tasks = {p.values: self._task(p, hardware_params, desc) for p in self.points}

    def _task(self, point: Point, hardware: HardwareParams | None, desc: str) -> SearchTask:
        fixed = sized(self.compute_dag, dict(zip(self.compute_dag.sizes, point.values, strict=True)))
        register_dag(open_key(self.compute_dag, point.values), fixed)
        return SearchTask(compute_dag=fixed, target=self.target, hardware_params=hardware, desc=desc)

    @property
    def searched(self) -> list[SearchTask]:
        """The tasks of fixed sizes that are searched: those of the least, the middle and the greatest work."""
        tasks = sorted(self.tasks.values(), key=lambda task: task.compute_dag.flop_ct)
        places = np.linspace(0, len(tasks) - 1, min(MOST_SEARCHED, len(tasks)))
        return [tasks[round(place)] for place in places]

    def tune(self, options: TuningOptions) -> None:
        """Search, and measure programs for all sizes, as `options` say, whose callbacks must have a `RecordToFile`.

        In some of the trials (`opened_of`) a program for all sizes is measured at a point; the others, two thirds of
        most runs, are those of searches of fixed sizes.  Where the log holds records, the run goes on from them.
        Raises TaskError for options without a log, and with a runner of other machines.
        """
        log, trials = _log_of(options), options.num_measure_trials
        append_lines(log, [])  # it is read before anything is measured where no trial is one of a search
        until = math.inf if options.time_limit is None else time.monotonic() + options.time_limit
        opened = opened_of(trials, len(self.searched), len(self.points))
        with options.measuring([self.target.kind.name]) as (builder, runner), TemporaryDirectory() as folder:
            law = "programs for all sizes are measured on this machine"
            require(isinstance(runner, LocalRunner), TaskError, "OpenTask.tune", law, runner=runner)
            parts = _parts(options, builder, runner, trials - opened, len(self.searched))
            for task, part in zip(self.searched, parts, strict=True):
                task.tune(part)
            known, hearing = seconds_in(log, self.compute_dag, self.tasks), options.measure_callbacks
            limits = Path(folder), opened, until, self.invariant
            self._measure(Measuring(self.compute_dag, self.tasks, known, hearing, runner, *limits), log)

    def _measure(self, measuring: Measuring, log: PathLike) -> None:
        """Measure candidates where fixed sizes were searched, and those that would be kept at the other points, too.

        Of the first one nobody knows yet whether it would be kept, so the second one goes before its other points.
        """
        known, near = self._known(log), [values for values, task in self.tasks.items() if task in self.searched]
        for k, steps in enumerate(self._candidates(log) if measuring.left else ()):
            if not measuring.measure(steps, near) or (k and not self._finish(measuring, known)):
                return
        self._finish(measuring, known)

    def _finish(self, measuring: Measuring, known: Matrix) -> bool:
        """Measure the programs that would be kept at all points; gives whether that was done."""
        done = True
        while done and (some := self._unfinished(measuring.seconds, known)):
            done = all([measuring.measure(one, list(self.tasks)) for one in some])
        return done

    def _unfinished(self, seconds: Seconds, known: Matrix) -> list[Steps]:
        """The programs that would be kept and were not measured at all points."""
        programs, scores = self._scores(seconds, known)
        chosen = [programs[k] for k in scores.chosen(self.most)] if programs else []
        return [steps for steps in chosen if len(seconds[steps]) < len(self.tasks)]

    def _candidates(self, log: PathLike) -> Iterator[Steps]:
        """Steps that have a program for all sizes, each once: in turns the best of each searched task and default ones.

        Those of the greatest and the least work come first: they differ most, and the former serve other sizes better.
        """
        ranked, (*rest, last) = ranked_records(log), self.searched
        found = [[inp.steps for inp, _ in best_few(ranked, task, OF_EACH)] for task in (last, *rest)]
        turns = chain.from_iterable(zip_longest(*found, [state.steps for state in self._defaults()]))
        for steps in dict.fromkeys([x for x in turns if x is not None]):
            if is_program(self.compute_dag, steps):
                yield steps

    def best_states(self, log_file: PathLike) -> list[State]:
        """The programs for all sizes that a log leads to, at most 8, or one.  Raises NoRecordError when it has none."""
        return self._best(log_file)[0]

    def build_best(self, log_file: PathLike) -> OpenFunction:
        """The best programs of a log as one function of arrays of all sizes.  Raises NoRecordError as `best_states`."""
        return self._built(*self._best(log_file))

    def build_default(self) -> OpenFunction:
        """The programs that models think good, as one function of arrays, without a search and a log."""
        states = self._defaults()
        seconds = np.array([[self._expected(state, task) for task in self.tasks.values()] for state in states])
        scores = scores_of(self.points, seconds, np.full(len(self.points), np.inf))
        chosen = scores.chosen(self.most)
        return self._built([states[k] for k in chosen], scores.only(chosen))

    def _best(self, log: PathLike) -> tuple[list[State], Scores]:
        """The programs to keep, and their scores."""
        found = seconds_in(log, self.compute_dag, self.tasks)
        programs, scores = self._scores(found, self._known(log))
        law = "it holds no program for all sizes of this task"
        require(programs, NoRecordError, str(log), law, records=len(found))
        chosen = scores.chosen(self.most)
        return [replay(self.compute_dag, programs[k]) for k in chosen], scores.only(chosen)

    def _scores(self, seconds: Seconds, known: Matrix) -> tuple[list[Steps], Scores]:
        """The programs that failed nowhere, and their scores."""
        sound = {s: at for s, at in seconds.items() if all(map(math.isfinite, at.values())) and self._fits(s)}
        rows = [[at.get(values, math.nan) for values in self.tasks] for at in sound.values()]
        return list(sound), scores_of(self.points, np.array(rows).reshape(-1, len(self.points)), known)

    def _fits(self, steps: Steps) -> bool:
        return is_program(self.compute_dag, steps)

    def _known(self, log: PathLike) -> Matrix:
        """The least seconds at each point of a program of the fixed size, infinite where there is none."""
        ranked = ranked_records(log)
        found = [best_few(ranked, task, 1) for task in self.tasks.values()]
        return np.array([best[0][1].cost if best else math.inf for best in found])

    def _built(self, states: Sequence[State], scores: Scores) -> OpenFunction:
        tensors, build = self.compute_dag.tensors, same_bits if self.invariant else build_function
        return OpenFunction(states, [build(state, tensors, self.target) for state in states], scores)

    def _defaults(self) -> list[State]:
        """The default programs of the searched tasks as programs for all sizes, each once."""
        found = [self._default(task) for task in self.searched]
        return [replay(self.compute_dag, steps) for steps in dict.fromkeys(found)]

    def _default(self, task: SearchTask) -> Steps:
        fitting = (state.steps for state in default_states(task) if self._fits(state.steps))
        return next(fitting, ())

    def _expected(self, state: State, task: SearchTask) -> float:
        """The seconds that the analytical model expects of a program at the sizes of a task."""
        fixed = replay(task.compute_dag, state.steps)
        return float(np.exp(-AnalyticalModel().predict(task, [fixed])[0]))

    def __getattr__(self, name: str) -> Any:
        has = "tune, best_states, build_best and build_default"
        raise AttributeError(f"a task for a range of sizes has no {name!r}; it has {has}")

    def __repr__(self) -> str:
        sizes = ", ".join([f"{v.name}={v.range[0]}..{v.range[1]}" for v in self.compute_dag.sizes])
        return f"OpenTask({self.compute_dag!r}, {sizes}, {self.target})"


def opened_of(trials: int, searched: int, points: int) -> int:
    """How many of `trials` are for programs for all sizes.

    A third of them; where they are few, as many as two programs need at the points that are `searched`, but at most
    half; where they are many, no more than `ENOUGH` for each of the `points`.
    """
    return min(max(trials // 3, min(-(-trials // 2), 2 * searched)), ENOUGH * points)


def _computation(
    func: Callable[..., Sequence[Tensor]] | str | None, args: Sequence[Any], dag: ComputeDAG | Sequence[Tensor] | None
) -> ComputeDAG:
    law = "a computation is needed: a function with args, or a compute_dag"
    require((func is None) != (dag is None), TaskError, "OpenTask", law, func=func, compute_dag=dag)
    if isinstance(dag, ComputeDAG):
        return dag
    if func is None:
        require_workload("OpenTask: compute_dag", dag, TaskError)  # type: ignore[arg-type]
        return ComputeDAG(dag)  # type: ignore[arg-type]
    subject, law = f"workload {func!r}", "args must be a list or tuple of the arguments"
    known = function_of(json.dumps([func])) if isinstance(func, str) else func
    require(callable(known), TaskError, subject, "is not registered")
    require(isinstance(args, list | tuple), TaskError, subject, law, got=args)
    try:
        tensors = known(*args)  # type: ignore[misc]
    except Exception as error:
        raise TaskError(f"{subject}: its function fails for the arguments {list(args)}: {said(error)}") from error
    require_workload(subject, tensors, TaskError)
    return ComputeDAG(tensors)


def _require_known(dag: Any, target: Any, others: Mapping[str, Any]) -> None:
    """Raise TaskError for arguments of a `SearchTask` that one for a range of sizes does not have."""
    law = "the target must be a keyword, as in SearchTask(func, args, target='c', sizes={...})"
    require(not isinstance(dag, Target | str), TaskError, "OpenTask", law, got=dag)
    require(target is not None, TaskError, "OpenTask", "a target is needed, for example target='c'")
    law = "a task for a range of sizes takes func, args, compute_dag, target, sizes, hardware_params, desc "
    law += "and invariant"
    given = ", ".join([name for name, value in others.items() if value is not None])
    require(not given, TaskError, "OpenTask", law, got=given)


def _log_of(options: TuningOptions) -> Path:
    """The log that a run writes.  Raises TaskError for what are no options, and for options without a log."""
    law = "the options must be ansor.TuningOptions"
    require(isinstance(options, TuningOptions), TaskError, "OpenTask.tune", law, got=options)
    logs = [c.filename for c in options.measure_callbacks if isinstance(c, RecordToFile)]
    law = "measure_callbacks need an ansor.RecordToFile, from which programs are built"
    require(logs, TaskError, "OpenTask.tune", law, got=options.measure_callbacks)
    return logs[0]


def _parts(options: TuningOptions, builder: Builder, runner: Runner, trials: int, parts: int) -> list[TuningOptions]:
    """The options of several searches one after the other, which share what builds and runs programs."""
    found = []
    for k in range(parts):
        own = copy(options)
        own.builder, own.runner, own.owned = builder, runner, []
        own.num_measure_trials = trials // parts + (k < trials % parts)
        own.time_limit = None if options.time_limit is None else options.time_limit * 2 / 3 / parts
        found.append(own)
    return found
