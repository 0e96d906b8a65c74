"""Runners that need no device: answers from a log, or estimates; logs as arrays, and contests of searchers on them.

Law: no processes, no devices.
"""

from .replay import ReplayRunner

__all__ = ["ReplayRunner"]
