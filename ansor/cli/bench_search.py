"""`ansor bench-search`: a searcher of one's own beside ours, on programs that were all measured before."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from te_lite.errors import require

from ..core.errors import TaskError
from ..core.values.checks import columns_of
from ..offline.contest import Run
from ..offline.matrix import load_matrix
from ..offline.searchers import PEERS, SEARCHERS
from .contests import Runs, contests
from .searchers import matrices_in, searcher_of

SHARES = (0.9, 0.95, 0.99)
CHANCE = "random"


def add_parser(commands: Any) -> None:
    """Add the command to the subcommands of a parser."""
    parser = commands.add_parser("bench-search", help="compare searchers on measured programs, without a device")
    text = f"a class as FILE.py:CLASS, or one of {', '.join(SEARCHERS)}"
    parser.add_argument("searchers", nargs="*", metavar="SEARCHER", help=text)
    usual = [name for name in SEARCHERS if name not in PEERS]
    text = f"the searchers to compare with (default: {' '.join(usual)})"
    parser.add_argument("--beside", nargs="*", choices=list(SEARCHERS), default=usual, help=text)
    text = "files that `ansor dataset` wrote, or folders of them (default: data/ of the checkout)"
    parser.add_argument("--data", nargs="+", default=[], metavar="FILE", help=text)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=192, help="of each run (default: 192)")
    parser.add_argument("--batch", type=int, default=16, help="programs that are asked for at once (default: 16)")
    parser.set_defaults(run=bench_search)


def bench_search(args: argparse.Namespace) -> int:
    """Print how many trials each searcher took, and the area under its curve.

    Raises TaskError for numbers below 1, and for searchers and files that are not there.
    """
    for name in ("seeds", "trials", "batch"):
        require(getattr(args, name) >= 1, TaskError, f"--{name}", "at least 1 is needed", got=getattr(args, name))
    words = list(dict.fromkeys([*args.searchers, *args.beside]))
    require(words, TaskError, "bench-search", "a searcher is needed")
    for word in words:
        searcher_of(word)
    files = matrices_in(args.data)
    start = time.perf_counter()
    runs = contests(words, files, args.seeds, args.trials, args.batch)
    matrices = [load_matrix(file) for file in files]
    titles = [file.stem for file in files]
    print(f"trials until a program has so much of the best speed, median of {args.seeds} seeds; area under the curve")
    print(*columns_of([["task", "programs", *words], *_by_task(titles, [len(m) for m in matrices], runs)]), sep="\n")
    print(
        f"\nall {len(files)} tasks, geometric means of the medians; a share that is not reached counts as one more than"
    )
    print(f"the {args.trials} trials; area: mean, 95 % interval over seeds; ahead: runs of more area than chance")
    header = ["searcher", *[f"{share:.0%}" for share in SHARES], "area", "ahead"]
    print(*columns_of([header, *_overall(runs)]), sep="\n")
    print(f"{time.perf_counter() - start:.0f} s")
    return 0


def median_trials(runs: Sequence[Run], share: float) -> float:
    """The median over seeds of the trials to a share of the best speed."""
    return float(np.median([run.trials_to(share) for run in runs]))


def _by_task(titles: Sequence[str], counts: Sequence[int], runs: dict[str, Runs]) -> list[list[str]]:
    rows = []
    for k, (title, count) in enumerate(zip(titles, counts, strict=True)):
        cells = []
        for found in runs.values():
            trials = "/".join([trials_text(median_trials(found[k], share), found[k]) for share in SHARES])
            cells.append(f"{trials} {np.mean([run.area for run in found[k]]):.3f}")
        rows.append([title, str(count), *cells])
    return rows


def trials_text(median: float, runs: Sequence[Run]) -> str:
    """A median of trials; `-` where most runs did not get there."""
    return "-" if median > len(runs[0].seconds) else f"{median:.0f}"


def _overall(runs: dict[str, Runs]) -> list[list[str]]:
    rows = []
    for word, found in runs.items():
        means = [np.exp(np.mean([np.log(median_trials(task, share)) for task in found])) for share in SHARES]
        rows.append([word, *[f"{mean:.1f}" for mean in means], area_text(found), ahead_text(found, runs.get(CHANCE))])
    return rows


def areas(found: Runs) -> np.ndarray[Any, Any]:
    """The mean area over the tasks, float64 [seeds]."""
    return np.mean([[run.area for run in task] for task in found], axis=0)  # type: ignore[no-any-return]


def area_text(found: Runs) -> str:
    """The mean over seeds, and half of its 95 % interval by the normal distribution."""
    by_seed = areas(found)
    half = 1.96 * by_seed.std(ddof=1) / np.sqrt(len(by_seed)) if len(by_seed) > 1 else np.nan
    return f"{by_seed.mean():.3f} +- {half:.3f}"


def ahead_text(found: Runs, chance: Runs | None) -> str:
    """In how many of the runs, pairs of task and seed, the area is greater than that of chance."""
    if chance is None or found is chance:
        return ""
    pairs = [
        (a.area, b.area) for mine, theirs in zip(found, chance, strict=True) for a, b in zip(mine, theirs, strict=True)
    ]
    return f"{sum(a > b for a, b in pairs)} of {len(pairs)}"
