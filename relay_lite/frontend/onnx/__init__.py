"""Import of ONNX models; the package `onnx` is needed only when a model is read."""

from __future__ import annotations

from .importer import from_onnx

__all__ = ["from_onnx"]
