"""The space of configurations: knobs with their choices, and the one integer that names a configuration.

The index is a number in mixed radix: the digit of the first knob counts the least.  Arrays of indices become arrays of
digits at once, so a tuner can look at a whole space.

A template defines the space while it runs once with a `ConfigSpace` as its configuration: every knob then has its first
choice.  It runs again, with the same calls, with a `ConfigEntity` (config.py), which ignores the definitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from te_lite.errors import require

from .annotate import annotate_space
from .axis import VirtualAxis, virtual_axes, virtual_axis
from .config import ConfigEntity
from .errors import TemplateError
from .knob import Array, Entity, KnobSpace, OtherOptionSpace, option_space
from .reorder import reorder_space
from .split import SplitSpace, split_space

MOST_FILTERED = 1 << 22
MOST_POINTS = 1 << 62


class ConfigSpace:
    """Knobs in the order of their definition; `len` is the number of configurations that the filter leaves."""

    is_fallback = False

    def __init__(self) -> None:
        self.space_map: dict[str, KnobSpace] = {}
        self.flop = 0.0
        self._filter: Callable[[ConfigEntity], bool] | None = None

    # ---------------------------------------------------------------------------------------- what templates call

    @staticmethod
    def axis(var: Any) -> VirtualAxis:
        """The axis of a length or of an axis of an operation."""
        return virtual_axis(var)

    reduce_axis = axis

    def define_split(self, name: str, axis: Any, policy: str = "factors", **options: Any) -> list[VirtualAxis]:
        """A knob that splits a loop (split.py); `num_outputs` is needed.  Gives the axes of the parts."""
        axis = virtual_axis(axis, name)
        return list(self._define(name, lambda: split_space(name, axis, policy, options)).outputs)

    def define_reorder(self, name: str, axes: Sequence[Any], policy: str, **options: Any) -> list[VirtualAxis]:
        """A knob that orders loops (reorder.py).  Gives the axes in their first order."""
        given = virtual_axes(axes, name)
        space = self._define(name, lambda: reorder_space(name, given, policy, options))
        return [given[k] for k in space.entities[0].perm]

    def define_annotate(self, name: str, axes: Sequence[Any], policy: str, **options: Any) -> list[VirtualAxis]:
        """A knob that says how loops run (annotate.py).  Gives the axes as they were."""
        given = virtual_axes(axes, name)
        self._define(name, lambda: annotate_space(name, given, policy, options))
        return list(given)

    def define_knob(self, name: str, candidate: Sequence[Any]) -> None:
        """A knob with the values in `candidate`."""
        self._define(name, lambda: option_space(name, candidate))

    def _define(self, name: str, make: Callable[[], Any]) -> Any:
        """The knob; one that is defined already stays as it is."""
        if name not in self.space_map:
            self.space_map[name] = make()
            self.__dict__.pop("dims", None)
            self.__dict__.pop("valid_indices", None)
        return self.space_map[name]

    def multi_filter(self, filter: Callable[[ConfigEntity], bool]) -> None:
        """Keep the configurations for which `filter(entity)` is true."""
        self._filter = filter
        self.__dict__.pop("valid_indices", None)

    def add_flop(self, flop: float) -> None:
        """Count operations that the computation itself does not show; needed when it shows none."""
        self.flop += float(flop)

    def raise_error(self, msg: str) -> None:
        """A configuration that a template refuses; while the space is defined this means nothing."""

    def valid(self) -> bool:
        return True

    def __getitem__(self, name: str) -> Entity:
        return self._knob(name).entities[0]

    def _knob(self, name: str) -> KnobSpace:
        known = ", ".join(self.space_map) or "none"
        require(name in self.space_map, TemplateError, "configuration", f"the knobs are {known}", got=name)
        return self.space_map[name]

    # ------------------------------------------------------------------------------------------ indices and digits

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """The number of choices of each knob."""
        return tuple([len(knob.entities) for knob in self.space_map.values()])

    @property
    def range_length(self) -> int:
        """The number of indices, with those that the filter refuses."""
        return math.prod(self.dims)

    def point2knob(self, index: int) -> list[int]:
        """The digits of an index."""
        digits = []
        for n in self.dims:
            index, digit = divmod(index, n)
            digits.append(digit)
        return digits

    def knob2point(self, digits: Sequence[int]) -> int:
        """The index of digits."""
        index = 0
        for n, digit in zip(reversed(self.dims), reversed(digits), strict=True):
            index = index * n + int(digit)
        return index

    @cached_property
    def places(self) -> Array:
        """int64 [knobs]: what one step of each digit adds to the index."""
        law = "indices of a space of this size do not fit an integer"
        require(self.range_length <= MOST_POINTS, TemplateError, "space", law, points=self.range_length)
        return np.array([math.prod(self.dims[:k]) for k in range(len(self.dims))], np.int64)

    def digits(self, indices: Array) -> Array:
        """int64 [n, knobs] for int64 [n]."""
        out: Array = np.asarray(indices, np.int64)[:, None] // self.places % np.array(self.dims, np.int64)
        return out

    def indices(self, digits: Array) -> Array:
        """int64 [n] for int64 [n, knobs]."""
        out: Array = np.asarray(digits, np.int64) @ self.places
        return out

    # ------------------------------------------------------------------------------------------- configurations

    @cached_property
    def valid_indices(self) -> Array | None:
        """int64, ascending: the indices that the filter leaves; None when there is no filter.

        Raises TemplateError for a space that is too large to be filtered.
        """
        if self._filter is None:
            return None
        law = f"a filter looks at every configuration, at most {MOST_FILTERED} of them"
        require(self.range_length <= MOST_FILTERED, TemplateError, "multi_filter", law, points=self.range_length)
        keep = self._filter
        left = np.array([k for k in range(self.range_length) if keep(self._entity(k))], np.int64)
        require(len(left), TemplateError, "multi_filter", "no configuration is left", points=self.range_length)
        return left

    def __len__(self) -> int:
        return self.range_length if self.valid_indices is None else len(self.valid_indices)

    def is_index_valid(self, index: int) -> bool:
        """Whether the index lies in the space and the filter leaves it."""
        if not 0 <= index < self.range_length:
            return False
        valid = self.valid_indices
        return valid is None or bool(index == valid[min(int(np.searchsorted(valid, index)), len(valid) - 1)])

    def get(self, index: int) -> ConfigEntity:
        """The configuration of an index.  Raises TemplateError for one outside the space."""
        ok = 0 <= index < self.range_length
        require(ok, TemplateError, "space", f"an index lies in 0 .. {self.range_length - 1}", got=index)
        return self._entity(int(index))

    def index_of(self, config: ConfigEntity) -> int | None:
        """The index of a configuration; None when it is none of this space."""
        index = config.index
        there = index is not None and index < self.range_length and self._entity(index) == config
        return index if there else None

    def holds(self, config: ConfigEntity) -> bool:
        """Whether each knob has one of its choices, and the index, if there is one, lies in the space."""
        chosen = dict(config.items())
        ok = config.index is None or 0 <= config.index < self.range_length
        ok = ok and chosen.keys() == self.space_map.keys()
        return ok and all(chosen[name] in knob.entities for name, knob in self.space_map.items())

    def _entity(self, index: int) -> ConfigEntity:
        knobs = zip(self.space_map.items(), self.point2knob(index), strict=True)
        return ConfigEntity(index, {name: knob.entities[digit] for (name, knob), digit in knobs}, self)

    def __iter__(self) -> Iterator[str]:
        return iter(self.space_map)

    def sample_ints(self, n: int, rng: np.random.Generator) -> Array:
        """int64 [min(n, len)]: different valid indices at random."""
        count = min(n, len(self))
        if self.valid_indices is not None:
            return rng.choice(self.valid_indices, count, replace=False)
        if self.range_length <= MOST_FILTERED:
            return rng.choice(self.range_length, count, replace=False).astype(np.int64)
        found: dict[int, None] = {}
        while len(found) < count:
            found |= dict.fromkeys(rng.integers(self.range_length, size=count - len(found)).tolist())
        return np.array(list(found), np.int64)

    def __repr__(self) -> str:
        knobs = [f"{k:2d} {name}: {_summary(knob)}" for k, (name, knob) in enumerate(self.space_map.items())]
        return "\n".join([f"ConfigSpace (len={len(self)}, range_length={self.range_length})", *knobs])


def _summary(knob: KnobSpace) -> str:
    match knob:
        case SplitSpace(axis, parts, entities):
            return f"split {axis.length} in {parts}, {len(entities)} choices"
        case OtherOptionSpace(entities):
            return f"one of {', '.join(map(str, entities))}"
    return f"{len(knob.axes)} axes, {len(knob.entities)} choices"
