"""What the search of a kind's programs is made of, where the kind is like no other: parts of the layers above."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SearchParts:
    """The module `Entry.search` of a target kind has one of these as its object `SEARCH`.

    rules       the sketch rules, in order (`ansor.sketch.rule.SketchRule`); there are no extra ones
    decisions   the kinds of decisions of its sketches (`ansor.space.decisions.decision.Decision`)
    machine     for a target the machine whose estimate stands in for a model that has learnt nothing
                (`ansor.analytical.machine.EstimatesItself`)
    features    what models are told of its programs (`ansor.cost_model.features.FeatureSource`)
    runner      makes what measures its programs where nobody names another one; it brings its builder

    Hardware parameters mean nothing to such a kind, whose target text tells the machine: they are all 0.
    """

    rules: tuple[Any, ...]
    decisions: tuple[Any, ...]
    machine: Callable[[Any], Any]
    features: Any
    runner: Callable[[], Any]
