"""Gradient-boosted trees: trained on a `Dataset` in one call that touches nothing else, and kept in one UBJ file.

The trees score rows; the sum over the rows of a program (`pack_sum`) is compared with its label, a logarithm of its
normalised throughput t:

    label = 1 + log(t) / RANGE, at least 0          score = exp(RANGE (centre + sum - 1)), about t

`centre` is the mean label: rows add to it and take from it.  A program of more rows than any that is known then starts
as an average one; with sums from 0 (TVM) its rows, each worth a share of the label, add up to several times the best
throughput, and a search goes after such programs for rounds.

With t itself as the label (TVM) most random programs lie close to 0, where their order hardly counts.  On 512 random
CUDA programs of a convolution the logarithm raised the pairwise accuracy from 0.90 to 0.91 and the recall of the best
3% from 0.44 to 0.55; trees of depth 3 instead of 6 raised the recall of the best 4% from 0.50 to 0.63.  On 2,048 such
programs, half of them unseen, depths 3, 4 and 6 found 0.64, 0.62 and 0.62 of the best 30.
"""

from __future__ import annotations

import errno
import importlib
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from te_lite.errors import require

from ..core.errors import JournalError, TaskError
from .api import Array
from .dataset import Dataset, live_rows
from .pack_sum import PackSum

logger = logging.getLogger("ansor")

PARAMS: Mapping[str, Any] = {
    "eta": 0.05, "gamma": 0.0001, "min_child_weight": 0, "colsample_bynode": 0.3, "tree_method": "hist",
    "base_score": 0.0, "nthread": 1, "verbosity": 0, "disable_default_eval_metric": 1,
}  # fmt: skip
DEPTH, DEPTH_OF_MANY = 3, 6
ROUNDS = 300
STOP_AFTER = 20
STOP_GAIN = 1e-4
LEAST_WEIGHT = 0.1
RANGE = 8.0


@dataclass(frozen=True)
class Trees:
    """Trained trees; `trained_on` counts the programs they saw, `schema` names the features that they read.

    `centre` is the label of a program whose rows add nothing.
    """

    booster: Any
    trained_on: int
    schema: str
    centre: float = 0.0

    @property
    def columns(self) -> int:
        return int(self.booster.num_features())

    def predict(self, features: Array) -> Array:
        """float64 [n] for float32 [n, rows, columns]: throughputs as the trees see them, about 0 to 1.

        -inf for a program that has only rows of zeros, or a feature that is not finite.
        Raises TaskError for another number of columns.
        """
        n, _, columns = features.shape
        require(columns == self.columns, TaskError, "XGBModel", f"{self.columns} features are needed", columns=columns)
        live, usable = live_rows(features)
        sums = np.zeros(n)
        if live.any():
            rows = self.booster.inplace_predict(np.ascontiguousarray(features[live], np.float32))
            sums = np.bincount(live.nonzero()[0], weights=rows, minlength=n)
        return np.where(usable, np.exp(RANGE * (self.centre + sums - 1)), -np.inf)

    def save(self, path: Path) -> None:
        """Write the file as a whole: readers see the old one or the new one.  Raises JournalError when that fails."""
        self.booster.set_attr(
            ansor_schema=self.schema, ansor_trained_on=str(self.trained_on), ansor_centre=repr(self.centre)
        )
        scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            scratch.write_bytes(self.booster.save_raw("ubj"))
            scratch.replace(path)
        except OSError as error:
            raise JournalError(f"{path}: cannot be written: {os.strerror(error.errno or errno.EIO)}") from error


