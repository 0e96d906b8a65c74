"""The runtime: calls of a compiled program become instructions, micro-op kernels and tokens."""

from __future__ import annotations

from .kernel import Kernel, KernelRecorder
from .queue import CommandQueue
from .uop_cache import UopCache

__all__ = ["CommandQueue", "Kernel", "KernelRecorder", "UopCache"]
