"""Errors of the CUDA backend."""

from __future__ import annotations

from te_lite.errors import TeError


class EmitError(TeError):
    """A program that CUDA C++ has no words for."""


class CompileError(TeError):
    """No CUDA compiler, or a compiler that refuses the source."""


class LimitError(TeError):
    """A program that asks for more than the device has; it is not compiled."""


class DeviceError(TeError):
    """No GPU, or a call that the driver refuses."""
