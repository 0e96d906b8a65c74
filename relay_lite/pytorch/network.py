"""From a graph to a compiled network: the records of the log, new ones if they are asked for, else the model alone."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from ansor.core.target import Target
from ansor.records.dispatch import ApplyHistoryBest

from ..compiler.build import build
from ..compiler.extract import extract_tasks
from ..ir.module import IRModule
from ..runtime.library import NetworkLibrary
from ..tuning.network import in_layout
from ..tuning.tune_network import tune
from .options import Options

LAYOUT = "NHWC"
TRIALS_A_TASK = 64
"""What is asked for where only seconds are given; rounds are sized by it."""


def compiled(graph: IRModule, target: Target, options: Options) -> NetworkLibrary:
    """The network of a graph.  Raises what `build` and `TaskScheduler.tune` raise."""
    graph = in_layout(graph, LAYOUT)
    if options.trials or options.seconds is not None:
        _measure(graph, target, options)
    known = options.log is not None and Path(options.log).exists()
    with ApplyHistoryBest(options.log) if known else nullcontext():
        return build(graph, target=target)


def _measure(graph: IRModule, target: Target, options: Options) -> None:
    assert options.log is not None
    tasks, weights = extract_tasks(graph, {}, target)
    trials = options.trials or TRIALS_A_TASK * len(tasks)
    tune(tasks, weights, options.log, trials, seed=0, time_limit=options.seconds, verbose=0)
