"""The main job for a whole network: tune its tasks, compile it with the best programs, check its results.

network = load_network("resnet-18")
tasks, weights = ansor.extract_tasks(network.graph, network.params, "c")
tune(tasks, weights, "log.json", trials=200)          # as often as you like: it goes on where the log ends
module = compile_best(network, "c", "log.json")
print(check(module, network, np.random.default_rng(0)))
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ansor.core.target.target import FP32X3, HALVES, STRICT, TF32, Target
from ansor.core.tasks.protocols import Runner
from ansor.core.tasks.task import SearchTask
from ansor.core.values.options import cold_in_networks
from ansor.measure.local import LocalRunner
from ansor.policy.early_stopping import AUTO
from ansor.policy.search_failure import SearchFailed
from ansor.policy.tuning_options import TuningOptions, usual_runner
from ansor.records.best import history
from ansor.records.dispatch import ApplyHistoryBest, Source
from ansor.records.recorder import RecordToFile
from ansor.scheduler import TaskScheduler
from ansor.scheduler.restore import restore, settled
from ansor.scheduler.task_progress import TaskProgress
from te_lite.errors import require
from te_lite.expr.dtype import SMALL_FLOATS
from te_lite.expr.expr import FLOATS

from ..compiler.build import build
from ..ir.errors import GraphError
from ..ir.module import IRModule
from ..ir.nodes import Array, Call, Function
from ..ir.reference import run
from ..ir.types import TensorType
from ..ir.visit import function_calls, post_order
from ..op.winograd import CONV as WINOGRAD
from ..runtime.graph_executor import GraphModule
from .network import Network

PathLike = str | os.PathLike[str]
ROUND = 64
SMALL_ROUND = 4
JUDGED_ROUND = 16
"""Most programs of a round where tasks end when nothing more is to be had, which is judged after each."""
A_SECOND = 8
"""Programs of a network that are built and measured in a second on a GPU with sixteen cores."""
REPEAT = 10
TOLERANCE = {STRICT: 1e-4, FP32X3: 1e-4, TF32: 2e-2, "fp16": 2e-2, "bf16": 1.5e-1}
"""By the precision of products; see `limit_of`."""
DOUBLE_TOLERANCE = 1e-10
"""For networks all of whose floats are float64."""
WINOGRAD_TOLERANCE = 1e-3
"""For networks in float32 with F(4, 3), whose transforms lose more digits."""
OWN_ERRORS, LEAST_SHARE = 4.0, 0.1
LARGE_TILE = 4
CONTRAST = 10


class WrongResult(GraphError):
    """A compiled network that computes something else than its graph says."""

    exit_code = 1


def progress(log: PathLike, tasks: Sequence[SearchTask]) -> tuple[TaskProgress, ...]:
    """Trials and least latency of every task according to a log; a log that is missing is empty."""
    if not Path(log).exists():
        return restore((), tasks, ROUND)
    records, costs = history(log)
    return settled(restore(records, tasks, ROUND), costs, tasks)


@dataclass(frozen=True)
class Tuned:
    """`trials` records of the tasks are in the log; the searches of some tasks may have failed."""

    trials: int
    failures: tuple[SearchFailed, ...] = ()


def tune(
    tasks: Sequence[SearchTask], weights: Sequence[int], log: PathLike, trials: int, *, seed: int | None = None,
    time_limit: float | None = None, verbose: int = 1, runner: Runner | None = None,
    early_stopping: int | str | None = None,
) -> Tuned:  # fmt: skip
    """Measure what `log` lacks of `trials` records of these tasks.

    With records of all tasks in the log, the tuning goes on as if it had not stopped.  `time_limit`, in seconds, ends
    it early, and so does `early_stopping`, as `TuningOptions` say; with "auto" rounds are small.  `runner` defaults to
    `network_runner` of the tasks' target.  Raises what `TaskScheduler.tune` raises, BudgetError too: every task without
    a record needs a trial.
    """
    recorder = RecordToFile(log)
    done = sum(s.trials for s in progress(log, tasks))
    if tasks and done < trials:
        scheduler = TaskScheduler(tasks, weights, load_log_file=log if done else None, seed=seed)
        with closing(network_runner(tasks[0].target)) if runner is None else nullcontext(runner) as measuring:
            size = per_round(trials, len(tasks), time_limit)
            size = min(size, JUDGED_ROUND) if early_stopping == AUTO else size
            options = TuningOptions(
                trials - done, num_measures_per_round=size, verbose=verbose, runner=measuring,
                measure_callbacks=[recorder], time_limit=time_limit, early_stopping=early_stopping,
            )  # fmt: skip
            scheduler.tune(options)
        return Tuned(sum(scheduler.task_trials), tuple(scheduler.failures.values()))
    return Tuned(done)


def network_runner(target: Target, devices: str | Sequence[int] | None = None) -> Runner:
    """Measures programs on this machine as they will run in a network; `devices` as `LocalRunner` takes them.

    On a processor the weights come from memory then, which the caches of few can hold together, and only what the
    kernel before has written is at hand; a program runs once at a time, so ten figures make up for the noise.
    """
    if not cold_in_networks(target.kind.name):
        return usual_runner(target.kind.name, devices)
    return LocalRunner(number=1, repeat=REPEAT, min_repeat_ms=0, enable_cpu_cache_flush=True, devices=devices)


def per_round(trials: int, tasks: int, seconds: float | None = None) -> int:
    """Programs of a round: so few that half of the trials are left when every task has had its first round.

    So is half of the time under a limit of so many `seconds`, in which no more programs may be measured than `A_SECOND`
    each; where they take longer, first rounds are cut (`TaskScheduler.tune`).
    """
    most = trials if seconds is None else int(min(trials, A_SECOND * seconds))
    return min(ROUND, max(SMALL_ROUND, most // (2 * tasks)))


def compile_best(network: Network, target: Target | str, records: Source) -> GraphModule:
    """The network with the best programs of a log, on the first device of the target.  Raises as `build` does."""
    with ApplyHistoryBest(records):
        library = build(network.graph, target=target, params=network.params)
    return GraphModule(library["default"]())


# --------------------------------------------------------------------------------------------------- the result


@dataclass(frozen=True)
class Checked:
    """Largest error of a compiled network, its limit, and by how much its results for two inputs differ.

    All three are relative to the largest value of an output, and are those of the worst output.  Results that hardly
    differ would agree with the reference whatever the network computed.
    """

    error: float
    limit: float
    contrast: float

    def __str__(self) -> str:
        text = f"results agree with the reference: largest error {self.error:.1e} of the largest value"
        vacuous = self.contrast < CONTRAST * self.limit
        little = ", too little for the comparison to say anything" if vacuous else ""
        return f"{text} (limit {self.limit:.0e}); those of two inputs differ by {self.contrast:.1e}{little}"


def check(module: GraphModule, network: Network, rng: np.random.Generator) -> Checked:
    """Run two random inputs and compare all outputs with the reference executor in float64.

    Raises WrongResult for an error above the limit.
    """
    wanted, errors, own = [], [0.0], [0.0]
    halves = network.precision in HALVES or rounds_to_halves(network.graph)
    for _ in range(2):
        inputs = network.inputs(rng)
        wanted.append(reference_outputs(network, inputs))
        errors += _differences(_outputs(module, inputs), wanted[-1])
        if halves:
            own += _differences(_evaluated(network.graph, inputs, network.params), wanted[-1])
    function = module.module.library.graph
    large_tiles = function is not None and has_large_tiles(function)
    doubles = _floats(network.graph) == {"float64"}
    limit = DOUBLE_TOLERANCE if doubles else limit_of(network.precision, large_tiles, max(own))
    result = Checked(max(errors), limit, min(_differences(*wanted)))
    law = f"its results may differ from the reference by {limit:.0e} of the largest value"
    require(result.error <= limit, WrongResult, network.name, law, largest=result.error)
    return result


def limit_of(precision: str, large_tiles: bool, own: float) -> float:
    """How far results may be from those in float64: `TOLERANCE`.

    Where the graph itself rounds to 16 bits, and is off by `own` when it is computed operator by operator in NumPy, no
    further than 4 times that, or a tenth of `TOLERANCE`; a model of halves that is compiled as it is may be 4 times
    that off, too.
    """
    limit = TOLERANCE[precision]
    if precision in HALVES:
        return min(limit, max(OWN_ERRORS * own, LEAST_SHARE * limit))
    return max(limit, min(OWN_ERRORS * own, TOLERANCE["bf16"]), WINOGRAD_TOLERANCE if large_tiles else 0.0)


def rounds_to_halves(graph: IRModule) -> bool:
    """Whether there are tensors of floats narrower than float32 in a graph."""
    return not _floats(graph).isdisjoint((*SMALL_FLOATS, "float16"))


def _floats(graph: IRModule) -> set[str]:
    """The dtypes of floats of a graph's tensors."""
    types = [n.type for n in post_order(graph["main"].body)]
    return {t.dtype for t in types if isinstance(t, TensorType) and t.dtype in (*FLOATS, *SMALL_FLOATS)}


