"""Operators that ONNX's default domain does not have, by domain: each in a folder of its own, which may be deleted.

A folder `relay_lite.frontend.onnx_NAME` is imported when a model uses its domain.  Its `table` has `CONVERTERS` by
the bare names of operators, `NEWEST`, the newest version of the domain that is read, and `INSTEAD`, what to do about
operators that cannot be.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from te_lite.later import loaded

from .node import Converters

FOLDERS: Mapping[str, str] = {"ai.onnx.ml": "ml", "com.microsoft": "microsoft"}
"""By domain the folder of its operators."""
ADOPTED: Mapping[str, str] = {"LayerNormalization": "com.microsoft", "SimplifiedLayerNormalization": "com.microsoft"}
"""Whose operators are that onnxruntime writes in ONNX's default domain, also where that does not have them."""


@lru_cache(maxsize=8)
def _table(domain: str) -> Any:
    """The table of a domain; None for an unknown one, and where its folder is not there."""
    folder = f"{__package__.rpartition('.')[0]}.onnx_{FOLDERS.get(domain, '')}"
    return loaded(f"{folder}.table") if domain in FOLDERS and find_spec(folder) is not None else None


def converters_of(domain: str) -> Converters:
    """The converters of a domain by the names of its operators."""
    return {} if _table(domain) is None else _table(domain).CONVERTERS


def adopted(op: str) -> str:
    """An operator of the default domain as one of the domain whose it is where ONNX does not have it."""
    return f"{ADOPTED[op]}::{op}" if op in ADOPTED else op


def newest_of(domain: str) -> int:
    """The newest version of a domain whose definitions were read; 0 for a domain that is unknown."""
    return 0 if _table(domain) is None else int(_table(domain).NEWEST)


def instead_of(op: str) -> str:
    """What to do about `domain::Operator` that cannot be read; "" where nobody has said."""
    domain, _, name = op.rpartition("::")
    return "" if _table(domain) is None else str(_table(domain).INSTEAD.get(name, ""))
