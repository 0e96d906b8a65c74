"""The knob that splits a loop: which lengths its parts may have, and the split itself.

A choice is written `[-1, f_1, ..., f_k]`, outermost first: the inner lengths are chosen, the outer one follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from te_lite.errors import require

from .axis import VirtualAxis, know, only
from .errors import TemplateError

POLICIES = ("factors", "power2", "verbose", "candidate")
OPTIONS = ("num_outputs", "max_factor", "filter", "no_tail", "candidate")
MAX_FACTOR = 2**31


@dataclass(frozen=True)
class SplitEntity:
    """One way to split: `size[0]` is -1 (as many as are needed), the others are lengths from the outside in."""

    size: tuple[int, ...]

    def apply(self, sch: Any, op: Any, axis: Any) -> list[Any]:
        """Split `axis` of `op` in the schedule `sch`; the new loops, outermost first."""
        loops = []
        for k in range(1, len(self.size)):
            outer, axis = sch[op].split(axis, factor=math.prod(self.size[k:]))
            loops.append(outer)
        return [*loops, axis]

    def lengths(self, extent: int) -> tuple[int, ...]:
        """All lengths when `extent` iterations are split, the outer one rounded up."""
        return (-(-extent // math.prod(self.size[1:])), *self.size[1:])

    def to_json(self) -> list[Any]:
        return ["sp", list(self.size)]

    def __repr__(self) -> str:
        return str(list(self.size))


@dataclass(frozen=True)
class SplitSpace:
    """All choices of one split, the innermost length changing slowest."""

    axis: VirtualAxis
    num_outputs: int
    entities: tuple[SplitEntity, ...]

    @property
    def outputs(self) -> tuple[VirtualAxis, ...]:
        return tuple([VirtualAxis(f"{self.axis.name}.{k}", -1) for k in range(self.num_outputs)])


def split_space(name: str, axis: VirtualAxis, policy: str, options: dict[str, Any]) -> SplitSpace:
    """The choices of `define_split` (spec: sizes 45 for 256 in three parts by every policy, 63, 36, 84 for 224).

    factors    lengths that divide the extent               power2     powers of two up to the extent
    verbose    both                                         candidate  only the lists in `candidate`

    `no_tail` (default: only for factors) keeps the products that divide the extent; otherwise shorter ones count too,
    and the last iterations are guarded.  Raises TemplateError for options that do not fit, or when nothing is left.
    """
    know(policy, POLICIES, name)
    only(options, OPTIONS, name)
    require(axis.length > 0, TemplateError, f"knob {name}", "the length of a split axis must be known", axis=axis.name)
    if policy == "candidate":
        entities = [SplitEntity(_sizes(name, sizes)) for sizes in options.get("candidate", ())]
        parts = {len(e.size) for e in entities}
        require(len(parts) == 1, TemplateError, f"knob {name}", "candidates must be lists of one length", got=entities)
        num_outputs = parts.pop()
    else:
        num_outputs = options.get("num_outputs", 0)
        ok = isinstance(num_outputs, int) and num_outputs >= 1
        require(ok, TemplateError, f"knob {name}", "num_outputs must be at least 1", got=num_outputs)
        no_tail = bool(options.get("no_tail", policy == "factors"))
        factors = [f for f in _factors(axis.length, policy) if f <= options.get("max_factor", MAX_FACTOR)]
        inner = _products(axis.length, factors, num_outputs - 1, no_tail)
        entities = [SplitEntity((-1, *reversed(sizes))) for sizes in inner]
    allowed: Callable[[SplitEntity], bool] = options.get("filter") or (lambda entity: True)
    kept = tuple([e for e in entities if allowed(e)])
    require(kept, TemplateError, f"knob {name}", "no split is left", axis=axis.name, extent=axis.length, policy=policy)
    return SplitSpace(axis, num_outputs, kept)


def _sizes(name: str, sizes: Sequence[int]) -> tuple[int, ...]:
    out = tuple(sizes)
    ok = len(out) >= 1 and all(isinstance(s, int) and s > 0 for s in out[1:])
    require(ok, TemplateError, f"knob {name}", "a candidate is a list of lengths, the first of which is -1", got=sizes)
    return (-1, *out[1:])


def _factors(extent: int, policy: str) -> list[int]:
    divisors = {d for k in range(1, math.isqrt(extent) + 1) if extent % k == 0 for d in (k, extent // k)}
    powers = {1 << k for k in range(extent.bit_length())}
    match policy:
        case "factors":
            return sorted(divisors)
        case "power2":
            return sorted(powers)
    return sorted(divisors | powers)


def _products(extent: int, factors: list[int], count: int, no_tail: bool, taken: int = 1) -> Iterator[tuple[int, ...]]:
    """All lists of `count` factors, innermost first, whose product with `taken` splits the extent."""
    if count == 0:
        if extent % taken == 0 or (not no_tail and taken < extent):
            yield ()
        return
    for f in factors:
        if taken * f > extent:
            break
        for rest in _products(extent, factors, count - 1, no_tail, taken * f):
            yield (f, *rest)


def greedy_split(name: str, extent: int, limits: Sequence[int]) -> SplitEntity:
    """Each length, from the innermost out, is the largest divisor of what is left up to its limit (-1: no limit).

    An extent of 49 with limits [-1, 8, 4] gives [-1, 7, 1].  Raises TemplateError when a limit admits none.
    """
    left, sizes = extent, []
    for limit in reversed(limits):
        fits = [d for d in _factors(left, "factors") if limit < 0 or d <= limit]
        require(fits, TemplateError, f"knob {name}", "a limit admits no length", extent=extent, limits=list(limits))
        sizes.append(fits[-1])
        left //= fits[-1]
    return SplitEntity((-1, *list(reversed(sizes))[1:]))
