"""KernelBench, the programs of PyTorch that kernel generators are measured with: PyTorch, torch.compile and ours.

    python -m benchmarks.kernelbench FOLDER --json F [--levels 1,2,3] [--part K/N] [--every 3] [--only level1/19 ...]
                                     [--ways eager,tf32,compile,zero,tuned,fp32x3] [--seconds 30] [--eval]
                                     [--sizes primes|halves|one] [--jobs N] [--untimed] [--limit S]
                                     [--logs DIR]
    python -m benchmarks.kernelbench --table F ...

FOLDER is a checkout of github.com/ScalingIntelligence/KernelBench, which has no part in this repository.  Each problem
runs in a process of its own (`kernelbench_problem.py`; all are forked from one that has imported PyTorch), one after
the other on each GPU of the host, or `--jobs` beside each other: while one takes times, the others are stopped, so that
only the seconds of first calls, and the bytes between calls, are those of a busy GPU.  Problems
that F has are not run again, so a run that was ended goes on with the same command.  `--table` prints what files hold:
by level, times of ours beside eager and torch.compile.  With `--sizes`, problems have other sizes than they are written
with (`kernelbench_sizes.py`).
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import re
import signal
import statistics
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from benchmarks import report
from benchmarks.kernelbench_problem import PRELOADED, TOLERANCE, WAYS, Asked, tell_all, work_on
from benchmarks.kernelbench_sizes import AS_WRITTEN, CHANGES
from codegen_cuda.driver.device import device_count

THRESHOLDS = (0.98, 1.0, 1.1, 1.5, 2.0)
LAST_WORDS = 400
"""Characters of what a process says at its end that are kept where it fails."""
Rows = dict[str, dict[str, Any]]
PROCESSES = multiprocessing.get_context("forkserver")


def problems(folder: Path, levels: Sequence[str]) -> list[str]:
    """`levelL/FILE` of all problems, in the order of their numbers."""
    places = [folder / "KernelBench" if (folder / "KernelBench").is_dir() else folder]
    found = [f for level in levels for f in (places[0] / f"level{level}").glob("*.py")]
    return sorted([f"{f.parent.name}/{f.name}" for f in found], key=_order)


def _order(name: str) -> tuple[str, int]:
    level, _, file = name.partition("/")
    return level, int(re.split(r"\D", file, maxsplit=1)[0] or 0)


def chosen(names: Sequence[str], options: argparse.Namespace) -> list[str]:
    """Those that the command line asks for."""
    names = list(names)[:: options.every]
    if options.only:
        names = [n for n in names if any(n == o or n.startswith(f"{o}_") for o in options.only)]
    part, _, parts = options.part.partition("/")
    return names[int(part) - 1 :: int(parts)]


def solved(file: Path, options: argparse.Namespace, gpu: str, beside: Path) -> dict[str, Any]:
    """What the process of a problem tells; `failed` where it did not end well.

    `beside` has a file for each process of the GPU.
    """
    ways = tuple(options.ways.split(","))
    asked = Asked(
        str(file), ways, options.seconds, options.eval, options.sizes, options.untimed, options.logs, str(beside)
    )
    with tempfile.TemporaryDirectory() as folder:
        findings, said = [Path(folder) / name for name in ("findings", "said")]
        process = PROCESSES.Process(target=work_on, args=(asked, gpu, str(findings), str(said)))
        process.start()
        process.join(options.limit)
        ended = "" if process.exitcode == 0 else f"not done after {options.limit:g} s"
        if process.exitcode is None and process.pid is not None:
            tell_all([process.pid], signal.SIGKILL)
            process.join()
        elif ended:
            ended = f"ended with {process.exitcode}: {said.read_text()[-LAST_WORDS:] if said.exists() else ''}"
        lines = findings.read_text().splitlines() if findings.exists() else []
    (beside / str(process.pid)).unlink(missing_ok=True)
    if process.exitcode:  # it may have ended while it let the others wait
        tell_all([int(f.name) for f in beside.iterdir() if f.name.isdigit()], signal.SIGCONT)
    return row_of(lines, ended)


def row_of(lines: Sequence[str], ended: str) -> dict[str, Any]:
    """The findings of a process, by way where they are of one."""
    row: dict[str, Any] = {"ways": {}, **({"failed": ended} if ended else {})}
    for told in map(json.loads, lines):
        if "way" in told:
            row["ways"][told.pop("way")] = told
        else:
            row |= told
    for way, ms in row.pop("ms", {}).items():
        row["ways"][way]["ms"] = ms
    return row


def gpus() -> list[str]:
    """The GPUs of this process, as CUDA_VISIBLE_DEVICES names them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given:
        return given.split(",")
    return [str(k) for k in range(device_count())]


