"""The compiler: a schedule of te_lite becomes calls of the runtime.

Law: compiles a schedule as it stands or refuses it with the reason; tunes nothing.
"""

from __future__ import annotations

from .program import Program, compile_schedule
from .scopes import ACC, INP, WGT

__all__ = ["ACC", "INP", "WGT", "Program", "compile_schedule"]
