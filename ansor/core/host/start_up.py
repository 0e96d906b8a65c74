"""Ctrl-C while the command is still being imported ends it at once and says nothing, as it does later.

The command imports this before anything else, and Python's own way, a traceback of whatever was being imported, is put
back when it begins its work.  A process that uses the package otherwise is left as it is.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

COMMAND = "ansor"
INTERRUPTED = 130
"""The exit code of a command that Ctrl-C stopped."""


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def is_command() -> bool:
    """Whether this process was started as the command, by its name or as `python -m ansor`."""
    if sys.argv[:1] == ["-m"]:  # what Python says while it looks for the module
        return COMMAND in sys.orig_argv and sys.orig_argv[sys.orig_argv.index(COMMAND) - 1] == "-m"
    return bool(sys.argv) and os.path.basename(sys.argv[0]) == COMMAND


def imported() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from now on, where it ended the command."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)
