"""Points: the sizes that a task for a range of sizes is judged at, and how much each of them counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ansor.core.errors import TaskError
from te_lite.errors import require
from te_lite.expr.dtype import python_number
from te_lite.expr.expr import SizeVar

OF_A_RANGE = 6
"""Values that stand for a range."""
MOST_POINTS = 32
Weighted = dict[int, float]


@dataclass(frozen=True)
class Point:
    """A value of each size, in the order of the sizes of a computation; the weights of all points sum up to 1."""

    values: tuple[int, ...]
    weight: float


def points_of(sizes: Sequence[SizeVar], given: Mapping[str, Any] | None) -> tuple[Point, ...]:
    """The points that `given` says: for a size by name a `range`, or a list of values and pairs `(value, weight)`.

    A size that is not given is a range, its bounds; a range has `OF_A_RANGE` values, which grow by factors.  Values
    without a weight share what is left of 1.  Of several sizes, all combinations count.
    Raises TaskError for a name that is no size, values out of bounds or listed twice, weights that are not positive,
    and more than `MOST_POINTS` combinations.
    """
    given = {} if given is None else given
    law = "sizes is a dictionary, as in {'n': [(1, 0.1), (128, 0.5), 1000]}"
    require(isinstance(given, Mapping), TaskError, "OpenTask", law, got=given)
    names = [v.name for v in sizes]
    for name in given:
        require(name in names, TaskError, "OpenTask: sizes", f"the open extents are {', '.join(names)}", got=name)
    each = [_values(v, given.get(v.name, range(v.range[0], v.range[1] + 1))) for v in sizes]
    count = math.prod(map(len, each))
    require(count <= MOST_POINTS, TaskError, "OpenTask: sizes", f"at most {MOST_POINTS} combinations", got=count)
    return tuple([
        Point(tuple(values), math.prod([own[n] for own, n in zip(each, values, strict=True)]))
        for values in product(*each)
    ])  # fmt: skip


def _values(size: SizeVar, given: Any) -> Weighted:
    """The values of a size, the least one first, with weights that sum up to 1."""
    subject = f"OpenTask: sizes of {size.name}"
    law = "a range, or a list of values and pairs (value, weight), is needed"
    require(isinstance(given, range | list | tuple) and len(given) > 0, TaskError, subject, law, got=given)
    entries: Sequence[Any] = _of_range(given) if isinstance(given, range) else given
    given_pairs = [entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, None) for entry in entries]
    pairs = [(python_number(n), python_number(weight)) for n, weight in given_pairs]
    least, most = size.range
    for n, weight in pairs:
        whole = isinstance(n, int) and not isinstance(n, bool)
        require(whole and least <= n <= most, TaskError, subject, f"a value is one of {least} to {most}", got=n)
        number = weight is None or (isinstance(weight, int | float) and 0 < weight < math.inf)
        require(number, TaskError, subject, "a weight is a positive number", value=n, weight=weight)
    require(len(dict(pairs)) == len(pairs), TaskError, subject, "each value is listed once", got=given)
    return dict(sorted(_with_weights(subject, dict(pairs)).items()))


def _with_weights(subject: str, pairs: Mapping[int, float | None]) -> Weighted:
    total = sum([w for w in pairs.values() if w is not None])
    free = [n for n, w in pairs.items() if w is None]
    law = "weights leave a part of 1 for the values without one"
    require(not free or total < 1, TaskError, subject, law, weights=total, without=free)
    scale = 1.0 if free else total
    return {n: (1 - total) / len(free) if w is None else w / scale for n, w in pairs.items()}


def _of_range(given: range) -> list[int]:
    """Values of a range that grow by factors, its ends among them."""
    low, high = min(given), max(given)
    wanted = np.geomspace(max(low, 1), max(high, 1), OF_A_RANGE)
    step = abs(given.step)
    return sorted({low, *[int(low + round((x - low) / step) * step) for x in wanted]})
