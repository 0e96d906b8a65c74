"""From a graph to a compiled network: new records if they are asked for, those of log or store, else defaults."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from ansor.cli.devices import hardware_of
from ansor.core.device.backend import on_device
from ansor.core.files.private_files import scratch_folder
from ansor.core.target.target import Target
from ansor.records.dispatch import ApplyHistoryBest, DispatchContext
from ansor.records.store import stores
from ansor.records.store_files import take_in
from te_lite.errors import TeError
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.state import State

from ..compiler.build import build, build_each
from ..compiler.optimize import extract_tasks
from ..ir.module import IRModule
from ..runtime.library import NetworkLibrary
from ..transform import PassContext
from ..tuning.network import Network, in_layout, in_precision
from ..tuning.tune_network import tune
from .options import Options

LEAST_SECONDS = 1.0
"""In less nothing is measured."""
logger = logging.getLogger("ansor.torch")


def prepared(graph: IRModule, device: str, options: Options, layout: str) -> tuple[IRModule, Target]:
    """The graph as it is measured and compiled for a device of torch (`cpu`, `cuda`), and its target.

    `layout` is that of its convolutions of two axes.  The target has the architecture of the device, without which
    some instructions of tensor cores are left out.

    Raises TaskError for a precision that the target lacks.
    """
    target = on_device(options.target_on(device))
    network = Network("torch", in_layout(graph, layout), {}, graph)
    network, target = in_precision(network, target, options.precision or target.precision)
    return network.graph, target


@contextmanager
def log_of(options: Options) -> Iterator[Path | None]:
    """The log that the options name, if they do; where they measure without one, one that goes when this ends.

    What of that was not timed in turns, since time was out or somebody stopped it, then goes to the store.
    """
    if options.log is not None or not options.measures:
        yield None if options.log is None else Path(options.log)
        return
    with scratch_folder("records") as folder:
        log = Path(folder) / "log.json"
        try:
            yield log
        finally:
            _keep(log)


def _keep(log: Path) -> None:
    if not log.is_file() or not stores():
        return
    try:
        take_in(log, new_only=True)
    except TeError as error:
        logger.warning("what was measured is not kept: %s", error)


def measure(graph: IRModule, target: Target, options: Options, log: Path | None, until: float) -> bool:
    """Add to a log what the options ask for, in the time that is left `until` then, by the monotonic clock.

    Whether anything was added.  Raises what `TaskScheduler.tune` raises.
    """
    if log is None or not options.measures:
        return False
    tasks, weights = extract_tasks(graph, {}, target, hardware_of(target))
    left = None if until == math.inf else until - time.monotonic()
    if left is not None and left < LEAST_SECONDS:
        return False
    before = _bytes(log)
    budget = options.budget(len(tasks), left)
    tune(
        tasks, weights, log, budget.trials, seed=0, time_limit=budget.seconds, verbose=0,
        early_stopping=budget.early_stopping,
    )  # fmt: skip
    return _bytes(log) > before


def _bytes(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def compiled(graph: IRModule, target: Target, log: Path | None, records: bool = True) -> tuple[NetworkLibrary, bool]:
    """The network of a graph with the best programs of a log, and of the store, and whether it has any of them.

    Without `records` all of its programs are default ones, and nothing is said of that.  Raises what `build` raises.
    """
    with _records_of(log, records) as noted:
        return build(graph, target=target), noted is not None and noted.found


def compiled_each(
    graphs: Sequence[tuple[IRModule, Target, PassContext]], log: Path | None, records: bool = True
) -> list[NetworkLibrary | TeError]:
    """Networks as `compiled` gives them, which have passes of their own, made side by side; errors where there is none.

    The kernels of all are drawn, and their compilers run, at the same time.
    """
    with _records_of(log, records):
        return build_each(graphs)


@contextmanager
def _records_of(log: Path | None, records: bool) -> Iterator[_Noted | None]:
    """Let networks have the records of a log and of the store, or none, which is not said."""
    if not records:
        with _NoRecords(), unsaid():
            yield None
        return
    with ApplyHistoryBest(log) if log is not None and log.exists() else nullcontext(), _Noted() as noted:
        yield noted


class _NoRecords(DispatchContext):
    """Knows no program, and does not ask the contexts around it."""

    def query(self, *about: Any, **more: Any) -> None:
        """None."""


class _Noted(DispatchContext):
    """Passes on what the contexts around it know; `found` says whether that was anything."""

    def __init__(self) -> None:
        self.found = False

    def query(self, *about: Any, **more: Any) -> State | None:
        """The program for a workload, or None."""
        state = super().query(*about, **more)
        self.found = self.found or state is not None
        return state

    def update(self, target: Target | str, workload_key: str, state: State) -> None:
        """Let the context around this one know a program."""
        self._outwards()[1].update(target, workload_key, state)

    def _query_inside(self, target: Target, workload_key: str, dag: ComputeDAG | None) -> State | None:
        return None


@contextmanager
def unsaid() -> Iterator[None]:
    """What kernels have no record was said of the first module; of those beside it this thread does not say it."""
    this = threading.get_ident()

    def heard(record: logging.LogRecord) -> bool:
        return record.thread != this

    compiler = logging.getLogger("relay_lite")
    compiler.addFilter(heard)
    try:
        yield
    finally:
        compiler.removeFilter(heard)
