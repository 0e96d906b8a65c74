"""Where a model takes the features of a state from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ansor.features import VERSION, schema_hash, state_features
from ansor.hardware import HardwareParams
from te_lite.state import State

from .api import Array


@dataclass(frozen=True)
class FeatureSource:
    """`of(state, hardware)` gives float32 [rows, columns]; `schema` names what the columns are, with a version."""

    schema: str
    of: Callable[[State, HardwareParams], Array]


FEATURES = FeatureSource(f"{VERSION}-{schema_hash()}", state_features)
