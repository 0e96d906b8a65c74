"""One task for a range of sizes beside a search of each size, with as many trials in all, on the CPU.

Three subgraphs, each at six sizes: three that the range is tuned for, and three that a seed draws when it is tuned. For
each of the six the fixed size is searched with a sixth of the trials, and what comes out is timed in turns with the
program for all sizes.  Printed is our time over the other, above 1 where we are slower.

    python -m benchmarks.open_sizes --trials 384 --json open_sizes.json
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import ansor
import te_lite as te
from ansor.core.tasks.catalog import dense_layer
from benchmarks import report

MOST = 512
TUNED = (1, 64, 512)
DRAWN = 3
ROUNDS = 9


def dense(n: Any) -> list[te.Tensor]:
    """Rows [n, 256] by a weight [256, 256], a bias, relu."""
    return dense_layer(n, 256, 256)


def narrow(n: Any) -> list[te.Tensor]:
    """Rows [n, 512] by a matrix [512, 64], tanh."""
    a, b = te.placeholder((n, 512), name="A"), te.placeholder((512, 64), name="B")
    k = te.reduce_axis((0, 512), "k")
    c = te.compute((n, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return [a, b, te.compute((n, 64), lambda i, j: te.tanh(c[i, j]), name="D")]


def batched(n: Any) -> list[te.Tensor]:
    """Four products of rows [n, 64] with matrices [64, 64]."""
    a, b = te.placeholder((4, n, 64), name="A"), te.placeholder((4, 64, 64), name="B")
    k = te.reduce_axis((0, 64), "k")
    return [a, b, te.compute((4, n, 64), lambda h, i, j: te.sum(a[h, i, k] * b[h, k, j], axis=k), name="C")]


SUBGRAPHS: tuple[Callable[[Any], list[te.Tensor]], ...] = (dense, narrow, batched)


def options(trials: int, log: Path) -> ansor.TuningOptions:
    return ansor.TuningOptions(trials, measure_callbacks=[ansor.RecordToFile(log)], verbose=0)


def over_range(subgraph: Callable[[Any], list[te.Tensor]], trials: int, log: Path, invariant: bool) -> Any:
    """The function for all sizes that a search over the range gives."""
    n, sizes = te.size_var("n", 1, MOST), {"n": list(TUNED)}
    task: Any = ansor.SearchTask(subgraph, (n,), target="c", sizes=sizes, invariant=invariant)
    task.tune(options(trials, log))
    return task.build_best(log)


def of_size(subgraph: Callable[[Any], list[te.Tensor]], n: int, trials: int, log: Path) -> Any:
    """The function for one size that a search of it gives."""
    task = ansor.SearchTask(compute_dag=subgraph(n), target="c")
    task.tune(options(trials, log))
    return task.build_best(log)


def ratio(ours: Any, other: Any, arrays: Sequence[Any]) -> tuple[float, float]:
    """Microseconds of both, in turns."""
    times = [[f.time(*arrays, number=1, min_repeat_ms=20).mean * 1e6 for f in (ours, other)] for _ in range(ROUNDS)]
    return median([a for a, _ in times]), median([b for _, b in times])


def rows_of(
    subgraph: Callable[[Any], list[te.Tensor]], trials: int, seed: int, folder: Path, invariant: bool
) -> list[dict[str, Any]]:
    """The figures of a subgraph at the six sizes."""
    ours = over_range(subgraph, trials, folder / f"{subgraph.__name__}.json", invariant)
    rng = np.random.default_rng(seed)
    drawn = rng.choice([n for n in range(2, MOST) if n not in TUNED], DRAWN, replace=False).tolist()
    found = []
    for n in [*TUNED, *sorted(drawn)]:
        other = of_size(subgraph, n, trials // 6, folder / f"{subgraph.__name__}_{n}.json")
        arrays = [rng.standard_normal(t.shape).astype("float32") for t in subgraph(n)]
        mine, its = ratio(ours, other, arrays)
        found.append({
            "subgraph": subgraph.__name__, "n": n, "tuned": n in TUNED, "range_us": mine, "fixed_us": its,
            "ratio": mine / its, "programs": len(ours.programs),
        })  # fmt: skip
    return found


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument(
        "--trials", type=int, default=384, help="of the search over the range; searches of a size have a sixth"
    )
    p.add_argument("--seed", type=int, default=1, help="draws three of the sizes")
    p.add_argument("--invariant", action="store_true", help="one program, whose rows have the same bits in every batch")
    args = p.parse_args()
    with TemporaryDirectory() as folder:
        given = args.trials, args.seed, Path(folder), args.invariant
        rows = [row for k, s in enumerate(SUBGRAPHS) for row in rows_of(s, given[0], given[1] + k, *given[2:])]
    report.table([list(row.values()) for row in rows], list(rows[0]))
    means = {
        name: geometric_mean([row["ratio"] for row in rows if row["tuned"] in kinds])
        for name, kinds in {"all": (True, False), "tuned": (True,), "drawn": (False,)}.items()
    }
    print("geometric mean of the ratios: " + ", ".join([f"{name} {mean:.3f}" for name, mean in means.items()]))
    report.write_json(args.json, {"trials": args.trials, "seed": args.seed, "rows": rows, "means": means})


if __name__ == "__main__":
    report.run(main)
