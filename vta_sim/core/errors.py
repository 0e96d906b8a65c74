"""Errors of the accelerator and its tools."""

from __future__ import annotations

from te_lite.errors import TeError


class VtaError(TeError):
    """Base of everything `vta_sim` refuses."""


class ConfigError(VtaError):
    """A configuration of which no machine can be built, or a file that is none."""


class IsaError(VtaError):
    """An instruction or micro-op with no encoding, or bits that are no instruction."""


class MachineError(VtaError):
    """A program that does something forbidden while it runs: memory out of bounds, an illegal token ..."""


class DeadlockError(MachineError):
    """A program in which every module waits for a token that nobody will push."""


class QueueError(VtaError):
    """A call that the runtime's command queue cannot turn into instructions."""


class CompileError(VtaError):
    """A schedule that the accelerator cannot run; the text is the reason."""