def run_all(names: Sequence[str], options: argparse.Namespace, rows: Rows, device: str) -> None:
    """Run problems, and write the file after each."""
    place = Path(options.folder)
    place = place / "KernelBench" if (place / "KernelBench").is_dir() else place
    todo: SimpleQueue[str] = SimpleQueue()
    lock, shared = threading.Lock(), tempfile.TemporaryDirectory()
    for name in names:
        todo.put(name)

    def work(gpu: str) -> None:
        beside = Path(shared.name) / gpu
        beside.mkdir(exist_ok=True)
        while True:
            try:
                name = todo.get_nowait()
            except Empty:
                return
            row = solved(place / name, options, gpu, beside)
            row["commit"] = report.circumstances()["commit"]
            with lock:
                rows[name] = row
                print(line_of(name, row), flush=True)
                report.write_json(options.json, {"problems": rows, **settings(options)}, device)

    workers = [threading.Thread(target=work, args=(gpu,)) for gpu in gpus() for _ in range(options.jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    shared.cleanup()


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """What was asked for."""
    mode = "evaluation" if options.eval else "training"
    return {"mode": mode, "sizes": options.sizes, "seconds": options.seconds, "jobs": options.jobs}


def line_of(name: str, row: Mapping[str, Any]) -> str:
    """A problem in a line."""
    parts = []
    for way, found in row["ways"].items():
        text = f"{found['ms']:.3f} ms" if "ms" in found else found.get("failed", "")[:160] or "not timed"
        more = f" err {found['error']:.0e} {found.get('float64', '')}" if found.get("error", 0) > TOLERANCE else ""
        parts.append(f"{way} {text} ({found.get('first_s', math.nan):.1f} s){more}")
    return f"{name}: {'; '.join(parts)}{'  FAILED ' + row['failed'] if 'failed' in row else ''}"


# ------------------------------------------------------------------------------------------------------ the table


def read(files: Sequence[str]) -> Rows:
    """The problems of several files; later ones win."""
    rows: Rows = {}
    for file in files:
        rows |= json.loads(Path(file).read_text())["figures"]["problems"]
    return rows


def ratios(rows: Rows, level: str, way: str, beside: str) -> list[float]:
    """How many times as long `beside` takes, for the problems of a level that both were timed at and ours are right."""
    found = []
    for name, row in rows.items():
        ours, theirs = row["ways"].get(way, {}), row["ways"].get(beside, {})
        if name.startswith(f"level{level}/") and "ms" in ours and "ms" in theirs:
            found.append(theirs["ms"] / ours["ms"])
    return found


def share_of_roofline(row: Mapping[str, Any], way: str) -> float:
    """The least time that bytes and operations take on this device, over that of a way."""
    least = max(row["bytes"] / row["bytes_s"], row["flops"] / row["flops_s"])
    return float(1e3 * least / row["ways"][way]["ms"])


def floats_too_short(found: Mapping[str, Any]) -> bool:
    """Whether eager, too, is farther from float64 than TOLERANCE, and ours not more than twice as far."""
    errors = found.get("float64", {"ours": math.inf, "eager": 0.0})
    return bool(errors["eager"] > TOLERANCE and errors["ours"] <= 2 * errors["eager"])


def show(rows: Rows) -> None:
    """By level, way of ours and way of PyTorch: problems timed, the geometric mean, and how many are above."""
    lines = []
    levels = sorted({name[len("level") : name.index("/")] for name in rows})
    for level in levels:
        for way in [w for w in WAYS if w not in ("eager", "tf32")]:
            for beside in ("eager", "compile"):
                found = ratios(rows, level, way, beside)
                if found and way != beside:
                    mean = math.exp(statistics.fmean(map(math.log, found)))
                    counts = [f"{sum(r >= t for r in found)}" for t in THRESHOLDS]
                    lines.append([level, way, beside, len(found), mean, *counts])
    report.table(lines, ["level", "way", "over", "problems", "mean", *[f">= {t}" for t in THRESHOLDS]])
    for level in levels:
        of = {n: r for n, r in rows.items() if n.startswith(f"level{level}/")}
        for way in [w for w in WAYS if any(w in r["ways"] for r in of.values())]:
            ways = [r["ways"][way] for r in of.values() if way in r["ways"]]
            failed, errors = sum("failed" in w for w in ways), [w for w in ways if w.get("error", 0) > TOLERANCE]
            wrong = sum(not floats_too_short(w) for w in errors)
            shares = [share_of_roofline(r, way) for r in of.values() if "ms" in r["ways"].get(way, {})]
            share = f", {100 * statistics.fmean(shares):.0f} % of the roofline in the mean" if shares else ""
            short = f" ({len(errors) - wrong} where eager is as wrong)" if len(errors) > wrong else ""
            print(f"level {level}, {way}: {len(ways)} run, {failed} failed, {wrong} wrong{short}{share}")


def parsed() -> argparse.Namespace:
    """What the command line says."""
    p = report.parser(__doc__ or "")
    p.add_argument("folder", metavar="FOLDER", nargs="?", help="a checkout of KernelBench")
    p.add_argument("--table", metavar="FILE", nargs="+", type=report.path_to_read, help="print what files hold")
    p.add_argument("--levels", default="1,2,3")
    p.add_argument("--part", default="1/1", help="K/N: every Nth problem from the Kth on")
    p.add_argument("--every", type=int, default=1, help="every Nth problem, before parts are made")
    p.add_argument("--only", nargs="*", default=[], help="problems by level and number, such as level1/19")
    p.add_argument("--ways", default="eager,compile,zero", help=f"of {', '.join(WAYS)}")
    p.add_argument("--seconds", type=float, default=30.0, help="what `tuned` and `fp32x3` may spend")
    p.add_argument("--eval", action="store_true", help="run models in evaluation mode")
    p.add_argument(
        "--sizes", default=AS_WRITTEN, choices=[AS_WRITTEN, *CHANGES], help="other sizes, where a model has any"
    )
    p.add_argument("--jobs", type=int, default=1, help="processes beside each other on each GPU, but for taking times")
    p.add_argument("--untimed", action="store_true", help="check only")
    p.add_argument("--limit", type=float, default=600.0, help="seconds that a problem may take")
    p.add_argument("--logs", default="", metavar="DIR", help="a folder for the logs of what is measured")
    options = p.parse_args()
    report.require_names("way", options.ways.split(","), WAYS)
    if options.table is None and (options.folder is None or options.json is None):
        p.error("FOLDER and --json are needed, or --table")
    return options


def main() -> None:
    options = parsed()
    if options.table is not None:
        show(read(options.table))
        return
    report.require_packages("torch")
    device = report.gpu()
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # who asks otherwise cannot be forked
    PROCESSES.set_forkserver_preload(PRELOADED)
    names = chosen(problems(report.path_to_read(options.folder), options.levels.split(",")), options)
    rows = read([options.json]) if Path(options.json).exists() else {}
    run_all([n for n in names if n not in rows], options, rows, device)
    show(rows)


if __name__ == "__main__":
    report.run(main)
