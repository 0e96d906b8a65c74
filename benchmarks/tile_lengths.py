"""What tile lengths that do not divide cost a network's searches: each task with them and without, in turns.

    python -m benchmarks.tile_lengths --log DIR [--network resnet-18] [--target cuda|c] [--trials 512] [--seeds 3]
        [--time-limit S] [--json FILE]

Most extents of a network have divisors enough and get no other lengths (`max_padding`): the programs of such a task are
the same with the parameter and without it, and so are its searches.  Only the tasks that have such extents are
searched, with the seeds 0, 1, ...  The folder keeps a log for each search, and one that is through is not repeated.
Criterion of ResNet-18 on an H200: the geometric mean over all tasks and seeds is at most 1.02.
"""

from __future__ import annotations

import math
import time
from itertools import product
from pathlib import Path
from statistics import geometric_mean

import ansor
from ansor.records.best import load_best_record
from ansor.space.spaces import space_of, tables_of_factors
from benchmarks import report
from relay_lite.tuning.network import load_network

MOST = 1.02
SIDES = {"with": 0.125, "without": 0.0}
"""`max_padding` of the two searches."""


def other_lengths(task: ansor.SearchTask) -> set[tuple[int, ...]]:
    """Extents of tiles, and what they are rounded up to, wherever a sketch of a task has such a tile."""
    policy = ansor.SketchPolicy(task, ansor.RandomModel(0), seed=0, verbose=0)
    found: set[tuple[int, ...]] = set()
    for sketch in [*policy.generate_sketches(), *policy.extra_sketches()]:
        factors = tuple([(position, table[0]) for position, table in tables_of_factors(sketch).items()])
        space = space_of(sketch, task.target, task.hardware_params, policy.options, factors)
        found |= {tile.extents for tile in space.tiles if len(tile.extents) > 1}
    return found


def best_us(task: ansor.SearchTask, log: Path, trials: int, seed: int, padding: float) -> float:
    """Microseconds of the best program of a search, which the log may hold already."""
    if not log.is_file() or len(ansor.RecordReader(log).read_lines()[0]) < trials:
        log.unlink(missing_ok=True)
        policy = ansor.SketchPolicy(
            task, ansor.XGBModel(seed=seed), seed=seed, verbose=0, params={"max_padding": padding}
        )
        options = ansor.TuningOptions(
            trials, verbose=0, early_stopping=None, measure_callbacks=[ansor.RecordToFile(log)]
        )
        task.tune(options, policy)
    result = load_best_record(log, task.workload_key, task.target)[1]
    return math.nan if result is None else result.cost * 1e6


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--log", metavar="DIR", type=Path, required=True)
    p.add_argument("--network", default="resnet-18")
    p.add_argument("--target", choices=["cuda", "c"], default="cuda")
    p.add_argument("--trials", type=int, default=512)
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--time-limit", metavar="S", type=float, default=math.inf)
    options = p.parse_args()
    device = report.gpu() if options.target == "cuda" else None
    start = time.monotonic()
    network = load_network(options.network)
    tasks, _ = ansor.extract_tasks(network.graph, network.params, options.target)
    lengths = {k: found for k, task in enumerate(tasks) if (found := other_lengths(task))}
    options.log.mkdir(parents=True, exist_ok=True)
    figures: dict[str, dict[str, float]] = {}
    for seed, k in product(range(options.seeds), lengths):
        if time.monotonic() - start > options.time_limit:
            break
        name = f"{tasks[k].desc}, seed {seed}"
        figures[name] = {
            side: best_us(tasks[k], options.log / f"{k}_{seed}_{side}.json", options.trials, seed, padding)
            for side, padding in SIDES.items()
        }
        print(name, figures[name], flush=True)
    ratios = {name: us["with"] / us["without"] for name, us in figures.items()}
    report.table([[name, *us.values(), ratios[name]] for name, us in figures.items()], ["task", *SIDES, "ratio"])
    same = math.ceil(len(ratios) / max(len(lengths), 1)) * (len(tasks) - len(lengths))
    mean, of_all = geometric_mean([*ratios.values()] or [1.0]), geometric_mean([*ratios.values(), *[1.0] * same])
    counts = f"of these, {of_all:.3f} with {same} searches that are the same"
    print(f"geometric mean: {mean:.3f} {counts} (criterion: {MOST} or less)")
    report.write_json(
        options.json,
        {
            "trials": options.trials, "tasks": len(tasks), "us": figures, "ratio": ratios,
            "lengths": {tasks[k].desc: sorted(map(list, found)) for k, found in lengths.items()},
            "geometric_mean": mean, "geometric_mean_of_all": of_all,
        },
        device,
    )  # fmt: skip


if __name__ == "__main__":
    report.run(main)
