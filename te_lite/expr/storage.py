"""Kinds of storage: what the scope of a stage or buffer means to everything but the target it is written for.

A scope is a class, or a class and a name: `local.acc_buffer` is a memory of an accelerator that one thread has for
itself, as it has `local` storage.  Targets that have such memories look at the whole scope, all others at its class.
`fragment.<instruction>.<operand>` are the registers that the 32 threads of a warp, along threadIdx.x, fill and read
together as an operand of an instruction of tensor cores; which there are is known to the extension that has these.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ..extensions import installed_part
from .lanes import ceildiv

SCOPES = ("global", "shared", "local")
ANY_SCOPE = f"{', '.join(SCOPES)}, local.<name> or fragment.<instruction>.<operand>"
ALIGNMENT = 16
"""Bytes: every one of several tiles starts at a multiple of them."""
SCOPE_RANK = {"global": 0, "shared": 1, "fragment": 2, "local": 3}
"""How private each class of storage is: more than the threads of a rank that do not share it (`loop_scope`)."""


@lru_cache(maxsize=256)
def storage_class(scope: str) -> str:
    """`global`, `shared`, `fragment` or `local`: the part of a scope before the first dot."""
    return scope.partition(".")[0]


def scope_rank(scope: str) -> int:
    """How private storage is."""
    return SCOPE_RANK[storage_class(scope)]


@lru_cache(maxsize=256)
def fragments_of(scope: str) -> Any:
    """What the extension that has fragments says of a scope: its operand; None for other scopes."""
    asked = installed_part("fragments") if storage_class(scope) == "fragment" else None
    return None if asked is None else asked(scope)


def is_scope(text: str) -> bool:
    """Whether `text` names storage: one of SCOPES, `local.<name>`, a private memory of an accelerator, or
    `fragment.<instruction>.<operand>`, registers of a warp."""
    base, _, name = text.partition(".")
    return text in SCOPES or (base == "local" and name.isidentifier()) or fragments_of(text) is not None


def stored_strides(
    shape: Sequence[Any], align: tuple[int, int, int] | None = None, order: Sequence[int] | None = None
) -> list[Any]:
    """By how many elements a step along each axis of a storage moves (ints or lanes).

    The axes are stored in `order`, the last one contiguous; the stride of axis `align[0]` is `align[2]` modulo
    `align[1]`.
    """
    strides: list[Any] = [1] * len(shape)
    stride: Any = 1
    for d in reversed(range(len(shape)) if order is None else order):
        if align is not None and d == align[0]:
            stride = stride + (align[2] - stride) % align[1]
        strides[d] = stride
        stride = stride * shape[d]
    return strides


def tile_stride(elements: Any, element_bytes: int) -> Any:
    """From one tile to the next, in elements (an int or lanes): every tile starts at a multiple of 16 bytes."""
    return ceildiv(elements * element_bytes, ALIGNMENT) * ALIGNMENT // element_bytes


def stored_elements(elements: Any, element_bytes: int, tiles: Any) -> Any:
    """The elements that storage of `tiles` of `elements` each takes (ints or lanes)."""
    return tile_stride(elements, element_bytes) * (tiles - 1) + elements
