"""Single operators, ours after a search against PyTorch's, on the CPU or a GPU: one row an operator and shape.

    python -m benchmarks.operators [--target c|cuda] [--trials 128] [--rows PART|NAME|PATTERN ...] [--csv FILE]
        [--json FILE] [--log DIR] [--resume FILE ...] [--time-limit S] [--threads N] [--again]
        [--ours-only | --torch-only | --table]

The rows are those of benchmarks/operators.csv, with their limits, or of `--csv` (`benchmarks/operator_rows.py` says
what a row may be); `--rows A 'softmax *'` chooses among them.  A row is PyTorch's operator, then a search with the
default options, then both in turns in this process: `benchmarks/pytorch.py` says how, and which of PyTorch's variants
count.  Where there are several computations of an operator, half of the trials are shared out among them, and the best
one gets the others.  Inputs are random in [-1, 1], the same on both sides, and stay the same from call to call, so the
caches are as warm as they get; both results are first compared with PyTorch's in float64 (`TOLERANCES` tell TF32 from
float32).
Every program of the search was compared with NumPy's result before.  Rows of TF32, of halves, of bytes and of floats in
two parts (parts D to F, I to L) are for GPUs, whose shared memory they may use up (`HardwareParams.from_device`);
PyTorch has TF32 on for the first.  Parts G and H are for the CPU, where NumPy's products count among the variants:
OPENBLAS_CORETYPE, if it is set, may hold its library back.

The JSON file is written after every row and read at the start: a row that it has of this commit, target and machine,
with as many trials, is not measured again unless `--again` is given.  The log holds what the search measures, a file a
target, part and commit: a search that was stopped goes on, and one that is through is not repeated, `--again` or not.
After `--time-limit` seconds no row begins, and a search ends; what it found is timed and goes on in the next run.
`--resume` adds the rows of other JSON files; `--table` prints all that is known and measures nothing.  ANSOR_COMMIT
names the commit where git does not.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ansor
from ansor.cli.torch_side import allow_tf32
from ansor.core.device.backend import on_device
from ansor.core.target.hardware import host_cores
from ansor.core.target.target import TF32, Target
from ansor.records.best import load_best_record
from ansor.records.lines import validated_records
from ansor.records.of_task import is_of
from benchmarks import operator_rows, pytorch, report
from benchmarks.operator_rows import OWN, PLAIN, TARGETS, Row, chosen_rows, moved_bytes, read_rows
from benchmarks.operator_sides import SEED, TOLERANCES, Sides, random_tensors
from benchmarks.operator_table import Found, Journal, Place, checked_files
from te_lite import ComputeDAG

# ------------------------------------------------------------------------------------------------- the search


def records_of(task: ansor.SearchTask, log: Path) -> list[Any]:
    """What a log holds of a task; nothing where there is none."""
    return [r for r in validated_records(log) if is_of(r[0], task)] if log.is_file() else []


def searched(task: ansor.SearchTask, log: Path, trials: int, time_limit: float | None) -> Found:
    """Search until the log has `trials` of the task; what the search was, as a found row says it."""
    recorder, start = ansor.RecordToFile(log), time.perf_counter()
    known = records_of(task, log)
    if trials > len(known):
        model = ansor.XGBModel(seed=SEED)
        policy = ansor.SketchPolicy(task, model, seed=SEED, verbose=0)
        if known:
            policy.preload_measured_states(log, known)
            model.update([inp for inp, _ in known], [res for _, res in known])
        options = ansor.TuningOptions(
            trials - len(known), verbose=0, measure_callbacks=[recorder], time_limit=time_limit
        )
        task.tune(options, policy)
    seconds = time.perf_counter() - start
    count = len(records_of(task, log))
    through = count >= trials or time_limit is None or seconds < time_limit
    search = {"trials": count - len(known), "seconds": seconds if count > len(known) else 0.0}
    return {"asked": trials, "trials": count, "complete": through, "search": search}


def searched_best(
    tasks: Mapping[str, ansor.SearchTask], log: Path, trials: int, remaining: Callable[[], float | None]
) -> tuple[ansor.SearchTask, Found]:
    """The task whose program is the fastest, after `trials` for all of them, and what the searches were.

    Tasks compute the same: half of the trials are shared out, the others go to the one that is the best by then.
    """
    share = trials if len(tasks) == 1 else trials // (2 * len(tasks))
    first = [searched(task, log, share, remaining()) for task in tasks.values()]
    best = min(tasks, key=lambda name: best_seconds(tasks[name], log))
    rest = trials - share * (len(tasks) - 1)
    runs = [*first, *([searched(tasks[best], log, rest, remaining())] if rest > share else [])]
    return tasks[best], {
        "asked": trials,
        "trials": sum(len(records_of(task, log)) for task in tasks.values()),
        "complete": all(run["complete"] for run in runs),
        "search": {key: sum(run["search"][key] for run in runs) for key in ("trials", "seconds")},
        "computation": best,
    }


def best_seconds(task: ansor.SearchTask, log: Path) -> float:
    """Of the fastest program that a log has of a task; infinite where there is none."""
    result = load_best_record(log, task.workload_key, task.target)[1] if log.is_file() else None
    return float("inf") if result is None else result.cost


# ------------------------------------------------------------------------------------------------- one row


@dataclass(frozen=True)
class Run:
    """What all rows of this run share; `deadline` is by `time.monotonic`, inf for none."""

    torch: Any
    target: str
    place: Place
    sides: str
    trials: int
    logs: Path
    commit: str
    deadline: float

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline; None for ever."""
        return None if self.deadline == float("inf") else max(self.deadline - time.monotonic(), 1e-3)

    def is_done(self, found: Found | None) -> bool:
        """Whether a row was found by this commit, with all trials that are asked for."""
        if found is None or found["commit"] != self.commit or "failure" in found:
            return False
        return self.sides == "torch" or (bool(found["complete"]) and found["asked"] >= self.trials)

    def log_of(self, row: Row) -> Path:
        """The log of a row's part."""
        return self.logs / f"operators_{self.target}_{row.part}_{self.commit[:7]}.json"

    def measured(self, row: Row, before: Found | None) -> Found:
        """Both sides of a row; `before` is what an earlier run found of it."""
        device = "cuda" if self.target == "cuda" else "cpu"
        computations = row.computations(self.target)
        tensors = next(iter(computations.values()))
        hardware = ansor.HardwareParams.from_device(self.target) if device == "cuda" else None
        target = on_device(Target(self.target))
        tasks = {
            name: ansor.SearchTask(compute_dag=ComputeDAG(tensors), target=target, hardware_params=hardware,
                                   desc=f"{row.name}, {name}", precision=row.precision)
            for name, tensors in computations.items()
        }  # fmt: skip
        allow_tf32(self.torch, row.precision == TF32)
        inputs = random_tensors(self.torch, tensors[:-1], device)
        library = row.library(self.torch)
        exact = [t.double() for t in library.enter(*inputs)]
        sides = Sides(self.torch, library.leave(library.call(*exact)), TOLERANCES[row.arithmetic])
        found: Found = {"asked": 0, "trials": 0, "complete": True, "search": {"trials": 0, "seconds": 0.0}}
        if "torch" in self.sides:
            sides.add_library(library, inputs)
        if "ours" in self.sides:
            task, found = searched_best(tasks, self.log_of(row), self.trials, lambda: self.remaining)
            _add_search(found, before if before is not None and before["commit"] == self.commit else None)
            sides.add_ours(task, self.log_of(row), inputs)
        times = sides.seconds(self.target)
        figures = figures_of(times, found["search"], moved_bytes(ComputeDAG(tensors)), sides.errors)
        return {**found, **figures, "errors": sides.errors, "refused": sides.refused}

    def found(self, row: Row, before: Found | None) -> Found:
        """`measured`, or why it failed, and under which circumstances."""
        gc.collect()
        try:
            figures = self.measured(row, before)
        except Exception as error:  # one row that fails must not end the others; it is said, and the exit code tells
            traceback.print_exc()
            figures = {"failure": f"{type(error).__name__}: {error}", "figures": {}}
        target, machine, threads = self.place
        return {
            "row": row.name, "part": row.part, "sides": self.sides, **report.circumstances(machine),
            "commit": self.commit, "target": target, "threads": threads, **figures,
        }  # fmt: skip


