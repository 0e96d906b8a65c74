"""Networks that other tools wrote, read as graphs.

Law: the other tool is imported only when a model of it is read.
"""

from __future__ import annotations

from .onnx import from_onnx
from .torch import from_exported_program

__all__ = ["from_exported_program", "from_onnx"]