def _differences(got: Sequence[Array], want: Sequence[Array]) -> list[float]:
    return [largest_difference(g, w) for g, w in zip(got, want, strict=True)]


def _outputs(module: GraphModule, inputs: Mapping[str, Array]) -> list[Array]:
    module.run(**inputs)
    return [module.get_output(k).numpy() for k in range(module.get_num_outputs())]


def reference_outputs(network: Network, inputs: Mapping[str, Array]) -> list[Array]:
    """All outputs of the original graph, in float64."""
    return _evaluated(network.original, inputs, network.params, "float64")


def _evaluated(
    graph: IRModule, inputs: Mapping[str, Array], params: Mapping[str, Array], dtype: str | None = None
) -> list[Array]:
    found: Any = run(graph, inputs, params, dtype=dtype)
    return list(found) if isinstance(found, tuple) else [found]


def largest_difference(got: Array, want: Array) -> float:
    """The largest difference, relative to the largest value of `want`; infinite for NaN."""
    largest = max(float(np.abs(want).max(initial=0.0)), 1e-30)
    difference = float(np.abs(got.astype(np.float64) - want).max(initial=0.0)) / largest
    return difference if np.isfinite(difference) else float("inf")


def has_large_tiles(function: Function) -> bool:
    """Whether a convolution of a fused graph is computed by Winograd's F(4, 3)."""
    bodies = {n.function.body for n in function_calls(function.body)}
    calls = [n for body in bodies for n in post_order(body) if isinstance(n, Call)]
    return any(n.op.name == WINOGRAD and n.attrs["tile_size"] >= LARGE_TILE for n in calls)
