"""The converters of `com.microsoft`, by operator."""

from __future__ import annotations

from collections.abc import Mapping

from ..onnx.activation import gelu
from ..onnx.node import Converters

NEWEST = 1
"""The newest version of the domain whose definitions were read."""

INSTEAD: Mapping[str, str] = {}
"""What to do about operators that are not read."""

CONVERTERS: Converters = {"Gelu": {1: gelu}}