def train(
    data: Dataset, seed: int, schema: str, verbose_eval: int = 0, base: Trees | None = None, many: bool = False
) -> Trees | None:
    """Trees for `data`, or None when it holds nothing that tells its programs apart.

    `base` are trees to go on from.  With `many` tasks the trees are deeper, and a task counts by the root of its number
    of programs.  Depends on the arguments only; every `verbose_eval` rounds the training error is
    logged at debug level.
    """
    if not _says_something(data):
        return None
    xgboost = importlib.import_module("xgboost")
    labels = _labels(data)
    weights = np.maximum(labels, LEAST_WEIGHT)
    if many:
        weights /= np.sqrt(np.bincount(data.tasks))[data.tasks]
    centre = float(np.average(labels, weights=weights)) if base is None else base.centre
    loss = PackSum.of(data.sizes, labels - centre, weights)
    matrix = xgboost.DMatrix(data.rows, nthread=1)
    params = {**PARAMS, "max_depth": DEPTH_OF_MANY if many else DEPTH, "seed": seed}
    booster = xgboost.Booster(params, [matrix], model_file=None if base is None else base.booster)
    _boosted(booster, matrix, loss, verbose_eval)
    return Trees(booster, len(data) + (0 if base is None else base.trained_on), schema, centre)


def _labels(data: Dataset) -> Array:
    throughputs = np.maximum(data.throughputs(), np.exp(-RANGE))
    labels: Array = 1 + np.log(throughputs) / RANGE
    return labels


def _boosted(booster: Any, matrix: Any, loss: PackSum, verbose_eval: int) -> None:
    """Add trees, until the error is as good as still.

    The scores after a round tell its error and what the next one is to mend: xgboost's own loop asks for them twice.
    """
    least, barren = math.inf, 0
    scores = booster.predict(matrix, output_margin=True, training=True)
    for k in range(ROUNDS):
        gradient, hessian = loss.objective(scores)
        booster.boost(matrix, k, grad=gradient, hess=hessian)
        scores = booster.predict(matrix, output_margin=True, training=True)
        _, error = loss.metric(scores)
        if verbose_eval > 0 and k % verbose_eval == 0:
            logger.debug("XGBModel: round [%d] train-p-rmse:%.5f", k, error)
        barren = 0 if least - STOP_GAIN > error else barren + 1
        least = min(least, error) if barren == 0 else least
        if barren == STOP_AFTER:
            break
    booster.reset()


def use_one_thread() -> None:
    """Let this process train and score in one thread, whatever is asked.

    A fork needs it: it lacks the threads that OpenMP had before, and would wait for them.
    """
    importlib.import_module("xgboost").set_config(nthread=1)


def _says_something(data: Dataset) -> bool:
    """Whether both the labels and the features tell some of the programs apart."""
    labels = data.throughputs()
    if len(data) < 2 or (labels == labels[0]).all():
        return False
    if (data.sizes != data.sizes[0]).any():
        return True
    programs = data.rows.reshape(len(data), -1)
    return bool((programs != programs[0]).any())


def load_trees(path: Path, schema: str) -> Trees:
    """The trees of a file.  Raises TaskError for a file that holds none, or trees for features of another schema."""
    xgboost = importlib.import_module("xgboost")
    booster = xgboost.Booster()
    try:
        booster.load_model(bytearray(path.read_bytes()))
    except (OSError, ValueError, xgboost.core.XGBoostError) as error:
        raise TaskError(f"XGBModel: {path} holds no model: {str(error).splitlines()[0]}") from error
    booster.set_param({"nthread": 1})
    found, count = booster.attr("ansor_schema"), booster.attr("ansor_trained_on")
    law = f"{path} was trained on other features, {schema!r} are needed"
    require(found == schema, TaskError, "XGBModel", law, features=found)
    centre = _centre(path, booster.attr("ansor_centre"))
    return Trees(booster, int(count) if count is not None and count.isdigit() else 0, schema, centre)


def _centre(path: Path, text: str | None) -> float:
    """The centre that a file says its trees have; files of older versions say nothing, and mean 0."""
    try:
        value = float(text or 0.0)
    except ValueError:
        value = math.nan
    require(math.isfinite(value), TaskError, "XGBModel", f"{path} needs a centre that is a number", centre=text)
    return value
