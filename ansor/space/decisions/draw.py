"""Random draws for many programs at once, and the types of arrays: their names, and whether rows are of theirs."""

from __future__ import annotations

from typing import Any

import numpy as np

from te_lite.errors import require

from ...core.errors import TaskError

Matrix = np.ndarray[Any, np.dtype[np.int64]]
"""Rows of a space: int64 [number of programs, `Space.width`]."""

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Index = np.ndarray[Any, np.dtype[np.int64]]
Scores = np.ndarray[Any, np.dtype[np.float64]]


def require_matrix(subject: str, rows: Any, shape: tuple[int, ...]) -> None:
    """Raise TaskError, naming `subject`, unless `rows` are an int64 array of `shape`."""
    law = f"an int64 array of shape {shape} is needed, one number a column of the space"
    got = f"{rows.dtype} of shape {rows.shape}" if isinstance(rows, np.ndarray) else rows
    require(
        isinstance(rows, np.ndarray) and rows.dtype == np.int64 and rows.shape == shape,
        TaskError,
        subject,
        law,
        got=got,
    )


def roulette(weights: Scores, n: int, rng: np.random.Generator) -> Index:
    """`n` positions drawn by weight, with replacement: int64 [n].  Weights that are all 0 count as equal."""
    sums = np.cumsum(weights if weights.any() else np.ones(len(weights)))
    position: Index = np.searchsorted(sums, rng.random(n) * sums[-1], side="right")
    last = np.flatnonzero(np.diff(sums, prepend=0.0))[-1]
    position = np.minimum(position, last)
    return position


def pick(mask: Mask, rng: np.random.Generator) -> Index:
    """One true position of each row of `mask` (bool [n, m]), all equally likely; each row must have one."""
    before = np.cumsum(mask, axis=1)
    wanted = (rng.random(len(mask)) * before[:, -1]).astype(np.int64)
    position: Index = np.argmax(before > wanted[:, None], axis=1)
    return position


def below(counts: Index, rng: np.random.Generator) -> Index:
    """One integer of 0 .. counts[i] - 1 for each i: int64 of the shape of `counts`."""
    return (rng.random(counts.shape) * counts).astype(np.int64)
