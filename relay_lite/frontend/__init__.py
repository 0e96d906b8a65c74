"""Networks that other tools wrote, read as graphs."""

from __future__ import annotations

from .onnx import from_onnx

__all__ = ["from_onnx"]
