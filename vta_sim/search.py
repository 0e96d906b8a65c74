"""The parts of a search for target `vta` (`ansor.core.target.registry`)."""

from __future__ import annotations

from ansor.core.target.registry import SearchParts

from .measure.played import PlayedRunner
from .sketch import machine_of
from .sketch.elementwise_rules import ELEMENTWISE_RULES
from .sketch.features import FEATURES
from .sketch.product_rules import PRODUCT_RULES
from .sketch.tiles import Tiles

RULES = (*PRODUCT_RULES, *ELEMENTWISE_RULES)
SEARCH = SearchParts(RULES, (Tiles(),), machine_of, FEATURES, PlayedRunner)
