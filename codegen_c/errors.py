"""Errors of the C backend."""

from __future__ import annotations

from te_lite.errors import TeError


class EmitError(TeError):
    """A program that C has no words for (thread loops, shared memory, barriers)."""


class CompileError(TeError):
    """No compiler, or a compiler that refuses the source."""


class CallError(TeError):
    """Arrays that do not fit the arguments of a compiled program."""
