"""The runtime: calls of a compiled program become instructions, micro-op kernels and tokens.

Law: writes the instructions of the calls it is given; chooses no order.
"""

from __future__ import annotations

from .kernel import Kernel, KernelRecorder
from .queue import CommandQueue
from .uop_cache import UopCache

__all__ = ["CommandQueue", "Kernel", "KernelRecorder", "UopCache"]
