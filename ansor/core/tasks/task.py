"""A search task: one computation on one target, and what can be done with it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from inspect import Signature, signature
from typing import Any, Protocol

import numpy as np

from te_lite import ComputeDAG, PlaceholderOp, Tensor
from te_lite.errors import require
from te_lite.extensions import required_part
from te_lite.hooks import Hook
from te_lite.schedule.schedule import Schedule
from te_lite.schedule.state import State

from ..errors import TaskError
from ..target.hardware import HardwareParams
from ..target.target import Target
from ..values.options import LayoutRewriteOption
from .workloads import (
    WorkloadFunc,
    decode_workload_key,
    first_difference,
    key_text,
    logged_name,
    make_workload_key,
    register_dag,
    workload_dag,
)

Array = np.ndarray[Any, np.dtype[Any]]
PathLike = str | os.PathLike[str]
HARDWARE_FIELDS = tuple(f.name for f in fields(HardwareParams))


@dataclass(frozen=True)
class TaskFacts:
    """What a record says of its task, nothing of it looked up yet."""

    workload_key: str
    target: str
    hardware: tuple[int, ...] | None = None
    target_host: str = ""
    layout_rewrite_option: int = 0
    task_input_names: tuple[str, ...] = ()

    def to_json(self) -> list[Any]:
        """The first part of a record line."""
        hardware = list(self.hardware or [0] * len(HARDWARE_FIELDS))
        names = list(self.task_input_names)
        return [self.workload_key, self.target, hardware, self.target_host, self.layout_rewrite_option, names]


def _require_task(title: str, dag: ComputeDAG) -> None:
    """Raise TaskError for a computation with open extents, and one that reads tensors which nobody gives it."""
    law = "the extents of a task are numbers; sizes={...} says which values of open ones count"
    require(not dag.sizes, TaskError, title, law, sizes=dag.sizes)
    missing = [op.name for op in dag.ops if isinstance(op, PlaceholderOp) and all(t.op is not op for t in dag.tensors)]
    law = "its list of tensors lacks inputs that it reads, so no program can be given them; add them"
    require(not missing, TaskError, title, law, missing=", ".join(missing))


class TaskActions(Protocol):
    """What a task does by the help of layers above it: those that search, measure and read logs."""

    def tune(self, task: SearchTask, options: Any, policy: Any, adaptive_training: bool) -> None:
        """See `SearchTask.tune`."""

    def best_state(self, task: SearchTask, log_file: PathLike | None, include_compatible: bool) -> State:
        """See `SearchTask.best_state`."""

    def default_state(self, task: SearchTask) -> State:
        """A program of the task that nobody tuned."""

    def with_layout(self, state: State, option: LayoutRewriteOption) -> State:
        """The program with its layout-free inputs stored as `option` says."""

    def build(self, task: SearchTask, state: State) -> Any:
        """A program of the task as a function of arrays."""

    def export(self, task: SearchTask, state: State, folder: str | os.PathLike[str]) -> None:
        """See `SearchTask.export_best`."""

    def source(self, task: SearchTask, state: State) -> str:
        """See `SearchTask.source`."""


TASK_ACTIONS: Hook[[], TaskActions] = Hook("how a task is tuned and its log read", "ansor")


class SearchTask:
    """A computation to be tuned for a target.

    The computation is a registered function with `args`, a `workload_key`, or a `compute_dag` (which is registered
    under its own key, or under `workload_key` where that is given, too).  `hardware_params` default to what the target
    says.  `task_inputs` maps placeholder names to the arrays to measure with, instead of random ones.
    `layout_rewrite_option` says how layout-free inputs are stored when programs are measured (target `c` only).
    `precision` is that of the target (`Target.with_precision`): with "tf32" or "fp32x3", products of floats may be
    computed by tensor cores.
    With `sizes` the extents of the computation are open, and the task is an `OpenTask`, of the extension `open_sizes`,
    for a range of them: `sizes={"n": [(1, 0.1), (128, 0.5), 1000]}` says which values of `te.size_var("n", ...)` count.
    Of an `invariant` one the bits of a result do not depend on how many others are computed with it.
    Raises TaskError for an unknown workload or target, or arguments that do not fit.
    """

    def __new__(cls, *given: Any, sizes: Mapping[str, Any] | None = None, **named: Any) -> Any:
        return object.__new__(cls) if sizes is None else required_part("open_task")(*given, sizes=sizes, **named)

    def __init__(
        self,
        func: WorkloadFunc | str | None = None,
        args: Sequence[Any] | None = None,
        compute_dag: ComputeDAG | Sequence[Tensor] | None = None,
        workload_key: str | None = None,
        target: Target | str | None = None,
        target_host: Target | str | None = None,
        hardware_params: HardwareParams | None = None,
        layout_rewrite_option: int | None = None,
        task_inputs: Mapping[str, Any] | None = None,
        desc: str = "",
        precision: str | None = None,
        sizes: Mapping[str, Any] | None = None,
        invariant: bool = False,
    ) -> None:
        law = "only a task for a range of sizes, sizes={...}, may be that"
        require(not invariant, TaskError, "SearchTask: invariant", law, got=invariant)
        law = "the target must be a keyword, as in SearchTask(func, args, target='c')"
        require(not isinstance(compute_dag, Target | str), TaskError, "SearchTask", law, got=compute_dag)
        if target is None:
            raise TaskError("SearchTask: a target is needed, for example target='c'")
        target = Target.of(target) if precision is None else Target.of(target).with_precision(precision)
        known, law = isinstance(hardware_params, HardwareParams | None), "must be ansor.HardwareParams"
        require(known, TaskError, "SearchTask: hardware_params", law, got=hardware_params)
        option = layout_rewrite_option or LayoutRewriteOption.NO_REWRITE
        self.layout_rewrite_option = _layout_option("SearchTask", option, target)
        self.desc = desc
        if compute_dag is not None and not isinstance(compute_dag, ComputeDAG):
            law = "must be a ComputeDAG or a list of tensors"
            require(isinstance(compute_dag, list | tuple), TaskError, "SearchTask: compute_dag", law, got=compute_dag)
            compute_dag = ComputeDAG(compute_dag)
        self.workload_key = _key(func, args, compute_dag, workload_key)
        if func is not None and compute_dag is not None:
            _require_same(compute_dag, self.workload_key)
        self.__dict__["compute_dag"] = compute_dag or workload_dag(self.workload_key)
        _require_task(self.title, self.compute_dag)
        if compute_dag is not None:
            register_dag(self.workload_key, compute_dag)
        self.__dict__["target"] = target
        self.__dict__["hardware_params"] = (hardware_params or HardwareParams()).completed(target)
        self.target_host = "" if target_host is None else str(target_host)
        self.task_inputs: dict[str, Array] = self._checked_inputs(task_inputs or {})
        self.task_input_names = tuple(self.task_inputs)

    __signature__ = Signature([*signature(__init__).parameters.values()][1:])

    @classmethod
    def from_facts(cls, facts: TaskFacts) -> SearchTask:
        """The task of a record; its computation, target and hardware are looked up when they are asked for."""
        task: SearchTask = cls.__new__(cls)
        task.desc = logged_name(facts.workload_key)
        task.workload_key = facts.workload_key
        task.target_host = facts.target_host
        task.layout_rewrite_option = LayoutRewriteOption(facts.layout_rewrite_option)
        task.task_inputs = {}
        task.task_input_names = facts.task_input_names
        task._facts = facts
        return task

    _facts: TaskFacts | None = None

    @cached_property
    def compute_dag(self) -> ComputeDAG:
        """The computation.  Raises TaskError when a record's workload is not registered here."""
        return workload_dag(self.workload_key)

    @cached_property
    def target(self) -> Target:
        assert self._facts is not None
        return Target.recorded(self._facts.target)

    @cached_property
    def hardware_params(self) -> HardwareParams:
        if self._facts is None or self._facts.hardware is None or not any(self._facts.hardware):
            return HardwareParams(target=self.target)
        return HardwareParams(**dict[str, Any](zip(HARDWARE_FIELDS, self._facts.hardware, strict=True)))

    @property
    def name(self) -> str:
        """What to call the task: its description, or the name of its workload."""
        return self.desc or decode_workload_key(self.workload_key)[0]

    @property
    def title(self) -> str:
        """The task for people: its name and arguments."""
        return key_text(self.workload_key, self.desc)

    @property
    def packs(self) -> bool:
        """Whether inputs that are free to be stored in any order come in that in which a program reads them."""
        return self.layout_rewrite_option == LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED

    def facts(self) -> TaskFacts:
        """What a record says of this task."""
        if self._facts is not None:
            return self._facts
        return TaskFacts(
            self.workload_key, str(self.target), tuple(self.hardware_params.to_json()), self.target_host,
            int(self.layout_rewrite_option), self.task_input_names,
        )  # fmt: skip

    def _checked_inputs(self, given: Mapping[str, Any]) -> dict[str, Array]:
        tensors = {t.name: t for t in self.compute_dag.inputs}
        out = {}
        for name, value in given.items():
            if name not in tensors:
                raise TaskError(f"SearchTask: task input {name!r} is no placeholder, they are {', '.join(tensors)}")
            array, tensor = np.ascontiguousarray(value), tensors[name]
            law = f"must be {tensor.dtype} of shape {tensor.shape}"
            ok = array.shape == tensor.shape and array.dtype == np.dtype(tensor.dtype)
            got = f"{array.dtype} of shape {array.shape}"
            require(ok, TaskError, f"SearchTask: task input {name!r}", law, got=got)
            out[name] = array
        return out

    # ------------------------------------------------------------------------------------------ what it can do

    def tune(self, tuning_options: Any, search_policy: Any = None, adaptive_training: bool = False) -> None:
        """Search for a good program, as `TuningOptions` say; the results go to the callbacks of the options.

        Without a policy it is `SketchPolicy(self, XGBModel(adaptive_training=...))`.  Ctrl-C stops the workers and
        passes on; every result that was measured has reached the callbacks by then.  Raises BackendError when the
        target cannot be had here, and TaskError for a policy that is none, is for another task, or knows no time limit
        when one is set.
        """
        TASK_ACTIONS().tune(self, tuning_options, search_policy, adaptive_training)

    def best_state(self, log_file: PathLike | None = None, include_compatible: bool = False) -> State:
        """The best recorded program of this workload, without a log that of the store (docs/store.md).

        Raises NoRecordError when there is none.
        """
        return TASK_ACTIONS().best_state(self, log_file, include_compatible)

    def apply_best(
        self,
        log_file: PathLike | None = None,
        include_compatible: bool = False,
        layout_rewrite_option: int | None = None,
    ) -> tuple[Any, list[Tensor]]:
        """`(schedule, tensors)` of the best record of a log, or of the store, ready for `te.lower` and `build`.

        The layout option is that of the task, unless one is given; with `REWRITE_FOR_PRE_TRANSFORMED` the tensors of
        layout-free inputs have packed shapes.
        """
        given = self.layout_rewrite_option if layout_rewrite_option is None else layout_rewrite_option
        option = _layout_option("apply_best", given, self.target)
        state = TASK_ACTIONS().with_layout(self.best_state(log_file, include_compatible), option)
        return Schedule(state), list(state.dag.tensors)

    def print_best(self, log_file: PathLike | None = None, print_mode: str = "schedule") -> str:
        """The best record as text: "schedule" gives Python code, the target's kind ("c", "cuda") its source."""
        kind = self.target.kind.name
        if print_mode not in ("schedule", kind):
            raise ValueError(f"print_best: print_mode must be 'schedule' or {kind!r}, got {print_mode!r}")
        state = self.best_state(log_file)
        return self.compute_dag.print_python_code_from_state(state) if print_mode == "schedule" else self.source(state)

    def build_best(self, log_file: PathLike | None = None) -> Any:
        """The best record as a function of arrays of the declared shapes, with `.source` and `.time(...)`."""
        return TASK_ACTIONS().build(self, self.best_state(log_file))

    def build_default(self) -> Any:
        """The program that models think good, without a search and a log, as `build_best` gives the best record."""
        return TASK_ACTIONS().build(self, TASK_ACTIONS().default_state(self))

    def export_best(self, log_file: PathLike | None, folder: str | os.PathLike[str]) -> None:
        """Write the best record into a new folder as a program that needs nothing of this package.

        There are its source, machine code, a C header, a loader in Python and a manifest; `ansor.load_module(folder)`
        reads it.  Raises ExportError for a folder that is not empty or cannot be written, and the backend's error.
        """
        TASK_ACTIONS().export(self, self.best_state(log_file), folder)

    def source(self, state: State) -> str:
        """The target's source text of a program of this task."""
        return TASK_ACTIONS().source(self, state)

    def __repr__(self) -> str:
        return f"SearchTask({self.workload_key}, {self.target})"


