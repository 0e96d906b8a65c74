"""What `SearchTask` does for users: tune itself, and find its best program in a log."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable
from inspect import Parameter, signature
from typing import Any

import numpy as np

from te_lite.errors import require
from te_lite.later import when_called
from te_lite.lowering.lower import lower
from te_lite.schedule.state import State
from te_lite.verify.verify_reads import require_reads_inside

from ..core.device.backend import backend
from ..core.errors import NoRecordError, TaskError
from ..core.target.hardware import host_memory
from ..core.tasks.measure_values import MeasureInput
from ..core.tasks.protocols import Runner
from ..core.tasks.task import SearchTask
from ..core.values.options import LayoutRewriteOption
from ..core.values.parts import called
from ..cost_model import XGBModel
from ..measure.local import LocalRunner
from ..measure.measurer import ProgramMeasurer
from ..measure.noise import noise, warning
from ..measure.progress import Display
from ..records.best import load_best_record
from ..records.lines import RecordReader, workload_of
from ..records.noted_records import first_failure
from ..records.of_task import is_for
from ..records.recorder import RecordToFile
from ..records.store import best_stored, stores
from ..records.validation import is_program
from ..sketch.plain import untuned_state
from .default_schedule import default_state
from .early_stopping import require_judge
from .exchange import searching
from .protocols import SearchPolicy, require_own_task
from .search_loop import check_logs, continue_log, log_to_continue, start_baselines
from .sketch_policy import SketchPolicy
from .transfer import offer_similar
from .tuning_options import TuningOptions

PathLike = str | os.PathLike[str]
GB = 1e9
build_function: Callable[..., Any] = when_called("ansor.core.device.build", "build_function")
export_program: Callable[..., None] = when_called("ansor.core.device.export", "export_program")
rewrite_layout_from_state: Callable[[State, LayoutRewriteOption], Any] = when_called(
    "ansor.layout.rewrite", "rewrite_layout_from_state"
)
SEARCH = ("num_measure_trials", "early_stopping", "num_measures_per_round", "measurer")


def say_if_noisy(options: TuningOptions, kinds: Iterable[str], display: Display) -> None:
    """Look whether this machine is busy, where something is measured and its processor runs the programs."""
    here = isinstance(options.runner, LocalRunner) and any(backend(kind).shares_host for kind in kinds)
    if not (here and options.num_measure_trials and options.verbose > 0):
        return
    display.phase("looking how busy this machine is")
    logs = [str(c.filename) for c in options.measure_callbacks if isinstance(c, RecordToFile)]
    text = warning(noise(), log=next(iter(logs), "LOG"))
    if text:
        display.note(text)


def require_measurable(runner: Runner, tasks: Iterable[SearchTask]) -> None:
    """Raise UnsafeError for a task that reads what is not there, what `require_memory` raises, and the backend's error
    where a local runner lacks its compiler or device."""
    tasks = list(tasks)
    for task in tasks:
        require_reads_inside(task.compute_dag)
    require_memory(runner, tasks)
    for target in dict.fromkeys([task.target for task in tasks]) if isinstance(runner, LocalRunner) else ():
        backend(target.kind.name).check(str(target))


def require_memory(runner: Runner, tasks: Iterable[SearchTask]) -> None:
    """Raise TaskError for a task whose tensors, which are kept twice while it is measured here, do not fit."""
    there = host_memory()
    law = f"its tensors may take half of this machine's memory, {there / 2 / GB:.3g} GB"
    for task in tasks if isinstance(runner, LocalRunner) else ():
        needed = sum(math.prod(t.shape) * np.dtype(t.dtype).itemsize for t in task.compute_dag.tensors)
        require(2 * needed <= there, TaskError, task.desc or task.title, law, got=f"{needed / GB:.3g} GB")


class Actions:
    """Follows `TaskActions`."""

    def tune(self, task: SearchTask, options: TuningOptions, policy: Any, adaptive_training: bool) -> None:
        law = "the options must be ansor.TuningOptions"
        require(isinstance(options, TuningOptions), TaskError, "SearchTask.tune", law, got=options)
        kind = task.target.kind.name
        backend(kind)
        with options.measuring([kind]) as (builder, runner):
            require_measurable(runner, [task])
            if isinstance(runner, LocalRunner):
                runner.slots(task)
            model = XGBModel(adaptive_training=adaptive_training)
            policy = policy or SketchPolicy(task, model, verbose=options.verbose)
            require_judge(policy, options.early_stopping)
            limits = checked_limits(task, policy, options.time_limit)
            check_logs([task], options)
            offer_similar([policy], runner, continue_log([policy], options))
            measurer = ProgramMeasurer(builder, runner, options.hearers(runner), options.verbose)
            measurer.begin()
            with measurer.display.run(task, options.num_measure_trials):
                if options.num_measure_trials:
                    say_if_noisy(options, [kind], measurer.display)
                    if log_to_continue(options) is not None:
                        measurer.go_on(task)
                    start_baselines(task, policy, measurer)
                with searching(policy, "search", measurer):
                    policy.search(
                        options.num_measure_trials, options.early_stopping, options.num_measures_per_round, measurer,
                        **limits,
                    )  # fmt: skip
        if options.num_measure_trials and not measurer.count:
            text = f"SearchTask.tune: {called('policy', policy)} measured none of {options.num_measure_trials} programs"
            warnings.warn(f"{text}: its search found nothing new, or did nothing", stacklevel=3)

    def best_state(self, task: SearchTask, log_file: PathLike | None, include_compatible: bool) -> State:
        if log_file is None:
            return _stored_state(task)

        def fits(inp: MeasureInput) -> bool:
            return is_program(task.compute_dag, inp.steps)

        inp, _ = load_best_record(log_file, task.workload_key, task.target, include_compatible, fits)
        if inp is None:  # the same computation may have been tuned as tensors, under its hash
            inp, _ = load_best_record(log_file, task.compute_dag.workload_key(), task.target, False, fits)
        if inp is None:
            told = _lacking(log_file, task)
            raise NoRecordError(f"Cannot find any valid schedule for {task.workload_key} in file {log_file}: {told}")
        return MeasureInput(task, steps=inp.steps).state

    def default_state(self, task: SearchTask) -> State:
        return default_state(task) or untuned_state(task)

    def with_layout(self, state: State, option: LayoutRewriteOption) -> State:
        packed: State = rewrite_layout_from_state(state, option).state
        return packed

    def build(self, task: SearchTask, state: State) -> Any:
        return build_function(state, task.compute_dag.tensors, task.target)

    def export(self, task: SearchTask, state: State, folder: str | os.PathLike[str]) -> None:
        facts = {"workload": task.workload_key}
        export_program(state, task.compute_dag.tensors, task.target, folder, task.name, facts)

    def source(self, task: SearchTask, state: State) -> str:
        return backend(task.target.kind.name).source(lower(state, task.compute_dag.tensors), str(task.target))


def _stored_state(task: SearchTask) -> State:
    """The best program of a task in the store.  Raises NoRecordError when it has none."""
    found = best_stored(task.compute_dag, task.target, task.layout_rewrite_option)
    if found is None:
        where = " and ".join(map(str, stores())) or "ANSOR_CACHE is off"
        raise NoRecordError(f"the store has no program of {task.title} for {task.target} on this machine ({where})")
    return MeasureInput(task, steps=found[0].steps).state


def _lacking(log_file: PathLike, task: SearchTask) -> str:
    """What a log without a valid program of a task holds instead."""
    tasks = {workload_of(inp): inp for inp, _ in RecordReader(log_file)}
    if not tasks:
        return "it holds no record"
    keys = task.workload_key, task.compute_dag.workload_key()
    same = {target: inp for (target, key), inp in tasks.items() if key in keys}
    if not same:
        titles = ", ".join(dict.fromkeys([inp.task.title for inp in tasks.values()]))
        return f"it holds no record of this workload; its workloads are {titles}"
    if not any(is_for(inp, task.target) for inp in same.values()):
        return f"its records of this workload are for {', '.join(same)}, and the task is for {task.target.key}"
    return f"none of its records of this workload is valid{first_failure(log_file, task)}"


def checked_limits(task: SearchTask, policy: Any, time_limit: float | None) -> dict[str, float]:
    """The limit as an argument of the policy's `search`.

    Raises TaskError for a policy that has no method `search`, or one that takes other arguments, that is for another
    task, or knows no limit when one is set.
    """
    law = "search_policy must be an object with a method search (names are for the TaskScheduler)"
    ok = isinstance(policy, SearchPolicy) and callable(policy.search) and not isinstance(policy, type)
    law += "; a class was given, call it" if isinstance(policy, type) else ""
    require(ok, TaskError, "SearchTask.tune", law, search_policy=policy)
    require_own_task("SearchTask.tune", policy, task)
    taken = signature(policy.search)
    try:
        taken.bind(*SEARCH)
    except TypeError as error:
        text = f"{called('policy', policy)}: search must take {', '.join(SEARCH)}, got {taken}"
        raise TaskError(f"SearchTask.tune: {text}") from error
    if time_limit is None:
        return {}
    parameters = taken.parameters.values()
    ok = any(p.name == "time_limit" or p.kind == Parameter.VAR_KEYWORD for p in parameters)
    law = "a time limit is set, but the policy's method search has no parameter time_limit"
    require(ok, TaskError, "SearchTask.tune", law, policy=type(policy).__name__)
    return {"time_limit": time_limit}
