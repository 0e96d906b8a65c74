"""The files of trees that come with the package, one for each family of targets, and the tasks that they know."""

from __future__ import annotations

from pathlib import Path

from ansor.core.target.target import Target
from ansor.core.tasks.task import SearchTask
from ansor.cost_model.prior import least_seconds

FOLDER = Path(__file__).parent
MOST_SECONDS = 2e-4
"""What operations or bytes take at best, in the largest tasks that the trees were trained on."""


def trees_of(target: Target, task: SearchTask | None = None) -> Path | None:
    """The file of the trees for a target; None where there is none, or for a task much larger than all they have seen.

    Trees know no larger values than those they were trained with: see the README beside.
    """
    place = FOLDER / f"{target.family}.ubj"
    seen = task is None or least_seconds(task) <= MOST_SECONDS
    return place if seen and place.is_file() else None
