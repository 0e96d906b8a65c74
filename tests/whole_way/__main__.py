"""`python -m tests.whole_way --seeds 0:1000 [--jobs N] [--graphs] [--special] [--record]`: run, shrink, add up.

`--dag FILE` runs one description from JSON.  Exits with 1 when something was found.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from codegen_cuda import emulator_build

from . import totals
from .batch import Job, run_batch
from .description import from_json
from .draw import draw
from .farm import farm
from .outcome import Finding, Outcome
from .shrink import shrunk, shown


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.whole_way", description=__doc__)
    parser.add_argument("--seeds", default="0:300", help="A:B, from A up to but not including B")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--batch", type=int, default=12, help="descriptions compiled together")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds without news that make a hang")
    parser.add_argument("--special", action="store_true", help="inputs and divisors at the edges of their dtype")
    parser.add_argument("--graphs", action="store_true", help="networks instead of single computations")
    parser.add_argument("--record", action="store_true", help="add the result to totals.json, skip what is there")
    parser.add_argument("--shrink", type=int, default=1, help="how many findings of each kind are shrunk")
    parser.add_argument("--dag", type=Path, help="a file with one description as JSON, run with ten draws")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    with tempfile.TemporaryDirectory(prefix="whole_way_") as folder:
        tempfile.tempdir = folder
        try:
            return run(options)
        finally:
            tempfile.tempdir = None


def run(options: argparse.Namespace) -> int:
    if options.dag:
        dag = from_json(options.dag.read_text())
        jobs = [Job(seed, dag) for seed in range(10)]
    else:
        first, last = map(int, options.seeds.split(":"))
        kind = totals.kind_of(options)
        done = totals.done(kind) if options.record else set()
        jobs = [Job(s, draw_lazily(s, options)) for s in range(first, last) if s not in done]
    emulator_build.host()
    found: list[tuple[Outcome, Finding]] = []
    sums, start, unsaved = totals.Sums(), time.time(), totals.Sums()
    for n, outcome in enumerate(farm(run_batch, jobs, options.jobs, options.batch, options.limit), 1):
        sums.add(outcome)
        unsaved.add(outcome)
        for finding in outcome.findings:
            found.append((outcome, finding))
            print(f"seed {outcome.seed}: {finding.signature}\n    {finding.text}", flush=True)
        if options.record and n % 500 == 0:
            totals.record(kind, unsaved)
            unsaved = totals.Sums()
        if n % 100 == 0:
            print(f"{n} of {len(jobs)}: {sums.line()}, {time.time() - start:.0f} s", flush=True)
    if options.record:
        totals.record(kind, unsaved)
    print(f"{sums.line()}, {time.time() - start:.0f} s")
    for text, count in sums.refusals.most_common():
        print(f"  refused {count} times: {text}")
    shrink_all(found, options)
    return 1 if found else 0


def draw_lazily(seed: int, options: argparse.Namespace):
    return draw(seed, options.special)


def shrink_all(found: list[tuple[Outcome, Finding]], options: argparse.Namespace) -> None:
    """Print the smallest description of each kind of finding."""
    seen: Counter[str] = Counter()
    for outcome, finding in found:
        seen[finding.signature] += 1
        if seen[finding.signature] > options.shrink or options.dag:
            continue
        small = shrunk(draw(outcome.seed, options.special), finding, outcome.seed, options.limit)
        print(shown(small, finding, outcome.seed), flush=True)
    for signature, count in seen.most_common():
        print(f"{count} times: {signature}")


if __name__ == "__main__":
    sys.exit(main())
