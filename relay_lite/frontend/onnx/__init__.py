"""Import of ONNX models.

Law: one file touches the package `onnx`, and only when a model is read.
"""

from __future__ import annotations

from .importer import from_onnx

__all__ = ["from_onnx"]
