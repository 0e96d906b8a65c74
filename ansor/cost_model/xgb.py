"""The learning model: gradient-boosted trees over the features of a program's rows (Ansor, section 5.2 of the paper).

Measurements go into `Samples`; training makes immutable `Trees` of a copy of them, which are then put to use.  A
search that trains in the background takes the three steps one by one:

    model.add(inputs, results)          at once
    trees = model.fit(model.dataset())  in a thread: reads only its argument, while `predict` uses the trees in use
    model.use(trees)                    when the search has come to where it wants them
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from te_lite.errors import TeError, require
from te_lite.schedule.state import State

from ..core.errors import TaskError
from ..core.files.file_names import path_of
from ..core.target.hardware import HardwareParams
from ..core.tasks.measure_values import MeasureInput, MeasureResult
from ..core.tasks.task import SearchTask
from ..core.values.checks import checked_seed
from ..records.lines import validated_records
from .api import Array, PythonBasedModel
from .dataset import Dataset, Samples
from .features import FEATURES, source_of
from .prior import ShippedModel, shipped_model, shipped_model_of
from .trees import Trees, load_trees, train

logger = logging.getLogger("ansor")


class XGBModel(PythonBasedModel):
    """Gradient-boosted trees, trained from scratch at every update on all programs known.

    A program is judged by its throughput: the least cost of its task (workload and target kind) divided by its own, 0
    after a failure.  The trees learn the logarithm of that (`trees.py`); scores are about the throughput again.  They
    are random as long as fewer than `num_warmup_sample` programs are known, or nothing can be learnt from those that
    are; the second is logged once.  With `adaptive_training` an update trains only when a fifth more programs are
    known than at the last training.  `model_file` is where each trained model is saved, unless the file there was
    trained on more.  Features are those of the target of the first program that is told; with `shipped` training goes
    on from the trees that come with the package for its family of targets, if there are any (`prior.py`) and as long
    as no program of another family is told, and after `load` from those that were loaded.  The same updates and `seed`
    give the same scores.  Raises TaskError for a negative seed.
    """

    reads_features = True
    scores_throughput = True

    def __init__(
        self,
        verbose_eval: int = 25,
        num_warmup_sample: int = 32,
        seed: int | None = None,
        model_file: str | os.PathLike[str] | None = None,
        adaptive_training: bool = False,
        shipped: bool = True,
    ) -> None:
        self.verbose_eval = verbose_eval
        self.num_warmup_sample = num_warmup_sample
        self.seed = 43 if seed is None else checked_seed("XGBModel", seed)
        self.model_file = None if model_file is None else path_of(model_file, TaskError)
        self.adaptive_training = adaptive_training
        self.shipped = shipped
        self.features = FEATURES
        self._rng = np.random.default_rng(self.seed)
        self._samples = Samples()
        self._at_hand: list[tuple[MeasureInput, Array]] = []
        self._base: Trees | None = None
        self._loaded = False
        self._families: set[str] = set()
        self._beyond = False
        self._trees: Trees | None = None
        self._said: set[str] = set()

    @property
    def trained_on(self) -> int:
        """How many programs the trees in use have seen, those that came with the package left out; 0 without any."""
        return 0 if self._trees is None else self._trees.trained_on

    # ------------------------------------------------------------------------------------------ learning

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from measured programs.  Raises JournalError when `model_file` cannot be written."""
        self.add(inputs, results)
        if self.due:
            self.use(self.fit(self.dataset()))

    @property
    def due(self) -> bool:
        """Whether so much is new to the trees in use that others should be trained."""
        seen = self.trained_on - (0 if self._base is None else self._base.trained_on)
        known = len(self._samples)
        return known > seen and (known >= 1.2 * seen or not self.adaptive_training)

    def add(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Take in measured programs without training.

        Those whose steps do not fit their task, or that have a feature that is not finite or a cost that is no
        positive number, are left out; that is logged once.
        """
        if inputs and not self._loaded:
            self._choose_base([inp.task for inp in inputs])
        for inp, res, rows in zip(inputs, results, self._rows(inputs), strict=True):
            self._samples.add(inp.task, rows, res.cost if res.ok else np.inf)
        self._at_hand = []
        self._say_refused()

    def _choose_base(self, tasks: Sequence[SearchTask]) -> None:
        """What trees begin from: those of the package are of one family of targets, and speak of no other.

        Nor do they speak of tasks larger than theirs; one of those, and the model begins from nothing.
        """
        if not self._families:
            self.features = source_of(tasks[0].target)
        self._families |= {task.target.family for task in tasks}
        alone = self.shipped and len(self._families) == 1
        different = {task.workload_key: task for task in tasks}.values()
        self._beyond = self._beyond or any(_shipped(task) is None for task in different)
        known = _shipped(tasks[0]) if alone and not self._beyond else None
        self._base = None if known is None else known.trees

    def at_hand(self, inputs: Sequence[MeasureInput], features: Sequence[Array]) -> None:
        """Features of programs that are told next, float32 [rows, columns] each, so that they are not made again."""
        self._at_hand = list(zip(inputs, features, strict=True))

    def add_features(self, task: SearchTask, features: Array, costs: Array) -> None:
        """Take in programs whose features are at hand: float32 [n, rows, columns], seconds [n], inf after a failure.

        Raises TaskError for another number of columns than before.
        """
        for rows, cost in zip(features, costs, strict=True):
            self._samples.add(task, rows, float(cost))
        self._say_refused()

    def _rows(self, inputs: Sequence[MeasureInput]) -> list[Array]:
        """float32 [rows, columns] of each program; without rows where it has no features."""
        known = {id(inp): rows for inp, rows in self._at_hand}
        out: list[Array] = [known.get(id(inp), np.zeros((0, 1), np.float32)) for inp in inputs]
        alike: dict[HardwareParams, list[tuple[int, State]]] = {}
        for k, inp in [(k, inp) for k, inp in enumerate(inputs) if id(inp) not in known]:
            try:
                alike.setdefault(inp.task.hardware_params, []).append((k, inp.state))
            except TeError:
                continue
        for hardware, found in alike.items():
            for (k, _), rows in zip(found, self.features.rows([s for _, s in found], hardware), strict=True):
                out[k] = rows
        return out

    def _say_refused(self) -> None:
        if self._samples.refused:
            self._say("measured programs without usable features or cost are left out of the training")

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            logger.warning("XGBModel: %s", text)

    def dataset(self) -> Dataset:
        """An immutable copy of all programs known."""
        return self._samples.dataset()

    def fit(self, dataset: Dataset) -> Trees | None:
        """Train, and change nothing: may run in another thread.  None when nothing can be learnt from `dataset`."""
        return train(dataset, self.seed, self.features.schema, self.verbose_eval, self._base)

    def use(self, trees: Trees | None) -> None:
        """Score with `trees` from now on, and save them to `model_file`; without any, go on as before."""
        if trees is None:
            what = "scores are random" if self._trees is None else "the trees are kept as they are"
            self._say(f"too few different times are known to learn from, {what}")
            return
        self._trees = trees
        if self.model_file is None:
            return
        there = self._trained_on_of(self.model_file)
        if there > trees.trained_on:
            self._say(f"{self.model_file} was trained on more programs ({there}) and is kept until that many are known")
        else:
            trees.save(self.model_file)

    def update_from_file(self, file_name: str | os.PathLike[str], n_lines: int | None = None) -> None:
        """Learn from the first `n_lines` records of a log that are believed.

        Raises JournalError when it cannot be read.
        """
        pairs = list(islice(validated_records(file_name), n_lines))
        self.update([inp for inp, _ in pairs], [res for _, res in pairs])

    # ------------------------------------------------------------------------------------------- scoring

    @property
    def ready(self) -> bool:
        """Whether scores come from trees; they are random before."""
        return self._usable() is not None

    def _usable(self) -> Trees | None:
        return self._trees if len(self._samples) >= self.num_warmup_sample else None

    def predict(self, task: SearchTask, states: Sequence[State]) -> Array:
        """float64 [len(states)]; -inf for a state that has no bounds."""
        trees = self._usable()
        if trees is None or not len(states):
            return self._rng.random(len(states))
        return trees.predict(self.features.stacked(states, task.hardware_params, trees.columns))

    def predict_features(self, task: SearchTask, features: Array) -> Array:
        """float64 [n] for float32 [n, rows, columns]; -inf for a program without a row, or with NaN or inf in one.

        Raises TaskError for another number of columns than the model was trained on.
        """
        trees = self._usable()
        if trees is None or not len(features):
            return self._rng.random(len(features))
        return trees.predict(features)

    # -------------------------------------------------------------------------------------------- files

    def save(self, file_name: str | os.PathLike[str]) -> None:
        """Save the trees (UBJ), saying so when they replace some that were trained on more.

        Raises TaskError when nothing was learnt yet, JournalError when the file cannot be written.
        """
        require(self._trees is not None, TaskError, "XGBModel", "nothing was learnt yet, so there is nothing to save")
        assert self._trees is not None
        path = path_of(file_name, TaskError)
        there = self._trained_on_of(path)
        if there > self.trained_on:
            logger.warning(
                "XGBModel: %s, trained on %d programs, is replaced by a model of %d", file_name, there, self.trained_on
            )
        self._trees.save(path)

    def _trained_on_of(self, path: Path) -> int:
        if not path.exists():
            return 0
        try:
            return load_trees(path, self.features.schema).trained_on
        except TaskError as error:
            self._say(f"a file is replaced: {error}")
            return 0

    def load(self, file_name: str | os.PathLike[str]) -> None:
        """Load saved trees: they are used at once, and later training goes on from them.

        Raises TaskError for a file that holds none, or trees for features of another version.
        """
        self._base = self._trees = load_trees(path_of(file_name, TaskError), self.features.schema)
        self.num_warmup_sample, self._loaded = -1, True


def _shipped(task: SearchTask) -> ShippedModel | None:
    """The model of the package for a task; for one whose computation is not known here, that of its target."""
    try:
        return shipped_model_of(task)
    except TeError:
        return shipped_model(task.target)
