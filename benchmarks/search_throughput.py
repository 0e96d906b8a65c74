"""How fast candidates are described and searched: features of a population, and one evolutionary round.

    python -m benchmarks.search_throughput [--case NAME ...] [--repeat 5] [--extra RULES] [--json FILE]

features   the rows of a sampled population of 2,048 programs become float32 features; nothing is lowered
round      what the policy does between two batches: 2,048 candidates, five scorings by a model trained on a few
           hundred programs, limits, 64 picked and made into states; `first` is the round before anything is cached,
           `draft` one under the analytical model, as long as the other has learnt nothing
trial      what a trial of a whole `SearchTask.tune` costs the process that drives it, its log included, when every
           answer comes at once: of a run of 256 from nothing, and of its last 64

The model learns from the estimates of the analytical model, so no device and no compiler is needed; there is one
process with one thread.  `--extra ""` searches Ansor's sketches only, as TVM does.
Criteria: 50,000 states/s or more for the convolution layer, a round in 2 s or less (Winograd in 6 s), a trial in 10 ms
or less, peak memory under 1 GiB.  TVM's figures are those of TVM 0.14 on two cores.
"""

from __future__ import annotations

import hashlib
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ansor
import te_lite as te
from ansor.features import extract
from ansor.offline.analytical import AnalyticalRunner
from ansor.offline.common import NoBuilder
from ansor.space.programs import programs
from ansor.space.spaces import Population
from benchmarks import report, workloads
from te_lite import Tensor

POPULATION = 2048
PICKED = 64
MEASURED = 256
MOST_TRIAL_MS = 10.0


@dataclass(frozen=True)
class Case:
    """A workload on a target, TVM's figures for it (None: not known) and the criteria (None: none)."""

    make: Callable[[], list[Tensor]]
    target: str
    tvm_states_per_s: float | None
    tvm_round_s: float | None
    least_states_per_s: float | None
    most_round_s: float


def conv2d() -> list[Tensor]:
    """The tutorial's convolution layer."""
    return workloads.conv2d_layer(1, 7, 7, 512, 512, 3, 3, 1, 1)


def matmul() -> list[Tensor]:
    """A product of square matrices."""
    return workloads.matmul(1024, 1024, 1024)


def winograd() -> list[Tensor]:
    """A 3x3 convolution of a 14x14 image, 256 channels to 256, in tiles of 4x4."""
    return workloads.conv2d_winograd_nhwc(1, 14, 14, 256, 256, 4)


CASES = {
    "conv2d_cuda": Case(conv2d, "cuda", 107, 90.8, 50_000, 2.0),
    "conv2d_c": Case(conv2d, "c", 428, 23.9, 50_000, 2.0),
    "matmul_cuda": Case(matmul, "cuda", 281, 43.1, None, 2.0),
    "matmul_c": Case(matmul, "c", 1288, None, None, 2.0),
    "winograd_cuda": Case(winograd, "cuda", None, None, None, 6.0),
}


def policy_of(case: Case, seed: int, extra: str | None) -> ansor.SketchPolicy:
    """A policy as users get it, with a model that has seen nothing; `extra` names the rules beyond Ansor's."""
    hardware = ansor.HardwareParams(num_cores=2) if case.target == "c" else None
    dag = te.ComputeDAG(case.make())
    task = ansor.SearchTask(compute_dag=dag, target=case.target, hardware_params=hardware)
    params = {} if extra is None else {"extra_sketch_rules": extra}
    return ansor.SketchPolicy(task, ansor.XGBModel(seed=seed), params, seed=seed, verbose=0)


