"""Parts of one's own (models, rules, runners, ...): whatever they raise is said in one sentence that names them."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

from te_lite.errors import TeError

from ..errors import PASSING, PartError

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


PACKAGE = __name__.partition(".")[0]


def is_own(part: Any) -> bool:
    """Whether a part is one of the user's own: its class is none of this package."""
    return type(part).__module__.partition(".")[0] != PACKAGE


def called(what: str, part: Any) -> str:
    """How a sentence calls a part: `cost model Mine`."""
    return f"{what} {type(part).__name__}"


@contextmanager
def asking(what: str, part: Any, method: str) -> Iterator[None]:
    """Raise PartError, naming a part of the user's own and its method, for what it raises in here that is not PASSING.

    What a part of this package raises passes as it is.
    """
    with asking_own(called(what, part), method) if is_own(part) else nullcontext():
        yield


@contextmanager
def asking_own(subject: str, method: str) -> Iterator[None]:
    """`asking` of what is known to be a part of the user's own, by the name `subject`."""
    try:
        yield
    except PASSING:
        raise
    except Exception as error:
        text, where = " ".join(str(error).split()), place(error)
        raised = f"{method} raised {type(error).__name__}" + (f": {text}" if text else "")
        raise PartError(f"{subject}: {raised}" + (f" ({where})" if where else "")) from error
