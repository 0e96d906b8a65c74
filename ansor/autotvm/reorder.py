"""The knob that orders loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations, zip_longest
from typing import Any

from te_lite.errors import require

from .axis import VirtualAxis, know, only
from .errors import TemplateError

OPTIONS = {
    "identity": (), "all": (), "interval_all": ("interval",), "candidate": ("candidate",),
    "interleave": ("spatial", "reduce"),
}  # fmt: skip
MOST_PERMUTED = 8


@dataclass(frozen=True)
class ReorderEntity:
    """One order: `perm[k]` is the number of the loop that comes at place k."""

    perm: tuple[int, ...]

    def apply(self, sch: Any, op: Any, axes: Sequence[Any]) -> list[Any]:
        """Put the loops `axes` of `op` in this order; the loops in their new order."""
        law = "as many loops as were defined are needed"
        require(len(axes) == len(self.perm), TemplateError, "reorder", law, loops=len(axes), defined=len(self.perm))
        ordered = [axes[k] for k in self.perm]
        sch[op].reorder(*ordered)
        return ordered

    def to_json(self) -> list[Any]:
        return ["re", list(self.perm)]

    def __repr__(self) -> str:
        return str(list(self.perm))


@dataclass(frozen=True)
class ReorderSpace:
    """All orders of some loops."""

    axes: tuple[VirtualAxis, ...]
    entities: tuple[ReorderEntity, ...]


def reorder_space(name: str, axes: tuple[VirtualAxis, ...], policy: str, options: dict[str, Any]) -> ReorderSpace:
    """The choices of `define_reorder`.

    identity      as they are            interval_all  all orders of the loops `interval[0]` to `interval[1]` - 1
    all           all orders             candidate     the orders in `candidate`, lists of axes or of numbers
    interleave    one order: the first loops of all lists in `spatial`, then of those in `reduce`, then the second ...

    Raises TemplateError for options that do not fit.
    """
    know(policy, tuple(OPTIONS), name)
    only(options, OPTIONS[policy], name)
    n = len(axes)
    match policy:
        case "identity":
            orders: list[tuple[int, ...]] = [tuple(range(n))]
        case "all":
            orders = _permuted(name, n, 0, n)
        case "interval_all":
            first, stop = options.get("interval", (0, n))
            orders = _permuted(name, n, first, stop)
        case "candidate":
            orders = [_numbers(name, axes, order) for order in options.get("candidate", ())]
        case _:
            levels = zip_longest(zip_longest(*options.get("spatial", ())), zip_longest(*options.get("reduce", ())))
            flat = [axis for pair in levels for level in pair for axis in level or () if axis is not None]
            orders = [_numbers(name, axes, flat)]
    for order in orders:
        law = "an order names every axis once"
        require(sorted(order) == list(range(n)), TemplateError, f"knob {name}", law, got=order)
    require(orders, TemplateError, f"knob {name}", "at least one order is needed", policy=policy)
    return ReorderSpace(axes, tuple([ReorderEntity(order) for order in orders]))


def _permuted(name: str, n: int, first: int, stop: int) -> list[tuple[int, ...]]:
    ok = 0 <= first < stop <= n and stop - first <= MOST_PERMUTED
    law = f"all orders are listed of at most {MOST_PERMUTED} of the axes"
    require(ok, TemplateError, f"knob {name}", law, axes=n, interval=(first, stop))
    return [(*range(first), *order, *range(stop, n)) for order in permutations(range(first, stop))]


def _numbers(name: str, axes: tuple[VirtualAxis, ...], order: Sequence[Any]) -> tuple[int, ...]:
    out = []
    for item in order:
        known = item in axes if isinstance(item, VirtualAxis) else isinstance(item, int)
        require(known, TemplateError, f"knob {name}", "an order is made of the axes of the knob", got=item)
        out.append(axes.index(item) if isinstance(item, VirtualAxis) else item)
    return tuple(out)
