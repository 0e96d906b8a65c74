"""How well the learning cost model orders programs that it has not seen: half of a log trained on, half tested.

    python -m benchmarks.cost_model [--log FILE] [--target cuda] [--task conv2d|matmul] [--programs N] [--json FILE]
                                    [--model FILE.py:CLASS]

The tasks of a log are judged one by one.  Without a log random programs of the task are measured on the target first;
with `--programs` they are written to the log, if it has no records.  The criteria are those of Ansor's published model
(its figures: 0.851 and 0.624) on 2,048 random programs of one task: pairwise accuracy at least 0.85, recall of the top
30 at least 0.62.  Figures are means over `--splits` random halves.  `--model` judges a model of one's own instead of
`XGBModel`: a class or function that makes one without arguments, of a file or module, which is run.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import ansor
import te_lite as te
from ansor.cli.user_code import run_module
from ansor.core.errors import TaskError
from ansor.core.tasks.workloads import key_text
from ansor.core.values.checks import require_part
from ansor.core.values.parts import asking
from ansor.cost_model import CostModel
from ansor.cost_model.api import PART
from ansor.cost_model.dataset import stacked
from ansor.cost_model.metrics import pairwise_accuracy, top_k_peak, top_k_recall
from ansor.records.lines import Record, validated_records, workload_of
from benchmarks import report
from te_lite import topi
from te_lite.errors import TeError, require
from tests.conv_layer import conv2d_layer

TASKS = ("conv2d", "matmul")
PROGRAMS = {"cuda": 2048, "c": 256}
TOP = 30
FEWEST = 16
Maker = Callable[[], CostModel]
Steps = tuple[Callable[[], None], Callable[[], np.ndarray]]
"""Training of a model, and what it says of programs that it has not seen."""


def task_of(name: str, target: str) -> ansor.SearchTask:
    """The tutorial's convolution layer, or a square matrix product."""
    match name:
        case "conv2d":
            tensors = conv2d_layer(1, 7, 7, 512, 512, 3, 1, 1)
        case _:
            a, b = te.placeholder((1024, 1024), name="A"), te.placeholder((1024, 1024), name="B")
            tensors = [a, b, topi.nn.matmul(a, b)]
    return ansor.SearchTask(compute_dag=te.ComputeDAG(tensors), target=target, desc=name)


def measure(task: ansor.SearchTask, programs: int, log: str, seed: int) -> None:
    """Measure random programs of a task and append them to a log."""
    params = {"sample_init_min_population": programs}
    policy = ansor.SketchPolicy(task, ansor.RandomModel(seed), params=params, seed=seed, verbose=0)
    inputs = [ansor.MeasureInput(task, state) for state in policy.sample_initial_population()[:programs]]
    options = ansor.TuningOptions(measure_callbacks=[ansor.RecordToFile(log)])
    measurer = ansor.ProgramMeasurer(options.builder, options.runner, options.measure_callbacks, verbose=1)
    try:
        with measurer.display.run(task, len(inputs)):
            measurer.measure(task, policy, inputs)
    finally:
        for worker in options.owned:
            worker.close()


@dataclass(frozen=True)
class Programs:
    """The measured programs of a task: the features of each, its cost, inf for a failure, and its record."""

    task: ansor.SearchTask
    rows: list[np.ndarray]
    costs: np.ndarray
    pairs: list[Record]

    @property
    def name(self) -> str:
        return f"{key_text(self.task.workload_key)} for {self.task.target}"


