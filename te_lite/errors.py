"""What the language refuses, and the one way to say it.

Every refusal is one sentence that names the subject, the law and the offending values; long ones are cut.
"""

from __future__ import annotations

MOST_CHARACTERS = 300


class TeError(Exception):
    """Base of everything `te_lite` refuses."""


class ExprError(TeError):
    """An expression or tensor that cannot be built (wrong dtype, wrong number of indices ...)."""


class ScheduleError(TeError):
    """A transform step that does not fit the program it is applied to."""


class LowerError(TeError):
    """A schedule that has no loop nest (a consumer outside its producer's attach point ...)."""


class UnsafeError(LowerError):
    """A lowered program that the verifier refuses: it breaks `law`, or nothing shows that it keeps it."""

    def __init__(self, message: str, law: str) -> None:
        super().__init__(message)
        self.law = law


class RecordError(TeError):
    """A record or step that cannot be read."""


class InterpError(TeError):
    """A lowered program that does something forbidden while it is run (out of bounds, race ...)."""


def require(ok: object, error: type[TeError], subject: str, law: str, **got: object) -> None:
    """Raise `error` unless `ok`.

    The message reads `<subject>: <law>, got a=1 b=2`; a value called `got` stands without its name.
    """
    if not ok:
        values = " ".join(_shown(value) if key == "got" else f"{key}={_shown(value)}" for key, value in got.items())
        raise error(f"{subject}: {law}" + (f", got {values}" if values else ""))


def require_name(subject: str, name: object) -> None:
    """Raise ExprError for a name that is no text."""
    require(isinstance(name, str), ExprError, subject, "a name is a text", name=name)


def _shown(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}... ({len(text)} characters)"
