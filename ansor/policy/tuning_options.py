"""Options of a tuning run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from te_lite.errors import require

from ..core.errors import PartError, TaskError
from ..core.target.registry import entry_of, search_parts
from ..core.tasks.protocols import BringsBuilder, Builder, KeepsDevice, MeasureCallback, Runner, is_elsewhere
from ..core.values.checks import require_part
from ..measure.local import LocalBuilder, LocalRunner
from ..measure.time_limit import run_seconds
from ..records.store import RecordToStore
from .early_stopping import AUTO


class TuningOptions:
    """How long to tune, how to measure, whom to tell.

    `num_measure_trials` candidates are measured, `num_measures_per_round` at a time; `early_stopping` ends the run
    after that many trials without a better one (with "auto", the search of each task when its last rounds brought
    nothing better and the model expects nothing better, which the log says), `time_limit` after so many seconds, of
    which a part is for timing the best again (one program of each round is measured in any case).  Where a callback is
    a `RecordToFile` whose log holds records, the run goes on from them: none of its programs is measured again, the
    model learns them, and a line says how many there are; `resume=False` starts afresh.
    `verbose` is 0 (silent), 1 (progress) or 2 (every result).
    `builder` and `runner` are objects, or "local" for `LocalBuilder()`, which a runner on other machines has a kind of
    its own of, and `LocalRunner()`, or for those that `register_target` names for the target.
    """

    def __init__(
        self,
        num_measure_trials: int = 0,
        early_stopping: int | str | None = None,
        num_measures_per_round: int = 64,
        verbose: int = 1,
        builder: Builder | str = "local",
        runner: Runner | str = "local",
        measure_callbacks: Sequence[MeasureCallback] | None = None,
        time_limit: float | None = None,
        resume: bool = True,
    ) -> None:
        for name, value, least in (
            ("num_measure_trials", num_measure_trials, 0),
            ("num_measures_per_round", num_measures_per_round, 1),
            ("early_stopping", 1 if early_stopping in (None, -1, AUTO) else early_stopping, 1),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise TaskError(f"TuningOptions: {name} must be an integer of at least {least}, got {value!r}")
        ok = time_limit is None or (isinstance(time_limit, int | float) and time_limit > 0)
        law = "time_limit must be a positive number of seconds"
        require(ok, TaskError, "TuningOptions", law, time_limit=time_limit)
        self.time_limit = time_limit
        self.resume = resume
        self.num_measure_trials = num_measure_trials
        self.early_stopping = None if early_stopping == -1 else early_stopping
        self.num_measures_per_round = num_measures_per_round
        self.verbose = verbose
        usual = _is_local(runner, "runner")
        own_runner = None if usual else _given(runner, Runner, "runner", "run and close")
        self.runner: Runner = own_runner or LocalRunner(run_seconds(time_limit))
        methods, usual = "n_parallel, submit and close", _is_local(builder, "builder")
        self.builder: Builder = _builder_for(self.runner) if usual else _given(builder, Builder, "builder", methods)
        own = ((self.builder, builder), (self.runner, runner))
        self.owned = [o for o, given in own if isinstance(given, str)]
        self.measure_callbacks = callbacks_with("callback", "measure_callbacks", measure_callbacks, (MeasureCallback,))

    def hearers(self, runner: Runner) -> tuple[MeasureCallback, ...]:
        """The callbacks, and the store of records, which keeps what is confirmed on a device of this machine.

        Callbacks that keep it (`KeepsDevice`) hear which device that is.
        """
        if not isinstance(runner, LocalRunner):
            return self.measure_callbacks
        for callback in self.measure_callbacks:
            if isinstance(callback, KeepsDevice):
                callback.runs_here(first_device(runner))
        return (*self.measure_callbacks, store_of(runner))

    @contextmanager
    def measuring(self, kinds: Iterable[str]) -> Iterator[tuple[Builder, Runner]]:
        """The builder and runner of tasks of these target kinds; those that nobody gave are closed in the end.

        Raises TaskError for kinds that were registered with different ones, unless both were given.
        """
        with ExitStack() as stack:
            for worker in self.owned:
                stack.callback(worker.close)
            kinds = list(kinds)
            entries = [entry_of(kind) for kind in kinds]
            builder, runner = self.builder, self.runner
            if runner in self.owned and (make := _one("runners", [_runner_of(kind) for kind in kinds])) is not None:
                runner = _given(make(), Runner, "runner", "run and close")
                stack.callback(runner.close)
                builder = _builder_for(runner) if builder in self.owned else builder
            if self.builder in self.owned and (make := _one("builders", [e.builder for e in entries])) is not None:
                builder = _given(make(), Builder, "builder", "n_parallel, submit and close")
            if builder is not self.builder:
                stack.callback(builder.close)
            yield builder, runner


def store_of(runner: LocalRunner) -> RecordToStore:
    """The store of what is confirmed by a runner, whose devices are of one model."""
    return RecordToStore(first_device(runner), runner.enable_cpu_cache_flush)


def first_device(runner: LocalRunner) -> int:
    """The number of the device that a runner drives, or of the first of them."""
    return runner.devices[0] if isinstance(runner.devices, tuple) else runner.device


def usual_runner(kind: str, devices: Any = None, time_limit: float | None = None) -> Runner:
    """What measures programs of a target kind: what it was registered with, else a `LocalRunner` on `devices`.

    With a limit of time programs may run for a part of it only.
    Raises TaskError for `devices` where a kind has a runner of its own.
    """
    make = _runner_of(kind)
    if make is None:
        return LocalRunner(run_seconds(time_limit), devices=devices)
    require(devices is None, TaskError, "--devices", f"target {kind!r} has a runner of its own", got=devices)
    made: Runner = _given(make(), Runner, "runner", "run and close")
    return made


def _runner_of(kind: str) -> Callable[[], Any] | None:
    """What makes the runner of a target kind that has one of its own."""
    parts = search_parts(kind)
    return entry_of(kind).runner if parts is None else parts.runner


def _one(what: str, makers: list[Callable[[], Any] | None]) -> Callable[[], Any] | None:
    law = f"the targets of its tasks have different {what}, give one or tune them apart"
    require(len(set(makers)) == 1, TaskError, "TuningOptions", law)
    return makers[0]


def _builder_for(runner: Runner) -> Builder:
    """The builder of a runner on other machines that brings one, else the usual one."""
    return runner.builder() if is_elsewhere(runner) and isinstance(runner, BringsBuilder) else LocalBuilder()


def callbacks_with(
    method: str, subject: str, given: Sequence[Any] | None, kinds: tuple[type, ...]
) -> tuple[Any, ...]:  # fmt: skip
    """The callbacks of a list, none for None.

    Raises TaskError, naming `subject` and what they need, a `method`, for what is no list, and for an entry that is of
    none of `kinds`.
    """
    found = () if given is None else tuple(given) if isinstance(given, list | tuple) else None
    law = f"a list of objects with a method {method} is needed"
    require(found is not None, TaskError, subject, law, given=given)
    for one in found or ():
        ok = isinstance(one, kinds) and not isinstance(one, type)
        require(ok, PartError, subject, f"{law} (a class must be called)" if isinstance(one, type) else law, entry=one)
    return found or ()


def _is_local(value: Any, name: str) -> bool:
    law = f"{name} must be 'local' or a {name} object"
    require(not isinstance(value, str) or value == "local", TaskError, "TuningOptions", law, got=value)
    return isinstance(value, str)


def _given(value: Any, protocol: type, name: str, methods: str) -> Any:
    require_part(value, protocol, f"TuningOptions: {name}", f"'local' or an object with {methods}")
    return value
