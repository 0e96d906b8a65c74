"""What the shapes of arrays say of sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ansor.core.device.exported_program import Argument
from te_lite.errors import TeError, require
from te_lite.expr.expr import SizeVar

MOST_KEPT = 64
Sizes = Mapping[SizeVar, int]
Made = TypeVar("Made")


def extents_at(dims: Sequence[Any], sizes: Sizes) -> tuple[int, ...]:
    """The extents, those that are open at some sizes."""
    return tuple([sizes[d] if isinstance(d, SizeVar) else int(d) for d in dims])


def arguments_at(arguments: Sequence[Argument], sizes: Sizes) -> list[Argument]:
    """The arguments with numbers for sizes."""
    return [replace(a, shape=extents_at(a.shape, sizes)) for a in arguments]


def kept(store: dict[tuple[int, ...], Made], key: tuple[int, ...], make: Callable[[], Made]) -> Made:
    """What was made for a key before, or is now; of the keys, the last ones are kept."""
    if key not in store:
        if len(store) == MOST_KEPT:
            store.pop(next(iter(store)))
        store[key] = make()
    return store[key]


def sizes_of(
    subject: str, arguments: Sequence[Argument], arrays: Sequence[Any], error: type[TeError]
) -> dict[SizeVar, int]:
    """The value of each size, in the order in which arguments have them.

    Raises `error` for another number of arrays, or of dimensions of one, and where a size has several values or one
    out of its bounds.
    """
    if len(arrays) != len(arguments):
        names = ", ".join([_text(a) for a in arguments])
        raise error(f"{subject}: {len(arguments)} arrays are needed ({names}), got {len(arrays)}")
    found: dict[SizeVar, int] = {}
    for k, (argument, array) in enumerate(zip(arguments, arrays, strict=True)):
        shape, where = _shape(array), f"{subject}: argument {k} ({_text(argument)})"
        require(shape is not None, error, where, "must be an array", got=type(array).__name__)
        assert shape is not None
        rank = len(argument.shape)
        require(len(shape) == rank, error, where, f"must be {rank}-dimensional", shape=list(shape))
        _learn(found, where, argument.shape, shape, error)
    return found


def _learn(
    found: dict[SizeVar, int], where: str, dims: Sequence[Any], shape: tuple[int, ...], error: type[TeError]
) -> None:
    for d, n in zip(dims, shape, strict=True):
        if isinstance(d, SizeVar):
            least, most = d.range
            law = f"{d.name} must be {least} to {most}, the same in all arguments"
            require(found.setdefault(d, n) == n and least <= n <= most, error, where, law, got=n)


def _shape(array: Any) -> tuple[int, ...] | None:
    """The shape of an array; None of what is none, as lists of several lengths."""
    try:
        return tuple([int(n) for n in np.shape(array)])
    except ValueError:
        return None


def _text(argument: Argument) -> str:
    return f"{argument.name}[{', '.join([str(d) for d in argument.shape])}]"
