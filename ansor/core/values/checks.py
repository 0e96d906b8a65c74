"""What numbers from outside must be, and numbers in sentences: options, seeds, how large tensors may be.

The largest tensor has `ANSOR_TENSOR_BYTES` bytes; everything else is a share of that, so that who raises the one
raises all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from inspect import get_annotations
from math import prod
from typing import Any, Protocol

import numpy as np

from te_lite import environment
from te_lite.errors import TeError, require

from ..errors import GraphError, PartError, TaskError


def counted(number: int, what: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def columns_of(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of cells beside each other, the first ones to the left, the others to the right."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [
        "  ".join([x.rjust(w) if c else x.ljust(w) for c, (x, w) in enumerate(zip(row, widths, strict=True))])
        for row in rows
    ]


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


# ---------------------------------------------------------------------------------------------------------------- seeds


MOST_DRAWN = 2**30


def checked_seed(subject: str, seed: int) -> int:
    """The seed as it was given.  Raises TaskError, naming `subject`, unless it is an integer of at least 0."""
    ok = isinstance(seed, int | np.integer) and not isinstance(seed, bool) and seed >= 0
    require(ok, TaskError, subject, "the seed must be an integer of at least 0", seed=seed)
    return int(seed)


def chosen_seed(subject: str, seed: int | None) -> int:
    """The seed that was given, or one of 1 .. 2^30 - 1 that is drawn.  Raises TaskError as `checked_seed` does."""
    return int(np.random.default_rng().integers(1, MOST_DRAWN)) if seed is None else checked_seed(subject, seed)


# ---------------------------------------------------------------------------------------------------------------- sizes


AXES = 32
"""The axes that a tensor may have: what NumPy has had for most of its life."""
_COMPUTED, _IMPORTED, _NETWORK = 1 / 16, 1 / 4, 16


def tensor_limit() -> int:
    """The bytes that one tensor may have."""
    return environment.ANSOR_TENSOR_BYTES.positive or int(environment.ANSOR_TENSOR_BYTES.default)


def computed_limit() -> int:
    """The bytes that one constant may have that is computed while a graph is read or rewritten."""
    return int(tensor_limit() * _COMPUTED)


def imported_limit() -> int:
    """The bytes that all constants may have together that are computed while a graph is read."""
    return int(tensor_limit() * _IMPORTED)


def network_limit() -> int:
    """The bytes that all memory of a network may have together."""
    return tensor_limit() * _NETWORK


def nbytes(shape: Sequence[int], dtype: str) -> int:
    """The bytes of a tensor; an extent of 0 counts as 1, for NumPy needs the others to be of a size, too."""
    return prod(max(d, 1) for d in shape) * np.dtype(dtype).itemsize


def require_tensor(shape: Sequence[int], dtype: str, subject: str) -> None:
    """Refuse a tensor of too many axes or bytes.  Raises GraphError."""
    require(len(shape) <= AXES, GraphError, subject, f"it may have at most {AXES} axes", axes=len(shape))
    limit = tensor_limit()
    law = f"it may have at most {limit} bytes (ANSOR_TENSOR_BYTES)"
    require(nbytes(shape, dtype) <= limit, GraphError, subject, law, shape=tuple(shape), dtype=dtype)


def require_computed(shape: Sequence[int], dtype: str, subject: str) -> None:
    """Refuse to compute an array of so many bytes before the network runs.  Raises GraphError."""
    limit = computed_limit()
    law = f"what is computed before the network runs may have {limit} bytes, 1/16 of ANSOR_TENSOR_BYTES"
    require(nbytes(shape, dtype) <= limit, GraphError, subject, law, shape=tuple(shape), dtype=dtype)