def timed(run: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of the clock and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - clock, time.process_time() - processor


def describe(population: Population, task: ansor.SearchTask) -> None:
    """Make the features of a population."""
    hardware = task.hardware_params.completed(task.target)
    for group in population:
        extract(programs(group.variant, group.rows, task.target, hardware), hardware)


def feature_figures(policy: ansor.SketchPolicy, repeat: int) -> dict[str, float]:
    """States per second, by the clock and by the processor.

    Apart from that the first pass, which plans each variant, and the second one, which records it.
    """
    population = policy.proposals.population(POPULATION)
    rows = [len(group) for group in population]
    first, _ = timed(lambda: describe(population, policy.task))
    second, _ = timed(lambda: describe(population, policy.task))
    times = [timed(lambda: describe(population, policy.task)) for _ in range(repeat)]
    clock, processor = [statistics.median(t) for t in zip(*times, strict=True)]
    return {
        "states": sum(rows), "variants": len(rows), "rows_per_variant": statistics.median(rows),
        "states_per_s": sum(rows) / clock, "cpu_states_per_s": sum(rows) / processor,
        "first_states_per_s": sum(rows) / first, "second_states_per_s": sum(rows) / second,
    }  # fmt: skip


def round_figures(policy: ansor.SketchPolicy, repeat: int) -> dict[str, float]:
    """Seconds of a round and of the training after it, once the model has learnt from `MEASURED` programs."""
    runner, task = AnalyticalRunner(), policy.task
    built = runner.builder().submit(ansor.MeasureInput(task, task.compute_dag.init_state)).result()

    def measure(states: list[te.State]) -> float:
        inputs = [ansor.MeasureInput(task, state) for state in states]
        results = [runner.run(inp, built) for inp in inputs]
        return timed(lambda: policy.tell(inputs, results))[0]

    draft, _ = timed(lambda: policy.ask(PICKED))
    measure([state for state, _ in policy.proposals.random(MEASURED)])
    times, trainings = [], []
    for _ in range(repeat + 1):
        asked: list[te.State] = []
        times.append(timed(lambda: asked.extend(policy.ask(PICKED))))  # noqa: B023
        if len(asked) != PICKED:
            raise ansor.TaskError(f"search_throughput: {PICKED} programs are picked in a round, got {len(asked)}")
        trainings.append(measure(asked))
    clock, processor = [statistics.median(t) for t in zip(*times[1:], strict=True)]
    return {
        "round_s": clock, "round_cpu_s": processor, "first_round_s": times[0][0],
        "draft_round_s": draft,
        "training_s": statistics.median(trainings),
    }  # fmt: skip


class Oracle:
    """A runner that answers at once, with seconds that the steps of a program decide."""

    builder = NoBuilder

    def run(self, inp: ansor.MeasureInput, built: ansor.BuildResult) -> ansor.MeasureResult:
        digest = hashlib.sha256(repr(inp.steps).encode()).digest()
        return ansor.MeasureResult((1e-4 * (1 + digest[0] / 256 + digest[1] / 65536),), 0, "", 0.0, 0)

    def close(self) -> None:
        """There is nothing to stop."""


class Clock:
    """A measure callback that reads the clock and the processor's time at every result."""

    def __init__(self) -> None:
        self.times = [(time.perf_counter(), time.process_time())]

    def callback(self, policy: Any, inputs: Any, results: Any) -> None:
        self.times += [(time.perf_counter(), time.process_time())] * len(inputs)


def trial_figures(policy: ansor.SketchPolicy) -> dict[str, float]:
    """Milliseconds of a trial, by the clock and by the processor."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        options = ansor.TuningOptions(
            MEASURED, verbose=0, builder=Oracle.builder(), runner=Oracle(),
            measure_callbacks=[ansor.RecordToFile(f"{folder}/log.json"), clock],
        )  # fmt: skip
        policy.task.tune(options, policy)

    def each(count: int, which: int) -> float:
        return 1e3 * (clock.times[-1][which] - clock.times[-1 - count][which]) / count

    return {
        "trial_ms": each(MEASURED, 0), "trial_cpu_ms": each(MEASURED, 1),
        "late_trial_ms": each(PICKED, 0), "late_trial_cpu_ms": each(PICKED, 1),
    }  # fmt: skip


_RATES = ("states_per_s", "cpu_states_per_s", "first_states_per_s", "second_states_per_s")


def feature_row(name: str, found: dict[str, float]) -> list[Any]:
    case = CASES[name]
    tvm = case.tvm_states_per_s
    figures = [round(found[key]) for key in _RATES]
    ratio = "" if tvm is None else f"{found['states_per_s'] / tvm:.0f}x"
    shape = [int(found["variants"]), round(found["rows_per_variant"])]
    return [name, *shape, *figures, "" if tvm is None else round(tvm), ratio, case.least_states_per_s or ""]


def round_row(name: str, found: dict[str, float]) -> list[Any]:
    case = CASES[name]
    tvm = case.tvm_round_s
    figures = [found[key] for key in ("round_s", "round_cpu_s", "first_round_s", "draft_round_s", "training_s")]
    return [
        name,
        *figures,
        "" if tvm is None else tvm,
        "" if tvm is None else f"{tvm / figures[0]:.0f}x",
        case.most_round_s,
    ]


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--case", nargs="*", choices=list(CASES), default=list(CASES))
    p.add_argument("--repeat", type=int, default=5)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--extra", help="extra sketch rules (default: those of the policy)")
    options = p.parse_args()
    features, rounds, trials = {}, {}, {}
    for name in options.case:
        policy = policy_of(CASES[name], options.seed, options.extra)
        features[name] = feature_figures(policy, options.repeat)
        rounds[name] = round_figures(policy, options.repeat)
        trials[name] = trial_figures(policy_of(CASES[name], options.seed, options.extra))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    header = [
        "features, states/s",
        "variants",
        "rows each",
        "median",
        "by CPU time",
        "first",
        "second",
        "TVM",
        "ratio",
        "criterion",
    ]
    report.table([feature_row(name, found) for name, found in features.items()], header)
    print()
    header = ["round, s", "median", "CPU time", "first", "draft", "training", "TVM", "ratio", "criterion"]
    report.table([round_row(name, found) for name, found in rounds.items()], header)
    print()
    rows = [[name, *found.values(), MOST_TRIAL_MS] for name, found in trials.items()]
    report.table(rows, ["trial, ms", "clock", "CPU time", "late, clock", "late, CPU time", "criterion"])
    print(f"\npeak memory: {peak:.0f} MB (criterion: under 1024)")
    figures = {
        "features_states_per_s": {name: found["states_per_s"] for name, found in features.items()},
        "round_s": {name: found["round_s"] for name, found in rounds.items()},
        "trial_ms": {name: found["trial_ms"] for name, found in trials.items()},
        "peak_rss_mb": peak,
        "details": {name: {**features[name], **rounds[name], **trials[name]} for name in options.case},
    }
    report.write_json(options.json, figures)


if __name__ == "__main__":
    report.run(main)
