"""Kinds of storage: what the scope of a stage or buffer means to everything but the target it is written for.

A scope is a class, or a class and a name: `local.acc_buffer` is a memory of an accelerator that one thread has for
itself, as it has `local` storage.  Targets that have such memories look at the whole scope, all others at its class.
"""

from __future__ import annotations

from functools import lru_cache

SCOPE_RANK = {"global": 0, "shared": 1, "local": 3}
"""How private each class of storage is: more than the threads of a rank that do not share it (`loop_scope`)."""


@lru_cache(maxsize=256)
def storage_class(scope: str) -> str:
    """`global`, `shared` or `local`: the part of a scope before the first dot."""
    return scope.partition(".")[0]


def scope_rank(scope: str) -> int:
    """How private storage is."""
    return SCOPE_RANK[storage_class(scope)]
