"""Figures of the promises of reliability that no single test prints: `python -m benchmarks.promises R4 R5 --json FILE`.

Without numbers, those that take a minute or two each.  A figure comes with its seconds and with the load of the machine
before and after, for the load decides times.  `docs/promises.md` lists all eighteen with their last figures.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import ansor
from ansor.core.errors import MeasureError
from ansor.core.tasks.measure_values import MeasureErrorNo
from ansor.records.journal import append_lines, scan_lines
from benchmarks import promises_gpu, promises_tests, report
from benchmarks.winner import searched, winner
from codegen_c.compile import compiler_command
from te_lite.errors import require
from tests.ansor import test_resume as resume
from tests.ansor.search_case import MODELS, TARGETS
from tests.ansor.test_measure_faults import BUILD_FAULTS, RUN_FAULTS, measure

FORK = get_context("fork")
GOLDEN = Path(__file__).parent.parent / "tests" / "golden"
LOGS = ("tvm_log_matmul1024_cpu.json", "tvm_log_matmul1024_cuda_h200.json")
HANGS = {"build_hang", "build_stop", "build_spin", "run_hang", "run_spin", "run_stop", "run_child"}
FULL, LIMIT = 3, 2.0
KILLED_AFTER = 8


def faults(trials: int, words: list[str], folder: Path) -> tuple[int, int, float]:
    """Measure `trials` programs, every fifth one faulty: the results that came, wrong error numbers, slowest end."""
    expected = {**BUILD_FAULTS, **RUN_FAULTS, "good": MeasureErrorNo.NO_ERROR}
    script = [words[k // 5 % len(words)] if k % 5 == 0 else "good" for k in range(trials)]
    (folder / "script").write_text("\n".join(script))
    (folder / "spin.c").write_text("volatile int x; void spin(void) { for (;;) x = x + 1; }")
    subprocess.run([*compiler_command(), "-shared", "-fPIC", "-o", folder / "spin.so", folder / "spin.c"], check=True)
    os.environ["FAULTS"] = str(folder)
    before = ansor.register_backend("c", "tests.ansor.faulty_backend") or ""
    task = ansor.SearchTask("matmul", (64, 64, 64), target="c", hardware_params=ansor.HardwareParams(num_cores=2))
    try:
        policy = ansor.SketchPolicy(
            task, ansor.RandomModel(0), seed=5, params={"sample_init_min_population": 1}, verbose=0
        )
        states = policy.ask(min(trials, 200))
        results = measure(task, [states[k % len(states)] for k in range(trials)], LIMIT)
    finally:
        ansor.register_backend("c", before)
    wrong = sum(r.error_no != expected[w] for w, r in zip(script, results, strict=True))
    slowest = max((r.all_cost for w, r in zip(script, results, strict=True) if w in HANGS), default=0.0)
    return len(results), wrong, slowest


def r1(folder: Path) -> dict[str, Any]:
    """No candidate ends or hangs a run."""
    trials = int(os.environ.get("TRIALS", "500"))
    words = [w for w in (*BUILD_FAULTS, *RUN_FAULTS)]
    came, wrong, _ = faults(trials, words, folder)
    return {"trials": trials, "faults": trials // 5, "kinds": len(words), "lost": trials - came, "misjudged": wrong}


def r2(folder: Path) -> dict[str, Any]:
    """A time limit is kept."""
    hangs = int(os.environ.get("TRIALS", "50"))
    _, wrong, slowest = faults(5 * hangs, sorted(HANGS), folder)
    return {"hangs": hangs, "limit_s": LIMIT, "slowest_end_s": round(slowest, 2), "misjudged": wrong}


def r4(folder: Path) -> dict[str, Any]:
    """Every acknowledged record survives SIGKILL: writers are killed some milliseconds after some records."""
    chance, log, acknowledged, bad = random.Random(0), folder / "log", set[str](), 0
    for kill in range(1000):
        receive, send = FORK.Pipe(duplex=False)
        child = FORK.Process(target=_write_for_ever, args=(log, kill, send))
        child.start()
        send.close()
        for _ in range(chance.randrange(KILLED_AFTER)):
            acknowledged.add(receive.recv())
        time.sleep(chance.uniform(0.0, 0.01))
        child.kill()
        child.join()
        try:
            while True:
                acknowledged.add(receive.recv())
        except (EOFError, OSError):
            receive.close()
    stored = set()
    for _, line in scan_lines(log):
        try:
            stored.add(json.loads(line or b"")["name"])
        except ValueError:
            bad += 1
    return {"kills": 1000, "acknowledged": len(acknowledged), "lost": len(acknowledged - stored), "unreadable": bad}


def _write_for_ever(log: Path, kill: int, pipe: Any) -> None:
    for k in range(10**6):
        name = f"{kill}.{k}"
        append_lines(log, [json.dumps({"name": name, "pad": "x" * (k * 131 % 3000)})])
        pipe.send(name)


def r5(folder: Path) -> dict[str, Any]:
    """A torn tail is harmless."""
    cuts = failures = 0
    for number in range(5):
        lines = (GOLDEN / LOGS[number % 2]).read_bytes().splitlines()[4 * number : 4 * number + 4]
        before = b"".join(line + b"\n" for line in lines[:2])
        for cut in range(len(lines[2])):
            path = folder / "log"
            path.write_bytes(before + lines[2][:cut])
            append_lines(path, [lines[3].decode()])
            kept = len(list(ansor.load_records(path)))
            cuts, failures = cuts + 1, failures + (kept != 3)
            path.with_name("log.torn").unlink(missing_ok=True)
    return {"cuts": cuts, "logs": 5, "failures": failures}


def r6(folder: Path) -> dict[str, Any]:
    """Concurrent writers are safe."""
    writers = [FORK.Process(target=_write_thousand, args=(folder / "log", w)) for w in range(8)]
    for w in writers:
        w.start()
    for w in writers:
        w.join()
    seen = [json.loads(line)["name"] for _, line in scan_lines(folder / "log") if line is not None]
    return {"written": 8000, "whole": len(seen), "unique": len(set(seen))}


def _write_thousand(log: Path, writer: int) -> None:
    for k in range(1000):
        append_lines(log, [json.dumps({"name": f"{writer}.{k}", "pad": "x" * (k * 37 % 900)})])


def r14(folder: Path) -> dict[str, Any]:
    """A stopped search goes on where it was."""
    chance = random.Random(1)
    out = {"stops": 50, "wrong_trial_count": 0, "measured_again": 0, "lost": 0, "best_lost": 0}
    for k in range(50):
        target, log = ("c", "cuda")[k % 2], folder / f"log{k}.json"
        resume.attempt(target, "random", log, chance.randrange(1, resume.TRIALS), chance.uniform(0, 0.02))
        before, best = resume.programs(log), _best(log)
        heard, _ = resume.attempt(target, "random", log, None, 0)
        final = resume.programs(log)
        again = {w.partition(" ")[2] for w in heard if w.startswith("measure ")} & set(before)
        out["wrong_trial_count"] += len(final) != resume.TRIALS
        out["measured_again"] += len(again) + len(final) - len(set(final))
        out["lost"] += final[: len(before)] != before
        out["best_lost"] += _best(log) > best
    return out


def _best(log: Path) -> float:
    return min([r.cost for _, r in ansor.RecordReader(log)] if log.exists() else [], default=float("inf"))


def r15(folder: Path) -> dict[str, Any]:
    """A seed decides the search: in processes of different hash seeds and numbers of threads."""
    path = os.pathsep.join(p or os.getcwd() for p in sys.path)
    different, seeds = 0, int(os.environ.get("TRIALS", "3"))
    for seed in range(seeds):
        found = []
        for threads, words in (("1", ()), ("2", ("replay",))):
            place = folder / f"{seed}"
            place.mkdir(exist_ok=True)
            more = {"PYTHONHASHSEED": f"{seed}{threads}", "OMP_NUM_THREADS": threads, "PYTHONPATH": path}
            command = [sys.executable, "-m", "tests.ansor.search_case", os.fspath(place), f"seed={seed}", *words]
            done = subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, check=True)
            found.append(json.loads(done.stdout))
        different += sum(found[0][case] != found[1][case] for case in found[0])
    pairs = seeds * len(TARGETS) * len(MODELS)
    return {"seeds": seeds, "pairs_of_runs": pairs, "different": different, "python": sys.version.split()[0]}


def r16(folder: Path) -> dict[str, Any]:
    """No wrong program wins, however fast; what wins is right, and as fast, on other inputs in a fresh process."""
    words = ["wrong", "untouched", "nan", "scribble"]
    came, wrong, _ = faults(250, words, folder)
    searched(log := folder / "log.json", "c", 512, 64)
    return {"planted": 50, "accepted_or_misjudged": wrong, "results": came, "winner": winner(log, "c", 512)}


def r18(folder: Path) -> dict[str, Any]:
    """A full disk, a read-only log and a vanished directory end a search in one sentence, with exit code 3."""
    good = folder / "good.json"
    sample = (GOLDEN / LOGS[0]).read_text().splitlines()[:3]
    good.write_text("".join(line + "\n" for line in sample))
    cases = {
        "full disk": (good, good.stat().st_size + 100),
        "no space": (Path("/dev/full"), None),
        "vanished": (Path("/proc/nowhere/log.json"), None),
        "no file": (folder, None),
    }
    out: dict[str, Any] = {}
    for name, (log, size) in cases.items():
        command = [sys.executable, "-m", "ansor", "tune", "matmul", "--shape", "16,16,16", "--target", "c", "--trials",
                   "2", "--log", str(log)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=_limit(size))
        out[name] = {"code": done.returncode, "sentences": len(done.stderr.strip().splitlines())}
    whole = good.read_bytes().endswith(b"\n") and len(list(ansor.load_records(good))) >= len(sample)
    return {**out, "log_valid": whole, "clean": all(c["code"] == FULL for c in out.values())}


def _limit(size: int | None) -> Callable[[], None]:
    def limit() -> None:
        if size is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


PROMISES = {
    "R1": r1, "R2": r2, "R3": promises_gpu.r3, "R4": r4, "R5": r5, "R6": r6, "R7": promises_tests.r7,
    "R9": promises_tests.r9, "R10": promises_tests.r10, "R11": promises_gpu.r11, "R13": promises_tests.r13, "R14": r14,
    "R15": r15, "R16": r16, "R17": promises_tests.r17, "R18": r18,
}  # fmt: skip
FAULTS = frozenset({
    "accepted_or_misjudged", "bad_misjudged", "best_lost", "different", "executions", "failed_tests",
    "failed_workloads", "failures", "good_lost", "lost", "measured_again", "misjudged", "missed", "raw_exceptions",
    "unreadable", "wrong", "wrong_trial_count",
})  # fmt: skip
"""The figures that count what a promise excludes."""
QUICK = ("R4", "R5", "R6", "R7", "R14", "R15", "R16", "R17", "R18")


def main() -> None:
    options = report.parser(__doc__ or "")
    options.add_argument("promises", nargs="*", default=QUICK, help=f"of {', '.join(PROMISES)}")
    given = options.parse_args()
    report.require_names("promise", given.promises, PROMISES)
    promises_gpu.check_needs(given.promises)
    figures, broken = {}, []
    for name in given.promises:
        with tempfile.TemporaryDirectory(prefix="promises_") as folder:
            start, load = time.monotonic(), os.getloadavg()[0]
            figures[name] = PROMISES[name](Path(folder))
            figures[name] |= {
                "seconds": round(time.monotonic() - start),
                "load": [round(load), round(os.getloadavg()[0])],
            }
            print(f"{name}  {PROMISES[name].__doc__}\n    {figures[name]}", flush=True)
            report.write_json(given.json, figures)
            broken += [f"{name}: {key}={n}" for key, n in figures[name].items() if key in FAULTS and n]
    where = report.circumstances()
    print(f"{where['date'][:10]}, commit {where['commit'][:7]}, {where['machine']}")
    require(not broken, MeasureError, "broken promises", "these figures must be 0 or empty", got=broken)


if __name__ == "__main__":
    report.run(main)
