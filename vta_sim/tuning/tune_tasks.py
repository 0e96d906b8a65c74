"""Tuning a packed network.

tune(tasks, "vta.log", trials=64)
with apply_history_best("vta.log"):
    module = build(graph)["default"]()
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ansor.autotvm import LocalBuilder, callback, measure_option
from ansor.autotvm.errors import TemplateError
from ansor.autotvm.measure import MeasureInput, MeasureResult, OpensMeasurer
from ansor.autotvm.record import PathLike, is_of, load_from_file
from ansor.autotvm.task import Task
from ansor.autotvm.tuner import GATuner, GridSearchTuner, RandomTuner, Tuner, XGBTuner
from te_lite.errors import require
from te_lite.expr.spelling import did_you_mean

from ..backend import Trials
from ..core.config import Config
from .layer_programs import default_config

TUNERS: dict[str, Callable[..., Tuner]] = {
    "xgb": XGBTuner,
    "ga": GATuner,
    "random": RandomTuner,
    "gridsearch": GridSearchTuner,
}


def tune(
    tasks: Sequence[Task], log: PathLike, trials: int, tuner: str = "xgb", seed: int = 0, config: Config | None = None,
    time_limit: float | None = None,
) -> None:  # fmt: skip
    """Measure up to `trials` configurations of each task, those of the log counted, and append them to the log.

    The first one of a task are the default tiles, so that a record is never worse.  What earlier tasks taught helps
    with the later ones.  It ends after the batch in which `time_limit` seconds have passed.
    Raises JournalError for a log that cannot be read or written.
    """
    law = f"{did_you_mean(tuner, TUNERS)}it must be one of {', '.join(TUNERS)}"
    require(tuner in TUNERS, TemplateError, "tuner", law, got=tuner)
    keep = callback.log_to_file(log, seed=seed)
    option = measure_option(LocalBuilder(backend=Trials(config)))
    deadline = math.inf if time_limit is None else time.monotonic() + time_limit
    for k, task in enumerate(reversed(tasks)):
        if time.monotonic() >= deadline:
            break
        known = list(load_from_file(log)) if Path(log).exists() else []
        if trials and not any(is_of(inp, task) for inp, _ in known):
            known.append(_default_tiles(task, option, config or Config()))
            keep(None, [known[-1][0]], [known[-1][1]])
        made = TUNERS[tuner](task, rng=np.random.default_rng((seed, k)))
        left = min(trials, len(task.config_space)) - made.load_history(known)
        rest = deadline - time.monotonic()
        if left > 0 and rest > 0:
            bar = callback.progress_bar(left, prefix=f"[Task {k + 1:2d}/{len(tasks):2d}] ")
            limit = None if time_limit is None else rest
            made.tune(left, option, callbacks=[bar, keep], time_limit=limit)


def _default_tiles(task: Task, option: OpensMeasurer, config: Config) -> tuple[MeasureInput, MeasureResult]:
    """The default tiles of a task, measured."""
    inp = MeasureInput(task.target_text, task, default_config(task, config))
    (result,) = option.open(task).measure([inp])
    return inp, result
