"""Contests of searchers in processes of their own, a process a core (`contest_process.py`)."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np

from te_lite import environment

from ..core.errors import PartError
from ..core.host.command import Unfinished, run_command
from ..core.target.hardware import host_cores
from ..offline.contest import Run

PARTS = 2
"""Processes that share the seeds of a searcher."""
RUN_SECONDS = 600.0
"""What a searcher has for each of its runs."""

Runs = list[list[Run]]
"""The runs of a searcher by task and seed."""
Job = tuple[str, int, int]
"""A searcher, and the first of its seeds and the end of them."""


def contests(words: Sequence[str], files: Sequence[Path], seeds: int, trials: int, batch: int) -> dict[str, Runs]:
    """The runs of searchers, each on all tasks; a process a core.  Raises PartError for one that does not do it."""
    ends = np.linspace(0, seeds, min(PARTS, seeds) + 1).astype(int).tolist()
    jobs: list[Job] = [(word, first, end) for word in words for first, end in pairwise(ends)]
    cores = host_cores()
    with environment.OMP_NUM_THREADS.unless_set("1"), ThreadPoolExecutor(cores) as pool:
        told = list(pool.map(lambda job: _runs(job, files, trials, batch), jobs))
    found: dict[str, Runs] = {word: [[] for _ in files] for word in words}
    for (word, _, _), runs in zip(jobs, told, strict=True):
        for task, run in runs:
            found[word][task].append(run)
    return found


def _runs(job: Job, files: Sequence[Path], trials: int, batch: int) -> list[tuple[int, Run]]:
    """The runs of some seeds, each with the number of its task."""
    word, first, end = job
    numbers = ["--seeds", str(first), str(end), "--trials", str(trials), "--batch", str(batch)]
    command = [sys.executable, "-m", "ansor.cli.contest_process", word, *map(str, files), *numbers]
    try:
        done = run_command(command, RUN_SECONDS * len(files) * (end - first))
    except Unfinished as error:
        raise PartError(f"searcher {word} {error}") from error
    if done.code:
        raise PartError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"searcher {word} failed")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"task"')]
    return [(line["task"], Run(np.array(line["seconds"]), line["best"])) for line in lines]
