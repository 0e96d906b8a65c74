"""What the search of programs of target `vta` is made of."""

from __future__ import annotations

from ansor.core.search_parts import SearchParts

from .elementwise_rules import ELEMENTWISE_RULES
from .features import FEATURES
from .machine import machine_of
from .product_rules import PRODUCT_RULES
from .tiles import Tiles

RULES = (*PRODUCT_RULES, *ELEMENTWISE_RULES)
SEARCH = SearchParts(rules=RULES, decisions=(Tiles(),), machine=machine_of, features=FEATURES)
