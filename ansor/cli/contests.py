"""Contests of searchers in processes of their own, a process a core."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from te_lite import environment

from ..core.errors import PartError
from ..core.target.hardware import host_cores
from ..offline.contest import Run, candidates_of, contest
from ..offline.matrix import load_matrix
from .searchers import searcher_of

PARTS = 2
"""Processes that share the seeds of a searcher."""

Runs = list[list[Run]]
"""The runs of a searcher by task and seed."""
Job = tuple[str, range]
"""A searcher and its seeds."""


def contests(words: Sequence[str], files: Sequence[Path], seeds: int, trials: int, batch: int) -> dict[str, Runs]:
    """The runs of searchers, each on all tasks; a process a core, of one thread each for linear algebra, which is what
    small matrices want.  Raises PartError for a searcher that asks for what it must not, raises, or ends its process.
    """
    ends = np.linspace(0, seeds, min(PARTS, seeds) + 1).astype(int).tolist()
    jobs: list[Job] = [(word, range(first, end)) for word in words for first, end in pairwise(ends)]
    run = partial(_runs, files=list(files), trials=trials, batch=batch)
    found: dict[str, Runs] = {word: [[] for _ in files] for word in words}
    with environment.OMP_NUM_THREADS.unless_set("1"), ProcessPoolExecutor(host_cores(), get_context("spawn")) as pool:
        try:
            for (word, _), told in zip(jobs, pool.map(run, jobs), strict=True):
                for own, runs in zip(found[word], told, strict=True):
                    own += runs
        except BrokenProcessPool as error:
            raise PartError("searchers: a process that ran one has ended") from error
    return found


def _runs(job: Job, files: Sequence[Path], trials: int, batch: int) -> Runs:
    """The runs of some seeds by task, in the process of a searcher."""
    make = searcher_of(job[0])
    matrices = [load_matrix(file) for file in files]
    known = [candidates_of(matrix) for matrix in matrices]
    return [
        [contest(make, matrix, of, seed, trials, batch) for seed in job[1]]
        for matrix, of in zip(matrices, known, strict=True)
    ]