def _add_search(found: Found, before: Found | None) -> None:
    """Add the search of an earlier run of the same commit."""
    if before is not None and "search" in before:
        found["search"] = {key: found["search"][key] + before["search"][key] for key in ("trials", "seconds")}


def figures_of(times: dict[str, list[float]], search: Found, moved: int, errors: dict[str, float]) -> Found:
    """Medians, the best of PyTorch's variants, and the figures that limits are about."""
    us = {name: 1e6 * statistics.median(seconds) for name, seconds in times.items()}
    ours = us.pop("ours", None)
    out: Found = {"ours_us": ours, "torch_us": us, "best": min(us, key=lambda name: us[name]) if us else None}
    figures: dict[str, float] = {}
    if ours is not None:
        figures = {"us": ours, "TB/s": moved / ours * 1e-6}
        if search["trials"]:
            figures["s/trial"] = search["seconds"] / search["trials"]
    if ours is not None and out["best"] is not None:
        figures["ratio"] = ours / us[out["best"]]
        if errors.get(out["best"]):
            figures["error"] = errors["ours"] / errors[out["best"]]
        low, middle, high = np.percentile(np.divide(times["ours"], times[out["best"]]), [25, 50, 75])
        out["error_bar"] = float((high - low) / 2 / middle)
    return {**out, "figures": figures}


