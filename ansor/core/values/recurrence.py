"""A loop of equal steps as one kernel may run it: a product of its states a step, then expressions point by point.

Row `row` and column `column` of every state depend on the same row of what the step before left, and on nothing else
that is computed: on its elements by the product, and on the point itself.  So rows need nothing of each other, and
columns meet in the product alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from te_lite.expr.element import Buffer
from te_lite.expr.expr import Expr, Var


@dataclass(frozen=True, eq=False)
class Held:
    """A part of a state: `value` is its element at (row, column), first `start`, and `after` a step."""

    value: Buffer
    start: Expr
    after: Expr


@dataclass(frozen=True, eq=False)
class Written:
    """Every step writes `value` to element `index` of its slice, of `size` elements, of an argument by number.

    Without a size it is written once, after the last step.
    """

    argument: int
    size: int | None
    index: Expr
    value: Expr


@dataclass(frozen=True, eq=False)
class Sliced:
    """An argument by number: a step reads one of its `count` slices of `size` elements, `every` steps the same."""

    argument: int
    size: int
    count: int
    every: int


@dataclass(frozen=True, eq=False)
class Recurrence:
    """All elements are float32; the points of a step are `batch` rows of `width` columns.

    Gate `k` of a point sums, over i, `operand` at (row, i) times element (k * width + column, i) of the weight, or
    (i, k * width + column) where it does not lie `by_output`.  Expressions read arguments, those of `sliced` by their
    index in a slice, and the buffers of one element of `gates` and `held`; `operand` reads those of `held` alone.
    Loops that run `backwards` take slices and write from the last to the first.
    """

    name: str
    steps: int
    backwards: bool
    batch: int
    width: int
    row: Var
    column: Var
    arguments: tuple[Buffer, ...]
    sliced: tuple[Sliced, ...]
    weight: int
    by_output: bool
    gates: tuple[Buffer, ...]
    held: tuple[Held, ...]
    operand: Expr
    written: tuple[Written, ...]
