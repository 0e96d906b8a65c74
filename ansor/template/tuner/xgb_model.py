"""The cost model of the XGBoost tuner: trees over the features of configurations."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ansor.template.knob import Array

PARAMS: Mapping[str, Any] = {
    "max_depth": 3, "gamma": 0.0001, "min_child_weight": 1, "subsample": 1.0, "eta": 0.3, "lambda": 1.0, "alpha": 0.0,
    "tree_method": "hist", "nthread": 1, "verbosity": 0,
}  # fmt: skip
ROUNDS = 60
LOSSES = {"reg": "reg:squarederror", "rank": "rank:pairwise"}


def fit(rows: Array, labels: Array, groups: Array, weights: Array, loss_type: str, seed: int, params=None, rounds=ROUNDS) -> Any:
    """A booster.  `groups` numbers the tasks, ascending; `weights` float64 [n]."""
    xgboost = importlib.import_module("xgboost")
    matrix = xgboost.DMatrix(rows, label=labels, nthread=1)
    if loss_type == "rank":
        _, starts, counts = np.unique(groups, return_index=True, return_counts=True)
        matrix.set_group(counts)
        matrix.set_weight(weights[starts])
    else:
        matrix.set_weight(weights)
    return xgboost.train({**PARAMS, "objective": LOSSES[loss_type], "seed": seed, **(params or {})}, matrix, rounds)
