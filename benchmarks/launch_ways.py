"""What each way in which the kernels of a network may follow each other takes, on a GPU from sm_90 on.

    python -m benchmarks.launch_ways --network vit_b_16 [--precision strict] [--log F] [--target cuda] [--json F]

The programs are the best of a log, or those that need no search.  All ways of `codegen_cuda/networks/launch_ways.py`
are timed in turns, each on a graph of its own, with weights fetched ahead and without; the sum is that of all kernels,
each called in a row.  The way that a network takes on its own is named below the table.
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from ansor.core.target.target import PRECISIONS, STRICT
from benchmarks import report
from codegen_cuda.networks.launch_ways import Way, timings_of
from relay_lite.tuning.network import in_precision, load_network
from relay_lite.tuning.tune_network import compile_best

ROUNDS, SECONDS = 7, 0.05


def way_text(way: Way) -> str:
    """One way in words."""
    begins = "launched early" if way.early else "one after the other"
    return f"{begins}{', weights ahead' if way.fetches else ''}"


def main() -> None:
    parser = report.parser(__doc__ or "")
    parser.add_argument("--network", default="resnet-50")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--precision", choices=PRECISIONS, default=STRICT)
    parser.add_argument("--log")
    options = parser.parse_args()
    device = report.gpu()
    network, target = in_precision(load_network(options.network), options.target, options.precision)
    module = compile_best(network, target, options.log or [])
    module.run(**network.inputs(np.random.default_rng(0)))
    executor: Any = module._executor
    figures = timings_of(executor.timed, ROUNDS, SECONDS)
    rows: list[list[Any]] = [[way_text(w), 1e6 * statistics.median(f), 1e6 * min(f)] for w, f in figures.items()]
    report.table(rows, ["kernels follow each other", "us", "least us"])
    alone = 1e6 * sum(seconds for _, seconds in module.profile(20))
    print(f"all kernels alone: {alone:.1f} us; taken: {way_text(executor.way)}")
    found = {
        "network": network.name, "precision": options.precision, "alone_us": alone, "taken": way_text(executor.way),
        "us": {way_text(w): [1e6 * x for x in f] for w, f in figures.items()},
    }  # fmt: skip
    report.write_json(options.json, found, device)


if __name__ == "__main__":
    report.run(main)
