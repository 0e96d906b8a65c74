"""How long `ansor report` takes to write a page on a long log, and how large the page is.

python -m benchmarks.report_size [--records 20000] [--log LOG] [--page FILE]

The log is one of ours (or `--log`), whose programs are taken again with the parts of their split loops in another order
and with longer times, until there are as many; every twentieth failed, and each has a prediction.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ansor.core.tasks.measure_values import FAILED_COST, MeasureErrorNo, Prediction, Spent
from ansor.records.journal import scan_lines
from ansor.records.lines import load_record_from_string
from ansor.records.notes import prediction_line, round_line
from ansor.report.page import write_report

from . import report

LOGS = Path(__file__).parent / "results" / "logs"
LOG = LOGS / "conv2d_layer_h200.json"
ROUND = 64
FAILED_EVERY = 20
CAUSES = (MeasureErrorNo.RUN_TIMEOUT, MeasureErrorNo.WRONG_ANSWER, MeasureErrorNo.COMPILE_DEVICE)
MOST_SECONDS, MOST_MEGABYTES = 5.0, 10.0


def grown(log: Path, records: int, seed: int = 0) -> Iterator[str]:
    """The lines of a log of so many records, like those of `log`; other than there, it says what was predicted."""
    lines = [line.decode() for _, line in scan_lines(log) if line]
    notes, known = [line for line in lines if line[0] == "#"], [json.loads(line) for line in lines if line[0] != "#"]
    rng, task = np.random.default_rng(seed), load_record_from_string(json.dumps(known[0]))[0].task
    start = max(record["r"][3] for record in known)
    yield from notes
    for k in range(records):
        record = json.loads(json.dumps(known[k % len(known)]))
        if k >= len(known):
            _change(record, rng)
        cost = float(np.mean(record["r"][0]))
        record["r"][3] = start + k // 10
        if k % FAILED_EVERY == FAILED_EVERY - 1:
            record["r"][:2] = [FAILED_COST], int(CAUSES[k // FAILED_EVERY % len(CAUSES)])
        yield prediction_line(Prediction(float(rng.lognormal(-np.log(cost), 0.3)), 1 + k // ROUND))
        yield json.dumps(record)
        if k % ROUND == ROUND - 1:
            yield round_line(task, Spent(0.3, 2.4, 28.0, 2.1))


def _change(record: dict[str, Any], rng: np.random.Generator) -> None:
    """Another order of the parts of each split loop, and a longer time."""
    for step in record["i"][1][1]:
        if step[0] == "SP":
            step[4] = [step[4][k] for k in rng.permutation(len(step[4]))]
    record["r"][0] = [cost * float(rng.uniform(1.05, 3)) for cost in record["r"][0]]


def main() -> None:
    """Writes the page and prints seconds and megabytes; the exit status is 1 where one of them is too large."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--log", type=Path, default=LOG)
    parser.add_argument("--page", type=Path, help="keep the page")
    args = parser.parse_args()
    report.path_to_read(args.log)
    with tempfile.TemporaryDirectory() as folder:
        log, page = Path(folder) / "log.json", args.page or Path(folder) / "page.html"
        log.write_text("".join(line + "\n" for line in grown(args.log, args.records)))
        begun, worked = time.perf_counter(), time.process_time()
        tasks = write_report([log], page)
        row = {
            "records": args.records, "tasks": tasks, "log_MB": log.stat().st_size / 1e6,
            "seconds": time.perf_counter() - begun, "processor_s": time.process_time() - worked,
            "page_MB": page.stat().st_size / 1e6,
        }  # fmt: skip
    report.table([list(row.values())], list(row))
    report.write_json(args.json, {"log": args.log.name, **row})
    if row["seconds"] > MOST_SECONDS or row["page_MB"] > MOST_MEGABYTES:
        sys.exit(f"more than {MOST_SECONDS:g} s or {MOST_MEGABYTES:g} MB")


if __name__ == "__main__":
    report.run(main)
