"""Seeds: what may be one, and which one is taken when none is given."""

from __future__ import annotations

import numpy as np

from te_lite.errors import require

from ..errors import TaskError

MOST_DRAWN = 2**30


def checked_seed(subject: str, seed: int) -> int:
    """The seed as it was given.  Raises TaskError, naming `subject`, unless it is an integer of at least 0."""
    ok = isinstance(seed, int | np.integer) and not isinstance(seed, bool) and seed >= 0
    require(ok, TaskError, subject, "the seed must be an integer of at least 0", seed=seed)
    return int(seed)


def chosen_seed(subject: str, seed: int | None) -> int:
    """The seed that was given, or one of 1 .. 2^30 - 1 that is drawn.  Raises TaskError as `checked_seed` does."""
    return int(np.random.default_rng().integers(1, MOST_DRAWN)) if seed is None else checked_seed(subject, seed)
