"""Parts of one's own (models, rules, runners, ...): whatever they raise is said in one sentence that names them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from ..errors import PASSING, PartError
from .place import place

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