def read(log: str) -> list[Programs]:
    """The tasks of a log that have programs enough, in order; those that are left out are said.

    Raises TaskError when there is none.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in validated_records(log):
        groups.setdefault(workload_of(record[0]), []).append(record)
    found = []
    for pairs in groups.values():
        task = pairs[0][0].task
        why = unusable(pairs)
        if why:
            print(
                f"left out: {key_text(task.workload_key)} for {task.target}, {len(pairs)} records: {why}",
                file=sys.stderr,
            )
        else:
            found.append(programs(task, pairs))
    law = f"has no task with {FEWEST} programs, so there is nothing to learn from"
    require(found, ansor.TaskError, log, law, tasks=len(groups), records=sum(map(len, groups.values())))
    return found


def unusable(pairs: list[Record]) -> str:
    """Why nothing can be learnt from the records of a task; empty when it can."""
    if sum(res.ok for _, res in pairs) < FEWEST:
        return f"fewer than {FEWEST} programs that ran"
    try:
        return "" if pairs[0][0].task.compute_dag.ops else "it computes nothing"
    except ansor.TaskError as error:
        return str(error)


def programs(task: ansor.SearchTask, pairs: list[Record]) -> Programs:
    """The features and costs of records; records that do not replay are left out."""
    source = ansor.XGBModel().features
    alike: dict[ansor.HardwareParams, list[Record]] = {}
    for inp, res in pairs:
        with suppress(TeError):
            alike.setdefault(inp.task.hardware_params, []).append((ansor.MeasureInput(inp.task, inp.state), res))
    rows, kept = [], []
    for hardware, records in alike.items():
        found = source.rows([inp.state for inp, _ in records], hardware)
        rows += [r for r in found if len(r)]
        kept += [record for record, r in zip(records, found, strict=True) if len(r)]
    return Programs(task, rows, np.array([res.cost if res.ok else np.inf for _, res in kept]), kept)


def model_of(text: str) -> Maker:
    """What `FILE.py:CLASS` or `MODULE:CLASS` names.  Raises TaskError when it is not there, or can not be called."""
    module_name, _, name = text.rpartition(":")
    made = getattr(run_module(module_name), name, None) if module_name else None
    law = "FILE.py:CLASS or MODULE:CLASS is needed, and the class must be there"
    require(callable(made), TaskError, "--model", law, got=text)
    return made  # type: ignore[return-value]


def halves(found: Programs, seed: int, make: Maker | None = None) -> dict[str, float]:
    """Train on a random half, test on the other."""
    order = np.random.default_rng(seed).permutation(len(found.rows))
    half = len(found.rows) // 2
    told, unseen = order[:half], order[half:]
    train, predict = usual(found, told, unseen, seed) if make is None else own(found, told, unseen, make)
    start = time.process_time()
    train()
    trained = time.process_time() - start
    truth = found.costs[unseen]
    start = time.process_time()
    scores = predict()
    predicted = time.process_time() - start
    return {
        "pairwise_accuracy": pairwise_accuracy(scores, truth),
        "top30_recall": top_k_recall(scores, truth, TOP),
        "top1_peak": top_k_peak(scores, truth, 1),
        "top30_peak": top_k_peak(scores, truth, TOP),
        "training_s": trained,
        "predictions_per_s": len(scores) / predicted,
    }


def usual(found: Programs, told: np.ndarray, unseen: np.ndarray, seed: int) -> Steps:
    """An `XGBModel` that has the features of the programs `told`, by number."""
    model = ansor.XGBModel(num_warmup_sample=0, seed=seed)
    model.add_features(found.task, stacked([found.rows[k] for k in told]), found.costs[told])
    data, asked = model.dataset(), stacked([found.rows[k] for k in unseen])
    return lambda: model.use(model.fit(data)), lambda: model.predict_features(found.task, asked)


def own(found: Programs, told: np.ndarray, unseen: np.ndarray, make: Maker) -> Steps:
    """A model of the user's own, told of programs as a search tells it."""
    model = make()
    require_part(model, CostModel, "--model", "a class of cost models, with update and predict,")
    inputs, results = zip(*[found.pairs[k] for k in told], strict=True)
    states = [found.pairs[k][0].state for k in unseen]

    def train() -> None:
        with asking(PART, model, "update"):
            model.update(list(inputs), list(results))

    def predict() -> np.ndarray:
        with asking(PART, model, "predict"):
            return np.asarray(model.predict(found.task, states))

    return train, predict


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--log")
    p.add_argument("--target", choices=sorted(PROGRAMS), default="c")
    p.add_argument("--task", choices=TASKS, default="conv2d")
    p.add_argument("--programs", type=int, help=f"how many to measure (default {PROGRAMS})")
    p.add_argument("--splits", type=int, default=5)
    p.add_argument("--model", metavar="FILE.py:CLASS", help="a cost model of your own to judge")
    p.add_argument("--seed", type=int, default=0)
    options = p.parse_args()
    make = None if options.model is None else model_of(options.model)
    log = options.log or str(Path(tempfile.mkdtemp()) / "cost_model.json")
    tasks = {name: task_of(name, options.target) for name in TASKS}
    if not Path(log).exists() or not Path(log).stat().st_size:
        law = "holds no records; --programs N measures so many programs and writes them there"
        require(options.programs or not options.log, TaskError, log, law)
        if options.target == "cuda":
            report.gpu("--target c, or --log FILE with records")
        measure(tasks[options.task], options.programs or PROGRAMS[options.target], log, options.seed)
    found = read(log)
    figures = [judged(one, options.splits, make) for one in found]
    print(f"log: {log}")
    facts = [
        {"task": one.task.workload_key, "target": str(one.task.target), "programs": len(one.rows),
         "splits": options.splits, **figure}
        for one, figure in zip(found, figures, strict=True)
    ]  # fmt: skip
    device = "NVIDIA H200" if found[0].task.target.is_gpu else None
    report.write_json(options.json, facts[0] if len(facts) == 1 else {"tasks": facts}, device)


def judged(found: Programs, count: int, make: Maker | None = None) -> dict[str, float]:
    """The figures of a task, printed: means over `count` random halves."""
    splits = [halves(found, seed, make) for seed in range(count)]
    figures = {name: float(np.mean([split[name] for split in splits])) for name in splits[0]}
    tested = len(found.rows) - len(found.rows) // 2
    criteria: dict[str, object] = {"pairwise_accuracy": 0.85, "top30_recall": 0.62, "training_s": 2.0}
    chance = {"pairwise_accuracy": 0.5, "top30_recall": min(1.0, TOP / tested)}
    table = [[name, value, chance.get(name, ""), criteria.get(name, "")] for name, value in figures.items()]
    print(f"\n{found.name}")
    failed = np.isinf(found.costs).sum()
    report.table(table, [f"{len(found.rows)} programs, {failed} failed", "measured", "chance", "criterion"])
    return figures


if __name__ == "__main__":
    report.run(main)
