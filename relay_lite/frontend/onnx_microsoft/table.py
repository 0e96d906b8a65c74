"""The converters of `com.microsoft`, by operator."""

from __future__ import annotations

from collections.abc import Mapping

from ..onnx.node import Converters
from . import activation, aliases, attention, lstm, norm, products, quantized

NEWEST = 1
"""The newest version of the domain whose definitions were read."""

INSTEAD: Mapping[str, str] = {}
"""What to do about operators that are not read."""

CONVERTERS: Converters = {
    **activation.CONVERTERS,
    **aliases.CONVERTERS,
    **attention.CONVERTERS,
    **lstm.CONVERTERS,
    **norm.CONVERTERS,
    **products.CONVERTERS,
    **quantized.CONVERTERS,
}
