"""The configuration without a record: first choices, or what a template sets."""

from __future__ import annotations

from collections.abc import Sequence

from te_lite.errors import require

from .errors import InstantiationError, TemplateError
from .knob import Entity
from .space import ConfigSpace
from .split import SplitSpace, greedy_split


class FallbackConfigEntity(ConfigSpace):
    """What a template runs with when no record says better: the first choice of every knob, unless it sets others."""

    is_fallback = True
    index = None

    def __init__(self) -> None:
        super().__init__()
        self._chosen: dict[str, Entity] = {}

    def __getitem__(self, name: str) -> Entity:
        return self._chosen.get(name) or super().__getitem__(name)

    def __setitem__(self, name: str, entity: Entity) -> None:
        self._knob(name)
        self._chosen[name] = entity

    def items(self) -> list[tuple[str, Entity]]:
        """Names and choices, in the order of the knobs."""
        return [(name, self[name]) for name in self.space_map]

    def fallback_split(self, name: str, constraints: Sequence[int]) -> None:
        """Choose the largest lengths within limits, from the innermost out (`split.greedy_split`).

        Raises TemplateError for a knob that is no split, or limits that do not fit.
        """
        knob = self._knob(name)
        require(isinstance(knob, SplitSpace), TemplateError, f"knob {name}", "only a split has lengths to limit")
        assert isinstance(knob, SplitSpace)
        law = f"{knob.num_outputs} limits are needed"
        require(len(constraints) == knob.num_outputs, TemplateError, f"knob {name}", law, got=list(constraints))
        self[name] = greedy_split(name, knob.axis.length, constraints)

    def raise_error(self, msg: str) -> None:
        """Raises InstantiationError: the fallback itself is invalid."""
        raise InstantiationError(msg)

    def __repr__(self) -> str:
        return f"{self.items()},None,fallback"
