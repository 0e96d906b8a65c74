"""What numbers of options must be, said in one way."""

from __future__ import annotations

import math
from inspect import get_annotations
from typing import Any, Protocol

import numpy as np

from te_lite.errors import TeError, require

from ..errors import PartError


def require_part(value: Any, protocol: type, subject: str, needed: str) -> None:
    """Raise PartError, naming `subject` and what is `needed`, unless `value` is an object of a runtime protocol.

    A class is none, also where its objects would be.
    """
    hint = "; a class was given, call it" if isinstance(value, type) and isinstance(value, protocol) else ""
    lacks = [] if isinstance(value, type) else _lacking(value, protocol)
    hint += f"; it lacks {', '.join(lacks)}" if lacks else ""
    ok = isinstance(value, protocol) and not isinstance(value, type)
    require(ok, PartError, subject, f"{needed} is needed{hint}", got=value)


def _lacking(value: Any, protocol: type) -> list[str]:
    """What an object that has something of a protocol lacks of it; nothing for one that has nothing of it."""
    bases = [base for base in protocol.__mro__ if Protocol in base.__bases__]
    names = dict.fromkeys([n for b in bases for n in (*get_annotations(b), *vars(b)) if n[0] != "_"])
    lacks = [name for name in names if not hasattr(value, name)]
    return lacks if len(lacks) < len(names) else []


def require_positive(error: type[TeError], owner: str, **values: Any) -> None:
    """Raise `error`, naming `owner` and the value, unless all values are finite numbers above 0."""
    for name, value in values.items():
        ok = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
        require(ok, error, owner, f"{name} must be a positive number", got=value)


def require_counts(error: type[TeError], owner: str, **values: Any) -> None:
    """Raise `error`, naming `owner` and the value, unless all values are integers of at least 1."""
    for name, value in values.items():
        ok = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        require(ok, error, owner, f"{name} must be a positive integer", got=value)


def require_whole(error: type[TeError], owner: str, **values: Any) -> None:
    """Raise `error`, naming `owner` and the value, unless all values are integers of at least 0."""
    for name, value in values.items():
        ok = isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 0
        require(ok, error, owner, f"{name} must be an integer of at least 0", got=value)


def require_not_negative(error: type[TeError], owner: str, **values: Any) -> None:
    """Raise `error`, naming `owner` and the value, unless all values are numbers of at least 0."""
    for name, value in values.items():
        ok = isinstance(value, int | float) and value >= 0
        require(ok, error, owner, f"{name} must be a number of at least 0", got=value)
