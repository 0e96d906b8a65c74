"""The runtime: calls of a compiled program become instructions, micro-op kernels and tokens.

Law: writes the instructions of the calls it is given; chooses no order.
"""

from __future__ import annotations

from .queue import CommandQueue
from .uop_cache import UopCache
from .uop_kernel import KernelRecorder, UopKernel

__all__ = ["CommandQueue", "KernelRecorder", "UopCache", "UopKernel"]
