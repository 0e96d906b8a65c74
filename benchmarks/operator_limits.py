"""The limits of a row of `benchmarks.operators`: what its figures must be."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ansor.core.errors import TaskError
from te_lite.errors import require


@dataclass(frozen=True)
class Limit:
    """What a figure must be: `ratio <= 0.9`."""

    figure: str
    sign: str
    bound: float

    def holds(self, figures: Mapping[str, float]) -> bool | None:
        """Whether it is so; None where the figure was not taken."""
        value = figures.get(self.figure)
        return None if value is None else bool(SIGNS[self.sign](value, self.bound))

    def __str__(self) -> str:
        return f"{self.figure} {self.sign} {self.bound:g}"


SIGNS = {"<=": operator.le, ">=": operator.ge}
FIGURES = ("ratio", "us", "TB/s", "s/trial", "error")
_LIMIT = re.compile(rf"({'|'.join(FIGURES)}) (<=|>=) (\d+(?:\.\d+)?)")


def limits_of(text: str) -> tuple[Limit, ...]:
    """The limits of one field of a file of rows, none for an empty one.  Raises TaskError."""
    found = [_LIMIT.fullmatch(part.strip()) for part in text.split(" and ")] if text.strip() else []
    law = "limits are like `ratio <= 0.9 and TB/s >= 3.75`"
    require(None not in found, TaskError, "limits", law, figures=FIGURES, text=text)
    return tuple([Limit(m[1], m[2], float(m[3])) for m in found if m is not None])
