"""Where Python of the user's own raised: the file and line that a sentence names instead of a traceback."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from types import FrameType

from te_lite.errors import TeError

PACKAGES = ("te_lite", "ansor", "codegen_c", "codegen_cuda", "relay_lite", "vta_sim")
_INSTALLED = tuple([sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")])


def _is_users(frame: FrameType) -> bool:
    """Whether a frame is of neither this project, Python's library nor an installed package."""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package not in PACKAGES and not frame.f_code.co_filename.startswith(("<frozen", *_INSTALLED))


def place(error: BaseException) -> str:
    """`mine.py, line 12` of the innermost frame in the user's own code; empty where there is none."""
    lines = [(f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__) if _is_users(f)]
    return f"{Path(lines[-1][0]).name}, line {lines[-1][1]}" if lines else ""


def said(error: BaseException) -> str:
    """What was raised, and where, in one line: `mine.py, line 12: KeyError: 'x'`; our own errors are sentences."""
    text = " ".join(str(error).split())
    kind = "" if isinstance(error, TeError) else type(error).__name__
    return ": ".join([part for part in (place(error), kind, text) if part])
