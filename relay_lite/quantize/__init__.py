"""Quantisation: float32 networks become networks of int8 convolutions with scales that are powers of two.

Law: inputs and results stay float32.
"""

from .config import QConfig, qconfig
from .network import quantize

__all__ = ["QConfig", "qconfig", "quantize"]
