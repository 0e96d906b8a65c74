"""Cost models: what a search believes about programs it has not measured.

A model is told of measurements (`update`) and gives a score per state (`predict`), higher is better.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from te_lite.errors import TeError
from te_lite.lanes import product
from te_lite.state import INLINED, Stage, State

from .errors import TaskError
from .measure.api import MeasureInput, MeasureResult
from .records import RecordReader
from .task import SearchTask

Array = np.ndarray[Any, np.dtype[Any]]
LOOPS = 32
COLUMNS = (
    *[f"log2 extent of loop {k} of the largest stage" for k in range(LOOPS)],
    "log2 parallel extent", "log2 vector length", "log2 of 1 + the largest auto_unroll_max_step",
    "log2 threads of a block", "log2 blocks", "number of stages", "number of loops",
)  # fmt: skip


class CostModel(Protocol):
    """Scores states of a task; may learn from measurements."""

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from measured programs."""

    def predict(self, task: SearchTask, states: Sequence[State]) -> Array:
        """float64 [len(states)]; higher is better."""


class PythonBasedModel:
    """Base of cost models of one's own: override `update` and `predict`."""

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        raise NotImplementedError

    def predict(self, task: SearchTask, states: Sequence[State]) -> Array:
        raise NotImplementedError


class RandomModel(PythonBasedModel):
    """Scores at random, uniformly in [0, 1)."""

    def __init__(self, seed: int | None = None) -> None:
        self._rng = np.random.default_rng(seed)

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Nothing is learnt."""

    def predict(self, task: SearchTask, states: Sequence[State]) -> Array:
        return self._rng.random(len(states))


def state_features(state: State) -> Array:
    """float64 [len(COLUMNS)]: the loop structure of a program, coarsely.

    Raises ScheduleError or LowerError for a state without bounds.
    """
    bounded = state.dag.infer_bound_from_state(state)
    stages = [s for s in bounded.stages if not s.is_placeholder and s.where != INLINED]
    loops = [it for s in stages for it in s.iters]
    largest = max(stages, key=lambda s: product(_extents(s)))
    row = np.zeros(len(COLUMNS))
    extents = _extents(largest)[:LOOPS]
    row[: len(extents)] = np.log2(extents)

    def total(*annotations: str) -> float:
        return float(np.log2([int(it.extent or 1) for it in loops if it.annotation in annotations] or [1]).sum())

    unroll = max(s.auto_unroll_max_step for s in stages)
    row[LOOPS:] = (
        total("parallel"), total("vectorize"), np.log2(1 + unroll), total("threadIdx.x"), total("blockIdx.x"),
        len(stages), len(loops),
    )  # fmt: skip
    return row


def _extents(stage: Stage) -> list[int]:
    return [int(it.extent or 1) for it in stage.iters]


class XGBModel(PythonBasedModel):
    """Gradient-boosted trees over `state_features`, trained on normalised throughput.

    The label of a program is the least cost of its task divided by its own cost, 0 after a failure; all labels are
    made anew at every update.  Until `num_warmup_sample` programs are known, scores are random.  With
    `adaptive_training` it is trained only when a fifth more programs are known than at the last training.
    `model_file` is where each trained model is saved.
    """

    PARAMS: Mapping[str, Any] = {"max_depth": 6, "eta": 0.2, "min_child_weight": 0, "nthread": 1, "verbosity": 0}
    ROUNDS = 60

    def __init__(
        self,
        verbose_eval: int = 25,
        num_warmup_sample: int = 100,
        seed: int | None = None,
        model_file: str | os.PathLike[str] | None = None,
        adaptive_training: bool = False,
    ) -> None:
        self.verbose_eval = verbose_eval
        self.num_warmup_sample = num_warmup_sample
        self.seed = 43 if seed is None else seed
        self.model_file = model_file
        self.adaptive_training = adaptive_training
        self._rng = np.random.default_rng(self.seed)
        self._rows: list[Array] = []
        self._costs: list[tuple[str, float]] = []
        self._trained_on = 0
        self._booster: Any = None

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from measured programs; those whose steps do not fit their task are left out."""
        before = len(self._rows)
        for inp, res in zip(inputs, results, strict=True):
            try:
                row = state_features(inp.state)
            except TeError:
                continue
            self._rows.append(row)
            self._costs.append((inp.task.workload_key, res.cost if res.ok else np.inf))
        if len(self._rows) == before or (self.adaptive_training and len(self._rows) < 1.2 * self._trained_on):
            return
        self._train()
        if self.model_file is not None:
            self.save(self.model_file)

    def _train(self) -> None:
        xgboost = importlib.import_module("xgboost")
        data = xgboost.DMatrix(np.stack(self._rows), self._labels(), nthread=1)
        params = {**self.PARAMS, "seed": self.seed, "objective": "reg:squarederror"}
        self._booster = xgboost.train(params, data, num_boost_round=self.ROUNDS)
        self._trained_on = len(self._rows)

    def _labels(self) -> Array:
        best: dict[str, float] = {}
        for key, cost in self._costs:
            best[key] = min(cost, best.get(key, np.inf))
        return np.array([best[key] / cost if np.isfinite(cost) else 0.0 for key, cost in self._costs])

    def predict(self, task: SearchTask, states: Sequence[State]) -> Array:
        """Scores; -inf for a state that has no bounds."""
        if not len(states):
            return np.zeros(0)
        if self._booster is None or len(self._rows) < self.num_warmup_sample:
            return self._rng.random(len(states))
        rows = [self._row(s) for s in states]
        known = np.array([r is not None for r in rows])
        scores = np.full(len(states), -np.inf)
        if known.any():
            matrix = np.stack([r for r in rows if r is not None])
            scores[known] = self._booster.inplace_predict(matrix)
        return scores

    @staticmethod
    def _row(state: State) -> Array | None:
        try:
            return state_features(state)
        except TeError:
            return None

    def update_from_file(self, file_name: str | os.PathLike[str], n_lines: int | None = None) -> None:
        """Learn from the first `n_lines` records of a log.  Raises JournalError when it cannot be read."""
        self.update(*RecordReader(file_name).read_lines(n_lines))

    def save(self, file_name: str | os.PathLike[str]) -> None:
        """Save the trees (UBJ).  Raises TaskError when nothing was learnt yet."""
        if self._booster is None:
            raise TaskError("XGBModel: nothing was learnt yet, so there is nothing to save")
        path = Path(file_name)
        scratch = path.with_name(f".{path.name}.part.ubj")
        self._booster.save_model(scratch)
        scratch.replace(path)

    def load(self, file_name: str | os.PathLike[str]) -> None:
        """Load saved trees; they are used at once.  Raises TaskError for a file that holds none."""
        xgboost = importlib.import_module("xgboost")
        booster = xgboost.Booster()
        try:
            booster.load_model(bytearray(Path(file_name).read_bytes()))
        except (OSError, ValueError, xgboost.core.XGBoostError) as error:
            raise TaskError(f"XGBModel: {file_name} holds no model: {str(error).splitlines()[0]}") from error
        self._booster = booster
        self.num_warmup_sample = -1