def _layout_option(subject: str, option: int, target: Target) -> LayoutRewriteOption:
    known = option in tuple(LayoutRewriteOption)
    require(known, TaskError, subject, "layout options are 0, 1 and 2", layout_rewrite_option=option)
    ok = option == LayoutRewriteOption.NO_REWRITE or target.kind.name == "c"
    law = "layouts are rewritten for target c only"
    require(ok, TaskError, subject, law, layout_rewrite_option=option, target=str(target))
    return LayoutRewriteOption(option)


def _require_same(dag: ComputeDAG, key: str) -> None:
    """Raise TaskError for a computation that is not that of the key, under which its records would be filed."""
    law = "func and args, or compute_dag, are given, not both, and compute_dag is another computation"
    different = first_difference(workload_dag(key), dag)
    if different is not None:
        raise TaskError(f"SearchTask: {law}: `{different[1]}`, where {key_text(key)} has `{different[0]}`")


def _key(
    func: WorkloadFunc | str | None, args: Sequence[Any] | None, dag: ComputeDAG | None, workload_key: str | None
) -> str:
    if workload_key is not None:
        own = workload_key if func is None or args is None else make_workload_key(func, args)
        law = "func and args, or workload_key, are given, not both, and workload_key is another one"
        require(own == workload_key, TaskError, "SearchTask", law, workload_key=workload_key, of_func=own)
        return workload_key
    if func is not None:
        if args is None and callable(func) and not signature(func).parameters:
            args = ()
        law = "a function needs args, a list or tuple of the arguments"
        require(isinstance(args, list | tuple), TaskError, "SearchTask", law, got=args)
        return make_workload_key(func, args or ())
    if dag is None:
        raise TaskError("SearchTask: a computation is needed: func and args, a workload_key, or a compute_dag")
    return dag.workload_key()
