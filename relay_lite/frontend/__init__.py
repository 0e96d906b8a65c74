"""Networks that other tools wrote, read as graphs.

Law: the other tool is imported only when a model of it is read.
"""

from __future__ import annotations

from .onnx import from_onnx

__all__ = ["from_onnx"]
