"""From a graph to a compiled network: new records if they are asked for, those of the log, else default programs."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from ansor.core.target import Target
from ansor.records.dispatch import ApplyHistoryBest

from ..compiler.build import build
from ..compiler.extract import extract_tasks
from ..ir.module import IRModule
from ..runtime.library import NetworkLibrary
from ..tuning.network import Network, in_layout, in_precision
from ..tuning.tune_network import tune
from .options import Options

LAYOUT = "NHWC"
TRIALS_A_TASK = 64
"""What is asked for where only seconds are given; rounds are sized by it."""


def prepared(graph: IRModule, device: str, options: Options) -> tuple[IRModule, Target]:
    """The graph as it is measured and compiled for a device of torch (`cpu`, `cuda`), and its target.

    Raises TaskError for a precision that the target lacks.
    """
    target = options.target_on(device)
    network = Network("torch", in_layout(graph, LAYOUT), {}, graph)
    network, target = in_precision(network, target, options.precision or target.precision)
    return network.graph, target


def measure(graph: IRModule, target: Target, options: Options) -> None:
    """Add to the log what the options ask for.  Raises what `TaskScheduler.tune` raises."""
    if options.log is None or not (options.trials or options.seconds):
        return
    tasks, weights = extract_tasks(graph, {}, target)
    trials = options.trials or TRIALS_A_TASK * len(tasks)
    tune(tasks, weights, options.log, trials, seed=0, time_limit=options.seconds, verbose=0)


def compiled(graph: IRModule, target: Target, options: Options) -> NetworkLibrary:
    """The network of a graph with the best programs of the log.  Raises what `build` raises."""
    known = options.log is not None and Path(options.log).exists()
    with ApplyHistoryBest(options.log) if known else nullcontext():
        return build(graph, target=target)
