"""`python -m tests.whole_way --seeds 0:1000 [--jobs N] [--wide | --models | --graphs | ...] [--seconds S]`: run.

`--file FILE` tries one description, JSON as it is printed here, `--corpus` all that once failed.  Exits with 1 when
something was found.  With `--seconds` and `--json FILE` a part of a long run is one file.  Batches run in forks of this
process, which therefore runs nothing itself that makes threads.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from codegen_cuda.emulation import emulator_build

from . import corpus, totals
from .asks import jobs_of_models
from .farm import farm
from .kinds import KINDS, Kind
from .outcome import Finding, Outcome

MOST_SECONDS = 60.0
"""For the shrinking of one finding."""


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.whole_way", description=__doc__)
    parser.add_argument("--seeds", default="0:300", help="A:B, from A up to but not including B, or a list A,B,C")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--batch", type=int, default=12, help="descriptions compiled together")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds without news that make a hang")
    parser.add_argument("--special", action="store_true", help="inputs and divisors at the edges of their dtype")
    parser.add_argument("--wide", action="store_true", help="all dtypes, mixed, running folds, results of rank 0")
    parser.add_argument("--models", action="store_true", help="ONNX models of all dtypes")
    parser.add_argument("--graphs", action="store_true", help="networks instead of single computations")
    parser.add_argument("--asks", action="store_true", help="the first round of a search, of computations and networks")
    parser.add_argument("--onnx", type=Path, metavar="DIR", help="with --asks: the models in a folder instead of seeds")
    parser.add_argument("--seconds", type=float, default=0.0, help="begin nothing new after so many; 0: no limit")
    parser.add_argument("--json", type=Path, help="write what was run and found to this file")
    parser.add_argument("--commit", help="what to call the commit in it, where git does not say")
    parser.add_argument("--record", action="store_true", help="add the result to totals.json, skip what is there")
    parser.add_argument("--shrink", type=int, default=1, help="how many findings of each sort are shrunk")
    parser.add_argument("--corpus", action="store_true", help="what once failed, instead of seeds")
    parser.add_argument("--file", type=Path, help="one description as JSON, tried with several draws")
    options = parser.parse_args(argv)
    if options.onnx and (options.record or not options.asks):
        parser.error("--onnx goes with --asks, and what it finds has no seeds to record")
    return options


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    kind = KINDS[
        next((name for name in ("graphs", "special", "asks", "wide", "models") if getattr(options, name)), "dags")
    ]
    with tempfile.TemporaryDirectory(prefix="whole_way_") as folder:
        tempfile.tempdir = folder
        try:
            return run(options, kind)
        finally:
            tempfile.tempdir = None


def seeds_of(text: str) -> list[int]:
    """`0:300`, or `4,17`."""
    if ":" in text:
        first, last = map(int, text.split(":"))
        return list(range(first, last))
    return [int(s) for s in text.split(",")]


def run(options: argparse.Namespace, kind: Kind) -> int:
    """Run the seeds or the file; 1 when something was found."""
    emulator_build.host()
    if options.corpus:
        return replay_corpus(options)
    if options.file:
        given = kind.read(options.file.read_text())
        jobs = kind.jobs(given, Finding("", "", "any", ""), 0)
    elif options.onnx:
        jobs = jobs_of_models(options.onnx)
    else:
        done = totals.done(kind.name) if options.record else set()
        jobs = [s for s in seeds_of(options.seeds) if s not in done]
    found = report(jobs, kind, options)
    if not options.file:
        given = {job.seed: job.given for job in jobs} if options.onnx else {}
        shrink_all(found, kind, options, given)
    return 1 if found else 0


def replay_corpus(options: argparse.Namespace) -> int:
    """Run what once failed; 1 when something fails again."""
    found = []
    for entry in corpus.entries():
        jobs = entry.kind.jobs(entry.given, Finding("", "", "any", ""), 0)
        outcomes = farm(entry.kind.work, jobs, options.jobs, options.batch, options.limit)
        found += [f"{entry.name} ({entry.about}): {f.text}" for outcome in outcomes for f in outcome.findings]
    print("\n".join(found))
    return 1 if found else 0


def report(jobs: list[Any], kind: Kind, options: argparse.Namespace) -> list[tuple[Outcome, Finding]]:
    """Run the jobs and say what comes of them, on the way and in the end."""
    found: list[tuple[Outcome, Finding]] = []
    sums, unsaved, start, at = totals.Sums(), totals.Sums(), time.time(), options.commit or totals.commit()

    def work(batch: list[Any], watch: Any) -> list[Outcome]:
        return kind.work([kind.job(x, kind.draw(x)) if isinstance(x, int) else x for x in batch], watch)

    outcomes = farm(work, jobs, options.jobs, options.batch, options.limit)
    for n, outcome in enumerate(outcomes, 1):
        sums.add(outcome)
        unsaved.add(outcome)
        for finding in outcome.findings:
            found.append((outcome, finding))
            print(f"seed {outcome.seed}: {finding.signature}\n    {finding.text}", flush=True)
        if options.record and n % 500 == 0:
            totals.record(kind.name, unsaved)
            unsaved = totals.Sums()
        if n % 100 == 0 or n == len(jobs):
            print(f"{n} of {len(jobs)}: {sums.line()}, {time.time() - start:.0f} s", flush=True)
        if options.seconds and time.time() - start > options.seconds:
            print(f"stopped after {n} of {len(jobs)}: {sums.line()}, {time.time() - start:.0f} s", flush=True)
            break
    outcomes.close()
    if options.record:
        totals.record(kind.name, unsaved)
    if options.json:
        texts = [(outcome.seed, f"{finding.signature}: {finding.text}") for outcome, finding in found]
        made = totals.summary(kind.name, sums, texts, time.time() - start, at)
        options.json.write_text(json.dumps(made, indent=1) + "\n")
    for text, count in sums.refusals.most_common():
        print(f"  refused {count} times, first by seed {sums.first[text]}: {text}")
    return found


def shrink_all(
    found: list[tuple[Outcome, Finding]], kind: Kind, options: argparse.Namespace, known: Mapping[int, Any]
) -> None:
    """Print the smallest description of each sort of finding; `known` has those that are not drawn by their seed."""
    seen: Counter[str] = Counter()
    for outcome, finding in found:
        seen[finding.signature] += 1
        if seen[finding.signature] <= options.shrink:
            given = known[outcome.seed] if known else kind.draw(outcome.seed)
            small = shrunk(given, finding, outcome.seed, kind, options)
            print(f"--- seed {outcome.seed}: {finding.signature}\n    {finding.text}\n{kind.text(small)}")
            print(kind.write(small), flush=True)
    for signature, count in seen.most_common():
        print(f"{count} times: {signature}")


def shrunk(given: Any, finding: Finding, seed: int, kind: Kind, options: argparse.Namespace) -> Any:
    """A description that fails as `finding` does; `given` itself where nothing smaller was found to."""
    end, progress = time.monotonic() + MOST_SECONDS, True
    while progress and time.monotonic() < end:
        progress = False
        for candidate in kind.smaller(given):
            if time.monotonic() > end:
                break
            if fails(candidate, finding, seed, kind, options):
                given, progress = candidate, True
                break
    return given


def fails(given: Any, finding: Finding, seed: int, kind: Kind, options: argparse.Namespace) -> bool:
    """Whether a description still fails as `finding` does; one that has no meaning does not."""
    try:
        kind.means(given)
    except (IndexError, ValueError, AssertionError, KeyError):
        return False
    outcomes = farm(kind.work, kind.jobs(given, finding, seed), options.jobs, 4, options.limit)
    try:
        return any(alike(f, finding) for outcome in outcomes for f in outcome.findings)
    finally:
        outcomes.close()


def alike(a: Finding, b: Finding) -> bool:
    """Exceptions must be the same; of wrong results no more is known than that they are wrong."""
    same = (a.kind, a.phase) == (b.kind, b.phase)
    return same and (a.signature == b.signature if a.kind in ("exception", "compiler", "verifier") else True)


if __name__ == "__main__":
    sys.exit(main())