def line_of(found: Found) -> str:
    """What is printed as soon as a row is there."""
    if "failure" in found:
        return f"{found['row']}: failed: {found['failure']}"
    times = {**({} if found["ours_us"] is None else {"ours": found["ours_us"]}), **found["torch_us"]}
    text = ", ".join(f"{name} {us:.2f} us" for name, us in times.items())
    refused = "".join(f"; {name} was refused: {why}" for name, why in found["refused"].items())
    how = "" if found.get("computation", PLAIN) == PLAIN else f" by {found['computation']}"
    return f"{found['row']}: {text}; {found['trials']} trials{how}{refused}"


# ------------------------------------------------------------------------------------------------- the program


def arguments() -> argparse.Namespace:
    p = report.parser(__doc__ or "")
    p.add_argument("--target", choices=TARGETS, default="c")
    p.add_argument("--trials", type=int, default=128)
    p.add_argument("--rows", nargs="+", default=[], help="parts, names or patterns (default: all)")
    p.add_argument(
        "--csv", type=report.path_to_read, default=OWN, help="a file of rows (default: benchmarks/operators.csv)"
    )
    p.add_argument("--log", type=Path, default=Path("operator_logs"), help="the folder of the searches")
    p.add_argument("--resume", nargs="+", default=[], metavar="FILE", help="JSON files of other runs")
    p.add_argument("--time-limit", type=float, metavar="S", default=float("inf"))
    p.add_argument("--threads", type=int, help="threads of both sides on the CPU (default: the processors at hand)")
    p.add_argument("--again", action="store_true", help="time rows that are there, too")
    only = p.add_mutually_exclusive_group()
    only.add_argument("--ours-only", dest="sides", action="store_const", const="ours", default="ours and torch")
    only.add_argument("--torch-only", dest="sides", action="store_const", const="torch")
    only.add_argument("--table", dest="sides", action="store_const", const="", help="measure nothing")
    return p.parse_args()


def with_threads(threads: int | None) -> None:
    """Start this program again with OpenMP told the number of threads, where it is another one."""
    if threads is not None and threads != host_cores():
        os.environ["OMP_NUM_THREADS"] = str(threads)
        os.environ.pop("TVM_NUM_THREADS", None)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def run_of(options: argparse.Namespace, start: float) -> Run:
    torch = pytorch.exact_torch()
    machine = torch.cuda.get_device_name() if options.target == "cuda" else None
    facts = report.circumstances(machine)
    threads = 0 if options.target == "cuda" else torch.get_num_threads()
    place = (options.target, facts["machine"], threads)
    deadline = start + options.time_limit
    return Run(torch, options.target, place, options.sides, options.trials, options.log, facts["commit"], deadline)


def measure(run: Run, chosen: Sequence[Row], rows: Sequence[Row], journal: Journal, again: bool) -> bool:
    """Measure the chosen rows that are not done; whether none failed."""
    fine = True
    for row in operator_rows.of_target(chosen, run.target):
        before = journal.get(row.name, run.place, run.sides)
        if run.is_done(before) and not again:
            continue
        if time.monotonic() > run.deadline:
            print(f"{row.name}: not begun, the time is up", flush=True)
            continue
        found = run.found(row, before)
        journal.add(found, rows)
        fine &= "failure" not in found
        print(line_of(found), flush=True)
    return fine


def main() -> None:
    start, options = time.monotonic(), arguments()
    with_threads(options.threads)
    rows = read_rows(options.csv)
    chosen = chosen_rows(rows, options.rows)
    journal = Journal(options.json, checked_files(options.resume))
    fine = not options.sides or measure(run_of(options, start), chosen, rows, journal, options.again)
    journal.print_table(rows)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    report.run(main)
