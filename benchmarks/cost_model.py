"""How well the learning cost model orders programs that it has not seen: half of a log trained on, half tested.

    python -m benchmarks.cost_model [--log FILE] [--target cuda] [--task conv2d|matmul] [--programs N] [--json FILE]

Without a log that has records, random programs of the task are measured on the target first, and written to it.  The
criteria are those of Ansor's published model (its figures: 0.851 and 0.624) on 2,048 random programs of one task:
pairwise accuracy at least 0.85, recall of the top 30 at least 0.62.  Figures are means over `--splits` random halves.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

import ansor
import te_lite as te
from ansor.cost_model import Dataset
from ansor.cost_model.dataset import stacked
from ansor.cost_model.metrics import pairwise_accuracy, top_k_peak, top_k_recall
from benchmarks import report
from te_lite import topi
from tests.conv_layer import conv2d_layer

TASKS = ("conv2d", "matmul")
PROGRAMS = {"cuda": 2048, "c": 256}
TOP = 30


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


def read(log: str) -> tuple[ansor.SearchTask, list[np.ndarray], np.ndarray]:
    """The task of a log, the features of its programs and their costs, inf for failures."""
    inputs, results = ansor.RecordReader(log).read_lines()
    keys = {inp.task.workload_key for inp in inputs}
    if len(keys) != 1:
        raise ansor.TaskError(f"{log}: records of one task are needed, got {len(keys)}")
    source = ansor.XGBModel().features
    rows = [source.of(inp.state, inp.task.hardware_params) for inp in inputs]
    return inputs[0].task, rows, np.array([res.cost if res.ok else np.inf for res in results])


def halves(task: ansor.SearchTask, rows: list[np.ndarray], costs: np.ndarray, seed: int) -> dict[str, float]:
    """Train on a random half, test on the other."""
    order = np.random.default_rng(seed).permutation(len(rows))
    half = len(rows) // 2
    model = ansor.XGBModel(num_warmup_sample=0, seed=seed)
    model.add_features(task, stacked([rows[k] for k in order[:half]]), costs[order[:half]])
    data: Dataset = model.dataset()
    start = time.process_time()
    model.use(model.fit(data))
    trained = time.process_time() - start
    unseen, truth = stacked([rows[k] for k in order[half:]]), costs[order[half:]]
    start = time.process_time()
    scores = model.predict_features(task, unseen)
    predicted = time.process_time() - start
    return {
        "pairwise_accuracy": pairwise_accuracy(scores, truth),
        "top30_recall": top_k_recall(scores, truth, TOP),
        "top1_peak": top_k_peak(scores, truth, 1),
        "top30_peak": top_k_peak(scores, truth, TOP),
        "training_s": trained,
        "predictions_per_s": len(scores) / predicted,
    }


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--log", default=str(Path(tempfile.mkdtemp()) / "cost_model.json"))
    p.add_argument("--target", choices=sorted(PROGRAMS), default="c")
    p.add_argument("--task", choices=TASKS, default="conv2d")
    p.add_argument("--programs", type=int, help=f"how many to measure (default {PROGRAMS})")
    p.add_argument("--splits", type=int, default=5)
    p.add_argument("--seed", type=int, default=0)
    options = p.parse_args()
    tasks = {name: task_of(name, options.target) for name in TASKS}
    if not Path(options.log).exists() or not Path(options.log).stat().st_size:
        measure(tasks[options.task], options.programs or PROGRAMS[options.target], options.log, options.seed)
    task, rows, costs = read(options.log)
    splits = [halves(task, rows, costs, seed) for seed in range(options.splits)]
    figures = {name: float(np.mean([split[name] for split in splits])) for name in splits[0]}
    tested = len(rows) - len(rows) // 2
    criteria: dict[str, object] = {"pairwise_accuracy": 0.85, "top30_recall": 0.62, "training_s": 2.0}
    chance = {"pairwise_accuracy": 0.5, "top30_recall": min(1.0, TOP / tested)}
    table = [[name, value, chance.get(name, ""), criteria.get(name, "")] for name, value in figures.items()]
    report.table(table, [f"{len(rows)} programs, {np.isinf(costs).sum()} failed", "measured", "chance", "criterion"])
    print(f"log: {options.log}")
    facts = {"task": task.workload_key, "target": str(task.target), "programs": len(rows), "splits": options.splits}
    report.write_json(options.json, {**facts, **figures}, "NVIDIA H200" if task.target.is_gpu else None)


if __name__ == "__main__":
    main()
